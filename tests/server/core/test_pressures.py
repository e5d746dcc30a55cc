"""What an application presses with follows from what is known, not from the order of arrival."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from kongming import Signature
from kongming.arrays import Floats
from kongming.engine.catalog import Catalog
from kongming.engine.columns import Columns
from kongming.engine.engine import Engine
from kongming.engine.score_matrix import HarmTable
from kongming.engine.slots import ANY_SUITE
from kongming.records.questions import Question
from tests import builders
from tests.server.core import worlds
from tests.server.core.worlds import IDLE, NOW, SUITE, bound, trained_on_slower

NEXT_SUITE = "2-89abcdef"


def signature(app: str, triad: float, taken_at: float, **changes: object) -> Signature:
    seen = worlds.fingerprint(worlds.slowed({"stream.triad": triad}), taken_at, "trainer")
    return worlds.signature(app, {}, fingerprint=seen, **changes)


OLD = signature("memory", 0.5, NOW - 9e5)
NEW = signature("memory", 0.7, NOW - 1e5)

EVENTS: dict[str, Callable[[Engine], None]] = {
    "reference": lambda engine: engine.put_reference(
        "trainer", 0, {name: 1.2 * seconds for name, seconds in IDLE.items()}, SUITE
    ),
    "older signature": lambda engine: engine.put_signatures([OLD]),
    "newer signature": lambda engine: engine.put_signatures([NEW]),
    "first model": lambda engine: engine.put_model(trained_on_slower("memory", 1.0), 1),
    "second model": lambda engine: engine.put_model(trained_on_slower("memory", 1.1), 2),
}


def next_to_memory(order: tuple[str, ...]) -> float:
    """The log slowdown of the application next to another of its kind."""
    engine = Engine()
    engine.put_node(worlds.fingerprint(IDLE, node_id="trainer").node, NOW)
    worlds.add_node(engine, logs={})
    engine.put_assignment(bound("a", "memory", NOW - 5.0))
    for name in order:
        EVENTS[name](engine)
        # An answer in between must not hold on to what it was made of.
        engine.refresh(NOW, 1.0)
    return math.log(engine.predict(Question("memory", "node-1"), NOW).slowdown.median)


@pytest.mark.parametrize(
    "order",
    [
        order
        for order in itertools.permutations(EVENTS)
        if order.index("first model") < order.index("second model")
    ],
    ids=" - ".join,
)
def test_a_signature_is_over_the_training_of_its_application_whichever_came_first(
    order: tuple[str, ...],
) -> None:
    assert next_to_memory(order) == pytest.approx(0.5 * (0.6 - math.log(1.1)), abs=1e-6)


class _References(dict[tuple[str, int], Floats]):
    """Log idle references by node and code of the suite."""

    def __call__(self, node_id: str, suite: int) -> Floats | None:
        return self.get((node_id, suite))


def catalog() -> tuple[Catalog, _References]:
    references = _References()
    columns = Columns()
    columns.learn(list(IDLE), [builders.family_of(name) for name in IDLE])
    return Catalog(columns, references, 0.1), references


def triad(of: Catalog, app: str, suite: str = SUITE) -> float:
    """The log slowdown of the surrogate next to it; NaN where its signature is not known."""
    pressure = of.pressure(app, "cross-core", of.suite(suite))
    return float(pressure.slowed[list(IDLE).index("stream.triad")]) if pressure.known else math.nan


def test_a_model_that_goes_leaves_the_signature_over_the_nodes_reference() -> None:
    known, references = catalog()
    references["trainer", known.suite(SUITE)] = np.log(list(IDLE.values())) + 0.2
    known.put_model(trained_on_slower("memory", 1.0), 1, in_service=True)
    known.put_signatures([OLD])
    assert triad(known, "memory") == pytest.approx(0.5)

    known.drop_model("memory", "cross-core")

    assert triad(known, "memory") == pytest.approx(0.3)


@pytest.mark.parametrize("order", list(itertools.permutations(("app", "beta", "zeta"))))
def test_without_a_reference_it_is_over_the_same_training_of_others_in_any_order(
    order: tuple[str, ...],
) -> None:
    known, _ = catalog()
    slower = {"beta": 1.1, "zeta": 1.3}
    for name in order:
        if name == "app":
            known.put_signatures([signature("app", 0.5, NOW)])
        else:
            known.put_model(trained_on_slower(name, slower[name]), 1, in_service=True)

    assert triad(known, "app") == pytest.approx(0.5 - math.log(1.1))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_repeats_on_one_node_are_averaged_whatever_came_between(order: tuple[int, ...]) -> None:
    known, references = catalog()
    code = known.suite(SUITE)
    for node_id in ("trainer", "elsewhere"):
        references[node_id, code] = np.log(list(IDLE.values()))
    away = worlds.fingerprint(worlds.slowed({"stream.triad": 0.9}), NOW - 5e5, "elsewhere")
    arrivals = [
        signature("memory", 0.1, NOW - 10e5, identity="as it was before"),
        OLD,
        worlds.signature("memory", {}, node_id="elsewhere", fingerprint=away),
        NEW,
    ]
    for place in order:
        known.put_signatures([arrivals[place]])

    assert triad(known, "memory") == pytest.approx(0.6)


def test_a_signature_of_another_suite_waits_for_a_reference_of_it() -> None:
    known, references = catalog()
    references["trainer", known.suite(SUITE)] = np.log(list(IDLE.values()))
    known.put_signatures([OLD])
    seen = builders.fingerprint(
        worlds.slowed({"stream.triad": 0.9}),
        node=builders.node(id="trainer"),
        started_at=worlds.iso(NOW),
        suite_version=NEXT_SUITE,
    )
    known.put_signatures([worlds.signature("memory", {}, fingerprint=seen)])
    assert math.isnan(triad(known, "memory", NEXT_SUITE))

    references["trainer", known.suite(NEXT_SUITE)] = np.log(list(IDLE.values())) + 0.1
    known.reference_changed("trainer")

    assert triad(known, "memory", NEXT_SUITE) == pytest.approx(0.8)


def test_where_a_node_reads_another_suite_the_newest_of_that_suite_counts() -> None:
    """A fleet is upgraded node by node."""
    known, references = catalog()
    references["trainer", known.suite(SUITE)] = np.log(list(IDLE.values()))
    references["elsewhere", known.suite(NEXT_SUITE)] = np.log(list(IDLE.values()))
    seen = builders.fingerprint(
        worlds.slowed({"stream.triad": 0.9}),
        node=builders.node(id="elsewhere"),
        started_at=worlds.iso(NOW),
        suite_version=NEXT_SUITE,
    )
    there = worlds.signature("memory", {}, node_id="elsewhere", fingerprint=seen)
    for order in itertools.permutations((OLD, NEW, there)):
        known.drop_signatures("memory", "cross-core")
        for arriving in order:
            known.put_signatures([arriving])

        assert triad(known, "memory") == pytest.approx(0.6)
        assert triad(known, "memory", NEXT_SUITE) == pytest.approx(0.9)
        newest = known.pressure("memory", "cross-core", ANY_SUITE)
        assert newest is known.pressure("memory", "cross-core", known.suite(NEXT_SUITE))
        assert newest.row != known.pressure("memory", "cross-core", known.suite(SUITE)).row
    assert known.typical("cross-core", known.suite(SUITE)).slowed.max() == pytest.approx(0.6)
    assert known.typical("cross-core", ANY_SUITE).slowed.max() == pytest.approx(0.9)


def test_a_typical_application_is_of_one_placement() -> None:
    """On a shared core an application takes the processor itself from its neighbour."""
    known, references = catalog()
    references["trainer", known.suite(SUITE)] = np.log(list(IDLE.values()))
    known.put_signatures([signature("memory", 0.5, NOW), signature("other", 0.1, NOW)])

    def stranger(placement: str) -> Floats:
        return known.pressure("stranger", placement, known.suite(SUITE)).slowed

    before = stranger("cross-core").copy()
    flat = np.full(len(IDLE), 0.1)
    np.testing.assert_array_equal(stranger("same-core"), flat)

    same_core = [signature(name, 1.3, NOW, placement="same-core") for name in ("a", "b", "memory")]
    known.put_signatures(same_core)

    assert before.max() == pytest.approx(0.3)
    np.testing.assert_array_equal(stranger("cross-core"), before)
    assert stranger("same-core").max() == pytest.approx(1.3)
    np.testing.assert_array_equal(stranger("cross-socket"), flat)
    for name in ("a", "b", "memory"):
        known.drop_signatures(name, "same-core")
    np.testing.assert_array_equal(stranger("same-core"), flat)


def test_the_harm_by_an_unknown_newcomer_is_that_of_its_placement() -> None:
    known, references = catalog()
    code = known.suite(SUITE)
    references["trainer", code] = np.log(list(IDLE.values()))
    model = known.put_model(trained_on_slower("memory", 1.0), 1, in_service=True)
    assert model is not None
    known.put_signatures([signature("memory", 0.2, NOW)])
    known.put_signatures(
        [signature(name, 0.6, NOW, placement="same-core") for name in ("a", "b", "c")]
    )
    table = HarmTable()
    for wanting in table.wanting(known):
        table.update(wanting)

    for placement, log_slowdown in (
        ("cross-core", 0.1),
        ("same-core", 0.3),
        ("cross-socket", 0.08),
    ):
        newcomer = known.pressure("stranger", placement, code)
        assert table.of(newcomer.row)[model.row] == pytest.approx(log_slowdown, abs=1e-6)


def test_a_training_elsewhere_leaves_a_signature_over_the_reference_of_its_time() -> None:
    known, references = catalog()
    code = known.suite(SUITE)
    references["trainer", code] = np.log(list(IDLE.values()))
    known.put_signatures([OLD])
    references["trainer", code] = references["trainer", code] + 0.2
    known.reference_changed("trainer")
    before = known.pressure("memory", "cross-core", code)

    known.put_model(trained_on_slower("memory", 1.0, node_id="elsewhere"), 1, in_service=True)

    assert known.pressure("memory", "cross-core", code) is before
    assert triad(known, "memory") == pytest.approx(0.5)
    known.drop_model("memory", "cross-core")
    assert known.pressure("memory", "cross-core", code) is before
    # A repeat is over the reference that there is now, as are those that it is averaged with.
    known.put_signatures([NEW])
    assert triad(known, "memory") == pytest.approx(0.6 - 0.2)


def test_what_moves_no_pressure_is_no_change() -> None:
    known, references = catalog()
    known.put_signatures([OLD])
    known.put_model(trained_on_slower("beta", 1.1), 1, in_service=True)
    before = known.generation, known.moves

    # It has no reference of this suite yet.
    known.reference_changed("trainer")

    assert (known.generation, known.moves) == before
    references["trainer", known.suite(SUITE)] = np.log(list(IDLE.values()))
    known.reference_changed("trainer")
    assert known.generation > before[0]
    assert known.moves > before[1]
