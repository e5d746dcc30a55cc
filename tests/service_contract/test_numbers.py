"""A store and a server over the same database give the same answers: every number and word.

What differs is only what must: how long an answer took, and the order of near ties, which is
drawn over the places in whatever order they are held.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from kongming.engine.load.measured import colocate_measured, predict_measured
from kongming.local_service import LocalService
from kongming.records.answers import Answer, Forecast, Ranking
from kongming.records.errors import KongmingError
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.records.resident import Resident
from kongming.records.scaling import Scaling
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from kongming.store import Store
from kongming.store.models import SCALE
from tests import builders
from tests.server.core import worlds
from tests.server.core.worlds import IDLE, PRESSURE, SENSITIVITY, SUITE, slowed
from tests.server.process import ServerProcess, eventually
from tests.service_contract.conftest import scale_document

FRESH_S, OLD_S = 5.0, 5 * 3600.0

LOADS = {
    "fresh": {"stream.triad": 0.1},
    "resident": {"stream.triad": 0.5, "memory.random.8M": 0.2},
    "newcomer": {"iobench.read.4M": 0.9},
    "left": {"stream.triad": 1.6},
    "moving": {"stream.triad": 2.0},
    "dozing": {"memory.random.8M": 1.1, "iobench.fsync": 0.3},
    "by-hand": {"stream.triad": 0.8},
    "without-reference": {"stream.triad": 0.3},
    "trainer": {"memory.random.8M": 0.9},
    "quick": {"stream.triad": 0.6},
    "beyond": {"stream.triad": 3.1},
    "without-triad": {"memory.random.128M": 0.4},
    "without-cache": {"stream.triad": 0.4},
    "without-read": {"iobench.read.4M": 0.8},
    "another-type": {"stream.triad": 0.7},
}
"""By node: the log slowdown of its surrogates in the newest fingerprint."""

WITHOUT_FINGERPRINT = ("idle", "unread")
NAMES = {
    "quick": worlds.QUICK,
    "without-triad": tuple(name for name in worlds.NAMES if name != "stream.triad"),
    "without-cache": tuple(name for name in worlds.NAMES if name != "memory.random.8M"),
    "without-read": tuple(name for name in worlds.NAMES if name != "iobench.read.4M"),
}
"""By node: the surrogates that its fingerprints have, where these are not all."""
AGES_S = {"moving": 1500.0, "dozing": OLD_S}
NODES = (*LOADS, *WITHOUT_FINGERPRINT)
APPS = ("memory", "disk", "quiet", "bare", "stranger")
LEVELS = (0.5, 0.9, 0.99)


def put_node(store: Store, name: str, now: float) -> None:
    """A node as ``LOADS`` says; ``moving`` has a history from which its movement is learnt."""
    cpu_model = "Another CPU" if name == "another-type" else "Example CPU"
    facts = builders.node(id=name, name=f"name-{name}", cpu_model=cpu_model)
    store.put_node(facts)
    factor = 1.0 if name == "trainer" else 1.3
    idle = {surrogate: seconds * factor for surrogate, seconds in IDLE.items()}
    if name not in ("without-reference", "unread"):
        store.put_reference(name, SUITE, 0, idle, 3, worlds.iso(now - 9e5))
    if name in WITHOUT_FINGERPRINT:
        return
    names = NAMES.get(name, worlds.NAMES)
    purpose = "adhoc" if name == "by-hand" else "live"
    random = np.random.default_rng(3)
    steps = [*(random.normal(0.0, 0.2, 9).cumsum() if name == "moving" else ()), 0.0]
    newest = now - AGES_S.get(name, FRESH_S)
    for number, step in enumerate(steps):
        logs = {key: value + step for key, value in LOADS[name].items()}
        taken_at = newest - 240.0 * (len(steps) - 1 - number)
        taken = worlds.fingerprint(slowed(logs, idle, names), taken_at, name)
        store.add_fingerprint(
            builders.fingerprint(
                taken.times(),
                id=f"{name}-{number}",
                node=facts,
                started_at=taken.started_at,
                elapsed_s=taken.elapsed_s,
                suite_version=SUITE,
            ),
            purpose=purpose,
        )


def put_models(store: Store, now: float) -> None:
    """Three applications with a model and a signature, and one with a signature alone. Of
    ``memory`` the older version is in service; ``disk`` was also run next to others."""
    for app, sensitivity in SENSITIVITY.items():
        document = worlds.document(app, sensitivity)
        store.put_model(app, document["identity"], "trainer", "cross-core", document)
    newer = worlds.document("memory", {"stream.triad": 0.9})
    store.put_model("memory", newer["identity"], "fresh", "cross-core", newer)
    store.promote("memory", "cross-core", 1)
    store.put_application("bare", builders.identity_of("bare"), {"name": "bare", "command": "b"})
    pressures: Mapping[str, Mapping[str, float]] = PRESSURE | {"bare": {"stream.triad": 0.2}}
    for number, (app, logs) in enumerate(pressures.items()):
        seen = worlds.fingerprint(slowed(logs), now - 8e5, "trainer")
        signature = builders.signature(
            app, {}, id=f"signature-{number}", node_id="trainer", fingerprint=seen
        )
        store.add_signature(signature)
    for number, (app, neighbour, slowdown) in enumerate(
        (("memory", "quiet", 1.6), ("disk", "memory", 1.4), ("quiet", "disk", 1.2)) * 2
    ):
        store.add_run(
            builders.run(
                app,
                10.0 * slowdown,
                id=f"corun-{number}",
                kind="corun",
                node_id="trainer",
                neighbours=(neighbour,),
                campaign="pairs",
            )
        )
    store.put_model("scale:chaser", SCALE, "", SCALE, scale_document())


def put_assignments(store: Store, now: float) -> None:
    def put(assignment_id: str, app: str, node: str, state: str, began_s: float) -> None:
        ended = now - 2.0 if state == "released" else None
        store.put_assignment(
            Resident(
                assignment_id=assignment_id,
                app=app,
                node_id=node,
                domain=0,
                placement="",
                state=state,
                reserved_at=now - began_s,
                bound_at=now - began_s,
                ended_at=ended,
                expires_at=None,
                memory_bytes=0,
            )
        )

    put("within", "disk", "resident", "bound", 1000.0)
    put("unknown", "stranger", "resident", "bound", 900.0)
    put("after", "memory", "newcomer", "bound", 1.0)
    put("second", "bare", "newcomer", "bound", 1.0)
    put("guest", "stranger", "another-type", "bound", 1.0)
    put("host", "disk", "another-type", "bound", 900.0)
    put("gone", "memory", "left", "released", 1000.0)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("numbers"))
    now = time.time()
    with Store.open(server.store_url) as store:
        for name in NODES:
            put_node(store, name, now)
        put_models(store, now)
        put_assignments(store, now)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def server(process: ServerProcess) -> Iterator[RemoteService]:
    with RemoteService(Connection(process.grpc, timeout_s=60.0)) as service:
        # What it learns of older fingerprints it reads when it answers already.
        deadline = time.monotonic() + 60.0
        while not forecast(service, Question("memory", "moving")).stale or any(
            node.last_fingerprint_at is None
            for node in service.nodes()
            if node.facts.id not in WITHOUT_FINGERPRINT
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield service


class Clock:
    """The moment at which the server answered: what a store is asked at."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def local(process: ServerProcess, clock: Clock) -> Iterator[LocalService]:
    with Store.open(process.store_url) as store:
        yield LocalService(store, now=clock)


