"""The client sends what it was asked and gives back what the server answered."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from kongming.records.answers import (
    Contribution,
    Forecast,
    Imported,
    NeighbourImpact,
    PlacedApplication,
    RankedNode,
    Realised,
    ResidentImpact,
    TrainedModel,
)
from kongming.records.errors import (
    InputError,
    KongmingError,
    ServiceError,
    UnavailableError,
    UnknownNameError,
    UntrainedError,
)
from kongming.records.prediction import Driver, Interval
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.records.run import Run, Signature
from kongming.rpc import record_codec as records
from kongming.rpc import value_codec as values
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from kongming.rpc.errors import failure_message
from kongming.rpc.v1 import (
    assignments_pb2,
    fleet_pb2,
    predictor_pb2,
    profiles_pb2,
    records_pb2,
)
from tests import builders
from tests.rpc.scripted import Answers, Scripted, serving

Serve = Callable[[Answers], tuple[RemoteService, Scripted]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a scripted server and a client of it."""
    open_: list[Any] = []

    def start(answers: Answers) -> tuple[RemoteService, Scripted]:
        server = serving(answers)
        scripted = server.__enter__()
        service = RemoteService(Connection(scripted.target))
        open_.append((service, server))
        return service, scripted

    yield start
    for service, server in open_:
        service.close()
        server.__exit__(None, None, None)


def interval(median: float) -> predictor_pb2.Interval:
    return predictor_pb2.Interval(
        median=median, lower=median / 2, upper=median * 2, level=0.9, calibrated=True
    )


PREDICTION = predictor_pb2.Prediction(
    app="sort",
    node_id="node-1",
    domain=1,
    placement=records_pb2.PLACEMENT_CROSS_CORE,
    basis=predictor_pb2.BASIS_MODEL,
    model="STACK",
    model_version=3,
    solo=2.0,
    runtime=interval(4.0),
    metric_unit="s",
    slowdown=interval(2.0),
    fingerprint_age=Duration(seconds=90, nanos=500_000_000),
    stale=True,
    extrapolating=True,
    drivers=[predictor_pb2.Driver(family="memory", share=1.0)],
    residents={
        "job-1": predictor_pb2.ResidentImpact(
            app="zip", slowdown_now=interval(1.0), slowdown_then=interval(1.5)
        )
    },
    warnings=["It is old."],
    notes=["Nothing."],
)
FORECAST = Forecast(
    app="sort",
    node_id="node-1",
    domain=1,
    placement="cross-core",
    basis="model",
    slowdown=Interval(2.0, 1.0, 4.0),
    model="STACK",
    model_version=3,
    solo_s=2.0,
    runtime_s=Interval(4.0, 2.0, 8.0),
    fingerprint_age_s=90.5,
    stale=True,
    extrapolating=True,
    drivers=(Driver("memory", 1.0),),
    residents={"job-1": ResidentImpact("zip", Interval(1.0, 0.5, 2.0), Interval(1.5, 0.75, 3.0))},
    warnings=("It is old.",),
    notes=("Nothing.",),
)


def test_predict_answers_each_question_or_says_why_not(serve: Serve) -> None:
    refusal = UntrainedError("It was never trained.", hint="Train it.")
    node_only = predictor_pb2.Prediction(
        app="new", node_id="n", basis=predictor_pb2.BASIS_NODE_ONLY, slowdown=interval(1.2)
    )
    service, server = serve(
        {
            "Predict": lambda request: predictor_pb2.PredictResponse(
                request_id=request.request_id,
                answers=[
                    predictor_pb2.PredictAnswer(prediction=PREDICTION),
                    predictor_pb2.PredictAnswer(failure=failure_message(refusal)),
                    predictor_pb2.PredictAnswer(prediction=node_only),
                ],
            )
        }
    )
    question = Question(
        "sort", "alpha", "same-core", 0.5, "refuse", "LM", 2, domain=0, resident_id="j", strict=True
    )
    good, bad, unknown = service.predict([question, Question("a", "b"), Question("new", "n")])
    assert good == FORECAST
    assert isinstance(bad, UntrainedError)
    assert (bad.message, bad.hint) == (refusal.message, refusal.hint)
    assert isinstance(unknown, Forecast)
    assert (unknown.basis, unknown.solo_s, unknown.runtime_s) == ("node-only", None, None)
    request = server.seen[0][1]
    assert len(request.request_id) == 32
    assert request.questions[0] == predictor_pb2.PredictQuestion(
        app="sort",
        node="alpha",
        placement=records_pb2.PLACEMENT_SAME_CORE,
        level=0.5,
        stale_policy=predictor_pb2.STALE_POLICY_REFUSE,
        model="LM",
        model_version=2,
        domain=0,
        resident_id="j",
        strict=True,
    )
    assert not request.questions[1].HasField("domain")


