"""What follows from a run that is on disk, also where the store fails or compares it with none."""

from __future__ import annotations

import asyncio

import grpc
import psycopg
import pytest
from kongming_server.services.finished_runs import FinishedRun, follow_up

from kongming.records.errors import AccessError, InputError, StoreError
from kongming.rpc.v1 import assignments_pb2
from tests import builders
from tests.server.conftest import StartServer
from tests.server.credentials import code_of
from tests.server.fleet import FakeAgent

FULL = StoreError("The store cannot grow: the disk is full.", away=True)
DAMAGED = StoreError("The store has a value that cannot be read.")


class Followers:
    """Notes what is done; each fails with the error that it was given."""

    def __init__(self, ends: Exception | None = None, compares: Exception | None = None) -> None:
        self.done: list[str] = []
        self.ends, self.compares = ends, compares

    async def end(self, assignment_id: str, node_id: str, ended_at: float) -> None:
        if self.ends is not None:
            raise self.ends
        self.done.append(f"{assignment_id} ended")

    async def run_finished(self, reported: FinishedRun, /) -> bool:
        if self.compares is not None:
            raise self.compares
        self.done.append("compared")
        return True

    def follow(self) -> list[str]:
        run = builders.run("sort", 2.0, node_id="node-1")
        asyncio.run(follow_up(FinishedRun(run, "job-1"), self, self))
        return self.done


@pytest.mark.parametrize("error", [InputError("is implausible.", field="measured"), DAMAGED])
def test_what_cannot_be_compared_ends_its_assignment_all_the_same(error: Exception) -> None:
    assert Followers(compares=error).follow() == ["job-1 ended"]


@pytest.mark.parametrize("error", [AccessError("It is none of this node's."), DAMAGED])
def test_what_ends_no_assignment_is_compared_all_the_same(error: Exception) -> None:
    assert Followers(ends=error).follow() == ["compared"]


@pytest.mark.parametrize(
    ("followers", "done"),
    [(Followers(ends=FULL), []), (Followers(compares=FULL), ["job-1 ended"])],
    ids=["ends", "compares"],
)
def test_a_store_that_is_away_has_the_run_delivered_again(
    followers: Followers, done: list[str]
) -> None:
    with pytest.raises(StoreError):
        followers.follow()
    assert followers.done == done
    followers.ends = followers.compares = None
    assert followers.follow() == [*done, "job-1 ended", "compared"]


def test_a_run_whose_assignment_could_not_be_released_is_not_acknowledged(
    start_server: StartServer, postgres_store_url: str
) -> None:
    server = start_server(
        store_url=postgres_store_url,
        settings={"server.lock_timeout_s": 0.3, "server.statement_timeout_s": 5.0},
    )
    agent = FakeAgent(server.channel())
    agent.register()
    agent.assignments.Bind(
        assignments_pb2.BindRequest(assignment_id="job-1", app="sort", node="node-1")
    )
    run = builders.run("sort", 1.0, node_id="node-1")
    with psycopg.connect(postgres_store_url) as other:
        other.execute("LOCK TABLE assignment IN EXCLUSIVE MODE")
        code = code_of(lambda: agent.report_runs([run], assignment_id="job-1"))
        assert code is grpc.StatusCode.UNAVAILABLE
        other.rollback()
    assert list(agent.heartbeat().assignment_ids) == ["job-1"]
    assert list(agent.report_runs([run], assignment_id="job-1").accepted) == [run.id]
    assert list(agent.heartbeat().assignment_ids) == []
