"""What prolog and epilog left is carried to the server: assignments at once, runs by the spool."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from kongming_agent.reporting.run_listener import Intake
from kongming_agent.reporting.spool import Spool

from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run
from kongming.rpc import handover
from kongming.rpc.handover import Report
from kongming.rpc.v1 import assignments_pb2, assignments_pb2_grpc
from tests.agent.spooled import assignment_of, record_of
from tests.builders import fingerprint as made_fingerprint


class Assignments(assignments_pb2_grpc.AssignmentsServicer):
    def __init__(self) -> None:
        self.bound: list[assignments_pb2.BindRequest] = []
        self.refuse: grpc.StatusCode | None = None

    def Bind(  # noqa: N802
        self, request: assignments_pb2.BindRequest, context: grpc.ServicerContext
    ) -> assignments_pb2.BindResponse:
        if self.refuse is not None:
            context.abort(self.refuse, "not now")
        self.bound.append(request)
        return assignments_pb2.BindResponse()


@pytest.fixture
def assignments() -> Iterator[tuple[Assignments, str]]:
    servicer = Assignments()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    assignments_pb2_grpc.add_AssignmentsServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture
def intake(
    tmp_path: Path, spool: Spool, assignments: tuple[Assignments, str]
) -> Iterator[Callable[..., Intake]]:
    intakes: list[Intake] = []

    def make(latest: dict[int, Fingerprint] | None = None) -> Intake:
        intakes.append(
            Intake(
                tmp_path / "local",
                lambda: grpc.insecure_channel(assignments[1]),
                spool,
                node="node-1",
                placement="cross-core",
                latest=lambda: latest or {},
                on_spooled=lambda: None,
                timeout_s=5.0,
                longest_retry_s=0.01,
                rng=random.Random(0),
            )
        )
        return intakes[-1]

    yield make
    for each in intakes:
        each.close()


def left(folder: Path) -> list[Report | str]:
    return [report for _, report in handover.waiting(folder / "local")]


def started(id_: str = "slurm:c:1:0:n1", at: float | None = None) -> Report:
    return Report("assignment", id_, "xz", time.time() if at is None else at, scheduler="slurm")


def ended(id_: str = "slurm:c:1:0:n1", status: int = 0, at: float = 1e9) -> Report:
    return Report("run", id_, "xz", at, wall_s=2.5, exit_status=status, scheduler="slurm")


def test_an_assignment_is_bound_and_its_run_is_spooled(
    tmp_path: Path,
    spool: Spool,
    assignments: tuple[Assignments, str],
    intake: Callable[..., Intake],
) -> None:
    before = made_fingerprint({"compute.float": 1e-9})
    taking = intake({0: before})
    handover.leave(tmp_path / "local", started())
    taking.turn()
    (bound,) = assignments[0].bound
    assert (bound.assignment_id, bound.app, bound.node) == ("slurm:c:1:0:n1", "xz", "node-1")
    assert left(tmp_path) == []
    handover.leave(tmp_path / "local", ended())
    taking.turn()
    (entry,) = spool.oldest()
    run = record_of(entry)
    assert isinstance(run, Run)
    assert assignment_of(entry) == "slurm:c:1:0:n1"
    assert (run.app, run.node_id, run.kind, run.metric, run.ok) == (
        *("xz", "node-1", "environment", 2.5, True),
    )
    assert run.before is not None
    assert run.before.id == before.id
    assert run.config["scheduler"] == "slurm"
    assert left(tmp_path) == []


def test_what_was_read_after_the_start_does_not_pass_for_before(
    tmp_path: Path, spool: Spool, intake: Callable[..., Intake]
) -> None:
    taking = intake({0: made_fingerprint({"compute.float": 1e-9})})
    handover.leave(tmp_path / "local", started(at=1.0))
    handover.leave(tmp_path / "local", ended(at=1.0))
    taking.turn()
    (entry,) = spool.oldest()
    run = record_of(entry)
    assert isinstance(run, Run)
    assert run.before is None


def test_a_run_that_failed_says_so(
    tmp_path: Path, spool: Spool, intake: Callable[..., Intake]
) -> None:
    taking = intake()
    handover.leave(tmp_path / "local", ended(status=-9))
    taking.turn()
    (entry,) = spool.oldest()
    run = record_of(entry)
    assert isinstance(run, Run)
    assert (run.ok, run.exit_status) == (False, -9)
    assert "-9" in (run.error or "")


def test_a_run_whose_time_is_no_runtime_says_so(
    tmp_path: Path, spool: Spool, intake: Callable[..., Intake]
) -> None:
    taking = intake()
    handover.leave(tmp_path / "local", replace(ended(), error="It was cancelled."))
    taking.turn()
    (entry,) = spool.oldest()
    run = record_of(entry)
    assert isinstance(run, Run)
    assert (run.ok, run.metric, run.exit_status, run.error) == (False, None, 0, "It was cancelled.")
    assert assignment_of(entry) == "slurm:c:1:0:n1"


def test_an_assignment_waits_for_a_server_that_is_away(
    tmp_path: Path,
    assignments: tuple[Assignments, str],
    intake: Callable[..., Intake],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    assignments[0].refuse = grpc.StatusCode.UNAVAILABLE
    taking = intake()
    handover.leave(tmp_path / "local", started())
    for _ in range(3):
        taking.turn()
        time.sleep(0.02)
    assert len(left(tmp_path)) == 1
    assert len(caplog.records) == 1
    assignments[0].refuse = None
    # The process that takes over still has it.
    intake().turn()
    assert len(assignments[0].bound) == 1
    assert left(tmp_path) == []


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ALREADY_EXISTS])
def test_an_assignment_that_is_refused_is_given_up(
    tmp_path: Path,
    assignments: tuple[Assignments, str],
    intake: Callable[..., Intake],
    code: grpc.StatusCode,
) -> None:
    assignments[0].refuse = code
    handover_folder = tmp_path / "local"
    taking = intake()
    handover.leave(handover_folder, started())
    taking.turn()
    assert left(tmp_path) == []


def test_a_run_is_kept_whether_its_assignment_was_reported_or_not(
    tmp_path: Path,
    spool: Spool,
    assignments: tuple[Assignments, str],
    intake: Callable[..., Intake],
) -> None:
    assignments[0].refuse = grpc.StatusCode.UNAVAILABLE
    taking = intake()
    handover.leave(tmp_path / "local", started())
    handover.leave(tmp_path / "local", ended())
    taking.turn()
    assert spool.counts()["run"] == 1
    assert left(tmp_path) == []


def test_the_same_run_twice_is_one(
    tmp_path: Path, spool: Spool, intake: Callable[..., Intake]
) -> None:
    taking = intake()
    for _ in range(2):
        handover.leave(tmp_path / "local", ended())
    taking.turn()
    assert spool.counts()["run"] == 1
    assert left(tmp_path) == []


def test_what_is_no_report_is_told_and_removed(
    tmp_path: Path, intake: Callable[..., Intake], caplog: pytest.LogCaptureFixture
) -> None:
    taking = intake()
    (tmp_path / "local" / "1.report").write_text("{")
    taking.turn()
    assert "1.report" in caplog.text
    assert list((tmp_path / "local").iterdir()) == []
    assert (tmp_path / "local").stat().st_mode & 0o777 == 0o700


def test_a_report_of_which_no_record_can_be_made_does_not_stand_before_others(
    tmp_path: Path,
    spool: Spool,
    intake: Callable[..., Intake],
    caplog: pytest.LogCaptureFixture,
) -> None:
    taking = intake()
    # Milliseconds for seconds: in the year 55,000.
    handover.leave(tmp_path / "local", ended("slurm:c:1:0:n1", at=1.7e12))
    handover.leave(tmp_path / "local", ended("slurm:c:2:0:n1"))
    taking.turn()
    assert spool.counts()["run"] == 1
    assert "is left out" in caplog.text
    assert left(tmp_path) == []


def test_files_of_earlier_versions_are_read_and_newer_ones_named(tmp_path: Path) -> None:
    common = {"kind": "run", "app": "xz", "at": 1.0, "wall_s": 2.5}
    for name, document in (
        ("1", {"format": 1, "placement_id": "job-1"}),
        ("2", {"format": 1, "assignment_id": "job-2"}),
        ("3", {"format": 2, "kind": "placement", "assignment_id": "job-3"}),
        ("4", {"format": handover.FORMAT + 1, "assignment_id": "job-4"}),
    ):
        (tmp_path / f"{name}.report").write_text(json.dumps(common | document))
    *earlier, newer = (report for _, report in handover.waiting(tmp_path))
    assert [
        (report.assignment_id, report.kind) for report in earlier if isinstance(report, Report)
    ] == [
        ("job-1", "run"),
        ("job-2", "run"),
        ("job-3", "assignment"),
    ]
    assert newer == f"its format is {handover.FORMAT + 1}, and not up to {handover.FORMAT}"
