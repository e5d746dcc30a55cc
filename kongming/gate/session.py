"""The measurement behind the gate: turns of a quick fingerprint and a run of each command."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kongming.gate.fitness import MOST, Answer, Turn, decide
from kongming.gate.locks import lock_reason
from kongming.gate.noise import LEAST_RUNS, Goal
from kongming.gate.signals import between, state
from kongming.gate.watching import Watcher
from kongming.probes.measuring import BusyError, measuring
from kongming.profiling.runs.execution import Execution
from kongming.profiling.runs.outcome import why_failed
from kongming.records.application import Command
from kongming.records.errors import ApplicationRunError, InputError

MOST_TURNS = 40
"""Turns after which the noise is known well enough, whatever the budget."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the gate. ``budget_s`` bounds the measurement, ``most`` are the repetitions of
    each program that are affordable. With ``cpu`` the command is pinned to it too. ``baseline`` is
    what the command is compared with: each turn runs both, in the order of ``turn_orders``."""

    goal: Goal = field(default_factory=Goal)
    command: Command | None = None
    budget_s: float = 30.0
    cpu: int | None = None
    most: int = MOST
    baseline: Command | None = None

    def __post_init__(self) -> None:
        if self.baseline is not None and self.command is None:
            raise InputError(
                "is compared with nothing.",
                field="baseline",
                value=self.baseline,
                allowed="together with a command",
            )

    @property
    def most_turns(self) -> int:
        """Turns of two programs are repetitions; those of one only show the noise."""
        return MOST_TURNS if self.baseline is None else self.most


def ask(
    settings: Settings, on_progress: Callable[[float, float, str], None] = lambda *_: None
) -> Answer:
    """Measure, and say whether the machine is fit. ``on_progress`` gets seconds done, the budget
    and what is going on.

    Holds the locks of all CPUs; where another measurement of ours has one, that is the answer.

    Raises:
        InputError: the budget is too short for the command, or the CPU is not allowed.
        ApplicationRunError: the command failed.
        ProbeError: the micro-benchmarks are missing or failed.
    """
    try:
        with measuring("kongming audit gate"):
            return _measure(settings, on_progress)
    except BusyError as error:
        return Answer(settings.goal, settings.most, (), (lock_reason(error.holder),))


def turn_orders(programs: int) -> Iterator[Sequence[int]]:
    """Yield the order of the programs in each turn: drawn, then reversed in the next turn.

    The first of a turn may find another machine than the second. Where one program had the first
    place more often, that would be a difference between the programs; orders drawn one by one are
    that uneven, and the same in every session.
    """
    draw = random.Random(0)
    while True:
        order = draw.sample(range(programs), programs)
        yield order
        yield order[::-1]


def _measure(settings: Settings, on_progress: Callable[[float, float, str], None]) -> Answer:
    watcher = Watcher(settings.goal.effect, settings.cpu)
    began = time.monotonic()

    def left() -> float:
        return settings.budget_s - (time.monotonic() - began)

    def tell(text: str) -> None:
        on_progress(settings.budget_s - max(0.0, left()), settings.budget_s, text)

    # The first of each finds caches cold, and pages not there yet.
    tell("warming up")
    watcher.fingerprint()
    programs = [each for each in (settings.command, settings.baseline) if each is not None]
    if programs:
        _check_budget(settings, sum(_run(settings, each) for each in programs), left())
    orders = turn_orders(len(programs))
    turns: list[Turn] = []
    first = last = state()
    longest = 0.0
    while len(turns) < LEAST_RUNS or (len(turns) < settings.most_turns and left() > longest):
        tell(f"turn {len(turns) + 1}")
        turn_began = time.monotonic()
        times = watcher.fingerprint().times()
        seconds = {each: _run(settings, programs[each]) for each in next(orders)}
        now = state()
        signals = between(last, now, watcher.node.cpus)
        turns.append(Turn(signals, times, seconds.get(0), seconds.get(1)))
        last = now
        longest = max(longest, time.monotonic() - turn_began)
    overall = between(first, last, watcher.node.cpus)
    return decide(
        turns, overall, settings.goal, most=settings.most, command=settings.command is not None
    )


def _check_budget(settings: Settings, run_s: float, left_s: float) -> None:
    """Refuse a command of which the budget holds too few runs, before they are made."""
    if run_s * LEAST_RUNS > left_s:
        raise InputError(
            f"is too short: a turn's runs take {run_s:.3g} s, and {LEAST_RUNS} are needed.",
            field="budget",
            value=f"{settings.budget_s:g}s",
            allowed=f"{(run_s + 0.5) * (LEAST_RUNS + 2):.0f}s or more",
        )


def _run(settings: Settings, command: Command) -> float:
    cpus = () if settings.cpu is None else (settings.cpu,)
    # Each run has the limit: a command may hang after runs that did not.
    with Execution(command, cpus=cpus, timeout_s=settings.budget_s) as execution:
        iteration = execution.result()
    reason = why_failed(iteration, execution.output, settings.budget_s)
    if reason is not None:
        raise ApplicationRunError(f"The {_role(settings, command)} failed: {reason}")
    return (iteration.end_ns - iteration.start_ns) / 1e9


def _role(settings: Settings, command: Command) -> str:
    return "command" if command is settings.command else "baseline"
