"""Slurm's lists of hosts, such as ``n[1-3,07],m``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kongming.errors import InputError

MOST_NODES = 20000
"""As many nodes as the file of rankings may name; no list is expanded beyond it."""

_PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")
_RANGED = re.compile(r"([A-Za-z0-9_.+-]*)\[([0-9,-]+)\]([A-Za-z0-9_.+-]*)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expanded(hosts: str) -> list[str]:
    """The names in their order; none for "" and for "(null)", which is how Slurm says none.

    Raises:
        InputError: it is not understood, or has more than 20,000 names.
    """
    if hosts in ("", "(null)"):
        return []
    found: list[str] = []
    for part in _parts(hosts):
        ranged = _RANGED.fullmatch(part)
        if ranged is None:
            if _PLAIN.fullmatch(part) is None:
                raise _unknown(hosts)
            found.append(part)
            continue
        before, ranges, after = ranged.groups()
        for each in filter(None, ranges.split(",")):
            bounds = _RANGE.fullmatch(each)
            if bounds is None:
                raise _unknown(hosts)
            low, high = bounds[1], bounds[2] or bounds[1]
            if int(high) - int(low) >= MOST_NODES:
                raise _unknown(hosts)
            found += [f"{before}{n:0{len(low)}d}{after}" for n in range(int(low), int(high) + 1)]
        if len(found) > MOST_NODES:
            raise _unknown(hosts)
    return found


def _parts(hosts: str) -> Iterator[str]:
    """Split at the commas that stand outside of brackets."""
    depth, begin = 0, 0
    for at, character in enumerate(hosts):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            yield hosts[begin:at]
            begin = at + 1
    yield hosts[begin:]


def _unknown(hosts: str) -> InputError:
    return InputError(
        "is no list of hosts that can be used.", field="nodes", found=hosts[:80], allowed="n[1-3],m"
    )
