"""Alternate fingerprints and program runs without induced load, over long periods.

The paper's EC2 experiment (section IV-A): all micro-benchmarks right before every run,
repeatedly. Each round runs every application once, in a new random order, so that the time of
day or a phase of a neighbour does not affect one application only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kongming.probes.fingerprinting import take_fingerprint
from kongming.profiling.events import Dropped
from kongming.profiling.runs.runner import AnyRunner, Outcome, open_runner
from kongming.profiling.runs.settle import settle
from kongming.records import moments
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError, ProbeError
from kongming.records.fingerprint import Fingerprint, NodeFacts

MAX_FIRST_FAILURES = 3
"""An application whose first runs all fail, this many in a row, is dropped."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Fingerprint before a run of ``app``, or the error."""

    at: str
    round: int
    app: str
    cpu: int
    fingerprint: Fingerprint | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """Run of ``app``."""

    at: str
    round: int
    app: Application
    cpu: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pause of the given length in seconds."""

    seconds: float


Event = Observed | Ran | Waiting | Dropped


@dataclass(frozen=True)
class Site:
    """Measurement site. ``cpus`` are those of each application; fingerprints are taken on the
    first one."""

    node: NodeFacts
    cpus: Mapping[str, tuple[int, ...]]
    io_dir: Path
    suite: str = "standard"


@dataclass(frozen=True)
class Pace:
    """Timing: ``every_s`` from the start of a round to the next, ``pause_s`` after each run."""

    every_s: float = 0.0
    pause_s: float = 0.0


def order_of(names: Sequence[str], seed: int, number: int) -> tuple[str, ...]:
    """Return the order of round ``number``: random, reproducible for seed and names. Pure."""
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
    """Run rounds until ``stop_when`` returns true before a step, or no application is left.

    Close the generator (or let an exception through it) to stop: every child is reaped and every
    scratch folder removed. Dirty pages of the previous run are written back before a
    fingerprint, which is to measure other load only. An application whose set-up fails, or whose
    first ``MAX_FIRST_FAILURES`` runs fail, is dropped; later failures are recorded as runs.

    Raises:
        ApplicationRunError: no application can be run.
    """
    pace = pace or Pace()
    with ExitStack() as stack:
        runners: dict[str, AnyRunner] = {}
        for name in sorted(apps):
            try:
                runners[name] = stack.enter_context(
                    open_runner(apps[name], site.io_dir, evict_node=True)
                )
            except ApplicationRunError as error:
                yield Dropped(name, str(error))
        failures = dict.fromkeys(runners, 0)
        round_number = first_round
        while runners:
            round_started = time.monotonic()
            for name in order_of(list(runners), seed, round_number):
                if stop_when():
                    return
                yield _fingerprint(site, name, round_number)
                ran = _run(runners[name], site, round_number)
                yield ran
                if ran.outcome.ok:
                    failures.pop(name, None)
                elif name in failures:
                    failures[name] += 1
                    if failures[name] == MAX_FIRST_FAILURES:
                        runners.pop(name).close()
                        yield Dropped(name, ran.outcome.error or "it yields no metric")
                yield from _wait(pace.pause_s, stop_when)
            yield from _wait(round_started + pace.every_s - time.monotonic(), stop_when)
            round_number += 1
    raise ApplicationRunError(
        "No application is left to observe: all were dropped.",
        hint="Run their commands by hand to see what is wrong.",
    )


def _fingerprint(site: Site, app: str, number: int) -> Observed:
    settle()
    at, cpu = moments.now(), site.cpus[app][0]
    try:
        fingerprint = take_fingerprint(
            node=site.node, suite=site.suite, cpu=cpu, directory=site.io_dir
        )
    except ProbeError as error:
        return Observed(at, number, app, cpu, None, str(error))
    # The window excludes the binary's set-up.
    return Observed(fingerprint.started_at, number, app, cpu, fingerprint)


def _run(runner: AnyRunner, site: Site, number: int) -> Ran:
    cpus = site.cpus[runner.app.name]
    outcome = runner.run(cpus)
    return Ran(outcome.started_at, number, runner.app, cpus[0], outcome)


def _wait(seconds: float, stop_when: Callable[[], bool]) -> Generator[Event, None, None]:
    """Sleep in short intervals, so that ``stop_when`` is checked regularly."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not stop_when():
        yield Waiting(left)
        time.sleep(min(left, 1.0))
