"""The connection to the server: registers, delivers the spool in order, sends heartbeats. One
thread. While the server does not answer it retries after increasing random delays, so that the
agents of a fleet do not reconnect at the same time.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import grpc

from kongming.backoff import Backoff
from kongming.quantities import count
from kongming.records.errors import (
    AccessError,
    InputError,
    KongmingError,
    ServiceError,
    UnavailableError,
)
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.rpc.errors import from_rpc_error
from kongming.rpc.record_codec import fingerprint_to_message, node_to_message
from kongming.rpc.v1 import fleet_pb2, fleet_pb2_grpc
from kongming.rpc.value_codec import seconds
from kongming_agent.reporting.delivery import Entry, node_of, report_of, runs_of
from kongming_agent.reporting.spool import Spool

_log = logging.getLogger(__name__)

_ABOUT_CONTENT = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)
"""Status codes of calls that would fail again."""

MOST_PROFILES = 100
"""Names of applications in one answer of the server; more are not looked at."""

MOST_ASSIGNMENTS = 4096
"""Assignments in one answer; more are not looked at."""

MOST_NAME = 255
"""Characters of either; longer ones are not looked at."""

_UNFORESEEN = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
"""Codes of a call that the server could not cope with: of its content, if it goes on so."""

_MOST_TRIES = 5
"""A record that the server could not cope with so often, all by itself, counts as refused."""

_FIRST_RETRY_S = 0.5
_HEARTBEAT_S = 10.0
_TRUNCATED_S = 600.0
"""That an answer was cut is logged this often."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The data of a registration."""

    node: NodeFacts
    agent_version: str
    suite_version: str
    references: Sequence[Fingerprint] = ()
    allowed_apps: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Beat:
    """The data of a heartbeat. ``estimates`` are estimated fingerprints by domain."""

    probe_cost: float
    passive: Mapping[str, float]
    estimates: Mapping[int, Fingerprint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Orders:
    """Requests of the server in its answer to a heartbeat. ``campaigns`` are the ids under which
    it wants the runs of each application."""

    profile_apps: tuple[str, ...]
    probe_now: bool
    assignment_ids: frozenset[str]
    campaigns: Mapping[str, str] = field(default_factory=dict)


class Node(Protocol):
    """The interface of the agent for the link; called from the link's thread."""

    def registration(self) -> Registration: ...

    def beat(self) -> Beat: ...

    def ordered(self, orders: Orders) -> None: ...


class Link:
    """The connection of one node. ``step`` does the due work; ``run`` repeats it until stopped."""

    def __init__(
        self,
        channel: Callable[[], grpc.Channel],
        spool: Spool,
        node: Node,
        *,
        timeout_s: float,
        longest_retry_s: float,
        rng: random.Random,
        server: str = "",
        least_heartbeat_s: float = 5.0,
    ) -> None:
        self._open, self._spool, self._node = channel, spool, node
        self._timeout_s, self._server = timeout_s, server
        self._backoff = Backoff(_FIRST_RETRY_S, longest_retry_s, rng)
        self._rng = rng
        self._channel: grpc.Channel | None = None
        self._stub: fleet_pb2_grpc.FleetStub | None = None
        self._registered: Registration | None = None
        self._heartbeat_s = _HEARTBEAT_S
        self._least_heartbeat_s = least_heartbeat_s
        self._beat_at = 0.0
        self._register_at = self._again_at = 0.0
        self._cut_at = -_TRUNCATED_S
        self._woken = threading.Event()
        self.connected = False
        self.failures = 0
        self.delivered = {"fingerprint": 0, "run": 0, "signature": 0}
        self.refused = self.other_nodes = 0
        self._tries: tuple[str, int] = ("", 0)

    def wake(self) -> None:
        """Wake the link after a record was spooled."""
        self._woken.set()

    def run(self, stopping: threading.Event) -> None:
        """Run until ``stopping`` is set and ``wake`` was called."""
        while not stopping.is_set():
            try:
                wait_s = self.step()
            except Exception as error:
                # Reporting must not end for what nobody foresaw.
                _log.exception("reporting failed, and is tried again")
                wait_s = self._failed(ServiceError(f"Reporting failed: {error!r}."))
            # What is spooled while the server is away does not make the next try come sooner.
            (self._woken if self.connected else stopping).wait(wait_s)
            self._woken.clear()
        self.close()

    def step(self) -> float:
        """Do the due work. Return the seconds until the next step, unless woken."""
        try:
            self._exchange()
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                # The server has forgotten the node.
                self._registered = None
                self._register_at = 0.0
            return self._failed(from_rpc_error(error, self._server or None))
        except KongmingError as error:
            return self._failed(error)
        if not self.connected:
            _log.info("connected to %s", self._server or "the server")
        self.connected = True
        self._backoff.after_success()
        return max(0.0, self._beat_at - time.monotonic())

    def flush(self, patience_s: float) -> bool:
        """Deliver the spool within ``patience_s``; return whether it is empty."""
        deadline = time.monotonic() + patience_s
        while True:
            self.step()
            left = sum(self._spool.counts().values())
            if left == 0 and self.connected:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))

    def close(self) -> None:
        channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            channel.close()

    def _failed(self, error: KongmingError) -> float:
        if self.connected or self.failures == 0:
            _log.warning("%s", error)
        self.connected = False
        self.failures += 1
        if isinstance(error, UnavailableError | AccessError):
            # An old channel has its own retry delay, and does not use a renewed token.
            self.close()
        return self._backoff.after_failure()

    def _exchange(self) -> None:
        if self._stub is None:
            self._channel = self._open()
            self._stub = fleet_pb2_grpc.FleetStub(self._channel)
        stub = self._stub
        registration = self._node.registration()
        if registration != self._registered and time.monotonic() >= self._register_at:
            self._register(stub, registration)
        self._deliver(stub)
        if self._registered is not None and time.monotonic() >= self._beat_at:
            self._tell(stub)

    def _register(self, stub: fleet_pb2_grpc.FleetStub, registration: Registration) -> None:
        request = fleet_pb2.RegisterRequest(
            node=node_to_message(registration.node),
            agent_version=registration.agent_version,
            suite_version=registration.suite_version,
            references=[fingerprint_to_message(each) for each in registration.references],
            allowed_apps=registration.allowed_apps,
        )
        try:
            response = stub.Register(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            if error.code() not in _ABOUT_CONTENT or not request.references:
                raise
            # A refused reference must not block the delivery of runs.
            _log.error("the reference was refused: %s", from_rpc_error(error))
            self.refused += 1
            request.ClearField("references")
            response = stub.Register(request, timeout=self._timeout_s)
        if response.HasField("heartbeat_period"):
            self._heartbeat_s = max(self._least_heartbeat_s, seconds(response.heartbeat_period))
        if self._spool.go_on_after(response.acknowledged):
            _log.warning("the server has higher sequence numbers than the spool: renumbered")
        self._registered = registration

    def _deliver(self, stub: fleet_pb2_grpc.FleetStub) -> None:
        """Deliver the spool in batches, each of one kind of record."""
        while entries := self._spool.oldest():
            batch = _same_call(entries)
            if batch[0].kind != "fingerprint" and 0.0 < self._beat_at <= time.monotonic():
                # If records arrive faster than they are delivered, heartbeats must still be sent.
                self._tell(stub)
            if self._registered is None:
                return
            if any(map(self._of_another_node, batch)):
                if not self._leave_out_other_nodes():
                    return
                continue
            if self._refusal(stub, batch) is None:
                continue
            # One bad record fails the whole call: each is sent separately, and only the bad one is
            # put aside.
            for entry in batch:
                reason = self._refusal(stub, [entry])
                if reason is not None:
                    self._refuse(entry.id, reason)

    def _of_another_node(self, entry: Entry) -> bool:
        return node_of(entry) not in ("", self._node_id)

    def _leave_out_other_nodes(self) -> bool:
        """Take out of the spool what was measured under another id: a machine that has become
        another one, as by more CPUs, would report the speed of the one before as its own. Return
        False where the node has a new id by now, which must be registered first."""
        counts: Counter[str] = Counter()
        current = True
        while others := list(filter(self._of_another_node, self._spool.oldest())):
            # Asked after the records were read, which may be of the new id otherwise.
            current = self._node.registration().node.id == self._node_id
            if not current:
                break
            counts.update(map(node_of, others))
            self._spool.refused(
                (entry.id for entry in others), f"It was not measured on {self._node_id}."
            )
        self.other_nodes += counts.total()
        for node_id, number in counts.items():
            _log.warning(
                "%s of the node %s will not be delivered, since this node is %s now: "
                "runs and signatures are put aside in the spool, fingerprints are dropped",
                count(number, "record"),
                node_id,
                self._node_id,
            )
        return current

    def _refusal(self, stub: fleet_pb2_grpc.FleetStub, batch: Sequence[Entry]) -> str | None:
        """Send; return why this call would always fail, or None. Raises temporary errors."""
        try:
            if batch[0].kind == "fingerprint":
                self._tell(stub, batch)
            else:
                request = runs_of(self._node_id, batch)
                self._process(batch, stub.ReportRuns(request, timeout=self._timeout_s))
        except InputError as error:
            return str(error)
        except grpc.RpcError as error:
            if error.code() not in _ABOUT_CONTENT and not self._hopeless(error.code(), batch):
                raise
            return str(from_rpc_error(error, self._server or None))
        return None

    def _hopeless(self, code: grpc.StatusCode, batch: Sequence[Entry]) -> bool:
        """Return whether the server has often enough not coped with what this batch begins with.
        One of several records is then looked for by sending each for itself."""
        if code not in _UNFORESEEN:
            return False
        first, tries = self._tries
        self._tries = (batch[0].id, tries + 1 if first == batch[0].id else 1)
        return self._tries[1] >= _MOST_TRIES

    @property
    def _node_id(self) -> str:
        return self._registered.node.id if self._registered is not None else ""

    def _process(
        self,
        batch: Sequence[Entry],
        response: fleet_pb2.ReportResponse | fleet_pb2.ReportRunsResponse,
    ) -> None:
        """Process the server's answer to a batch."""
        kinds = {entry.id: entry.kind for entry in batch}
        accepted = [id for id in response.accepted if id in kinds]
        self._spool.delivered(accepted)
        for id in accepted:
            self.delivered[kinds[id]] += 1
        for rejected in response.rejected:
            if rejected.id in kinds:
                self._refuse(rejected.id, f"{rejected.field}: {rejected.message}")
        answered = {*accepted, *(rejected.id for rejected in response.rejected)}
        if not answered & kinds.keys():
            # Neither accepted nor refused: an immediate retry would not help.
            raise ServiceError("The server accepted no record of the call and gave no reason.")

    def _refuse(self, id: str, reason: str) -> None:
        _log.error("the server refused %s: %s", id, reason)
        self._spool.refused([id], reason)
        self.refused += 1

    def _tell(self, stub: fleet_pb2_grpc.FleetStub, batch: Sequence[Entry] = ()) -> None:
        """Send these fingerprints with a heartbeat and the current estimates."""
        beat = self._node.beat()
        request = report_of(self._node_id, batch, beat.estimates)
        request.heartbeat.MergeFrom(
            fleet_pb2.Heartbeat(
                probe_cost=beat.probe_cost,
                spooled=sum(self._spool.counts().values()) - len(batch),
                passive=dict(beat.passive),
            )
        )
        response = stub.Report(request, timeout=self._timeout_s)
        # Agents that were started together must not stay synchronised; frequent fingerprints
        # replace heartbeats.
        self._beat_at = time.monotonic() + self._heartbeat_s * self._rng.uniform(1.0, 1.1)
        orders = response.instructions
        if orders.register_again:
            self._registered = None
            # At once, and again no sooner than heartbeats come: a server may say so each time.
            self._beat_at = self._register_at = max(time.monotonic(), self._again_at)
            self._again_at = self._register_at + self._least_heartbeat_s
        # Before what may be raised: the server takes it that orders have come.
        wanted = self._bounded(orders.profile_apps, MOST_PROFILES)
        self._node.ordered(
            Orders(
                profile_apps=tuple(wanted),
                probe_now=orders.probe_now,
                assignment_ids=frozenset(self._bounded(orders.assignment_ids, MOST_ASSIGNMENTS)),
                campaigns={
                    name: orders.campaigns[name]
                    for name in wanted
                    if name in orders.campaigns and len(orders.campaigns[name]) <= MOST_NAME
                },
            )
        )
        if batch:
            self._process(batch, response)

    def _bounded(self, names: Sequence[str], most: int) -> list[str]:
        bounded = [name for name in names[:most] if len(name) <= MOST_NAME]
        if len(bounded) < len(names) and time.monotonic() - self._cut_at >= _TRUNCATED_S:
            self._cut_at = time.monotonic()
            _log.warning(
                "%d names in an answer of the server are not looked at", len(names) - len(bounded)
            )
        return bounded


def _same_call(entries: Sequence[Entry]) -> list[Entry]:
    """Return the first entries that fit into one call: fingerprints, or runs and signatures."""
    fingerprints = entries[0].kind == "fingerprint"
    batch = []
    for entry in entries:
        if (entry.kind == "fingerprint") != fingerprints:
            break
        batch.append(entry)
    return batch
