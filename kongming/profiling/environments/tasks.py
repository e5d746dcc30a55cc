"""Order of applications and environments: pure, and reproducible for a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kongming.profiling.environments.environment import Environment
from kongming.records.errors import InputError


@dataclass(frozen=True, slots=True)
class Task:
    """Planned run. ``step`` is its position in the campaign; a ``visit`` shares its groups."""

    step: int
    visit: int
    round: int
    environment: Environment
    app: str


def tasks(
    apps: Sequence[str], environments: Sequence[Environment], *, repeats: int, seed: int
) -> tuple[Task, ...]:
    """Plan all runs in order: every round visits every environment once, in random order, so
    that the repeats of one case are far apart in time. Pure; reproducible for a seed.

    Unavailable environments are left out.
    """
    if repeats < 1:
        raise InputError("is out of range.", field="repeats", value=repeats, allowed="1 or more")
    names = [environment.name for environment in environments]
    if len(set(names)) < len(names):
        raise InputError("Two of them have the same name.", field="environments", value=names)
    rng = random.Random(seed)
    planned: list[Task] = []
    visit = 0
    for number in range(repeats):
        order = [environment for environment in environments if environment.unavailable is None]
        rng.shuffle(order)
        for environment in order:
            app_order = sorted(apps)
            rng.shuffle(app_order)
            planned += [
                Task(len(planned) + position, visit, number, environment, app)
                for position, app in enumerate(app_order)
            ]
            visit += 1
    return tuple(planned)
