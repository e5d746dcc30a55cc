"""Which application runs in which environment, and in which order: pure, the same for one seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kongming.errors import InputError
from kongming.profiling.environments import Environment


@dataclass(frozen=True, slots=True)
class Task:
    """One run. ``step`` is its place in the campaign; all of one ``visit`` share the groups."""

    step: int
    visit: int
    round: int
    environment: Environment
    app: str


def tasks(
    apps: Sequence[str], environments: Sequence[Environment], *, repeats: int, seed: int
) -> tuple[Task, ...]:
    """All runs in their order: every round visits every environment once, each in random order,
    so that the repeats of one case lie far apart in time. Pure; the same for the same seed.

    Environments that are not available are left out.
    """
    if repeats < 1:
        raise InputError("is out of range.", field="repeats", found=repeats, allowed="1 or more")
    names = [environment.name for environment in environments]
    if len(set(names)) < len(names):
        raise InputError("There are two of the same name.", field="environments", found=names)
    rng = random.Random(seed)
    found: list[Task] = []
    visit = 0
    for number in range(repeats):
        order = [made for made in environments if made.unavailable is None]
        rng.shuffle(order)
        for environment in order:
            within = sorted(apps)
            rng.shuffle(within)
            found += [
                Task(len(found) + place, visit, number, environment, app)
                for place, app in enumerate(within)
            ]
            visit += 1
    return tuple(found)
