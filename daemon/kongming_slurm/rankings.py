"""The file that job_submit.lua reads: plain lines, written at once or not at all.

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

Numbers stand in the order of ``nodes``; a partition names its nodes by their place there, from 1.
``-`` is a slowdown that is not known, ``x`` a node whose residents would suffer too much. The last
line counts those before it. Words that a reader does not know begin lines that it passes over.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kongming.errors import IncompatibleError, InputError
from kongming_slurm.tags import is_name, number

FORMAT = 1
_SIGNATURE = "kongming-slurm-rankings"
NEVER = math.inf
"""The slowdown of a node that is above every limit."""


@dataclass(frozen=True, slots=True)
class Rankings:
    """Predicted slowdowns by application, in the order of ``nodes``; None where not known.

    ``up`` is whether Slurm can use a node, ``cpus`` and ``memory_mb`` what it has; ``partitions``
    name their nodes by place, from 0. ``written_at`` is unix seconds.
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
        left: list[str] = []
        for name, slow in self.apps.items():
            line = _line("app", [name, *map(_told, slow)])
            if most_bytes is not None and size + len(line) + 1 > most_bytes:
                left.append(name)
                continue
            size += len(line) + 1
            lines.append(line)
        if left and len(left) == len(self.apps):
            raise InputError(
                "is too small for the rankings of this cluster.",
                field="rankings.most_bytes",
                found=most_bytes,
                allowed=f"{size} for a start",
            )
        lines.append(f"end {len(lines)}")
        return "\n".join(lines) + "\n", left


def parsed(text: str) -> Rankings:
    """What a file says, as job_submit.lua understands it.

    Raises:
        IncompatibleError: it is of a newer format.
        InputError: it is damaged.
    """
    lines = text.split("\n")
    signature, _, version = lines[0].partition(" ")
    if signature != _SIGNATURE or number(version) is None:
        raise InputError("The file is none of rankings.", field="rankings")
    if version != str(FORMAT):
        raise IncompatibleError(f"The rankings have version {version}; {FORMAT} is read.")
    if lines[-1] != "" or lines[-2] != f"end {len(lines) - 2}":
        raise InputError("The rankings are not complete.", field="rankings")
    heads = [line.partition(" ") for line in lines[1:-2]]
    one = {key: rest for key, _, rest in heads if key not in ("partition", "app")}
    try:
        nodes = tuple(one["nodes"].split())
        named = _named(heads, "partition")
        return Rankings(
            written_at=_number(one["written"]),
            good_for_s=_number(one["good-for"]),
            limit=_number(one["limit"]),
            nodes=nodes,
            up=tuple(word == "1" for word in _of_each(nodes, one["up"])),
            cpus=tuple(int(_number(word)) for word in _of_each(nodes, one["cpus"])),
            memory_mb=tuple(int(_number(word)) for word in _of_each(nodes, one["memory"])),
            partitions={
                name: tuple(_place(word, nodes) for word in words) for name, words in named.items()
            },
            apps={
                name: tuple(map(_slowdown, _of_each(nodes, " ".join(words))))
                for name, words in _named(heads, "app").items()
            },
        )
    except (KeyError, ValueError) as error:
        raise InputError(f"The rankings are damaged ({error}).", field="rankings") from error


def write(file: Path, text: str, on_temporary: Callable[[Path], None] = lambda path: None) -> None:
    """Replaces the file as a whole: whoever reads it sees the old one or the new one.

    ``on_temporary`` is called with the new file before it takes the old one's place.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as temporary:
            temporary.write(text)
            temporary.flush()
            # slurmctld may run as another user; there is nothing secret in it.
            os.fchmod(temporary.fileno(), 0o644)
            os.fsync(temporary.fileno())
        on_temporary(Path(name))
        Path(name).replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _line(key: str, words: Sequence[str] | map[str]) -> str:
    return " ".join([key, *words])


def _told(slowdown: float | None) -> str:
    if slowdown is None or math.isnan(slowdown):
        return "-"
    return "x" if math.isinf(slowdown) else f"{slowdown:.3f}"


def _slowdown(word: str) -> float | None:
    if word == "-":
        return None
    return NEVER if word == "x" else _number(word)


def _number(word: str) -> float:
    value = number(word)
    if value is None:
        raise ValueError(f"{word[:40]!r} is no number")
    return value


def _of_each(nodes: Sequence[str], rest: str) -> list[str]:
    words = rest.split()
    if len(words) != len(nodes):
        raise ValueError(f"{len(words)} numbers for {len(nodes)} nodes")
    return words


def _place(word: str, nodes: Sequence[str]) -> int:
    place = int(_number(word))
    if not 1 <= place <= len(nodes):
        raise ValueError(f"there is no node {place}")
    return place - 1


def _named(heads: Sequence[tuple[str, str, str]], key: str) -> dict[str, list[str]]:
    found = {}
    for head, _, rest in heads:
        words = rest.split()
        if head == key and words:
            if not is_name(words[0]):
                raise ValueError(f"{words[0][:40]!r} is no name")
            found[words[0]] = words[1:]
    return found
