"""The file that job_submit.lua reads: plain lines, replaced atomically.

    kongming-slurm-rankings 1
    written 1763732400.125
    good-for 120
    limit 1.5
    nodes n1 n2 n3
    up 1 1 0
    cpus 64 64 64
    memory 256000 256000 256000
    threads 2 2 2
    partition batch 1 2 3
    times 1 1 0.95
    users-only 1000
    app xz 1.02 2.1 -
    least xz 2
    time xz 311 640 -
    end 15

Numbers are in the order of ``nodes``; a partition lists its nodes by their place there, from 1.
``-`` is unknown, ``x`` a node whose residents would be slowed down too much. ``least`` lists, by
their places, nodes where the application is slowed at least so much, or a resident may be slowed
down too much: that keeps no limit.
``times`` says whether --time-min is set, whether users are advised, and which share of runs the
seconds of ``time`` hold; ``users-only`` and ``users-skip`` are numbers of users. The last line
counts those before it. A reader skips lines that begin with a word that it does not know.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kongming.files.atomic_file import replacing
from kongming.records.errors import IncompatibleError, InputError
from kongming_slurm.tags import is_name, number

FORMAT = 1
_SIGNATURE = "kongming-slurm-rankings"
_BY_NAME = ("partition", "app", "least", "time")
"""Keys of lines of which there is one for each name."""

NEVER = math.inf
"""The slowdown of a node that is above every limit."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Runtimes of an application on each node, in seconds; None where not known.

    ``share`` of the runs take no longer. ``sets`` is whether jobs get a --time-min by it,
    ``advises`` whether users get a message. It is for the users of these numbers ``only`` (empty
    for all), and not for those to ``skip``.
    """

    sets: bool
    advises: bool
    share: float
    only: tuple[int, ...] = ()
    skip: tuple[int, ...] = ()
    apps: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    def is_for(self, user: int) -> bool:
        """Return whether it is for the user of this number."""
        return user not in self.skip and (not self.only or user in self.only)


@dataclass(frozen=True, slots=True)
class RankingFile:
    """Predicted slowdowns by application, in the order of ``nodes``; None where not known.

    ``up`` is whether Slurm can use a node, ``cpus`` and ``memory_mb`` what jobs may have of it, and
    ``threads`` how many each of its cores has (0 where not known; empty where the file is of an
    older bridge). ``partitions`` list their nodes by place, from 0. ``least`` lists by application
    the places where it is slowed at least so much, or a resident is not known to keep its limit.
    ``written_at`` is unix seconds.
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
    least: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    times: RunTimes | None = None
    threads: tuple[int, ...] = ()

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
        if self.threads:
            lines.append(_line("threads", map(str, self.threads)))
        for name, places in self.partitions.items():
            lines.append(_line("partition", [name, *(str(place + 1) for place in places)]))
        if self.times is not None:
            lines.extend(_times_lines(self.times))
        size = sum(map(len, lines)) + len(lines) + 32
        omitted: list[str] = []
        for name, slowdowns in self.apps.items():
            # Both or neither: without the second the first would say too little.
            of_app = [_line("app", [name, *map(_format_slowdown, slowdowns)])]
            if name in self.least:
                of_app.append(_line("least", [name, *(str(n + 1) for n in self.least[name])]))
            length = sum(len(line) + 1 for line in of_app)
            if most_bytes is not None and size + length > most_bytes:
                omitted.append(name)
                continue
            size += length
            lines += of_app
            seconds = self.times.apps.get(name) if self.times is not None else None
            line = "" if seconds is None else _line("time", [name, *map(_format_seconds, seconds)])
            # Without it the application is only ranked.
            if line and (most_bytes is None or size + len(line) + 1 <= most_bytes):
                size += len(line) + 1
                lines.append(line)
        if omitted and len(omitted) == len(self.apps):
            raise InputError(
                "is too small for the rankings of this cluster.",
                field="rankings.most_bytes",
                value=most_bytes,
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
    single = {key: rest for key, _, rest in heads if key not in _BY_NAME}
    try:
        nodes = tuple(single["nodes"].split())
        partitions = _by_name(heads, "partition")
        threads = _words_of_nodes(nodes, single["threads"]) if "threads" in single else []
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
            threads=tuple(int(_number(word)) for word in threads),
            partitions={
                name: tuple(_place(word, nodes) for word in words)
                for name, words in partitions.items()
            },
            apps={
                name: tuple(map(_parse_slowdown, _words_of_nodes(nodes, " ".join(words))))
                for name, words in _by_name(heads, "app").items()
            },
            least={
                name: tuple(_place(word, nodes) for word in words)
                for name, words in _by_name(heads, "least").items()
            },
            times=_parse_times(single, _by_name(heads, "time"), nodes),
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


def _times_lines(times: RunTimes) -> list[str]:
    lines = [f"times {times.sets:d} {times.advises:d} {times.share:.4g}"]
    for key, users in (("users-only", times.only), ("users-skip", times.skip)):
        if users:
            lines.append(_line(key, map(str, users)))
    return lines


def _format_seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{math.ceil(seconds)}"


def _parse_times(
    single: Mapping[str, str], apps: Mapping[str, Sequence[str]], nodes: Sequence[str]
) -> RunTimes | None:
    if "times" not in single:
        return None
    sets, advises, share = map(_number, single["times"].split())
    return RunTimes(
        sets=sets == 1.0,
        advises=advises == 1.0,
        share=share,
        only=tuple(int(_number(word)) for word in single.get("users-only", "").split()),
        skip=tuple(int(_number(word)) for word in single.get("users-skip", "").split()),
        apps={
            name: tuple(map(_parse_slowdown, _words_of_nodes(nodes, " ".join(words))))
            for name, words in apps.items()
        },
    )


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
