"""Replays of many seeds: several at a time, each kept on disk, so that an evaluation of hours goes
on where it was interrupted, and with more seeds from those it has."""

from __future__ import annotations

import argparse
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import Memory, Parallel, delayed

import kongming.explore
from kongming.explore.replay import Replayed, ReplaySettings, World, replay

T = TypeVar("T")

HERE = Path(__file__).parent
SOURCES = (
    *sorted(Path(*kongming.explore.__path__).rglob("*.py")),
    *(
        HERE / f"{name}.py"
        for name in (
            *("peer_runs", "select_points", "program_worlds"),
            *("measured_worlds", "learners", "fit_learners"),
        )
    ),
)
"""What a result depends on in addition to its arguments, which include the world."""


@dataclass
class How:
    """``jobs`` processes; results under ``keep``, if given."""

    jobs: int = 1
    keep: Path | None = None


HOW = How()


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``take_options``."""
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: 1)")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep each replay there, and go on from these"
    )


def take_options(options: argparse.Namespace) -> None:
    """Apply the options of the command line to ``replays``."""
    HOW.jobs, HOW.keep = options.jobs, options.keep


def replays(world: World, policy: str, how: ReplaySettings, seeds: int) -> list[Replayed]:
    """One profile of ``world`` for each seed below ``seeds``."""
    return over_seeds(replay, (world, policy, how), seeds)


def over_seeds(run: Callable[..., T], given: tuple[Any, ...], seeds: int) -> list[T]:
    """What ``run`` returns for ``given`` and each seed below ``seeds``."""
    if HOW.keep is None:
        return list(Parallel(HOW.jobs)(delayed(run)(*given, seed) for seed in range(seeds)))
    # What other code stored is no result of the present code.
    memory = Memory(HOW.keep / _code(), verbose=0, compress=True)
    cached = memory.cache(_run, ignore=["run", "given"])
    # Nor what an earlier form of ``run`` did, which may stand in no file of ``SOURCES``.
    source = hashlib.sha256(Path(inspect.getfile(run)).read_bytes()).hexdigest()[:16]
    key = (f"{run.__module__}.{run.__qualname__} {source}", *map(_content, given))
    return list(Parallel(HOW.jobs)(delayed(cached)(key, seed, run, given) for seed in range(seeds)))


def _run(key: tuple[Any, ...], seed: int, run: Callable[..., T], given: tuple[Any, ...]) -> T:
    """``run`` by a ``key`` of its own, under which its result is kept."""
    return run(*given, seed)


def _content(argument: Any) -> Any:
    """An argument as a part of a key: a world remembers what it was used for, and its pickle is
    another then."""
    if not isinstance(argument, World):
        return argument
    table, costs = argument.table, argument.costs
    return (*map(str, table.points), *map(str, table.errors), table.values, costs, argument.priced)


def _code() -> str:
    digest = hashlib.sha256(np.__version__.encode())
    for path in SOURCES:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