def test_many_questions_go_in_several_requests(serve: Serve) -> None:
    service, server = serve(
        {
            "Predict": lambda request: predictor_pb2.PredictResponse(
                answers=[predictor_pb2.PredictAnswer(prediction=PREDICTION)]
                * len(request.questions)
            )
        }
    )
    assert len(service.predict([Question("sort", "n")] * 1201)) == 1201
    assert [len(request.questions) for _, request, _ in server.seen] == [500, 500, 201]
    assert service.predict([]) == ()


def test_colocation_and_explanation(serve: Serve) -> None:
    corrected = predictor_pb2.Prediction()
    corrected.CopyFrom(PREDICTION)
    corrected.fingerprint_taken_at.seconds = 100
    corrected.added.append("job-2")
    corrected.removed.append("job-1")
    service, server = serve(
        {
            "PredictColocation": lambda _: predictor_pb2.PredictColocationResponse(
                prediction=PREDICTION,
                neighbours=[
                    predictor_pb2.NeighbourImpact(app="zip", slowdown=interval(1.5)),
                    predictor_pb2.NeighbourImpact(app="new"),
                ],
            ),
            "Explain": lambda _: predictor_pb2.ExplainResponse(
                prediction=corrected,
                contributions=[
                    predictor_pb2.Contribution(
                        surrogate="os.switch",
                        family="os",
                        seconds_per_op=2e-6,
                        idle_seconds_per_op=1e-6,
                        log_slowdown=0.5,
                    )
                ],
            ),
        }
    )
    colocation = service.predict_colocation(ColocationQuestion("sort", ("zip", "new"), node="n"))
    assert colocation.prediction == FORECAST
    assert colocation.neighbours == (
        NeighbourImpact("zip", Interval(1.5, 0.75, 3.0)),
        NeighbourImpact("new", None),
    )
    assert list(server.seen[0][1].neighbours) == ["zip", "new"]
    why = service.explain(Question("sort", "n"))
    assert why.contributions == (Contribution("os.switch", "os", 2e-6, 1e-6, 0.5),)
    assert why.prediction == replace(
        FORECAST, fingerprint_taken_at=100.0, added=("job-2",), removed=("job-1",)
    )


def test_rank(serve: Serve) -> None:
    service, server = serve(
        {
            "RankNodes": lambda _: predictor_pb2.RankNodesResponse(
                nodes=[
                    predictor_pb2.RankedNode(
                        node_id="n",
                        name="alpha",
                        domain=1,
                        score=0.7,
                        slowdown=interval(2.0),
                        worst_resident_slowdown=1.2,
                        tied_with_first=True,
                        residents=2,
                        worst_resident_at_least=True,
                    )
                ],
                candidates=3,
                refused={"stale": 1, "memory": 1},
                basis=predictor_pb2.BASIS_NODE_ONLY,
                staleness_seconds=0.5,
                elapsed_seconds=0.001,
            )
        }
    )
    ranking = service.rank(RankQuestion("sort", ("a", "b"), 5, newcomer_weight=0.0, seed=0))
    assert ranking.nodes == (
        RankedNode(
            "n",
            "alpha",
            1,
            0.7,
            Interval(2.0, 1.0, 4.0),
            1.2,
            tied_with_first=True,
            residents=2,
            worst_resident_at_least=True,
        ),
    )
    assert (ranking.candidates, ranking.basis) == (3, "node-only")
    assert ranking.refused == {"memory": 1, "stale": 1}
    request = server.seen[0][1]
    # Zero is a weight and a seed, not their absence.
    assert request.HasField("newcomer_weight")
    assert request.HasField("seed")
    assert json.dumps(ranking.to_dict())


