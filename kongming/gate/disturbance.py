"""Evidence that something else disturbed a measurement: reasons, each with its resource. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from kongming.gate.processes import TICKS_PER_S
from kongming.gate.signals import Signals
from kongming.printable import printable
from kongming.quantities import count, format_percent
from kongming.records import control

OTHER_CPUS = 0.1
"""CPUs' worth of time of other processes that disturbs, or ``OTHER_SHARE`` of the CPUs if more."""

OTHER_SHARE = 0.02
MEMORY_SHARE = 0.01
"""Share of the time in which some process waited for memory that disturbs."""

CONTROL_LIMIT = 0.05
"""Log of the factor over the usual above which a surrogate in registers was disturbed: 5 %. What
takes 5 % of the processor from these takes as much from every program."""

MEMORY_LIMIT = 0.15
"""The same for the surrogates of memory: 16 %. Two short readings on a quiet machine differ by up
to a tenth, since each has other pages."""

Times = Mapping[str, float]
"""Seconds per operation by surrogate, as ``Fingerprint.times`` gives them."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a measurement cannot be trusted: ``resource`` is one of processes, steal, quota,
    heat, memory-pressure, compute, memory, clock, lock, machine, noise. ``since`` is when it was
    first seen, in UTC; ``earlier``: it was there from the first moment, so it may be older."""

    resource: str
    text: str
    since: str | None = None
    earlier: bool = False

    def __str__(self) -> str:
        if self.since is None:
            return self.text
        return f"{self.text} Since {self.since}{' or earlier' if self.earlier else ''}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "reason": self.text,
            "since": self.since,
            "or_earlier": self.earlier,
        }


def from_signals(signals: Signals, effect: float) -> list[Reason]:
    """Return what the system's own signals say of a stretch of time in which ``effect`` was to be
    seen."""
    causes = []
    ticks = signals.seconds * TICKS_PER_S * signals.cpus
    # A stolen tick more or less is no evidence.
    if signals.steal is not None and signals.steal > max(effect / 2.0, 2.0 / max(ticks, 1.0)):
        causes.append(
            ("steal", f"The hypervisor took {format_percent(signals.steal)} of the CPUs (steal).")
        )
    most = max(OTHER_CPUS, OTHER_SHARE * signals.cpus)
    if signals.others is not None and signals.others > most:
        cpus = f"{signals.others:.2f} of {count(signals.cpus, 'CPU')}"
        causes.append(("processes", f"Other processes used {cpus}{_named(signals)}."))
    if signals.throttled is not None and signals.throttled > effect / 2.0:
        periods = count(signals.throttled_periods or 0, "period")
        causes.append(
            (
                "quota",
                f"A CPU quota (cgroup) stopped processes in {periods}, "
                f"for up to {format_percent(signals.throttled)} of the time.",
            )
        )
    if signals.overheated:
        times = count(signals.overheated, "time")
        causes.append(("heat", f"The processor slowed down {times} because it was too hot."))
    if signals.memory is not None and signals.memory > MEMORY_SHARE:
        causes.append(
            (
                "memory-pressure",
                f"Processes waited for memory {format_percent(signals.memory)} of the time.",
            )
        )
    return [Reason(resource, text, signals.since) for resource, text in causes]


def usual(prints: Iterable[Times]) -> dict[str, float]:
    """The lower quartile of each surrogate over several fingerprints of one CPU."""
    values: dict[str, list[float]] = {}
    for times in prints:
        for name, seconds in times.items():
            values.setdefault(name, []).append(seconds)
    return {name: sorted(each)[(len(each) - 1) // 4] for name, each in values.items()}


def from_fingerprint(times: Times, like: Times, since: str | None = None) -> list[Reason]:
    """List where a fingerprint is slower than ``like`` by more than noise."""
    reasons = []
    for resource, (ratio, limit) in _ratios(times, like).items():
        if ratio > limit:
            what = "Arithmetic in registers" if resource == "compute" else "Memory"
            text = f"{what} was {format_percent(math.expm1(ratio))} slower than usual here"
            cause = "something takes the processor" if resource == "compute" else "it is shared"
            reasons.append(Reason(resource, f"{text}: {cause}.", since))
    return reasons


def unlike(now: Times, then: Times) -> list[Reason]:
    """List where the machine differs between two measurements, in either direction, so that what
    was measured then is no baseline for now."""
    reasons = []
    for resource, (ratio, limit) in _ratios(now, then).items():
        if abs(ratio) > limit:
            what = "arithmetic in registers" if resource == "compute" else "memory"
            change = "slower" if ratio > 0.0 else "faster"
            size = format_percent(abs(math.expm1(ratio)))
            reasons.append(
                Reason(resource, f"The machine itself changed: {what} is {size} {change}.")
            )
    return reasons


def over_turns(
    turns: Sequence[tuple[str, Sequence[Reason]]], overall_reasons: Sequence[Reason]
) -> list[Reason]:
    """Return what disturbed a measurement of several turns, each given by its start and its
    reasons: what disturbed a quarter of them, and what the signals over all of it say
    (``overall_reasons``)."""
    disturbances: list[Reason] = []
    by_resource: dict[str, list[tuple[int, Reason]]] = {}
    for number, (_, reasons) in enumerate(turns):
        for reason in reasons:
            by_resource.setdefault(reason.resource, []).append((number, reason))
    overall = {reason.resource: reason for reason in overall_reasons}
    for resource in dict.fromkeys([*overall, *by_resource]):
        seen = by_resource.get(resource, [])
        often = len(seen) >= 2 and 4 * len(seen) >= len(turns)
        if resource not in overall and not often:
            continue
        first = seen[0][0] if seen else 0
        reason = overall.get(resource) or seen[len(seen) // 2][1]
        text = reason.text
        if seen and len(turns) > 1:
            text += f" Seen in {len(seen)} of {count(len(turns), 'turn')}."
        disturbances.append(Reason(resource, text, turns[first][0] if turns else None, first == 0))
    return disturbances


def _ratios(times: Times, like: Times) -> dict[str, tuple[float, float]]:
    """Mean log ratio of each resource that both have, and its limit."""
    logs: dict[str, list[float]] = {}
    for name, seconds in times.items():
        if name in like:
            resource = "compute" if name in control.NAMES else "memory"
            logs.setdefault(resource, []).append(math.log(seconds / like[name]))
    limits = {"compute": CONTROL_LIMIT, "memory": MEMORY_LIMIT}
    return {resource: (fmean(each), limits[resource]) for resource, each in logs.items()}


def _named(signals: Signals) -> str:
    """The processes, by names that their owners choose. The kernel does not tell on which CPU each
    of them used its time."""
    if not signals.seen:
        return ", none of which can be seen from here (another container or user)"
    # What rounds to 0.00 explains nothing, unless it is all that was seen.
    seen = [process for process in signals.seen if process.cpus >= 0.005] or signals.seen[:1]
    each = [
        f"{printable(process.name)} {process.cpus:.2f} "
        f"(process {process.pid} since {process.since})"
        for process in seen
    ]
    return f"{'; on all CPUs' if signals.further else ''}: {', '.join(each)}"
