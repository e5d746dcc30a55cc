"""Fingerprints and runs by turns, with nothing induced: what a machine is like as it is used.

The paper's EC2 experiment (section IV-A): all micro-benchmarks right before every run, again and
again. Each round has every application once, in a fresh random order, so that neither the time of
day nor a neighbour's phase falls on one of them alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kongming.application import Application
from kongming.errors import ApplicationRunError, ProbeError
from kongming.fingerprint import Fingerprint, NodeFacts
from kongming.probes import passive
from kongming.probes.fingerprinting import take_fingerprint
from kongming.profiling.events import Dropped
from kongming.profiling.outcome import utc_now
from kongming.profiling.runner import AnyRunner, Outcome, open_runner
from kongming.profiling.settle import settle

HOPELESS = 3
"""An application whose first runs fail so often in a row is left out."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A fingerprint before a run of ``app``; or why there is none."""

    at: str
    round: int
    app: str
    cpu: int
    fingerprint: Fingerprint | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """A run, and the system's own signals over it."""

    at: str
    round: int
    app: Application
    cpu: int
    outcome: Outcome
    passive: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is done for so many seconds."""

    seconds: float


Event = Observed | Ran | Waiting | Dropped


@dataclass(frozen=True)
class Site:
    """Where it is observed. ``cpus`` are those of each application; the first one's fingerprint
    is taken before its runs."""

    node: NodeFacts
    cpus: Mapping[str, tuple[int, ...]]
    io_dir: Path
    suite: str = "standard"


@dataclass(frozen=True)
class Pace:
    """``every_s`` is from the begin of a round to that of the next, ``pause_s`` after each run."""

    every_s: float = 0.0
    pause_s: float = 0.0


def order_of(names: Sequence[str], seed: int, number: int) -> tuple[str, ...]:
    """The order of round ``number``: random, and the same for the same seed and names. Pure."""
    shuffled = sorted(names)
    random.Random(f"{seed}/{number}").shuffle(shuffled)
    return tuple(shuffled)


def observe(
    apps: Mapping[str, Application],
    site: Site,
    *,
    seed: int,
    pace: Pace | None = None,
    first_round: int = 0,
    stop_when: Callable[[], bool] = lambda: False,
) -> Generator[Event, None, None]:
    """Rounds without end, until ``stop_when`` says so before a step, or no application is left.

    Close the generator (or let an exception through it) to stop: every child is reaped and every
    scratch folder removed. Dirty pages of the run before are written back before a fingerprint,
    which is to tell of others. An application whose set-up fails, or whose first ``HOPELESS`` runs
    do, is dropped; a failure that comes later is a reading as well.

    Raises:
        ApplicationRunError: no application can be run.
    """
    pace = pace or Pace()
    with ExitStack() as stack:
        runners: dict[str, AnyRunner] = {}
        for name in sorted(apps):
            try:
                runners[name] = stack.enter_context(open_runner(apps[name], site.io_dir))
            except ApplicationRunError as error:
                yield Dropped(name, str(error))
        failures = dict.fromkeys(runners, 0)
        number = first_round
        while runners:
            begun = time.monotonic()
            for name in order_of(list(runners), seed, number):
                if stop_when():
                    return
                yield _fingerprint(site, name, number)
                ran = _run(runners[name], site, number)
                yield ran
                if ran.outcome.ok:
                    failures.pop(name, None)
                elif name in failures:
                    failures[name] += 1
                    if failures[name] == HOPELESS:
                        runners.pop(name).close()
                        yield Dropped(name, ran.outcome.error or "it yields no metric")
                yield from _wait(pace.pause_s, stop_when)
            yield from _wait(begun + pace.every_s - time.monotonic(), stop_when)
            number += 1
    raise ApplicationRunError(
        "No application is left to observe: all were dropped.",
        hint="Run their commands by hand to see what is wrong.",
    )


def _fingerprint(site: Site, app: str, number: int) -> Observed:
    settle()
    at, cpu = utc_now(), site.cpus[app][0]
    try:
        taken = take_fingerprint(node=site.node, suite=site.suite, cpu=cpu, directory=site.io_dir)
    except ProbeError as error:
        return Observed(at, number, app, cpu, None, str(error))
    # What the binary did before it measured is no part of the window.
    return Observed(taken.started_at, number, app, cpu, taken)


def _run(runner: AnyRunner, site: Site, number: int) -> Ran:
    cpus = site.cpus[runner.app.name]
    before = passive.snapshot()
    outcome = runner.run(cpus)
    signals = passive.difference(before, passive.snapshot())
    return Ran(outcome.started_at, number, runner.app, cpus[0], outcome, signals)


def _wait(seconds: float, stop_when: Callable[[], bool]) -> Generator[Event, None, None]:
    """Sleep in short turns, so that the end is not missed."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not stop_when():
        yield Waiting(left)
        time.sleep(min(left, 1.0))