def node(name: str) -> fleet_pb2.Node:
    return fleet_pb2.Node(
        facts=records.node_to_message(builders.node(id=f"id-{name}", name=name)),
        state=fleet_pb2.NODE_STATE_SUSPECT,
        reason="It is too fast.",
        last_heartbeat=Timestamp(seconds=100),
        general_slowdown=1.5,
        slowdown={"os.switch": 1.5},
        assignments=[
            fleet_pb2.PlacedApplication(
                assignment_id="job-1", app="zip", state="bound", since=Timestamp(seconds=50)
            )
        ],
        probe_cost=0.01,
    )


def test_nodes_of_all_pages_by_name(serve: Serve) -> None:
    pages = {"": ("b", "c", "next"), "next": ("a", "d", "")}

    def page(request: fleet_pb2.ListNodesRequest) -> fleet_pb2.ListNodesResponse:
        *names, following = pages[request.page_token]
        return fleet_pb2.ListNodesResponse(nodes=map(node, names), next_page_token=following)

    service, _ = serve({"ListNodes": page})
    nodes = service.nodes()
    assert [report.facts.name for report in nodes] == ["a", "b", "c", "d"]
    first = nodes[0]
    assert (first.state, first.reason, first.last_heartbeat_at) == (
        "suspect",
        "It is too fast.",
        100.0,
    )
    assert first.last_fingerprint_at is None
    assert first.assignments == (PlacedApplication("job-1", "zip", "bound", 50.0),)
    assert first.to_dict()["last_heartbeat_at"] == "1970-01-01T00:01:40.000Z"


def test_watching_ends_when_the_caller_has_seen_enough(serve: Serve) -> None:
    def changes(request: fleet_pb2.WatchNodeRequest) -> Iterator[fleet_pb2.WatchNodeResponse]:
        while True:
            yield fleet_pb2.WatchNodeResponse(node=node(request.node))

    service, _ = serve({"WatchNode": changes})
    watched = service.watch_node("a")
    assert [next(watched).facts.name for _ in range(3)] == ["a", "a", "a"]
    watched.close()  # type: ignore[attr-defined]  # it is a generator


def test_watching_for_a_time_ends_without_an_error(serve: Serve) -> None:

    quiet = threading.Event()

    def changes(request: fleet_pb2.WatchNodeRequest) -> Iterator[fleet_pb2.WatchNodeResponse]:
        yield fleet_pb2.WatchNodeResponse(node=node(request.node))
        quiet.wait(20.0)

    service, _ = serve({"WatchNode": changes})
    assert len(list(service.watch_node("a", for_s=0.3))) == 1
    quiet.set()


def test_watching_tells_when_the_server_goes(serve: Serve) -> None:
    def changes(request: Any) -> Iterator[Any]:
        yield fleet_pb2.WatchNodeResponse(node=node("a"))
        yield RuntimeError("the server breaks")

    service, _ = serve({"WatchNode": changes})
    with pytest.raises(ServiceError):
        list(service.watch_node("a"))


def test_applications(serve: Serve) -> None:
    application = profiles_pb2.Application(
        name="sort",
        identity="abc",
        document=values.struct({"cpus": 2, "env": {}}, "document"),
        runs=7,
        trained=[records_pb2.PLACEMENT_SAME_CORE],
        realised=profiles_pb2.Realised(
            runs=5, median_error_pct=3.0, coverage=0.8, level=0.9, drifted=True, reason="It moved."
        ),
    )
    service, server = serve(
        {
            "RegisterApplication": lambda _: profiles_pb2.RegisterApplicationResponse(
                application=application
            ),
            "GetApplication": lambda _: profiles_pb2.GetApplicationResponse(
                application=application
            ),
            "ListApplications": lambda _: profiles_pb2.ListApplicationsResponse(
                applications=[application]
            ),
        }
    )
    registered = service.register_application("sort", "abc", {"command": ["sort", "-n"], "cpus": 2})
    assert values.json_object(server.seen[0][1].document, "document") == {
        "command": ["sort", "-n"],
        "cpus": 2,
    }
    assert registered == service.application("sort") == service.applications()[0]
    assert (registered.document, registered.runs, registered.trained) == (
        {"cpus": 2, "env": {}},
        7,
        ("same-core",),
    )
    assert registered.realised == Realised(5, 3.0, 0.8, 0.9, drifted=True, reason="It moved.")


