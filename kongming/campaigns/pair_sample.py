"""Choice of the ordered pairs that are measured where all of them would take too long: pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from kongming.records.errors import InputError


def pairs_of(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the ordered pairs of a campaign, by its document: those that were drawn, without those
    of applications that were dropped since (``drawn_from`` has these, too)."""
    apps = document["apps"]
    drawn = balanced_pairs(
        document.get("drawn_from", list(apps)), document.get("sample"), int(document["seed"])
    )
    return [pair for pair in drawn if apps.keys() >= set(pair)]


def balanced_pairs(apps: Sequence[str], count: int | None, seed: int) -> list[tuple[str, str]]:
    """Return ``count`` ordered pairs of different applications, drawn at random so that each is
    slowed, and presses, equally often (but for one); all of them for None.

    The applications stand in a random circle, and each is paired with those at random distances:
    every pair is as likely as any other.

    Raises:
        InputError: there are not so many pairs, or fewer than one for each application.
    """
    names = sorted(apps)
    n = len(names)
    if count is None or count == n * (n - 1):
        return list(permutations(names, 2))
    if not n <= count <= n * (n - 1):
        raise InputError(
            "is out of range.",
            field="--sample",
            value=count,
            allowed=f"{n} (one for each application) to {n * (n - 1)} (all ordered pairs)",
        )
    rng = random.Random(seed)
    circle = rng.sample(names, n)
    distances = rng.sample(range(1, n), -(-count // n))
    pairs = [
        (circle[place], circle[(place + distance) % n])
        for distance in distances
        for place in range(n)
    ]
    # The last distance may not be needed for all: the circle has no beginning, so the first do.
    return sorted(pairs[:count])
