"""Slurm's lists of hosts, such as ``n[1-3,07],m``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kongming.records.errors import InputError

MAX_NODES = 20000
"""Nodes that the ranking file may name; no list is expanded beyond it."""

_PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")
_RANGED = re.compile(r"([A-Za-z0-9_.+-]*)\[([0-9,-]+)\]([A-Za-z0-9_.+-]*)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")

_MOST_BYTES = 100_000
"""A longer list is written with brackets: one argument of a command has no more than 131,072."""


def expand(hosts: str) -> list[str]:
    """The names in their order; none for "" and for "(null)", which is Slurm's empty list.

    Raises:
        InputError: it is not valid, or has more than 20,000 names.
    """
    if hosts in ("", "(null)"):
        return []
    names: list[str] = []
    for part in _parts(hosts):
        ranged = _RANGED.fullmatch(part)
        if ranged is None:
            if _PLAIN.fullmatch(part) is None:
                raise _invalid(hosts)
            names.append(part)
            continue
        before, ranges, after = ranged.groups()
        for text in filter(None, ranges.split(",")):
            bounds = _RANGE.fullmatch(text)
            if bounds is None:
                raise _invalid(hosts)
            low, high = bounds[1], bounds[2] or bounds[1]
            if int(high) - int(low) >= MAX_NODES:
                raise _invalid(hosts)
            names += [f"{before}{n:0{len(low)}d}{after}" for n in range(int(low), int(high) + 1)]
        if len(names) > MAX_NODES:
            raise _invalid(hosts)
    return names


def joined(names: Iterable[str]) -> str:
    """The names as one argument of a command: with commas between, and a long list with brackets
    where names end with a number."""
    names = list(dict.fromkeys(names))
    text = ",".join(names)
    if len(text) <= _MOST_BYTES:
        return text
    parts: list[str] = []
    numbers: dict[tuple[str, int], list[int]] = {}
    for name in names:
        numbered = _NUMBERED.fullmatch(name)
        if numbered is None:
            parts.append(name)
        else:
            before, digits = numbered.groups()
            numbers.setdefault((before, len(digits)), []).append(int(digits))
    for (before, width), of_name in numbers.items():
        ranges: list[list[int]] = []
        for number in sorted(of_name):
            if ranges and number == ranges[-1][1] + 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        bounds = ",".join(
            "-".join(f"{number:0{width}d}" for number in sorted({*bound})) for bound in ranges
        )
        parts.append(f"{before}[{bounds}]")
    return ",".join(parts)


def _parts(hosts: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth, begin = 0, 0
    for at, character in enumerate(hosts):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            yield hosts[begin:at]
            begin = at + 1
    yield hosts[begin:]


def _invalid(hosts: str) -> InputError:
    return InputError(
        "is not a valid list of hosts.", field="nodes", value=hosts[:80], allowed="n[1-3],m"
    )
