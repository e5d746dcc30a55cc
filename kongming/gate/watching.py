"""A quick fingerprint right before and right after a measurement, and the signals in between."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kongming.gate.disturbance import Reason, Times, from_fingerprint, from_signals, unlike, usual
from kongming.gate.locks import lock_reason
from kongming.gate.signals import Signals, State, between, state
from kongming.probes.fingerprinting import take_fingerprint
from kongming.probes.measuring import disturbed_since
from kongming.probes.node import allowed_cpu, node_facts
from kongming.probes.suite import load_suite
from kongming.records import control
from kongming.records.errors import MALFORMED
from kongming.records.fingerprint import Fingerprint

MEMORY = ("memory.random.8M", "memory.streaming.128M")
"""Surrogates of memory that take little time to set up: latency of the last-level cache, bandwidth.
"""

_CHUNK_S = 0.04
_ROUNDS = 2
SCHEMA = 1
KEY = "kongming"
"""Where other tools' results keep what is written of them here."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A stretch that began: its fingerprint, and the counters and the time (Unix seconds) from
    before that."""

    state: State
    before: Fingerprint
    unix_s: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """Observations around one measurement, and why it cannot be trusted: ``reasons``, if any."""

    before: Fingerprint
    after: Fingerprint
    signals: Signals
    reasons: tuple[Reason, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return what is kept next to a result, as JSON."""
        return {
            "schema": SCHEMA,
            "machine": self.before.node.id,
            "cpu": self.before.cpu,
            "suite_version": self.before.suite_version,
            "before": self.before.times(),
            "after": self.after.times(),
            "signals": self.signals.to_dict(),
            "disturbed": [reason.to_dict() for reason in self.reasons],
        }


class Watcher:
    """Watches measurements of this process and its children, for effects of ``effect`` or more.

    What is usual is learned from the fingerprints taken so far, so that a neighbour who comes in
    the middle is noticed; one who was there from the start is noticed by the system's signals.

    Raises:
        ProbeError: the micro-benchmark binary is missing.
        InputError: the CPU is not allowed.
    """

    def __init__(self, effect: float = 0.02, cpu: int | None = None) -> None:
        self.effect = effect
        self.node = node_facts()
        self.cpu = allowed_cpu(self.node, cpu)
        known = {surrogate.name for surrogate in load_suite(self.node).surrogates}
        self._names = [name for name in (*control.NAMES, *MEMORY) if name in known]
        self._prints: list[Times] = []

    def fingerprint(self) -> Fingerprint:
        """Take a quick fingerprint: about 0.4 s. Raises ProbeError."""
        # The times are given one by one: under a CPU quota they would be much longer.
        taken = take_fingerprint(
            self.node,
            "quick",
            self._names,
            self.cpu,
            seconds=_CHUNK_S * _ROUNDS * len(self._names),
            chunk=_CHUNK_S,
            rounds=_ROUNDS,
        )
        self._prints.append(taken.times())
        return taken

    def unusual(self, taken: Fingerprint) -> list[Reason]:
        """List where a fingerprint is slower than those taken so far."""
        return from_fingerprint(taken.times(), usual(self._prints), taken.started_at)

    def begin(self) -> Opened:
        """Begin a stretch. Raises ProbeError."""
        now, begun = time.time(), state()
        return Opened(begun, self.fingerprint(), now)

    def end(self, opened: Opened) -> Stretch:
        """End a stretch, and judge it. Raises ProbeError."""
        after = self.fingerprint()
        signals = between(opened.state, state(), self.node.cpus)
        # Who came although this process holds the locks.
        other = disturbed_since(opened.unix_s)
        reasons = [] if other is None else [lock_reason(other)]
        reasons += from_signals(signals, self.effect)
        seen = {reason.resource for reason in reasons}
        for taken in (opened.before, after):
            new = [reason for reason in self.unusual(taken) if reason.resource not in seen]
            reasons += new
            seen |= {reason.resource for reason in new}
        return Stretch(opened.before, after, signals, tuple(reasons))


def incomparable(now: Mapping[str, Any], then: object) -> list[str]:
    """Return why a result cannot be held against a baseline, from what ``Stretch.to_dict`` put next
    to each: sentences, none where both were undisturbed and the machine was the same."""
    if not isinstance(then, Mapping):
        return ["The baseline was measured without KONGMING."]
    try:
        reasons = [str(each["reason"]) for each in now["disturbed"]]
        reasons += [f"The baseline was disturbed: {each['reason']}" for each in then["disturbed"]]
        if now["machine"] != then["machine"]:
            reasons.append("The baseline is of another machine.")
        elif (now["suite_version"], now["cpu"]) != (then["suite_version"], then["cpu"]):
            reasons.append("The baseline's fingerprint is of another CPU or version of surrogates.")
        else:
            reasons += [reason.text for reason in unlike(_mean(now), _mean(then))]
    except MALFORMED:
        return ["What KONGMING kept with the baseline cannot be read."]
    return reasons


def _mean(document: Mapping[str, Any]) -> dict[str, float]:
    """The mean of both fingerprints."""
    return {
        name: (float(seconds) + float(document["after"][name])) / 2.0
        for name, seconds in document["before"].items()
        if name in document["after"]
    }


def summary(reasons: Iterable[Reason]) -> str:
    """The resources that disturbed, in a few words."""
    return ", ".join(dict.fromkeys(reason.resource for reason in reasons))