def test_imported_runs_and_signatures_arrive(serve: Serve) -> None:
    service, server = serve(
        {"ImportRuns": lambda sent: profiles_pb2.ImportRunsResponse(runs=len(sent), duplicates=1)}
    )
    run, signature = builders.run("sort", 1.0), builders.signature("sort", {"os.switch": 1e-6})
    assert service.import_runs([run, signature]) == Imported(2, 0, 1)
    first, second = server.seen[0][1]
    assert records.run_from_message(first.run) == run
    assert records.signature_from_message(second.signature) == signature


def test_error_while_reading_what_is_imported_is_the_one_that_is_raised(serve: Serve) -> None:
    def reading() -> Iterator[Run | Signature]:
        yield builders.run("sort", 1.0)
        raise InputError("The file ends here.")

    service, _ = serve({"ImportRuns": lambda sent: profiles_pb2.ImportRunsResponse()})
    with pytest.raises(InputError, match="The file ends here"):
        service.import_runs(reading())


def test_training_is_followed_to_its_end(serve: Serve) -> None:
    running = profiles_pb2.Operation(
        id="op", state=profiles_pb2.OPERATION_STATE_RUNNING, progress=0.5
    )
    done = profiles_pb2.Operation(
        id="op",
        state=profiles_pb2.OPERATION_STATE_DONE,
        progress=1.0,
        ended_at=Timestamp(seconds=9),
        trained=[
            profiles_pb2.TrainedModel(
                app="sort",
                placement=records_pb2.PLACEMENT_CROSS_CORE,
                version=4,
                promoted=True,
                reason="It is no worse.",
            )
        ],
    )
    service, server = serve(
        {
            "Train": lambda _: profiles_pb2.TrainResponse(operation=running),
            "GetOperation": lambda _: profiles_pb2.GetOperationResponse(operation=running),
            "ListOperations": lambda _: profiles_pb2.ListOperationsResponse(
                operations=[done, running]
            ),
            "CancelOperation": lambda _: profiles_pb2.CancelOperationResponse(operation=done),
            "WatchOperation": lambda _: [
                profiles_pb2.WatchOperationResponse(operation=operation)
                for operation in (running, done)
            ],
        }
    )
    began = service.train(["sort"], model="CART", random_state=3)
    assert (began.state, began.progress, began.ended) == ("running", 0.5, False)
    assert server.seen[0][1].random_state == 3
    assert service.operation("op") == began
    *_, last = service.watch_operation("op")
    assert last == service.cancel_operation("op")
    assert (last.ended, last.ended_at) == (True, 9.0)
    assert service.operations(ended=True, limit=2) == (last, began)
    assert server.seen[-1][1] == profiles_pb2.ListOperationsRequest(ended=True, limit=2)
    assert last.trained == (TrainedModel("sort", "cross-core", 4, True, "It is no worse."),)


def test_models(serve: Serve) -> None:
    model = profiles_pb2.Model(
        app="sort",
        placement=records_pb2.PLACEMENT_CROSS_CORE,
        version=2,
        chosen="STACK",
        in_service=True,
        document="{}",
    )
    service, server = serve(
        {
            "GetModel": lambda _: profiles_pb2.GetModelResponse(model=model),
            "ListModels": lambda _: profiles_pb2.ListModelsResponse(models=[model]),
            "DeleteModel": lambda _: profiles_pb2.DeleteModelResponse(deleted=2),
        }
    )
    assert service.model("sort", version=2) == service.models()[0]
    assert service.models("sort")[0].document == "{}"
    assert service.delete_model("sort", "cross-core") == 2
    assert [request.app for _, request, _ in server.seen] == ["sort", "", "sort", "sort"]


