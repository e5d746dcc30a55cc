"""Comparable results of pyperf: ``python -m kongming.integrations.pyperf_check FILE``.

For a file that was measured with ``--hook kongming``: runs that were disturbed, and the worker
processes that an effect needs; with ``--baseline FILE`` the verdict on each benchmark.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import click

from kongming.gate.comparison import Comparison, compare_suite
from kongming.gate.exit_status import CANNOT_TELL, SLOWER, UNFIT
from kongming.gate.noise import LEAST_RUNS, Goal, repetitions_at_most
from kongming.integrations.pyperf_hook import PREFIX, QUIET
from kongming.processes import entry
from kongming.profiling.plans.precision import parse_precision
from kongming.records.errors import InputError

Runs = Sequence[tuple[Sequence[float], Any]]
"""The values and the metadata of each worker process."""


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
        if self.fit:
            state = "can be compared"
        elif self.needed is None:
            state = "cannot tell"
        else:
            state = f"cannot tell: {self.needed - self.undisturbed} more processes"
        undisturbed = f"{self.undisturbed} of {self.runs} processes undisturbed"
        hook = f"; {self.unwatched} measured without --hook kongming" if self.unwatched else ""
        return f"{self.name}: {state}: {undisturbed}{hook}, needed: {needed}"


def check(runs: Runs, name: str, goal: Goal) -> Checked:
    """Judge a benchmark from the values and the metadata of each of its worker processes."""
    times = _undisturbed(runs)
    enough = len(times) >= LEAST_RUNS
    needed = repetitions_at_most(times, goal) if enough else None
    unwatched = sum(f"{PREFIX}disturbed" not in metadata for _, metadata in runs)
    return Checked(name, len(runs), len(times), needed, unwatched)


def verdicts(
    baseline: Mapping[str, Runs], now: Mapping[str, Runs], goal: Goal
) -> dict[str, Comparison | None]:
    """Compare the undisturbed processes of each benchmark of two results; None where only one has
    it, or those are fewer than ``LEAST_RUNS``, or of two machines. The goal's false positives are
    those of all the benchmarks together."""
    judged: dict[str, Comparison | None] = dict.fromkeys((*now, *baseline))
    pairs = {}
    for name in judged:
        before, after = baseline.get(name, ()), now.get(name, ())
        pair = _undisturbed(before), _undisturbed(after)
        if min(map(len, pair)) >= LEAST_RUNS and _machines((*before, *after)) <= 1:
            pairs[name] = pair
    return judged | dict(zip(pairs, compare_suite(list(pairs.values()), goal), strict=True))


def _undisturbed(runs: Runs) -> list[float]:
    """The mean of each process: its values share a start, and are no repetitions of it."""
    return [fmean(values) for values, metadata in runs if _counts(values, metadata)]


def _machines(runs: Runs) -> int:
    """The machines that the processes which count ran on."""
    return len({m.get(f"{PREFIX}machine") for values, m in runs if _counts(values, m)})


def _counts(values: Sequence[float], metadata: Any) -> bool:
    return metadata.get(f"{PREFIX}disturbed") == QUIET and min(values) > 0.0


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--effect", default="2%", show_default=True, help="The slowdown to be seen.")
@click.option(
    "--baseline",
    type=click.Path(exists=True, dir_okay=False),
    help="Tell which are slower than in this file, by the undisturbed processes of both.",
)
def command(file: str, effect: str, baseline: str | None) -> int:
    """Tell which benchmarks of pyperf's FILE can be compared; exit status 4 if any cannot. With
    --baseline: 4 if any is slower (5 % of the time where all are unchanged, however many there
    are), else 3 if any cannot be judged, or is in one of the files only."""
    goal = Goal(parse_precision(effect, "--effect"))
    benchmarks = _load(file, "FILE")
    if baseline is None:
        checked = [check(runs, name, goal) for name, runs in benchmarks.items()]
        for answer in checked:
            click.echo(str(answer))
        return 0 if all(answer.fit for answer in checked) else UNFIT
    before = _load(baseline, "--baseline")
    judged = verdicts(before, benchmarks, goal)
    for name, compared in judged.items():
        text = str(compared) if compared is not None else _why(name, before, benchmarks, goal)
        click.echo(f"{name}: {text}")
    states = {
        "cannot tell" if compared is None else compared.verdict for compared in judged.values()
    }
    if "slower" in states:
        return SLOWER
    return 0 if states == {"not slower"} else CANNOT_TELL


def _why(name: str, before: Mapping[str, Runs], now: Mapping[str, Runs], goal: Goal) -> str:
    """Return why there is no verdict."""
    if name not in before:
        return "cannot tell: no baseline"
    if name not in now:
        return "cannot tell: only in the baseline: renamed, left out, or failed"
    machines = _machines((*before[name], *now[name]))
    if machines > 1:
        return f"cannot tell: they are of {machines} machines"
    baseline = check(before[name], name, goal)
    return f"cannot tell: {check(now[name], name, goal)}; baseline {baseline}"


def _load(file: str, field: str) -> dict[str, Runs]:
    """The runs of each benchmark of a file. Raises InputError."""
    try:
        import pyperf
    except ModuleNotFoundError as error:
        hint = "Install it with: pip install pyperf"
        raise InputError("Reading a file of pyperf needs pyperf.", hint=hint) from error
    try:
        benchmarks = pyperf.BenchmarkSuite.load(file).get_benchmarks()
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(
            "is no file of results.", field=field, value=file, allowed="what pyperf's -o writes"
        ) from error
    return {
        benchmark.get_name(): [
            (run.values, run.get_metadata()) for run in benchmark.get_runs() if run.values
        ]
        for benchmark in benchmarks
    }


if __name__ == "__main__":
    sys.exit(entry.run(command, "pyperf_check", sys.argv[1:]))
