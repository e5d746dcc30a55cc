"""The agent of one node: it reads signals, probes by its schedule, spools, and answers requests.
There are two threads: this one measures, and starts requested campaigns (which the kernel ends with
the thread that started them); the link's communicates with the server. They share the spool and the
state under ``_lock``.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kongming import __version__
from kongming.probes.fingerprinting import Progress
from kongming.probes.folders import io_folder
from kongming.probes.measuring import PATIENCE_S, BusyError, measuring
from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite
from kongming.processes.systemd import Notifier
from kongming.quantities import count
from kongming.records.errors import KongmingError, StoreError
from kongming.records.fingerprint import Fingerprint
from kongming_agent.agent_config import Settings
from kongming_agent.domain_states import DomainStates
from kongming_agent.probing import signals
from kongming_agent.probing.budget import Cost
from kongming_agent.probing.prober import Meter, Prober, domains_of, needed_bytes, written_bytes
from kongming_agent.probing.schedule import Probe, Schedule, Wait
from kongming_agent.profile_orders import Campaigns
from kongming_agent.reporting import status as figures
from kongming_agent.reporting.link import Beat, Orders, Registration
from kongming_agent.reporting.metrics import View
from kongming_agent.reporting.spool import Spool
from kongming_agent.wait import Wakeup

_log = logging.getLogger(__name__)

_FACTS_S = 600.0
_PSS_S = 60.0
_BUSY_SAID_S = 60.0


class Stopped(BaseException):
    """The agent was stopped while a probe ran; the probe is ended and reaped."""


class Agent:
    """The agent of this node. ``on_spooled`` is called when there are records to deliver.

    Raises:
        ProbeError: the micro-benchmarks are missing.
        InputError: the I/O folder does not exist.
    """

    def __init__(
        self,
        settings: Settings,
        spool: Spool,
        *,
        rng: random.Random,
        notifier: Notifier | None = None,
        root: Path = Path("/"),
        profile_command: Sequence[str] = (),
    ) -> None:
        self.settings, self.spool = settings, spool
        self._notifier = notifier or Notifier({})
        self._root = root
        self._io_dir = io_folder(settings.files.io or None)
        self.node = settings.node.identified(node_facts())
        self.suite = load_suite(self.node, self._io_dir)
        self._prober = self._new_prober()
        self.domains = domains_of(self.node)
        self._domain_states = DomainStates(spool)
        self._campaigns = Campaigns(
            settings.profile.allow,
            settings.files.state_path(),
            spool,
            profile_command,
            settings.profile.pause_s,
        )
        now = time.monotonic()
        self.schedule = Schedule(
            len(self.domains),
            settings.probing,
            settings.budget,
            now=now,
            rng=rng,
        )
        self.on_spooled: Callable[[], None] = lambda: None
        self.sound: Callable[[], bool] = lambda: True
        """Whether what else the process does goes on: the watchdog hears of the agent only then."""
        self._wakeup = Wakeup()
        self._inbox: queue.SimpleQueue[Orders] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopping = self._probing = False
        self._sample: signals.Sample | None = None
        self._facts_at = now
        self._cpu_seen = 0.0
        self._bytes_seen = written_bytes()
        self._pss_at, self._pss = 0.0, 0.0
        self._alive_due = 0.0
        # When all of it worked, of the steady clock.
        self.alive_at = time.monotonic()
        self._busy_since: float | None = None
        self._busy_said = 0.0
        self._couple_at: dict[int, float] = {}
        # Shared with the link's thread.
        self._signals: signals.Signals | None = None
        self.totals = figures.Totals()
        self._remember(now)

    # Life

    def stop(self) -> None:
        """Stop the agent; may be called from a signal handler. During a probe it raises Stopped."""
        self._stopping = True
        self._wakeup.wake()
        if self._probing:
            self._probing = False
            raise Stopped

    def run(self) -> None:
        """Run until ``stop``. The calling thread must live as long as this runs."""
        try:
            self._begin()
            self._notifier.ready(f"probing {count(len(self.domains), 'cache domain')}")
            while not self._stopping:
                self._turn()
        finally:
            self._end()

    def once(self, pause_s: float = 0.5) -> list[Fingerprint]:
        """Take and spool one quick fingerprint of every domain.

        Raises:
            ProbeError: one could not be taken.
            BusyError: something else measures there.
        """
        self._begin()
        self._wakeup.wait(pause_s)
        self._look(time.monotonic())
        for domain in range(len(self.domains)):
            self._take(Probe(domain, "quick", "requested once"), patience_s=PATIENCE_S)
        latest = self._domain_states.latest()
        return [latest[place] for place, _ in self.domains]

    def _begin(self) -> None:
        self._sample = signals.sample(self._root)

    def _end(self) -> None:
        self._notifier.stopping()
        self._campaigns.end()
        try:
            self._keep_budget()
        except StoreError as error:
            _log.warning("%s", error)

    def _turn(self) -> None:
        now = time.monotonic()
        self._hear(now)
        if self._sample is None or now - self._sample.at >= self.settings.probing.signals_s:
            self._look(now)
        instruction = self.schedule.next(now)
        if isinstance(instruction, Probe):
            self._probe(instruction)
            return
        assert self._sample is not None
        until = min(instruction.until, self._sample.at + self.settings.probing.signals_s)
        self._wakeup.wait(until - time.monotonic())

    # Signals

    def _look(self, now: float) -> None:
        """Sample the passive signals, and do the work that is due at the same interval."""
        before, after = self._sample, signals.sample(self._root)
        self._sample = after
        if before is None or after.at <= before.at:
            return
        seen = signals.between(before, after)
        free, disk = signals.disk_room(self._io_dir)
        room = signals.room(
            seen.system.get("memory_available_bytes"),
            needed_bytes(self.node, self.suite, "quick"),
            float(self.node.memory_bytes),
            free,
            disk,
        )
        self.schedule.sampled(
            seen.system,
            seen.window_s,
            now,
            cpus=len(after.cpus),
            no_room=room.reason,
            oom=seen.oom_kills > 0,
        )
        with self._lock:
            self._signals = seen
        self._domain_states.sampled(seen.system)
        self._account(now)
        self._watch_campaigns()
        if now - self._facts_at >= _FACTS_S or self._moved():
            self._facts_at = now
            self._read_facts()
        self._say_alive(now)

    def _say_alive(self, now: float) -> None:
        if not self.sound():
            return
        self.alive_at = now
        watchdog_s = self._notifier.watchdog_s
        if watchdog_s is not None and now >= self._alive_due:
            self._alive_due = now + watchdog_s / 4.0
            self._notifier.alive()

    def _account(self, now: float) -> None:
        """Charge the agent's own cost since the last call to the budget of the probes."""
        cpu, written = time.process_time(), written_bytes()
        cost = Cost(cpu - self._cpu_seen, 0.0, max(0.0, written - self._bytes_seen))
        self._cpu_seen, self._bytes_seen = cpu, written
        self.schedule.spent(cost, now)
        self.totals.own = self.totals.own + cost
        if now - self._pss_at >= _PSS_S:
            self._pss_at, self._pss = now, figures.pss_bytes()

    def _read_facts(self) -> None:
        """Limits can change while the agent runs; counters in the facts always change."""
        node = self.settings.node.identified(node_facts())
        if figures.without_counters(node) == figures.without_counters(self.node):
            return
        _log.info("the facts of the node have changed")
        suite = load_suite(node, self._io_dir)
        with self._lock:
            self.node, self.suite = node, suite
        self._prober = self._new_prober()
        self._arrange(domains_of(node))

    def _moved(self) -> bool:
        """Return whether the allowed CPUs have changed."""
        return os.sched_getaffinity(0) != set(self.node.cpus)

    def _arrange(self, domains: tuple[tuple[int, tuple[int, ...]], ...]) -> None:
        """Probe these domains from now on. A domain that was probed before keeps its schedule."""
        before = {place: index for index, (place, _) in enumerate(self.domains)}
        now = time.monotonic()
        self.domains = domains
        self.schedule.rearranged([before.get(p) for p, _ in domains], now)
        self._domain_states.only([place for place, _ in domains])
        for index, (place, _) in enumerate(domains):
            if place not in before:
                self._recall_reference(index, place, now)
        _log.info("probing %s on CPUs %s", count(len(domains), "cache domain"), self.node.cpus)

    def _new_prober(self) -> Prober:
        probing = self.settings.probing
        return Prober(
            self.node, self.suite, self._io_dir, write_s=probing.write_s, carry_s=probing.carry_s
        )

    # Probes

    def _probe(self, probe: Probe) -> None:
        try:
            self._take(probe)
        except Stopped:
            _log.info("a probe was ended to stop")
        except BusyError as error:
            self._postpone(probe, error)
        except KongmingError as error:
            _log.warning("no fingerprint: %s", error)
            self.totals.failures += 1
        # The effect of the probe on the signals is not a change.
        self._sample = signals.sample(self._root)

    def _take(self, probe: Probe, *, patience_s: float = 0.0) -> None:
        place, cpus = self.domains[probe.domain]
        busy = self._signals.cpu_busy if self._signals is not None else {}
        cpu = signals.idlest(cpus, busy)
        # Less often than fingerprints are taken, to leave them the budget.
        coupling = time.monotonic() >= self._couple_at.get(place, 0.0)
        self._account(time.monotonic())
        self._probing = True
        meter = Meter()
        try:
            with measuring("kongming-agent", (cpu,), patience_s=patience_s):
                taken = self._prober.take(probe, cpu, self._alive, coupling=coupling)
        except BusyError:
            raise
        except KongmingError:
            self._charge(probe, meter.cost(), ok=False)
            raise
        finally:
            self._probing = False
            # Of one that failed, too: those after it may need no more, and would not show.
            self.totals.used(meter.peak_bytes())
        self._busy_since = None
        if self._stopping:
            return
        if coupling:
            self._couple_at[place] = time.monotonic() + self.settings.probing.coupling_s
        self._charge(probe, taken.cost, ok=bool(taken.fingerprint.times()))
        self.totals.probed(probe.suite)
        fingerprint = taken.fingerprint
        _log.debug("%s fingerprint of domain %d: %s", probe.suite, place, probe.reason)
        if probe.suite == "standard":
            reference = self._domain_states.keep_reference(place, fingerprint)
            self._spool(reference, "reference", place)
        else:
            self._domain_states.learn(place, fingerprint)
            self._spool(fingerprint, "live", place)

    def _charge(self, probe: Probe, cost: Cost, *, ok: bool) -> None:
        # What this process has written is charged by _account, but for this.
        self._bytes_seen += cost.written_bytes
        self.schedule.probed(probe, cost, time.monotonic(), ok=ok)
        self.totals.probes = self.totals.probes + cost

    def _postpone(self, probe: Probe, error: BusyError) -> None:
        now = time.monotonic()
        if self._busy_since is None:
            self._busy_since = self._busy_said = now
        elif now - self._busy_said > _BUSY_SAID_S:
            self._busy_said = now
            _log.info("no probe for %.0f s: %s", now - self._busy_since, error.message)
        self.schedule.postponed(probe, now)

    def _alive(self, _: Progress) -> None:
        self._say_alive(time.monotonic())

    def _spool(self, fingerprint: Fingerprint, purpose: str, place: int) -> None:
        try:
            self.spool.add_fingerprint(fingerprint, purpose, place)
            self._keep_budget()
        except StoreError as error:
            self.totals.unspooled += 1
            _log.warning("%s", error)
        self.on_spooled()

    # State that survives a restart

    def _keep_budget(self) -> None:
        now = time.monotonic()
        self.spool.put(
            "state",
            {
                "at": time.time(),
                "cpu_left": self.schedule.cpu.left(now),
                "wall_left": self.schedule.wall.left(now),
                "bytes_left": self.schedule.bytes.left(now),
                "estimators": self._domain_states.to_document(),
            },
        )

    def _remember(self, now: float) -> None:
        state: dict[str, Any] = self.spool.get("state") or {}
        ago = time.time() - float(state.get("at", 0.0))
        for name, bucket in (
            ("cpu_left", self.schedule.cpu),
            ("wall_left", self.schedule.wall),
            ("bytes_left", self.schedule.bytes),
        ):
            if name in state:
                bucket.restore(float(state[name]), ago)
        self._domain_states.restore(state.get("estimators", {}))
        for index, (place, _) in enumerate(self.domains):
            self._recall_reference(index, place, now)

    def _recall_reference(self, index: int, place: int, now: float) -> None:
        restored = self._domain_states.kept_reference(place, self.suite.version, self.node.id)
        if restored is not None:
            reference, readings = restored
            self.schedule.reference_known(index, readings, figures.age_s(reference.started_at), now)

    # Orders, profiles

    def _hear(self, now: float) -> None:
        while True:
            try:
                orders = self._inbox.get_nowait()
            except queue.Empty:
                return
            self.schedule.assignments(orders.assignment_ids)
            if orders.probe_now:
                self.schedule.request("the server asked")

    def _watch_campaigns(self) -> None:
        """Probing is suspended while a campaign measures."""
        running, ended = self._campaigns.watch()
        if ended:
            # Its writes were requested, and are limited by its own time budget.
            self._bytes_seen = written_bytes()
        self.schedule.pause("a campaign is running" if running else None)
        if running or ended:
            self.on_spooled()

    # For the intake, from its thread

    def latest(self) -> Mapping[int, Fingerprint]:
        """Return the newest live fingerprint of each cache domain, by the domain's index."""
        return self._domain_states.latest()

    # For the link, from its thread

    def registration(self) -> Registration:
        with self._lock:
            return Registration(
                node=self.node,
                agent_version=__version__,
                suite_version=self.suite.version,
                references=tuple(self._domain_states.references().values()),
                allowed_apps=self.settings.profile.allow,
            )

    def beat(self) -> Beat:
        now = time.monotonic()
        with self._lock:
            passive = dict(self._signals.flat()) if self._signals is not None else {}
        return Beat(self.schedule.recent_cpu.rate(now), passive, self._domain_states.news())

    def ordered(self, orders: Orders) -> None:
        # On disk before the next heartbeat, from which the server takes that they have come.
        self._campaigns.ask(orders.profile_apps, orders.campaigns)
        self._inbox.put(orders)
        self._wakeup.wake()

    # For /metrics, from its thread

    def view(self) -> View:
        now = time.monotonic()
        instruction = self.schedule.next(now)
        held = isinstance(instruction, Wait) and instruction.reason not in (
            "not due",
            "no signals yet",
        )
        with self._lock:
            return figures.view(
                settings=self.settings,
                schedule=self.schedule,
                totals=self.totals,
                now=now,
                latest=self._domain_states.latest(),
                references=self._domain_states.references(),
                estimates=self._domain_states.estimates(),
                errors=self._domain_states.errors(),
                passive=self._signals.flat() if self._signals is not None else {},
                pss=self._pss,
                held=held,
            )
