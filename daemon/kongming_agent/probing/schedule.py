"""The schedule of probes: a state machine without I/O, events in, instructions out. All times are
seconds of one monotonic clock, given by the caller.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kongming.quantities import per_cent
from kongming_agent.agent_config import Budget, Probing
from kongming_agent.probing.budget import DAY_S, HOUR_S, Bucket, Cost, Recent
from kongming_agent.probing.features import Lately, features, step

Suite = Literal["quick", "standard"]

EXPECTED: Mapping[Suite, Cost] = {
    "quick": Cost(0.8, 1.0, 40e6),
    "standard": Cost(4.0, 4.0, 1e9),
}
"""Assumed cost of a fingerprint before the first one."""

REFERENCES = 5
"""Minimum number of readings of a settled reference."""

REFERENCE_GAP_S = 300.0
"""Minimum seconds between two such readings, so that a phase of an unseen neighbour is not in all
of them.
"""

WINDOW_S = 1200.0
"""Window in seconds of the limits on CPU and probing time."""

_IDLE_CPUS = 0.2
"""CPUs' worth of work on an idle node, whatever its size."""

_IDLE_PRESSURE = 0.03
_IDLE_DISK = 4e6
_STEP_SAMPLES = 2
_YIELD = 4.0
_POSTPONED_S = 1.0
_OOM_REST_S = 300.0
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Probe:
    """Take a fingerprint now. ``writes`` is whether it includes surrogates that write."""

    domain: int
    suite: Suite
    reason: str
    writes: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until ``until``, unless an event comes first."""

    until: float
    reason: str


Instruction = Probe | Wait


@dataclass(slots=True)
class _Domain:
    due_at: float
    probed_at: float | None = None
    reference_at: float | None = None
    references: int = 0
    wanted: str | None = None
    not_before: float = -math.inf
    level: tuple[float, ...] | None = None
    steps: int = 0


@dataclass(slots=True)
class _Node:
    """The state from the last sample."""

    idle_since: float | None = None
    no_room: str | None = None
    oom_at: float | None = None
    pressed: str | None = None
    assignments: frozenset[str] = frozenset()
    paused: str | None = None
    back_off: int = 0
    lately: Lately = field(default_factory=lambda: Lately(2))


class Schedule:
    """One node's schedule over its last-level cache domains."""

    def __init__(
        self,
        domains: int,
        probing: Probing,
        budget: Budget,
        *,
        now: float,
        rng: random.Random,
    ) -> None:
        self._probing, self._rng = probing, rng
        # Agents that were started together must not probe together.
        start = rng.uniform(0.0, probing.start_s)
        self._domains = [_Domain(due_at=now + start) for _ in range(domains)]
        self._node = _Node()
        self._last_end = -math.inf
        self._expected = dict(EXPECTED)
        self.cpu = Bucket(budget.cpu_share * WINDOW_S, WINDOW_S, now)
        self.wall = Bucket(budget.probe_share * WINDOW_S, WINDOW_S, now)
        self.bytes = Bucket(budget.bytes_per_day, DAY_S, now)
        self.recent_cpu = Recent(HOUR_S, now)
        self.recent_probing = Recent(HOUR_S, now)
        self.recent_bytes = Recent(DAY_S, now)

    # Events

    def sampled(
        self,
        system: Mapping[str, float],
        window_s: float,
        now: float,
        *,
        cpus: int,
        no_room: str = "",
        oom: bool = False,
    ) -> None:
        """Process passive signals of the last ``window_s`` seconds, in which no probe ran. ``cpus``
        are those whose time the shares in ``system`` are of: all of the node, not only the allowed
        ones; 0 if unknown."""
        node = self._node
        node.no_room = no_room or None
        if oom:
            node.oom_at = now
        if not self._looks_idle(system, cpus):
            node.idle_since = None
        elif node.idle_since is None:
            node.idle_since = now - window_s
        self._feel(system)
        node.lately.add(features(system))
        values = node.lately.values
        assert values is not None
        for domain in self._domains:
            if domain.probed_at is None:
                continue
            if domain.level is None:
                domain.level = values
            changed = step(domain.level, values, self._probing.step)
            domain.steps = domain.steps + 1 if changed else 0
            if changed and domain.steps >= _STEP_SAMPLES and domain.wanted is None:
                domain.wanted = changed

    def spent(self, cost: Cost, now: float) -> None:
        """Charge a cost that is not of a probe: that of the agent itself."""
        self.cpu.spend(cost.cpu_s, now)
        self.bytes.spend(cost.written_bytes, now)
        self.wall.spend(cost.wall_s, now)
        self.recent_cpu.add(cost.cpu_s, now)
        self.recent_bytes.add(cost.written_bytes, now)
        self.recent_probing.add(cost.wall_s, now)

    def probed(self, probe: Probe, cost: Cost, now: float, *, ok: bool) -> None:
        """Process the end of a requested probe."""
        self.spent(cost, now)
        self._last_end = now
        domain, node = self._domains[probe.domain], self._node
        if ok:
            seen = (
                cost
                if probe.writes
                else Cost(cost.cpu_s, cost.wall_s, self._expected[probe.suite].written_bytes)
            )
            self._expected[probe.suite] = self._expected[probe.suite].towards(seen, 0.5)
        node.back_off = node.back_off + 1 if node.pressed else 0
        if probe.suite == "standard":
            # After a failure the next try is as late as after a success.
            domain.reference_at = now
            domain.references += ok
            return
        domain.probed_at, domain.wanted, domain.steps = now, None, 0
        domain.level = node.lately.values
        domain.due_at = now + self._period()

    def postponed(self, probe: Probe, now: float) -> None:
        """A requested probe did not begin, since something else measures on its CPUs. It is tried
        again soon, at a random time."""
        self._domains[probe.domain].not_before = now + self._rng.uniform(0.5, 1.5) * _POSTPONED_S

    def reference_known(self, domain: int, count: int, age_s: float, now: float) -> None:
        """An earlier process has taken ``count`` readings of the idle node."""
        self._domains[domain].references = count
        self._domains[domain].reference_at = now - age_s

    def rearranged(self, before: Sequence[int | None], now: float) -> None:
        """Change the domains: for each the index that it had before, None for a new one, which is
        probed soon."""
        self._domains = [
            _Domain(due_at=now) if place is None else self._domains[place] for place in before
        ]

    def request(self, reason: str, domain: int | None = None) -> None:
        """Request a fingerprint because of a known change."""
        for index, each in enumerate(self._domains):
            if domain is None or index == domain:
                each.wanted = each.wanted or reason

    def assignments(self, ids: frozenset[str]) -> None:
        """Process the server's list of residents; a change triggers a fingerprint."""
        if ids != self._node.assignments:
            self._node.assignments = ids
            self.request("an assignment changed")

    def pause(self, reason: str | None) -> None:
        """Suspend probes while something else measures on this node; None resumes them."""
        self._node.paused = reason

    # Instructions

    def next(self, now: float) -> Instruction:
        """Return what to do now; this does not change the state."""
        node = self._node
        latest = now + _LONGEST_WAIT_S
        if node.paused is not None:
            return Wait(latest, node.paused)
        if node.lately.values is None:
            return Wait(latest, "no signals yet")
        if node.oom_at is not None and now - node.oom_at < _OOM_REST_S:
            return Wait(
                node.oom_at + _OOM_REST_S, "the kernel has killed a process for lack of memory"
            )
        if node.no_room is not None:
            return Wait(latest, node.no_room)
        instructions: list[Instruction] = []
        for index in range(len(self._domains)):
            instructions.append(self._for_domain(index, now))
        probes = [each for each in instructions if isinstance(each, Probe)]
        if probes:
            # The domain with the oldest probe is next.
            return min(probes, key=lambda probe: self._probed_at(probe.domain))
        return min(
            (each for each in instructions if isinstance(each, Wait)), key=lambda wait: wait.until
        )

    @property
    def pressed(self) -> str | None:
        """Return the pressure that probing backs off from, in words."""
        return self._node.pressed

    def idle(self, now: float) -> bool:
        """Return whether the node has been idle for as long as a reference requires."""
        node = self._node
        return (
            node.idle_since is not None
            and not node.assignments
            and now - node.idle_since >= self._probing.idle_s
        )

    def _for_domain(self, index: int, now: float) -> Instruction:
        domain, node = self._domains[index], self._node
        if now < domain.not_before:
            return Wait(domain.not_before, "another measurement is running")
        gap = self._last_end + self._probing.least_gap_s * 2.0**node.back_off
        gap = min(gap, self._last_end + self._probing.longest_gap_s)
        idle = self.idle(now) and node.pressed is None and gap <= now
        if idle and self._reference_due(domain, now):
            instruction = self._affordable(index, "standard", "the node is idle", now)
            if isinstance(instruction, Probe):
                return instruction
        at, reason = domain.due_at, "on schedule"
        if domain.probed_at is not None and self._awaits_reference(now):
            # Frequent quick fingerprints would leave no budget for a reference, and on an idle node
            # they are least useful.
            at = max(at, domain.probed_at + _YIELD * self._probing.period_s)
        if domain.wanted is not None and gap < at:
            at, reason = gap, domain.wanted
        at = max(at, gap)
        if at > now:
            why = f"under {node.pressed}" if node.back_off and node.pressed else "not due"
            return Wait(at, why)
        return self._affordable(index, "quick", reason, now)

    def _affordable(self, index: int, suite: Suite, reason: str, now: float) -> Instruction:
        cost = self._expected[suite]
        at = max(self.cpu.ready_at(cost.cpu_s, now), self.wall.ready_at(cost.wall_s, now))
        if at > now:
            return Wait(min(at, now + HOUR_S), "the budget is spent")
        wanted = cost.written_bytes
        if suite == "quick" and self._awaits_reference(now):
            # Otherwise frequent quick fingerprints would leave no write budget for it.
            wanted += self._expected["standard"].written_bytes
        writes = self.bytes.ready_at(wanted, now) <= now
        if suite == "standard" and not writes:
            return Wait(now + HOUR_S, "the write budget is spent")
        return Probe(index, suite, reason, writes)

    def _awaits_reference(self, now: float) -> bool:
        return self.idle(now) and any(self._reference_due(each, now) for each in self._domains)

    def _reference_due(self, domain: _Domain, now: float) -> bool:
        if domain.reference_at is None:
            return True
        age = now - domain.reference_at
        settled = domain.references >= REFERENCES
        return age >= (self._probing.reference_s if settled else REFERENCE_GAP_S)

    def _period(self) -> float:
        jitter = self._rng.uniform(-self._probing.jitter, self._probing.jitter)
        period = self._probing.period_s * (1.0 + jitter)
        longest = max(self._probing.longest_gap_s, period)
        return min(period * 2.0 ** min(self._node.back_off, 20), longest)

    def _feel(self, system: Mapping[str, float]) -> None:
        node, limits = self._node, self._probing
        memory, io = system.get("psi_memory_full", 0.0), system.get("psi_io_full", 0.0)
        was = node.pressed
        if memory > limits.memory_pressure:
            node.pressed = f"memory pressure of {per_cent(100.0 * memory, '.0f')}"
        elif io > limits.io_pressure:
            node.pressed = f"I/O pressure of {per_cent(100.0 * io, '.0f')}"
        else:
            node.pressed = None
            if was is not None and node.back_off:
                node.back_off = 0
                for domain in self._domains:
                    domain.due_at = min(domain.due_at, self._last_end + self._period())

    def _looks_idle(self, system: Mapping[str, float], cpus: int) -> bool:
        if "cpu_busy" not in system or not cpus:
            return False
        shares = ("psi_cpu_some", "psi_memory_some", "psi_io_some", "steal", "iowait")
        rates = ("disk_read_bytes_per_s", "disk_write_bytes_per_s")
        return (
            system["cpu_busy"] * cpus <= _IDLE_CPUS
            and all(system.get(name, 0.0) <= _IDLE_PRESSURE for name in shares)
            and all(system.get(name, 0.0) <= _IDLE_DISK for name in rates)
        )

    def _probed_at(self, index: int) -> float:
        at = self._domains[index].probed_at
        return -math.inf if at is None else at
