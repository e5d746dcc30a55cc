"""Write the transcripts in README.md and docs/ from real runs: ``make transcripts [ONLY=NAME]``.

A transcript is a fenced block below a line ``<!-- transcript: NAME -->``. Its first line is the
command, the rest what that printed; ``...`` stands where lines were left out by the rules below,
and nowhere else. Transcripts of recorded data come out the same each time (a test compares them);
those that measure this machine differ with it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "TRANSCRIPTS", "Transcript", "main", "pages", "record", "replaced"]

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 104
ELLIPSIS = "..."
END = "(end)"
"""As the last line of a range: to the end of the output."""
PASTED = "sh"
"""The command of a transcript whose commands are the page's first block."""


@dataclass(frozen=True)
class Transcript:
    """One block: the page that it stands on, its command, and which lines of the output it shows.

    ``keep`` are patterns of ranges of lines, ``(first, last)`` searched in order; without any the
    complete output is shown. ``measures`` says that the output depends on this machine, and
    ``statuses`` are those that the command may exit with. PASTED runs the page's first block in a
    shell, which prints each line before it runs it.
    """

    name: str
    page: str
    command: str
    keep: tuple[tuple[str, str], ...] = ()
    measures: bool = False
    statuses: tuple[int, ...] = (0,)


TRANSCRIPTS = (
    Transcript(
        "demo",
        "README.md",
        "make demo",
        keep=(
            (r"^\$ kongming corun", r"^\$ kongming corun"),
            (r"^ *Slowdown of one program", r"^be off by, since repeats differ"),
            (r"^Result:", END),
        ),
        measures=True,
    ),
    Transcript(
        "simulate",
        "docs/simulate.md",
        "kongming simulate --pairs benchmarks/simulate/pairs-epyc-32M-cross-core.csv"
        " --load 0.85 --nodes 100"
        " --policy random,least-loaded,slurm,exclusive,kongming,oracle"
        " --quality 0.90,0.95,0.98,0.99",
    ),
    Transcript(
        "audit-report",
        "docs/audits.md",
        "kongming audit report benchmarks/instances/amd-epyc-8a5360.parquet",
        keep=((r"^\d+ readings", r"^\d+ readings"), (r"^ kind +finding", END)),
    ),
    Transcript(
        "audit-gate",
        "docs/audits.md",
        "kongming audit gate --effect 5%"
        " --command 'gzip -9 -c benchmarks/instances/amd-epyc-8a5360.parquet'",
        keep=((r"^ what +one run", END),),
        measures=True,
        statuses=(0, 4),
    ),
    Transcript(
        "scale",
        "docs/scale.md",
        PASTED,
        keep=((r"^\$ kongming scale predict", END),),
        measures=True,
    ),
    Transcript(
        "scale-fit",
        "docs/scale.md",
        "kongming scale fit benchmarks/scale/tables/sort.csv",
    ),
    Transcript(
        "spark-inspect",
        "docs/spark-logs.md",
        "kongming spark inspect tests/spark/logs/spark-4-queries.zstd",
    ),
    Transcript(
        "cluster",
        "docs/operations.md",
        "make cluster",
        keep=(
            (r"^\$ kongming explain", r"slowdown \d"),
            (r"^ *surrogate", r"memory\.fault"),
        ),
        measures=True,
    ),
)
"""All transcripts, by the page's order in the reading."""


def record(transcript: Transcript) -> str:
    """Run the command in a folder of its own and return the block's text.

    Raises:
        RuntimeError: the command failed, or a range of lines is not in what it printed.
    """
    words = shlex.split(transcript.command)
    pasted = transcript.command == PASTED
    if pasted:
        words += ["-exc", _first_block(transcript)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [_program(words[0]), *words[1:]],
            cwd=ROOT if words[0] == "make" else _with_recordings(Path(folder)),
            env=os.environ
            | {"COLUMNS": str(COLUMNS), "KONGMING_STORE": f"sqlite:///{folder}/store.db"}
            | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PS4": "$ "},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if transcript.measures else None,
            text=True,
            check=False,
        )
    if done.returncode not in transcript.statuses:
        raise RuntimeError(f"{transcript.command}: status {done.returncode}\n{done.stdout}")
    lines = [line.rstrip() for line in done.stdout.strip("\n").split("\n")]
    if pasted:
        # The shell prints commands; the block on the page is those that come before.
        typed, lines = [], lines[_find(lines, transcript.keep[0][0], 0, transcript) :]
    else:
        typed = _command_lines(transcript.command)
    shown = "\n".join([*typed, *_shown_lines(lines, transcript)]).lstrip("\n")
    return re.sub(r"\n{3,}", "\n\n", shown).rstrip("\n")


def _first_block(transcript: Transcript) -> str:
    block = re.search(r"^```\n(.*?)\n```", (ROOT / transcript.page).read_text(), re.DOTALL | re.M)
    if block is None:
        raise RuntimeError(f"{transcript.name}: {transcript.page} has no block")
    return block[1]


def _program(word: str) -> str:
    """``kongming`` of this environment; other programs by name."""
    script = Path(sys.executable).parent / word
    return str(script) if script.exists() else word


def _with_recordings(folder: Path) -> Path:
    """A working folder in which the recordings are found and nothing of the project is written."""
    for name in ("benchmarks", "tests"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def _command_lines(command: str) -> list[str]:
    """The command as typed, wrapped before options that do not fit."""
    lines = ["$"]
    for word in command.split(" "):
        if len(lines[-1]) + len(word) > COLUMNS - 4 and word.startswith("-"):
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return lines


def _shown_lines(lines: Sequence[str], transcript: Transcript) -> Iterable[str]:
    """The lines that the transcript shows, with an ellipsis for each gap."""
    if not transcript.keep:
        yield from lines
        return
    position = 0
    for first, last in transcript.keep:
        begin = _find(lines, first, position, transcript)
        end = len(lines) - 1 if last == END else _find(lines, last, begin, transcript)
        yield ELLIPSIS if any(lines[position:begin]) else ""
        yield from lines[begin : end + 1]
        position = end + 1
    if any(lines[position:]):
        yield ELLIPSIS


def _find(lines: Sequence[str], pattern: str, start: int, transcript: Transcript) -> int:
    for number in range(start, len(lines)):
        if re.search(pattern, lines[number]):
            return number
    raise RuntimeError(f"{transcript.name}: no line {pattern!r} in the output of the command")


def replaced(page: str, name: str, text: str) -> str:
    """The page's text with the block of this transcript in place of the one there.

    Raises:
        RuntimeError: the page has no such block.
    """
    block = re.compile(rf"(<!-- transcript: {re.escape(name)} -->\n```\n)(.*?)(\n```)", re.DOTALL)
    if not block.search(page):
        raise RuntimeError(f"no block '<!-- transcript: {name} -->' on the page")
    return block.sub(lambda match: match[1] + text + match[3], page, count=1)


def pages() -> list[Path]:
    """Every page that may hold a transcript."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [transcript.name for transcript in TRANSCRIPTS]
    parser.add_argument(
        "name", nargs="*", help=f"which to write (default: all): {', '.join(names)}"
    )
    chosen = parser.parse_args(arguments).name
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"no transcript {', '.join(unknown)}; there are {', '.join(names)}")
    for transcript in TRANSCRIPTS:
        if chosen and transcript.name not in chosen:
            continue
        print(f"{transcript.name}: {transcript.command}", file=sys.stderr, flush=True)
        path = ROOT / transcript.page
        path.write_text(replaced(path.read_text(), transcript.name, record(transcript)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
