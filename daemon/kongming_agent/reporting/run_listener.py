"""Delivery of the reports of prolog and epilog: assignments at once, finished runs by the spool."""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

import grpc

from kongming.backoff import Backoff
from kongming.records import moments
from kongming.records.errors import KongmingError, StoreError
from kongming.records.fingerprint import Fingerprint
from kongming.records.resident import LONGEST_BIND_DELAY_S
from kongming.records.run import Run
from kongming.rpc import handover
from kongming.rpc.errors import from_rpc_error
from kongming.rpc.handover import Report
from kongming.rpc.v1 import assignments_pb2, assignments_pb2_grpc
from kongming.rpc.value_codec import timestamp
from kongming_agent.reporting.spool import DuplicateError, Spool

_log = logging.getLogger(__name__)

PERIOD_S = 1.0
"""Seconds between scans of the folder."""
_MOST_HELD = 4096
_HOPELESS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.OUT_OF_RANGE,
)
"""Status codes of assignments that would be refused again."""


class Intake:
    """``turn`` processes the files of the folder; ``run`` repeats it until stopped.

    ``node`` is the node's id, ``latest`` gives its newest fingerprints by cache domain, and
    ``on_spooled`` is called when a run is in the spool. One thread.
    """

    def __init__(
        self,
        folder: Path,
        channel: Callable[[], grpc.Channel],
        spool: Spool,
        *,
        node: str,
        placement: str,
        latest: Callable[[], Mapping[int, Fingerprint]],
        on_spooled: Callable[[], None],
        timeout_s: float,
        longest_retry_s: float,
        rng: random.Random,
    ) -> None:
        self._folder, self._open, self._spool = folder, channel, spool
        self._node, self._placement = node, placement
        self._latest, self._on_spooled = latest, on_spooled
        self._timeout_s = timeout_s
        self._backoff = Backoff(PERIOD_S, longest_retry_s, rng)
        self._retry_at = 0.0
        self._away = False
        self._channel: grpc.Channel | None = None
        # By assignment: the fingerprint of the node before it started.
        self._held: dict[str, Fingerprint | None] = {}
        handover.make(folder)

    def run(self, stopping: threading.Event) -> None:
        unread = False
        while not stopping.wait(PERIOD_S):
            try:
                self.turn()
                unread = False
            except OSError as error:
                if not unread:
                    _log.warning("reports in %s cannot be taken: %s", self._folder, error)
                unread = True
            except Exception:
                # What one file holds must not end the thread for all that come after it.
                if not unread:
                    _log.exception("reports in %s cannot be taken", self._folder)
                unread = True
        self.close()

    def turn(self) -> None:
        """Process the files of the folder. Raises OSError if it cannot be read."""
        reports = list(handover.waiting(self._folder))
        # A job that has already ended needs no assignment.
        ended = {r.assignment_id for _, r in reports if isinstance(r, Report) and r.kind == "run"}
        for path, report in reports:
            if isinstance(report, str):
                _log.warning("%s is left out: %s", path.name, report)
                path.unlink(missing_ok=True)
                continue
            try:
                taken = self._take(report, ended)
            except (KongmingError, ValueError) as error:
                # Nobody can make a record of it, and it would stand before all that come after.
                _log.warning("%s is left out: %s", path.name, error)
                taken = True
            if taken:
                path.unlink(missing_ok=True)

    def _take(self, report: Report, ended: AbstractSet[str]) -> bool:
        """Return whether the report is done with."""
        if report.kind == "assignment":
            self._hold(report)
            return self._bound(report) or report.assignment_id in ended
        return self._add_to_spool(report)

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    # Assignments

    def _hold(self, report: Report) -> None:
        if report.assignment_id in self._held:
            return
        earlier = [each for each in self._latest().values() if _ended_at(each) <= report.at]
        self._held[report.assignment_id] = max(earlier, key=_ended_at, default=None)
        while len(self._held) > _MOST_HELD:
            del self._held[next(iter(self._held))]

    def _bound(self, report: Report) -> bool:
        """Return whether the file is no longer needed."""
        if time.monotonic() < self._retry_at:
            return False
        answer = self._bind_once(report)
        if answer is None:
            self._retry_at = time.monotonic() + self._backoff.after_failure()
            return time.time() - report.at > LONGEST_BIND_DELAY_S
        self._backoff.after_success()
        self._retry_at = 0.0
        return True

    def _bind_once(self, report: Report) -> bool | None:
        """Return whether the server accepted it; None if it may accept it later."""
        request = assignments_pb2.BindRequest(
            assignment_id=report.assignment_id,
            started_at=timestamp(report.at),
            app=report.app,
            node=self._node,
        )
        try:
            if self._channel is None:
                self._channel = self._open()
            stub = assignments_pb2_grpc.AssignmentsStub(self._channel)
            stub.Bind(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
            if error.code() in _HOPELESS:
                _log.warning("the assignment of %s was refused: %s", report.assignment_id, failure)
                return False
            self._failed(failure)
            return None
        except KongmingError as error:
            self._failed(error)
            return None
        self._away = False
        return True

    def _failed(self, error: KongmingError) -> None:
        if not self._away:
            _log.warning("assignments cannot be reported: %s", error)
        self._away = True
        self.close()

    # Runs

    def _add_to_spool(self, report: Report) -> bool:
        """Return whether the run is in the spool, so that the file is no longer needed."""
        try:
            self._spool.add_run(self._run(report), assignment_id=report.assignment_id)
        except DuplicateError:
            _log.debug(
                "%s was spooled by an earlier process that did not remove its file", report.app
            )
        except StoreError as error:
            _log.warning("%s", error)
            return False
        self._held.pop(report.assignment_id, None)
        self._on_spooled()
        return True

    def _run(self, report: Report) -> Run:
        error = report.error or None
        if report.exit_status != 0:
            error = f"It ended with status {report.exit_status}."
        return Run(
            app=report.app,
            # The scheduler started it; the program was not hashed.
            identity="",
            node_id=self._node,
            placement=self._placement,
            kind="environment",
            started_at=moments.format(report.at),
            wall_s=report.wall_s,
            metric=report.wall_s if error is None else None,
            before=self._held.get(report.assignment_id),
            exit_status=report.exit_status,
            error=error,
            config={
                "environment": "in service",
                "scheduler": report.scheduler,
                "assignment_id": report.assignment_id,
            },
            # One run per assignment: a repeated report is the same run.
            id=uuid.uuid5(uuid.NAMESPACE_URL, f"{report.assignment_id}@{report.at:.0f}").hex,
        )


def _ended_at(fingerprint: Fingerprint) -> float:
    return moments.unix(fingerprint.started_at) + fingerprint.elapsed_s
