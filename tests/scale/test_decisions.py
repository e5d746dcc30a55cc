"""Which machines, how many, which to drop; and models that are kept, stale or damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from kongming.arrays import Floats
from kongming.records.errors import (
    CannotAnswerError,
    IncompatibleError,
    InputError,
    UnknownNameError,
)
from kongming.scale.decide.overallocation import drop_slowest, extra_machines, slowness
from kongming.scale.decide.recommendation import curve, read_prices, recommend
from kongming.scale.design.planning import configuration
from kongming.scale.fit import model_file as persist
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.tracked_files import changes, track
from kongming.scale.points import Configuration
from kongming.scale.ranges import machine_counts, scales
from tests.scale.shapes import fitted, grid, measured, published


@pytest.fixture(scope="module")
def types() -> tuple[ScaleModel, ScaleModel]:
    """A type, and one that is twice as fast."""
    slow = fitted(measured(published("regression"), grid(), 0.02), kind="ernest-relative")
    fast = fitted(
        measured(lambda m, s: 0.5 * published("regression")(m, s), grid(), 0.02, 1),
        kind="ernest-relative",
    )
    return replace(slow, machine_type="slow"), replace(fast, machine_type="fast")


PRICES = {"slow": 1.0, "fast": 3.0}


@pytest.mark.thorough
def test_a_deadline_is_met_at_the_least_cost(types: tuple[ScaleModel, ScaleModel]) -> None:
    offers, refused = curve(types, range(1, 65), prices=PRICES)
    assert not refused
    assert len(offers) == 128
    best, _, judged = recommend(types, offers, prices=PRICES, deadline_s=40.0, risk=0.95)
    assert best is not None
    assert best.probability is not None
    assert best.probability >= 0.95
    for other in judged:
        if other.probability is not None and other.probability >= 0.95:
            assert best.cost is not None
            assert other.cost is not None
            assert best.cost <= other.cost * (1 + 1e-6)
    truth = published("regression")(np.array([float(best.machines)]), np.array([1.0]))[0]
    assert truth * (0.5 if best.machine_type == "fast" else 1.0) <= 40.0


def test_a_budget_buys_the_fastest(types: tuple[ScaleModel, ScaleModel]) -> None:
    offers, _ = curve(types, range(1, 65), prices=PRICES)
    best, _, judged = recommend(types, offers, prices=PRICES, budget=0.4, risk=0.9)
    assert best is not None
    assert best.cost is not None
    assert best.cost < 0.4
    likely = [offer for offer in judged if (offer.probability or 0.0) >= 0.9]
    assert best.prediction.median == min(offer.prediction.median for offer in likely)


def test_more_certainty_never_costs_less(types: tuple[ScaleModel, ScaleModel]) -> None:
    offers, _ = curve(types, range(1, 65), prices=PRICES)
    costs = []
    for risk in (0.5, 0.9, 0.99):
        best, _, _ = recommend(types, offers, prices=PRICES, deadline_s=60.0, risk=risk)
        assert best is not None
        assert best.cost is not None
        costs.append(best.cost)
    assert costs == sorted(costs)


def test_what_cannot_be_met_is_none_and_the_likeliest(
    types: tuple[ScaleModel, ScaleModel],
) -> None:
    offers, _ = curve(types, range(1, 65), prices=PRICES)
    best, likeliest, _ = recommend(types, offers, prices=PRICES, deadline_s=0.5)
    assert best is None
    assert likeliest is not None


def test_prices(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("type,price\nslow,0.35\nfast,0.7\n")
    assert read_prices(path) == {"slow": 0.35, "fast": 0.7}
    path.write_text("type,price\nslow,free\n")
    with pytest.raises(InputError, match=r"row 1 .line 2., column 'price'"):
        read_prices(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("typ,price\nslow,0.35\n", r"column 'type'.*: is missing.*typ, price"),
        ("typ,price\nslow,0.35\nfast,0.7\n", r"column 'type'.*: is missing.*typ, price"),
        ("type,price\n,0.35\n", r"row 1 .*column 'type': is empty"),
        ("type,price\nslow,0.35\n,0.7\n", r"row 2 .*column 'type': is empty"),
    ],
)
def test_several_types_have_a_price_each(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_prices(path, ("slow", "fast"))
    assert "missing" not in message or "slow, fast" in (caught.value.hint or "")


def test_a_type_without_a_price_is_named(types: tuple[ScaleModel, ScaleModel]) -> None:
    with pytest.raises(InputError, match="machine type 'fast'") as caught:
        curve(types, [1], prices={"slow": 1.0, "fsat": 2.0})
    assert caught.value.hint == "Did you mean fsat?"
    with pytest.raises(InputError, match="machine type 'slow'"):
        curve(types, [1], prices={None: 1.0})
    (offer,), _ = curve(types[:1], [1], prices={None: 1.0})
    assert offer.cost is not None


def test_a_table_of_several_rows_needs_a_column_of_types(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("typ,price\nslow,0.35\nfast,0.7\n")
    with pytest.raises(InputError, match=r"row 2 .line 3.: is a second row") as caught:
        read_prices(path, ("slow",))
    assert "typ, price" in (caught.value.hint or "")


def test_a_saved_model_says_the_same(types: tuple[ScaleModel, ScaleModel], tmp_path: Path) -> None:
    wavy = measured(lambda m, s: 1 + 2 * np.ceil(40 * s / m), grid(scales=(0.02, 0.1)), 0.02)
    kinds = ["ernest", "ernest-piecewise", "ernest-residuals", "repeat-nearest", "stack"]
    models = (*types, *(replace(fitted(wavy, kind=kind), machine_type=kind) for kind in kinds))
    path = tmp_path / "model.json"
    persist.write_file(path, ScaleFile("job", "2026-01-01T00:00:00+00:00", models))
    again = persist.read_file(path)
    assert again.name == "job"
    for model in models:
        other = again.single(machine_type=model.machine_type)
        for at in (Configuration(3, 0.03), Configuration(64, 1.0)):
            assert other.predict(at) == model.predict(at)


def test_damaged_newer_and_foreign_documents_are_refused(
    types: tuple[ScaleModel, ScaleModel],
) -> None:
    document = persist.seal(ScaleFile(None, "now", types[:1]))
    text = json.dumps(document)
    assert persist.read(json.loads(text)).models
    with pytest.raises(InputError, match="checksum"):
        persist.read(json.loads(text.replace('"least": ', '"least": 1', 1)))
    with pytest.raises(IncompatibleError, match="version 9"):
        persist.read({**document, "version": 9})
    with pytest.raises(InputError, match="not a scale model"):
        persist.read({"format": "kongming-model"})
    with pytest.raises(InputError, match="not a scale model"):
        persist.read([1])


def test_several_types_have_to_be_named(types: tuple[ScaleModel, ScaleModel]) -> None:
    file = ScaleFile(None, "now", types)
    with pytest.raises(InputError, match="slow, fast"):
        file.single()
    with pytest.raises(UnknownNameError, match="fats"):
        file.single(machine_type="fats")


def test_a_model_of_a_single_job_has_none_to_name(types: tuple[ScaleModel, ScaleModel]) -> None:
    file = ScaleFile(None, "now", types)
    with pytest.raises(InputError, match="--group: The model distinguishes no jobs") as caught:
        file.of_group("x")
    assert "Leave out --group" in (caught.value.hint or "")


def test_a_changed_program_makes_a_model_stale(tmp_path: Path) -> None:
    program = tmp_path / "job"
    program.write_bytes(b"one")
    files = track([program])
    assert changes(files) == (False, ())
    program.write_bytes(b"two")
    stale, messages = changes(files)
    assert stale
    assert "has changed since" in messages[0]
    program.unlink()
    stale, messages = changes(files)
    assert not stale
    assert "is not here" in messages[0]
    program.mkdir()
    stale, messages = changes([replace(files[0], size_bytes=program.stat().st_size)])
    assert not stale
    assert "cannot be read (Is a directory)" in messages[0]


def test_the_slowest_are_dropped() -> None:
    readings = {f"n{i}": {"memory": 1.0 + 0.01 * i, "network": 2.0} for i in range(9)}
    readings["bad"] = {"memory": 1.02, "network": 3.0}
    slow = slowness(readings)
    assert slow["bad"] == pytest.approx(1.5)
    dropping = drop_slowest(slow, 9)
    assert dropping.dropped == ("bad",)
    # Nine of ten at random leave the bad one out in one of ten launches.
    assert dropping.worst_before == pytest.approx(0.9 * 1.5 + 0.1 * dropping.worst_after)
    assert dropping.gain == pytest.approx(1.0 - dropping.worst_after / dropping.worst_before)
    with pytest.raises(InputError, match="1 to 10 nodes"):
        drop_slowest(slow, 11)


def test_extras_buy_the_target() -> None:
    spread = [1.0] * 19 + [1.5]
    extras = extra_machines(spread, 20, target=1.1, probability=0.95)
    assert 1 <= extras.extra <= 5
    assert extras.probability >= 0.95 > extras.without
    assert extras.without == pytest.approx(0.95**20, abs=0.03)
    assert extra_machines(spread * 100, 20, target=1.6).extra == 0
    with pytest.raises(CannotAnswerError, match="Even 1 extra"):
        extra_machines([1.0, 1.0, 1.5], 20, target=1.1, most=1)


def test_a_few_measured_machines_promise_nothing() -> None:
    """None of them was slow: the next may be, the more likely the fewer there are."""
    few, many = (extra_machines([1.0] * n, 10, target=1.1) for n in (3, 1000))
    assert few.without < 0.6
    assert few.extra > 0
    assert 0.95 <= few.probability < 1.0
    assert many.extra == 0
    assert 0.99 < many.probability < 1.0


def test_extras_are_as_many_as_are_needed() -> None:
    """More than the machines themselves, where most are slow; drawn launches agree."""
    spread = [1.0] * 3 + [2.0] * 2
    extras = extra_machines(spread, 4, target=1.1, probability=0.95)
    assert extras.extra > 4

    def likely(launched: int) -> float:
        # Of the share of fast machines no more is known than that three of five are.
        return float(stats.betabinom.sf(3, launched, 3.5, 2.5))

    assert extras.probability == pytest.approx(likely(4 + extras.extra), abs=1e-6)
    assert extras.without == pytest.approx(likely(4), abs=1e-6)
    assert likely(4 + extras.extra - 1) < 0.95 <= extras.probability
    random = np.random.default_rng(0)

    def worst(launched: int) -> Floats:
        drawn = np.sort(random.choice(spread, size=(40_000, launched)), axis=1)
        return np.asarray(drawn[:, 3])

    gain = 1 - np.mean(worst(4 + extras.extra)) / np.mean(worst(4))
    assert extras.gain == pytest.approx(gain, abs=0.005)
    with pytest.raises(CannotAnswerError, match="Even 4 extra machines"):
        extra_machines(spread, 4, target=1.1, most=4)
    with pytest.raises(CannotAnswerError, match="No measured machine"):
        extra_machines(spread, 4, target=0.5)
    with pytest.raises(InputError, match="--machines: is out of range"):
        extra_machines(spread, 10**21)
    with pytest.raises(InputError, match="--target: is out of range"):
        extra_machines(spread, 4, target=float("nan"))


def test_ranges() -> None:
    assert machine_counts("1..4,8,16..32:8") == (1, 2, 3, 4, 8, 16, 24, 32)
    assert machine_counts("2,2,1..2") == (1, 2)
    assert scales("0.01..0.1")[0] == 0.01
    assert len(scales("0.01..0.1")) == 10
    assert scales("0.5,0.1..0.3:3") == (0.1, 0.2, 0.3, 0.5)
    for wrong in ("", "0..4", "4..1", "a", "1..b", "1.5"):
        with pytest.raises(InputError, match="--machines"):
            machine_counts(wrong)
    with pytest.raises(InputError, match=r"^--executors: is not a range. Found '4,2-8'.") as caught:
        machine_counts("4,2-8", field="--executors")
    assert caught.value.hint == "Did you mean 4,2..8?"
    assert scales("1%..10%") == scales("0.01..0.1")
    for wrong in ("", "0", "-1", "nan", "0.2..0.1", "x"):
        with pytest.raises(InputError, match="--scale"):
            scales(wrong)
    with pytest.raises(InputError) as caught:
        scales("0,01..0,1")
    assert caught.value.hint == "The decimal mark is a point, not a comma. Commas separate values."
    for text, hint in (("1,000@1", "thousands"), ("8@0,5", "decimal mark is a point, not")):
        with pytest.raises(InputError, match="--target") as caught:
            configuration(text, "--target")
        assert hint in (caught.value.hint or "")
    assert configuration("2@50%", "--target") == configuration("2@0.5", "--target")


def test_fewer_machines_than_were_run_are_not_advised(
    types: tuple[ScaleModel, ScaleModel],
) -> None:
    (slow, _) = types
    low, high = slow.ranges.machines
    at_least = replace(slow, ranges=replace(slow.ranges, machines=(low + 2.0, high)))
    offers, _ = curve([at_least], range(1, 65), prices=PRICES)
    best, likeliest, judged = recommend([at_least], offers, prices=PRICES, deadline_s=1e6)
    assert len(judged) == 64
    assert best is not None
    assert likeliest is not None
    assert min(best.machines, likeliest.machines) >= low + 2.0
    best, likeliest, _ = recommend([at_least], offers[:1], prices=PRICES, deadline_s=1e6)
    assert best is None
    assert likeliest is not None


def test_below_the_smallest_count_memory_may_end() -> None:
    runs = measured(published("regression"), grid((4, 8, 16), (0.5, 1.0), 3), 0.03)
    model = fitted(runs, kind="stack")
    low, high, held = (
        model.predict(Configuration(m, s)) for m, s in ((2, 1.0), (32, 1.0), (2, 0.5))
    )
    # A cliff makes a job longer, never shorter.
    assert low.upper / low.median > 5.0 > low.median / low.lower
    assert high.upper / high.median == pytest.approx(high.median / high.lower)
    assert any("memory may end" in reason for reason in low.reasons)
    # As much on each machine was run: it fits.
    assert held.upper / held.median < 2.0
    assert model.probability(low, low.upper) == pytest.approx(0.95, abs=0.005)
    assert model.probability(low, 2.0 * low.median) < 0.9
    sure = fitted(runs, kind="stack", memory_load=1.0).predict(Configuration(2))
    assert sure.upper / sure.median == pytest.approx(sure.median / sure.lower)
