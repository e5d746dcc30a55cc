"""Places at a real server, for a framework that is a list of members."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable
from threading import Event
from typing import Any

import pytest

from kongming.integrations.placer import Placer
from kongming.integrations.placing import Member, Target
from kongming.integrations.reports import Reports
from kongming.records.answers import Assignment
from kongming.records.errors import (
    CannotAnswerError,
    InputError,
    UnavailableError,
    UnknownNameError,
)
from kongming.rpc.client import RemoteService
from tests.server.process import ServerProcess, eventually, python_path

AWAY = "127.0.0.1:9"


class ListPlacer(Placer):
    framework = "list"
    names: tuple[str, ...] = ("calm", "busy")

    def _members(self) -> Iterable[Member]:
        return [Member(name, (name,), 1) for name in self.names]

    def _options(self, target: Target, placed: int) -> dict[str, Any]:
        return {"on": [member.id for member in target.members]}


class OnStrangers(ListPlacer):
    names = ("stranger",)


def held(service: RemoteService) -> list[Assignment]:
    return list(service.assignments())


def test_places_are_reserved_in_turn_and_released_at_their_ends(
    fleet: ServerProcess, service: RemoteService
) -> None:
    with ListPlacer(fleet.grpc, app="sort", limit=1.5) as placer:
        first, second = placer.place(), placer.place()
        assert [first.options, second.options] == [{"on": ["calm"]}] * 2
        # The second waits for the first, and is no resident of the node meanwhile.
        (reserved,) = held(service)
        assert (reserved.assignment_id, reserved.app) == (first.id, "sort")
        assert (reserved.node_id, reserved.state) == ("calm", "reserved")
        first.end()
        first.end()
        eventually(lambda: [each.assignment_id for each in held(service)] == [second.id])
        with pytest.raises(ZeroDivisionError), second:
            _ = 1 // 0
        eventually(lambda: held(service) == [])
        placer.place()
        assert len(held(service)) == 1
    assert held(service) == []
    assert placer.place().options == {}


def test_a_task_that_ended_before_its_turn_is_never_reserved(
    fleet: ServerProcess, service: RemoteService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short tasks come and go faster than reports are sent: nothing is to be left of them."""
    calls: list[str] = []

    def spy(name: str) -> None:
        real = getattr(RemoteService, name)

        def called(self: RemoteService, assignment_id: str, *args: Any, **kwargs: Any) -> Any:
            calls.append(f"{name} {assignment_id}")
            return real(self, assignment_id, *args, **kwargs)

        monkeypatch.setattr(RemoteService, name, called)

    for name in ("reserve", "release", "bind"):
        spy(name)
    with ListPlacer(fleet.grpc, app="sort", limit=1.5, ttl_s=0.4) as placer:
        first, second, third = (placer.place() for _ in range(3))
        assert placer._reports is not None
        behind = Event()
        placer._reports.send(behind.wait)
        for place in (first, second, third):
            place.end()
        behind.set()
        eventually(lambda: f"release {first.id}" in calls)
        # Ended while it was being reserved, in the thread of the reports.
        reserve = ListPlacer._reserve

        def and_end(self: ListPlacer, service: RemoteService, place: Any) -> None:
            reserve(self, service, place)
            place.end()
            self._reports.reserved(place.id)  # type: ignore[union-attr]

        fourth, fifth = placer.place(), placer.place()
        monkeypatch.setattr(ListPlacer, "_reserve", and_end)
        fourth.end()
        eventually(lambda: f"release {fifth.id}" in calls)
        # Longer than until a reservation that lasts is bound.
        with pytest.raises(AssertionError):
            eventually(lambda: f"bind {fifth.id}" in calls, 0.5)
    assert not [call for call in calls if second.id in call or third.id in call]
    assert held(service) == []


def test_a_reservation_that_lasts_is_bound(fleet: ServerProcess, service: RemoteService) -> None:
    with ListPlacer(fleet.grpc, app="sort", ttl_s=0.5) as placer:
        place = placer.place()
        (bound,) = eventually(
            lambda: [each for each in held(service) if each.state == "bound"], 30.0
        )
        assert bound.assignment_id == place.id
        assert bound.bound_at == pytest.approx(bound.reserved_at, abs=0.2)


KILLED = """
import os, signal
from tests.integrations.test_placer import ListPlacer

def place():
    return ListPlacer({server!r}, app="sort").place()

killed = os.fork()
if not killed:
    place()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(killed, 0)
print("killed", flush=True)
input()
held = place()
raise KeyboardInterrupt
"""


def test_nothing_is_left_of_programs_that_were_killed_or_interrupted(
    fleet: ServerProcess, service: RemoteService
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(server=fleet.grpc)],
        env={"PYTHONPATH": python_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "killed\n"
        # What kill -9 left ends by itself, or with the next program on this host.
        (left,) = held(service)
        program.communicate("\n")
    assert program.returncode != 0
    assert held(service) == []
    (ended,) = [
        each for each in service.assignments(ended=True) if each.assignment_id == left.assignment_id
    ]
    assert ended.state == "released"


@pytest.mark.parametrize(
    ("placer", "server", "error", "says"),
    [
        (ListPlacer, AWAY, UnavailableError, AWAY),
        (ListPlacer, None, UnavailableError, "KONGMING_SERVER"),
        (OnStrangers, "", CannotAnswerError, "knows none of the nodes stranger"),
    ],
)
def test_without_an_answer_tasks_go_as_without_kongming(
    fleet: ServerProcess,
    placer: type[ListPlacer],
    server: str | None,
    error: type[Exception],
    says: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KONGMING_SERVER", raising=False)
    server = fleet.grpc if server == "" else server
    with placer(server, app="sort") as lenient, caplog.at_level(logging.INFO):
        for _ in range(3):
            with lenient.place() as place:
                assert (place.options, place.node_id) == ({}, None)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert says in record.getMessage()
    with placer(server, app="sort", strict=True) as strict, pytest.raises(error, match=says):
        strict.place()


def test_a_server_that_comes_back_is_asked_again(
    fleet: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with ListPlacer(fleet.grpc, app="sort") as placer, caplog.at_level(logging.INFO):
        placer._paused_until = float("inf")
        assert placer.place().options == {}
        placer._paused_until = 0.0
        assert placer.place().options == {"on": ["calm"]}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


class Flaky:
    """A server that is away for the first calls."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls: list[str] = []

    def assignments(self) -> tuple[Assignment, ...]:
        return ()

    def release(self, assignment_id: str) -> None:
        self.calls.append(assignment_id)
        if len(self.calls) <= self.failures:
            raise UnavailableError("away")
        if assignment_id == "unknown":
            raise UnknownNameError("assignment", assignment_id, ())


def test_reports_wait_for_a_server_that_is_away_and_come_in_order() -> None:
    server: Any = Flaky(failures=2)
    reports = Reports(server, "list", ttl_s=60.0, timeout_s=10.0)
    for assignment_id in ("a", "unknown", "b"):
        reports.release(assignment_id, lambda: True)
    eventually(lambda: len(server.calls) == 5)
    reports.close()
    assert server.calls == ["a", "a", "a", "unknown", "b"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"server": "nowhere"}, "server"),
        ({"app": ""}, "app"),
        ({"limit": 0.5}, "limit"),
        ({"placement": "next to"}, "placement"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"ttl_s": -1.0}, "ttl_s"),
        ({"ttl_s": float("nan")}, "ttl_s"),
        ({"server": "example.org:7400", "token": "secret"}, "token"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        ListPlacer(**({"server": AWAY, "app": "sort"} | wrong))
    assert caught.value.field == field
