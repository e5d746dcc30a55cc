"""Which results of pyperf can be compared: ``python -m kongming.integrations.pyperf_check FILE``.

For a file that was measured with ``--hook kongming``: runs that were disturbed, and the worker
processes that an effect needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import click

from kongming import process
from kongming.gate.noise import LEAST_RUNS, Goal, repetitions_at_most
from kongming.integrations.pyperf_hook import PREFIX, QUIET
from kongming.profiling.plans.precision import parse_precision
from kongming.records.errors import InputError

UNFIT = 4


@dataclass(frozen=True, slots=True)
class Checked:
    """One benchmark: worker processes in all, undisturbed ones, and those that the effect needs
    (None: too few to tell). ``unwatched`` of them were measured without the hook."""

    name: str
    runs: int
    undisturbed: int
    needed: int | None
    unwatched: int = 0

    @property
    def fit(self) -> bool:
        return self.needed is not None and self.undisturbed >= self.needed

    def __str__(self) -> str:
        needed = "too few to tell how many are needed" if self.needed is None else self.needed
        state = "can be compared" if self.fit else "withheld"
        undisturbed = f"{self.undisturbed} of {self.runs} processes undisturbed"
        hook = f"; {self.unwatched} measured without --hook kongming" if self.unwatched else ""
        return f"{self.name}: {state}: {undisturbed}{hook}, needed: {needed}"


def check(runs: Sequence[tuple[Sequence[float], Any]], name: str, goal: Goal) -> Checked:
    """Judge a benchmark from the values and the metadata of each of its worker processes."""
    times = [
        fmean(values)
        for values, metadata in runs
        if metadata.get(f"{PREFIX}disturbed") == QUIET and min(values) > 0.0
    ]
    enough = len(times) >= LEAST_RUNS
    needed = repetitions_at_most(times, goal) if enough else None
    unwatched = sum(f"{PREFIX}disturbed" not in metadata for _, metadata in runs)
    return Checked(name, len(runs), len(times), needed, unwatched)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--effect", default="2%", show_default=True, help="The slowdown to be seen.")
def command(file: str, effect: str) -> int:
    """Tell which benchmarks of pyperf's FILE can be compared; exit status 4 if any cannot."""
    try:
        import pyperf
    except ModuleNotFoundError as error:
        hint = "Install it with: pip install pyperf"
        raise InputError("Reading a file of pyperf needs pyperf.", hint=hint) from error
    goal = Goal(parse_precision(effect, "--effect"))
    checked = []
    try:
        benchmarks = pyperf.BenchmarkSuite.load(file).get_benchmarks()
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(
            "is no file of results.", field="FILE", found=file, allowed="what pyperf's -o writes"
        ) from error
    for benchmark in benchmarks:
        runs = [(run.values, run.get_metadata()) for run in benchmark.get_runs() if run.values]
        checked.append(check(runs, benchmark.get_name(), goal))
    for one in checked:
        click.echo(str(one))
    return 0 if all(one.fit for one in checked) else UNFIT


if __name__ == "__main__":
    sys.exit(process.run(command, "pyperf_check", sys.argv[1:]))
