"""The file that job_submit.lua reads: plain lines, replaced atomically.

    kongming-slurm-rankings 1
    written 1763732400.125
    good-for 120
    limit 1.5
    nodes n1 n2 n3
    up 1 1 0
    cpus 64 64 64
    memory 256000 256000 256000
    partition batch 1 2 3
    app xz 1.02 2.1 -
    end 10

Numbers are in the order of ``nodes``; a partition lists its nodes by their place there, from 1.
``-`` is an unknown slowdown, ``x`` a node whose residents would be slowed down too much. The last
line counts those before it. A reader skips lines that begin with a word that it does not know.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kongming.atomic_file import replacing
from kongming.records.errors import IncompatibleError, InputError
from kongming_slurm.tags import is_name, number

FORMAT = 1
_SIGNATURE = "kongming-slurm-rankings"
NEVER = math.inf
"""The slowdown of a node that is above every limit."""


@dataclass(frozen=True, slots=True)
class RankingFile:
    """Predicted slowdowns by application, in the order of ``nodes``; None where not known.

    ``up`` is whether Slurm can use a node, ``cpus`` and ``memory_mb`` its size; ``partitions`` list
    their nodes by place, from 0. ``written_at`` is unix seconds.
    """

    written_at: float
    good_for_s: float
    limit: float
    nodes: tuple[str, ...]
    up: tuple[bool, ...]
    cpus: tuple[int, ...]
    memory_mb: tuple[int, ...]
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    apps: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    def text(self, most_bytes: int | None = None) -> tuple[str, list[str]]:
        """The file's text, and the applications that did not fit into ``most_bytes``.

        Raises:
            InputError: not even one application fits.
        """
        lines = [
            f"{_SIGNATURE} {FORMAT}",
            f"written {self.written_at:.3f}",
            f"good-for {self.good_for_s:.3f}",
            f"limit {self.limit:.4f}",
            _line("nodes", self.nodes),
            _line("up", ["1" if up else "0" for up in self.up]),
            _line("cpus", map(str, self.cpus)),
            _line("memory", map(str, self.memory_mb)),
        ]
        for name, places in self.partitions.items():
            lines.append(_line("partition", [name, *(str(place + 1) for place in places)]))
        size = sum(map(len, lines)) + len(lines) + 32
        omitted: list[str] = []
        for name, slowdowns in self.apps.items():
            line = _line("app", [name, *map(_format_slowdown, slowdowns)])
            if most_bytes is not None and size + len(line) + 1 > most_bytes:
                omitted.append(name)
                continue
            size += len(line) + 1
            lines.append(line)
        if omitted and len(omitted) == len(self.apps):
            raise InputError(
                "is too small for the rankings of this cluster.",
                field="rankings.most_bytes",
                found=most_bytes,
                allowed=f"{size} for a start",
            )
        lines.append(f"end {len(lines)}")
        return "\n".join(lines) + "\n", omitted


def parse(text: str) -> RankingFile:
    """Read a file's text as job_submit.lua reads it.

    Raises:
        IncompatibleError: it is of a newer format.
        InputError: it is damaged.
    """
    lines = text.split("\n")
    signature, _, version = lines[0].partition(" ")
    if signature != _SIGNATURE or number(version) is None:
        raise InputError("The file is not a ranking file.", field="rankings")
    if version != str(FORMAT):
        raise IncompatibleError(f"The rankings have version {version}; {FORMAT} is read.")
    if lines[-1] != "" or lines[-2] != f"end {len(lines) - 2}":
        raise InputError("The rankings are not complete.", field="rankings")
    heads = [line.partition(" ") for line in lines[1:-2]]
    single = {key: rest for key, _, rest in heads if key not in ("partition", "app")}
    try:
        nodes = tuple(single["nodes"].split())
        partitions = _by_name(heads, "partition")
        return RankingFile(
            written_at=_number(single["written"]),
            good_for_s=_number(single["good-for"]),
            limit=_number(single["limit"]),
            nodes=nodes,
            up=tuple(word == "1" for word in _words_of_nodes(nodes, single["up"])),
            cpus=tuple(int(_number(word)) for word in _words_of_nodes(nodes, single["cpus"])),
            memory_mb=tuple(
                int(_number(word)) for word in _words_of_nodes(nodes, single["memory"])
            ),
            partitions={
                name: tuple(_place(word, nodes) for word in words)
                for name, words in partitions.items()
            },
            apps={
                name: tuple(map(_parse_slowdown, _words_of_nodes(nodes, " ".join(words))))
                for name, words in _by_name(heads, "app").items()
            },
        )
    except (KeyError, ValueError) as error:
        raise InputError(f"The rankings are damaged ({error}).", field="rankings") from error


def write(file: Path, text: str) -> None:
    """Replace the file atomically. Raises OSError; then the old one is unchanged."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as stream:
        # slurmctld may run as another user; it holds no secret.
        os.fchmod(stream.fileno(), 0o644)
        stream.write(text.encode("ascii"))


def _line(key: str, words: Sequence[str] | map[str]) -> str:
    return " ".join([key, *words])


def _format_slowdown(slowdown: float | None) -> str:
    if slowdown is None or math.isnan(slowdown):
        return "-"
    return "x" if math.isinf(slowdown) else f"{slowdown:.3f}"


def _parse_slowdown(word: str) -> float | None:
    if word == "-":
        return None
    return NEVER if word == "x" else _number(word)


def _number(word: str) -> float:
    value = number(word)
    if value is None:
        raise ValueError(f"{word[:40]!r} is not a number")
    return value


def _words_of_nodes(nodes: Sequence[str], rest: str) -> list[str]:
    words = rest.split()
    if len(words) != len(nodes):
        raise ValueError(f"{len(words)} numbers for {len(nodes)} nodes")
    return words


def _place(word: str, nodes: Sequence[str]) -> int:
    place = int(_number(word))
    if not 1 <= place <= len(nodes):
        raise ValueError(f"there is no node {place}")
    return place - 1


def _by_name(heads: Sequence[tuple[str, str, str]], key: str) -> dict[str, list[str]]:
    by_name = {}
    for head, _, rest in heads:
        words = rest.split()
        if head == key and words:
            if not is_name(words[0]):
                raise ValueError(f"{words[0][:40]!r} is not a name")
            by_name[words[0]] = words[1:]
    return by_name
