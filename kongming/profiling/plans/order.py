"""The order of a campaign's steps: solo runs next to the runs that are compared with them. Pure.

A shared host changes within minutes: two solo runs of a program that are half a minute apart
differ by 7 to 10 %, by 8 to 15 % from eight minutes on (recordings of twenty programs). So
the loads come in pairs, the same applications run under both, and a solo run of theirs stands
between the two: at no more measuring, most loaded runs have one of the same minute.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kongming.profiling.plans.steps import Step
from kongming.records.run import LoadLevel

BLOCK_APPS = 3
"""Number of applications timed under one load before the next load."""

Block = list[Step]
Unit = list[Block]
"""Blocks that are measured right after one another."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load level of a plan: ``repeat`` counts its observations."""

    levels: tuple[LoadLevel, ...]
    repeat: int = 0


def parts(apps: Sequence[str], rng: random.Random) -> list[list[str]]:
    """Split the applications, in random order, into parts of at most ``BLOCK_APPS``."""
    order = list(apps)
    rng.shuffle(order)
    return [order[start : start + BLOCK_APPS] for start in range(0, len(order), BLOCK_APPS)]


def rounds_of(
    loads: Sequence[Load], apps: Sequence[str], rng: random.Random, *, same_parts: bool = False
) -> list[list[Unit]]:
    """Return the loads, two in a round: each part of the applications runs under both, in a unit of
    its own. ``same_parts``: the same applications share all their loads."""
    always = parts(apps, rng) if same_parts else None
    rounds = []
    for start in range(0, len(loads), 2):
        here = [list(part) for part in always] if always else parts(apps, rng)
        rounds.append([[_under(load, part) for load in loads[start : start + 2]] for part in here])
    return rounds


def ordered(
    rounds: Sequence[Sequence[Unit]],
    others: Sequence[Block],
    apps: Sequence[str],
    solos: int,
    rng: random.Random,
    first: Sequence[Block] = (),
) -> tuple[Step, ...]:
    """Return the numbered steps: the first solo runs, the blocks ``first``, then the rounds in
    order with the ``others`` spread evenly between their units.

    ``solos`` runs of each application are spread evenly over the rounds, each in the middle of a
    unit of its application; where there are more of them than rounds, the rest stand alone.
    """
    loaded = {place: repeat for repeat, place in _spread(solos - 1, len(rounds))}
    placed: list[tuple[float, Unit]] = []
    for number, units in enumerate(rounds):
        mixed = list(units)
        rng.shuffle(mixed)
        for k, unit in enumerate(mixed):
            repeat = loaded.get(number)
            place = (number + (k + 0.5) / len(mixed)) / len(rounds)
            placed.append((place, unit if repeat is None else _with_solo(unit, repeat)))
    for number, block in enumerate(others):
        placed.append(((number + 0.5) / len(others), [block]))
    for repeat in range(len(loaded) + 1, solos):
        place = repeat / max(1, solos - 1)
        placed.extend((place, [_solo(part, repeat)]) for part in parts(apps, rng))
    placed.sort(key=lambda entry: entry[0])
    opening: list[Unit] = [[_solo(part, 0)] for part in parts(apps, rng)]
    opening += [[block] for block in first]
    return _numbered([*opening, *(unit for _, unit in placed)])


def _spread(count: int, places: int) -> list[tuple[int, int]]:
    """Return (1, place) to (count, place), the places as far apart as they can be and the last one
    among them; fewer where there are fewer places."""
    count = min(count, places)
    return [(k, round(k * places / count) - 1) for k in range(1, count + 1)]


def _under(load: Load, apps: Sequence[str]) -> Block:
    return [Step(0, 0, "induced", app, load.levels, load.repeat) for app in apps]


def _solo(apps: Sequence[str], repeat: int) -> Block:
    return [Step(0, 0, "solo", app, (), repeat) for app in apps]


def _with_solo(unit: Unit, repeat: int) -> Unit:
    """Return the unit with solo runs of its applications after its first block."""
    return [unit[0], _solo([step.app for step in unit[0]], repeat), *unit[1:]]


def _numbered(units: Sequence[Unit]) -> tuple[Step, ...]:
    steps: list[Step] = []
    number = 0
    for unit in units:
        for k, block in enumerate(unit):
            for step in block:
                steps.append(replace(step, index=len(steps), block=number, follows=k > 0))
            number += 1
    return tuple(steps)
