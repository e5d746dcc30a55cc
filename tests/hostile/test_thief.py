"""What an agent's token can say is about its own node: after every move of a thief the answers
about all others are the same numbers, and their reports are taken."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import grpc
import pytest

from kongming.rpc import record_codec as records
from kongming.rpc.v1 import assignments_pb2, fleet_pb2
from kongming.store import Store
from tests import builders
from tests.hostile.fleet import HONEST, Answers, Fleet, fingerprint, serving
from tests.server.core import worlds
from tests.server.credentials import agent_with, code_of
from tests.server.fleet import FakeAgent, moment
from tests.server.process import eventually

Move = Callable[[Fleet], None]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with serving(tmp_path_factory.mktemp("hostile")) as running:
        yield running


@pytest.fixture(scope="module")
def before(fleet: Fleet) -> Answers:
    assert fleet.ingest()
    return fleet.answers()


def bind(who: FakeAgent, id_: str, app: str, node: str) -> grpc.StatusCode:
    request = assignments_pb2.BindRequest(assignment_id=id_, app=app, node=node)
    return code_of(lambda: who.assignments.Bind(request, timeout=60))


def acts_on_others(fleet: Fleet) -> None:
    """Assignments, registrations, reports and heartbeats of the honest nodes."""
    thief = fleet.thief
    for node in HONEST:
        for id_ in (f"ghost:{node}", f"slurm:c:1:0:{node}"):
            assert bind(thief, id_, "memory", node) is grpc.StatusCode.PERMISSION_DENIED
    facts = thief.facts
    for node in HONEST:
        for changed in ({"id": node, "name": "x"}, {"id": "x", "name": node}):
            thief.facts = builders.node(**changed)
            assert code_of(thief.register) in (
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.ALREADY_EXISTS,
            )
    thief.facts = builders.node(id="node-1", name="node-1")
    assert code_of(thief.heartbeat) is grpc.StatusCode.PERMISSION_DENIED
    live = fingerprint(thief, dict.fromkeys(worlds.NAMES, 2.0))
    assert code_of(lambda: thief.report(live)) is grpc.StatusCode.PERMISSION_DENIED
    thief.facts = facts


def takes_ids(fleet: Fleet) -> None:
    """The ids of coming records and assignments."""
    thief = fleet.thief
    for number in range(5):
        run = builders.run("junk", 9.0, node_id="thief", id=f"coming-{number}")
        assert list(thief.report_runs([run]).accepted) == [run.id]
        assert bind(thief, f"slurm:c:{number}:0:node-1", "junk", "thief") is not grpc.StatusCode.OK
    honest = fleet.honest[0]
    mine = builders.run("sort", 1.0, node_id="node-1", id="coming-0")
    assert list(honest.report_runs([mine]).accepted) == [mine.id]
    with Store.open(fleet.server.store_url) as store:
        assert mine.id in {run.id for run in store.runs(app="sort", node_id="node-1")}


def reports_extremes(fleet: Fleet) -> None:
    """The slowest and the fastest that is plausible, on a node full of assignments."""
    thief = fleet.thief
    extreme = builders.fingerprint(
        dict.fromkeys(worlds.NAMES, 3599.0),
        node=thief.facts,
        suite_version=worlds.SUITE,
        started_at=moment(0.5),
    )
    fast = builders.fingerprint(
        dict.fromkeys(worlds.NAMES, 1e-11),
        node=thief.facts,
        suite_version=worlds.SUITE,
        started_at=moment(1.0),
    )
    thief.register(references=[fast])
    for number in range(50):
        assert bind(thief, f"ghost-{number}:thief", f"nuke-{number % 3}", "thief").name == "OK"
    for number in range(3):
        signature = builders.signature(f"nuke-{number}", {}, node_id="thief", fingerprint=extreme)
        assert list(thief.report_runs([], [signature]).accepted) == [signature.id]
    assert list(thief.report(extreme).accepted) == [extreme.id]


def names_surrogates(fleet: Fleet) -> None:
    """As many as they can, in as many suites; a later agent still has room for its own."""
    second, _ = agent_with(fleet.server)
    second.facts = builders.node(id="thief-2", name="thief-2")
    second.register()
    for thief in (fleet.thief, second):
        for number in range(8):
            times = {f"{thief.facts.id}.{number}.{place}": 1e-9 for place in range(128)}
            suite = {"suite_version": f"9-{number}", "started_at": moment(0.5)}
            thief.register(references=[builders.fingerprint(times, node=thief.facts, **suite)])
    late, _ = agent_with(fleet.server)
    late.facts = builders.node(id="late", name="late")
    own = {f"own.{place}": 1e-9 for place in range(30)}
    values = {"node": late.facts, "suite_version": "1-own"}
    late.register(references=[builders.fingerprint(own, started_at=moment(9.0), **values)])
    twice = dict.fromkeys(own, 2e-9)
    late.report(builders.fingerprint(twice, started_at=moment(1.0), elapsed_s=0.5, **values))
    listed = fleet.operator.node_of("late").slowdown
    assert dict(listed) == pytest.approx(dict.fromkeys(own, 2.0))


def reports_sizes(fleet: Fleet) -> None:
    """What is far too large is refused; what is as large as can be is kept."""
    thief = fleet.thief
    facts = thief.facts
    thief.facts = builders.node(id="thief", name="thief", kernel="x" * (1 << 20))
    assert code_of(thief.register) is grpc.StatusCode.INVALID_ARGUMENT
    thief.facts = facts
    signals = {f"signal-{number}": 1.0 for number in range(20_000)}
    too_many = code_of(lambda: thief.heartbeat(passive=signals))
    assert too_many is grpc.StatusCode.INVALID_ARGUMENT
    long = fingerprint(thief, {})
    for id_ in ("i" * 20_000, "é" * 100):
        message = thief.request(long)
        message.fingerprint.id = id_
        assert code_of(lambda m=message: thief.send([m])) is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[misc]


def reports_impossible_numbers(fleet: Fleet) -> None:
    """Sequence numbers and times that are impossible."""
    thief = fleet.thief
    message = thief.request(fingerprint(thief, {}))
    message.sequence = 2**63 - 1
    assert thief.send([message]).rejected[0].field == "sequence"
    assert thief.register().acknowledged < 2**53
    for cost in (math.nan, math.inf, -1.0):
        thief.heartbeat(probe_cost=cost)
        node = fleet.operator.node_of("thief")
        assert math.isfinite(node.probe_cost)
        assert node.state == fleet_pb2.NODE_STATE_SUSPECT
    for seconds in (1e12, 1e300):
        run = builders.run("sort", 1.0, node_id="thief")
        reported = fleet_pb2.ReportedRun(sequence=1, run=records.run_to_message(run))
        reported.run.wall_seconds = seconds
        request = fleet_pb2.ReportRunsRequest(node_id="thief", runs=[reported])
        assert [
            rejection.id for rejection in thief.fleet.ReportRuns(request, timeout=60).rejected
        ] == [run.id]


def fills_the_log(fleet: Fleet) -> None:
    """One line for each of its records, if each of them were logged."""
    thief = fleet.thief
    before = fleet.server.log.read_text().count("\n")
    impossible = [thief.request(fingerprint(thief, {})) for _ in range(200)]
    for number, message in enumerate(impossible):
        message.fingerprint.elapsed_seconds = 1e12 + number
    assert len(thief.send(impossible).rejected) == len(impossible)
    runs = [builders.run("sort", 1.0, node_id="thief", id=f"log-{n}") for n in range(200)]
    assert len(thief.report_runs(runs, assignment_id="unknown").accepted) == len(runs)
    assert fleet.server.log.read_text().count("\n") - before < 50


def teaches(fleet: Fleet) -> None:
    """Finished runs far from their predictions, a made-up profile, and a signature."""
    thief = fleet.thief
    thief.register(references=[fingerprint(thief, {})])
    for number in range(12):
        thief.report(fingerprint(thief, {}, age_s=0.5))
        id_ = f"drift-{number}:thief"
        assert bind(thief, id_, "memory", "thief") is grpc.StatusCode.OK
        run = builders.run("memory", 80.0, node_id="thief", kind="environment")
        assert list(thief.report_runs([run], assignment_id=id_).accepted) == [run.id]
    made_up = [
        builders.run(
            "memory",
            0.01,
            fingerprint=fingerprint(thief, {}),
            node_id="thief",
            identity="evil",
            kind="solo" if number % 2 else "induced",
        )
        for number in range(24)
    ]
    assert len(thief.report_runs(made_up).accepted) == len(made_up)
    for app in ("memory", "disk", "unknown"):
        strong = fingerprint(thief, dict.fromkeys(worlds.NAMES, 3.0))
        signature = builders.signature(app, {}, node_id="thief", fingerprint=strong)
        assert list(thief.report_runs([], [signature]).accepted) == [signature.id]
    with Store.open(fleet.server.store_url) as store:
        assert store.models_in_service() == {(a, "cross-core"): 1 for a in ("disk", "memory")}
        assert not store.runs(node_id="thief", requested=True)


def waits_for_a_restart(fleet: Fleet) -> None:
    """What only shows once the server has read everything again."""
    fleet.server.restart()
    eventually(lambda: code_of(fleet.honest[0].heartbeat) is grpc.StatusCode.OK, 60.0)


MOVES: tuple[Move, ...] = (
    acts_on_others,
    takes_ids,
    reports_extremes,
    names_surrogates,
    reports_sizes,
    reports_impossible_numbers,
    fills_the_log,
    teaches,
    waits_for_a_restart,
)


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_no_move_changes_an_answer_about_others(fleet: Fleet, before: Answers, move: Move) -> None:
    move(fleet)
    assert fleet.ingest()
    assert fleet.answers() == before


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.thorough)])
def test_whatever_it_says_for_an_hour_moves_no_prediction(
    fleet: Fleet, before: Answers, every: int
) -> None:
    """Something else each so many minutes of that hour."""
    rng = random.Random(7)
    thief = fleet.thief
    accepted = 0
    minutes = range(0, 60, every)
    for minute in minutes:
        age_s = 60.0 * (60 - minute)
        logs = {name: rng.uniform(-1.0, 6.0) for name in worlds.NAMES}
        with suppress(grpc.RpcError):
            thief.report(fingerprint(thief, logs, age_s))
        app = rng.choice(("memory", "disk", "unknown", "sort"))
        with suppress(grpc.RpcError):
            bind(thief, f"hour-{minute}:thief", app, "thief")
        run = builders.run(
            app,
            rng.uniform(0.001, 1000.0),
            fingerprint=fingerprint(thief, logs, age_s),
            node_id="thief",
            kind=rng.choice(("solo", "induced", "corun", "environment")),
            started_at=moment(age_s),
        )
        inflicted = fingerprint(thief, logs, age_s)
        signature = builders.signature(app, {}, node_id="thief", fingerprint=inflicted)
        taken = thief.report_runs([run], [signature], assignment_id=f"hour-{minute}:thief")
        accepted += len(taken.accepted)
    # Most of it can be true, for all that a server knows, and is kept.
    assert accepted > len(minutes)
    assert fleet.ingest()
    after = fleet.answers()
    assert after.keys() == before.keys()
    for key, value in after.items():
        if not key.endswith("listed"):
            assert value == pytest.approx(before[key], rel=0.02, abs=1e-9), key


def test_only_the_campaign_that_was_asked_for_is_learnt_from(fleet: Fleet) -> None:
    honest = fleet.honest[0]
    honest.register(references=[fingerprint(honest, {})], allowed_apps=["asked"])
    request = fleet_pb2.RequestProfileRequest(node="node-1", apps=["asked"])
    fleet.operator.fleet.RequestProfile(request, timeout=60)
    campaign = honest.heartbeat().campaigns["asked"]

    def report(who: FakeAgent, app: str, id_: str) -> None:
        of = {"node_id": who.facts.id, "campaign": id_}
        run = builders.run(app, 1.0, fingerprint=fingerprint(who, {}), kind="solo", **of)
        signature = builders.signature(app, {}, fingerprint=fingerprint(who, {}), **of)
        assert len(who.report_runs([run], [signature]).accepted) == 2

    report(honest, "asked", campaign)
    # Of another campaign, application or node it is what somebody says.
    report(honest, "asked", "")
    report(honest, "other", campaign)
    report(fleet.thief, "asked", campaign)
    with Store.open(fleet.server.store_url) as store:
        for app, stored in (("asked", 3), ("other", 1)):
            assert len(store.runs(app=app)) == len(store.signatures(app=app)) == stored
        learnt = [
            *store.runs(app="asked", requested=True),
            *store.signatures(app="asked", requested=True),
        ]
        assert [(record.node_id, record.campaign) for record in learnt] == [
            ("node-1", campaign)
        ] * 2
        assert not store.runs(app="other", requested=True)