def forecast(service: Any, question: Question) -> Forecast:
    (answer,) = service.predict([question])
    if isinstance(answer, KongmingError):
        raise answer
    assert isinstance(answer, Forecast)
    return answer


def moment_of(answer: Forecast) -> float:
    """When a forecast was asked for; now where no fingerprint says so."""
    if answer.fingerprint_taken_at is None or answer.fingerprint_age_s is None:
        return time.time()
    return answer.fingerprint_taken_at + answer.fingerprint_age_s


def moment_of_error(error: KongmingError, taken_at: float | None) -> float:
    """When a question was asked that was answered by an error, to half a second: by the age of
    the fingerprint that it names; now where it names none."""
    age = re.search(r"(\d+) s old", error.message)
    if age is None:
        return time.time()
    assert taken_at is not None
    return taken_at + float(age[1])


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The value at each path of a document."""
    if isinstance(value, Answer):
        return flat(value.to_dict(), path)
    if isinstance(value, Mapping):
        return {k: v for key, part in value.items() for k, v in flat(part, f"{path}.{key}").items()}
    if isinstance(value, list | tuple):
        listed = {
            k: v for i, part in enumerate(value) for k, v in flat(part, f"{path}.{i}").items()
        }
        return {f"{path}.len": len(value), **listed}
    return {path: value}


def assert_same(here: Any, there: Any) -> None:
    """Compare all values of two answers, number by number."""
    ours, theirs = flat(here), flat(there)
    for document in (ours, theirs):
        document.pop(".elapsed_s", None)
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        if isinstance(value, float) and math.isfinite(value):
            # Ages and times are sent to the microsecond.
            assert theirs[path] == pytest.approx(value, rel=1e-6, abs=2e-6), path
        else:
            assert theirs[path] == value, path


def both(
    server: RemoteService, local: LocalService, clock: Clock, question: Question
) -> tuple[Any, Any]:
    """What the server says, and what the store says of the same moment: answers or errors."""
    began = time.time()
    (there,) = server.predict([question])
    if isinstance(there, Forecast):
        clock.now = moment_of(there)
    else:
        taken_at = {node.facts.id: node.last_fingerprint_at for node in server.nodes()}
        clock.now = moment_of_error(there, taken_at.get(question.node))
    # To the rounding of what an answer says.
    assert began - 1.0 < clock.now < time.time() + 1.0
    (here,) = local.predict([question])
    return here, there


def test_neighbours_that_come_to_a_fingerprint(
    server: RemoteService, process: ServerProcess
) -> None:
    """What ``kongming predict --now --with`` says of a fingerprint and neighbours is what a server
    says of the node where they began after it was taken. First of all, since the fingerprint grows
    old, which the command does not ask about."""
    there = forecast(server, Question("disk", "newcomer"))
    assert set(there.added) == {"after", "second"}
    with Store.open(process.store_url) as store:
        (live,) = store.fingerprints(node_id="newcomer")
        question = ColocationQuestion("disk", ("memory", "bare"))
        here = colocate_measured(store, live, question)
        # Whoever ran when it was taken is within it, and is not added to it.
        (live,) = store.fingerprints(node_id="resident")
        alone = predict_measured(store, live, Question("memory", "resident"))
    for name in ("slowdown", "runtime_s", "drivers", "extrapolating", "node_id", "domain"):
        assert_same({"": getattr(here.prediction, name)}, {"": getattr(there, name)})
    memory, bare = here.neighbours
    assert memory.slowdown is not None
    assert_same(memory.slowdown.to_dict(), there.residents["after"].slowdown_then.to_dict())
    assert bare.slowdown is None
    within = forecast(server, Question("memory", "resident"))
    assert not within.added
    assert_same(alone.slowdown.to_dict(), within.slowdown.to_dict())


@pytest.mark.parametrize("levels", [1, pytest.param(len(LEVELS), marks=pytest.mark.thorough)])
@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("stale", ["widen", "history"])
def test_predictions(
    server: RemoteService, local: LocalService, clock: Clock, app: str, stale: Any, levels: int
) -> None:
    answered = 0
    for number, node in enumerate(NODES, start=APPS.index(app)):
        # Each node at another level than its neighbour and than for the application before.
        for level in (LEVELS[(number + more) % len(LEVELS)] for more in range(levels)):
            question = Question(app, node, level=level, stale_policy=stale)
            here, there = both(server, local, clock, question)
            assert type(here) is type(there), (node, here, there)
            if isinstance(there, Forecast):
                assert_same(here, there)
                answered += 1
            else:
                assert here.message == there.message
    assert answered >= 10 * levels


@pytest.mark.parametrize(
    "question",
    [
        Question("memory", "name-fresh", model_version=2),
        Question("memory", "fresh", model_version=3),
        Question("memory", "fresh", model="NOTHING"),
        Question("memory", "fresh", placement="same-core"),
        Question("memory", "name-nothing"),
        Question("memory", "moving", stale_policy="refuse"),
        Question("disk", "resident", resident_id="within"),
        Question("disk", "fresh", resident_id="within"),
        Question("memory", "beyond", strict=True),
        Question("memory", "unread"),
        Question("memory", "idle"),
        Question("memry", "fresh"),
        Question(
            "memory",
            nodes=("fresh", "resident", "dozing"),
            driver="resident",
            scaling=Scaling(4, 0.5, model="chaser"),
        ),
        Question("memory", nodes=("fresh", "by-hand"), scaling=Scaling(2)),
    ],
)
def test_questions_of_every_kind(
    server: RemoteService, local: LocalService, clock: Clock, question: Question
) -> None:
    here, there = both(server, local, clock, question)
    assert type(here) is type(there), (here, there)
    if isinstance(there, Forecast):
        assert_same(here, there)
        here, there = (
            (service.explain(question) for service in (local, server))
            if (question.scaling is None)
            else (here, there)
        )
        if question.scaling is None:
            assert_same(here.contributions, there.contributions)
    else:
        assert here.message == there.message


def test_a_stale_interval_holds_its_own_level_and_is_not_calibrated(
    local: LocalService, server: RemoteService, clock: Clock
) -> None:
    for node in ("moving", "dozing"):
        reach = []
        for level in (0.5, 0.9):
            here, there = both(server, local, clock, Question("stranger", node, level=level))
            assert not here.slowdown.calibrated
            assert not there.slowdown.calibrated
            assert any("not calibrated" in warning for warning in there.warnings)
            reach.append(math.log(there.slowdown.upper / there.slowdown.median))
        assert reach[1] > 1.5 * reach[0]


def _up_to_date(server: RemoteService, question: RankQuestion) -> Ranking:
    """A ranking into which all reports have come: a server says for how long some have not."""

    def ask() -> Ranking | None:
        ranking = server.rank(question)
        return ranking if ranking.staleness_s == 0.0 else None

    answer: Ranking = eventually(ask)
    return answer


def _moment_of_ranking(server: RemoteService, ranking: Ranking) -> float:
    """When a ranking was asked for; now where the age of no fingerprint says so."""
    taken_at = {
        node.facts.id: node.last_fingerprint_at
        for node in server.nodes()
        if node.last_fingerprint_at is not None
    }
    moments = [
        taken_at[node.node_id] + node.fingerprint_age_s
        for node in ranking.nodes
        if node.fingerprint_age_s is not None
    ]
    return moments[0] if moments else time.time()


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("stale", ["widen", "refuse", "history"])
@pytest.mark.parametrize(
    "limits", [{}, {"slowdown_limit": 1.5, "resident_slowdown_limit": 1.3, "level": 0.5}]
)
def test_rankings(
    server: RemoteService, local: LocalService, clock: Clock, app: str, stale: Any, limits: Any
) -> None:
    question = RankQuestion(app, limit=len(NODES), seed=1, stale_policy=stale, **limits)
    there = _up_to_date(server, question)
    clock.now = _moment_of_ranking(server, there)
    here = local.rank(question)

    def rest(ranking: Any) -> dict[str, Any]:
        return {k: v for k, v in ranking.to_dict().items() if k != "nodes"}

    assert_same(rest(here), rest(there))
    by_id = [{node.node_id: node.to_dict() for node in answer.nodes} for answer in (here, there)]
    assert_same(*by_id)
    assert there.nodes or there.refused
    for ranking in (here, there):
        untied = [node.node_id for node in ranking.nodes if not node.tied_with_first]
        expected = sorted(
            (node for node in ranking.nodes if not node.tied_with_first), key=lambda n: n.score
        )
        assert untied == [node.node_id for node in expected]


def test_sets_of_nodes(server: RemoteService, local: LocalService, clock: Clock) -> None:
    chosen = ("fresh", "resident", "left", "by-hand")
    question = RankQuestion("memory", chosen, limit=2, scaling=Scaling(2, model="chaser"), seed=1)
    there = _up_to_date(server, question)
    clock.now = _moment_of_ranking(server, there)
    here = local.rank(question)
    assert len(there.sets) == 2
    assert_same(here.sets, there.sets)


@pytest.mark.parametrize(
    "question",
    [
        ColocationQuestion("memory", ("disk",)),
        ColocationQuestion("memory", ("disk", "quiet", "disk"), node="fresh", level=0.5),
        ColocationQuestion("disk", ("memory", "bare"), node="without-reference"),
        ColocationQuestion("disk", ("memory",), node="another-type"),
    ],
)
def test_co_location(
    server: RemoteService, local: LocalService, question: ColocationQuestion
) -> None:
    assert_same(local.predict_colocation(question), server.predict_colocation(question))


def test_nodes(server: RemoteService, local: LocalService, clock: Clock) -> None:
    clock.now = time.time()
    here, there = local.nodes(), server.nodes()
    assert [node.facts.id for node in here] == [node.facts.id for node in there]
    for ours, theirs in zip(here, there, strict=True):
        assert_same(
            {k: v for k, v in ours.to_dict().items() if k != "facts"},
            {k: v for k, v in theirs.to_dict().items() if k != "facts"},
        )


def test_intervals_are_widened_by_what_pairs_showed(
    server: RemoteService, local: LocalService, clock: Clock
) -> None:
    """The database is one in which that matters: otherwise the tests above would prove nothing."""
    here, there = both(server, local, clock, Question("quiet", "fresh"))
    assert_same(here.slowdown.to_dict(), there.slowdown.to_dict())
    with_pairs = math.log(there.slowdown.upper / there.slowdown.median)
    assert with_pairs > 0.1
