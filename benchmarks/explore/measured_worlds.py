"""The committed tables of real programs as worlds, and the points of any world as columns."""

from __future__ import annotations

from pathlib import Path

from kongming.arrays import Floats
from kongming.explore.features import Features, Scales
from kongming.explore.measured_table import read_measured
from kongming.explore.replay import World

TABLES = sorted((Path(__file__).parent / "tables").glob("*.csv"))
NAMES = tuple(path.stem for path in TABLES)


def measured_worlds() -> dict[str, World]:
    """Worlds by the name of their table."""
    return {path.stem: World(read_measured(path, "seconds")) for path in TABLES}


def columns(world: World, scales: Scales = "even") -> tuple[list[str], Floats]:
    """The names and the (n, p) columns of all points, for learners that know no space: numbers
    scaled to [0, 1], choices as indicators. On the scale ``even`` they are what our own policies
    measure distances by. Numbers that lie within [0, 1] stay as they are."""
    features = Features(world.space.dimensions, scales)
    codes = world.space.encode(world.table.points)
    within = codes.min() >= 0.0 and codes.max() <= 1.0
    if within and set(world.table.numbers) == set(world.table.names):
        return list(world.table.names), codes
    return features.names, features(codes)