def test_assignments(serve: Serve) -> None:
    reservation = assignments_pb2.Assignment(
        assignment_id="job-1",
        app="sort",
        node_id="n",
        placement=records_pb2.PLACEMENT_CROSS_CORE,
        state=assignments_pb2.ASSIGNMENT_STATE_RESERVED,
        reserved_at=Timestamp(seconds=10),
        expires_at=Timestamp(seconds=70),
    )
    service, server = serve(
        {
            "Reserve": lambda _: assignments_pb2.ReserveResponse(assignment=reservation),
            "Bind": lambda _: assignments_pb2.BindResponse(assignment=reservation),
            "Release": lambda _: assignments_pb2.ReleaseResponse(assignment=reservation),
            "ListAssignments": lambda _: assignments_pb2.ListAssignmentsResponse(
                assignments=[reservation]
            ),
        }
    )
    reserved = service.reserve("job-1", "sort", "alpha", ttl_s=60.5, memory_bytes=5)
    assert (reserved.state, reserved.reserved_at, reserved.expires_at, reserved.bound_at) == (
        "reserved",
        10.0,
        70.0,
        None,
    )
    assert server.seen[0][1].ttl == Duration(seconds=60, nanos=500_000_000)
    assert reserved == service.bind("job-1", started_at=12.0) == service.release("job-1")
    assert service.assignments("alpha", ended=True) == (reserved,)
    assert server.seen[1][1].started_at == Timestamp(seconds=12)
    assert not server.seen[2][1].HasField("ended_at")


def test_server_that_does_not_answer_in_time_is_given_up(serve: Serve) -> None:

    quiet = threading.Event()

    def slow(request: Any) -> fleet_pb2.ListNodesResponse:
        quiet.wait(20.0)
        return fleet_pb2.ListNodesResponse()

    _, server = serve({"ListNodes": slow})
    with (
        RemoteService(Connection(server.target, timeout_s=0.2)) as service,
        pytest.raises(UnavailableError, match="in time"),
    ):
        service.nodes()
    quiet.set()


def test_answer_that_cannot_be_true_is_refused(serve: Serve) -> None:
    broken = predictor_pb2.Prediction()
    broken.CopyFrom(PREDICTION)
    broken.slowdown.lower = 9.0
    service, _ = serve(
        {
            "Predict": lambda _: predictor_pb2.PredictResponse(
                answers=[predictor_pb2.PredictAnswer(prediction=broken)]
            )
        }
    )
    with pytest.raises(KongmingError, match="slowdown"):
        service.predict([Question("sort", "n")])


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Question("", "n"), "app"),
        (lambda: Question("a", ""), "node"),
        (lambda: Question("a", "n", placement="here"), "placement"),
        (lambda: Question("a", "n", level=1.0), "level"),
        (lambda: Question("a", "n", stale_policy="never"), "stale_policy"),  # type: ignore[arg-type]
        (lambda: RankQuestion("a", limit=0), "limit"),
        (lambda: RankQuestion("a", newcomer_weight=float("nan")), "newcomer_weight"),
        (lambda: ColocationQuestion("", ()), "app"),
    ],
)
def test_question_that_is_wrong_is_not_sent(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field


def test_name_that_nobody_has_suggests_others(serve: Serve) -> None:
    def refuse(request: Any) -> Any:
        raise UnknownNameError("node", request.node, ["alpha", "beta"])

    service, _ = serve({"RequestProfile": refuse})
    with pytest.raises(UnknownNameError, match="Did you mean alpha") as caught:
        service.request_profile("alpah", ["sort"])
    assert caught.value.suggestions == ("alpha",)


INTERRUPTED = """
import sys
import grpc._channel
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
def interrupt(state):
    raise KeyboardInterrupt
with RemoteService(Connection(sys.argv[1])) as service:
    # Between a call's start and that of the thread which waits for its end.
    grpc._channel._run_channel_spin_thread = interrupt
    list(service.watch_operation("any"))
"""


def test_ctrl_c_just_as_a_call_begins_ends_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "127.0.0.1:9"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
