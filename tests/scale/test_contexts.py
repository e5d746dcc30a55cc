"""One model over contexts: inputs and machine types that were never run are predicted."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.scale.generated import contexts
from kongming.records.errors import InputError, UnknownNameError
from kongming.scale.decide.recommendation import curve, recommend
from kongming.scale.fit import model_file
from kongming.scale.fit.context_spread import ContextSpread
from kongming.scale.fit.contexts import context_fitting
from kongming.scale.fit.contexts.context_fitting import MOST, fit_contexts
from kongming.scale.fit.contexts.context_model import ContextModel
from kongming.scale.fit.ernest import fit_ernest
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration, Points, Runs
from kongming.scale.table import Columns, ContextTable, read_context_table
from tests.conftest import Kongming
from tests.variants import variants

NAMES = ("size_gb", "k", "cores", "type")
SPEED = {"small": (2.0, 1.0), "large": (4.0, 0.6)}
LEFT_OUT = (40.0, 9.0, "large")


def seconds(machines: float, size: float, k: float, kind: str) -> float:
    """A job whose time is additive in logs."""
    return (30.0 + 900.0 / machines) * (size / 20.0) ** 0.9 * (k / 5.0) ** 0.5 * SPEED[kind][1]


def write(
    path: Path, *, known: int = 0, own: float = 1.0, counts: tuple[int, ...] = (2, 4, 6, 8, 12)
) -> Path:
    """Write runs of all contexts; of ``LEFT_OUT``, which takes ``own`` times as long, the first
    ``known`` counts."""
    random = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("machines", *NAMES, "seconds"))
        for size in (10.0, 20.0, 40.0):
            for k in (3.0, 9.0):
                for kind, (cores, _) in SPEED.items():
                    is_left_out = (size, k, kind) == LEFT_OUT
                    for machines in counts[:known] if is_left_out else counts:
                        for _ in range(3):
                            noise = float(np.exp(0.03 * random.standard_normal()))
                            time = noise * seconds(machines, size, k, kind)
                            time *= own if is_left_out else 1.0
                            writer.writerow((machines, size, k, cores, kind, time))
    return path


def model(path: Path) -> ContextModel:
    (table,) = read_context_table(path, Columns(machine_type="type"), NAMES[:3])
    return fit_contexts(table, Settings(read_terms("default", items=None)))


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> ContextModel:
    return model(write(tmp_path_factory.mktemp("contexts") / "runs.csv"))


GIVEN = {"size_gb": "40", "k": "9", "type": "large"}


def test_a_context_without_runs_is_predicted_and_reported(without: ContextModel) -> None:
    at = without.at(GIVEN)
    for machines in (2, 6, 12):
        answer = at.predict(Configuration(machines))
        assert answer.median == pytest.approx(seconds(machines, 40.0, 9.0, "large"), rel=0.12)
        assert answer.lower < seconds(machines, 40.0, 9.0, "large") < answer.upper
        assert answer.extrapolating
        assert "no runs at size_gb=40, k=9, cores=4, type=large" in answer.reasons[0]
    known = without.at({**GIVEN, "k": "3"}).predict(Configuration(6))
    assert not known.extrapolating


@pytest.mark.thorough
def test_its_own_runs_tell_what_the_columns_do_not(tmp_path: Path) -> None:
    """A context that takes 1.6 times what its columns let expect."""
    errors = []
    for known in (0, 3):
        of = model(write(tmp_path / "runs.csv", known=known, own=1.6))
        median = of.at(GIVEN).predict(Configuration(12)).median
        errors.append(abs(median / (1.6 * seconds(12, 40.0, 9.0, "large")) - 1.0))
    assert errors[0] > 0.25
    assert errors[1] < 0.15


@pytest.mark.parametrize(("known", "fewest"), [(2, 8), (0, 2)])
def test_fewer_machines_than_a_context_had_are_not_advised(
    tmp_path: Path, known: int, fewest: int
) -> None:
    """Its input has to fit into memory, whatever that of others fits into."""
    of = model(write(tmp_path / "runs.csv", known=known, counts=(12, 8, 6, 4, 2)))
    at = of.at(GIVEN)
    prices = {"large": 1.0}
    offers, _ = curve([at], range(1, 13), prices=prices)
    best, likeliest, _ = recommend([at], offers, prices=prices, deadline_s=1e6)
    assert best is not None
    assert likeliest is not None
    assert best.machines == fewest
    assert likeliest.machines >= fewest


def test_a_type_that_never_had_the_input_needs_as_many_machines_as_those_that_had(
    tmp_path: Path,
) -> None:
    """That 2 small machines held other inputs does not say that they hold one which no type ever
    ran on fewer than 8 machines."""
    path = write(tmp_path / "runs.csv", known=2, counts=(12, 8, 6, 4, 2))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(each for each in lines if ",40.0,9.0,2.0,small," not in each))
    of = model(path)
    both = [of.at({**GIVEN, "type": kind}) for kind in SPEED]
    prices = {"small": 0.1, "large": 1.0}
    offers, _ = curve(both, range(1, 13), prices=prices)
    best, likeliest, _ = recommend(both, offers, prices=prices, deadline_s=1e6)
    assert best is not None
    assert likeliest is not None
    assert (best.machine_type, best.machines) == ("small", 8)
    assert likeliest.machines >= 8


def test_errors_with_contexts_left_out_are_beside_those_alone(without: ContextModel) -> None:
    report = without.report
    assert len(report["contexts"]) == 11
    assert report["context_out_error_pct"] < 15.0
    assert report["loo_error_pct"] < 6.0
    for row in report["contexts"]:
        assert row["alone_error_pct"] > 0.0
        assert set(row["context"]) == set(NAMES)


def test_the_coverage_is_of_runs_and_of_the_intervals_that_predictions_have(
    without: ContextModel,
) -> None:
    """It was that of the normal quantile, and predictions have Student's, which is a third more."""
    coverage = without.report["coverage"]
    assert coverage["runs"] == without.report["runs"] > without.report["configurations"]
    assert 0.9 < coverage["measured"] < 1.0


def test_values_that_are_missing_or_wrong_are_named(without: ContextModel) -> None:
    with pytest.raises(InputError, match="size_gb is missing"):
        without.at({"k": "9", "type": "large"})
    with pytest.raises(InputError, match="not a number above 0"):
        without.at({**GIVEN, "k": "many"})
    with pytest.raises(UnknownNameError, match="sise"):
        without.at({**GIVEN, "sise": "1"})


def test_a_saved_model_answers_the_same(without: ContextModel, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    model_file.write_file(path, ScaleFile("job", "now", (), contexts=(without,)))
    again = model_file.read_file(path)
    for given in (GIVEN, {**GIVEN, "type": "small"}):
        (other,) = again.at_context(given).models
        at = Configuration(5)
        answer, expected = other.predict(at), without.at(given).predict(at)
        assert answer.median == pytest.approx(expected.median, rel=1e-9)
        assert answer.upper == pytest.approx(expected.upper, rel=1e-6)
    with pytest.raises(InputError, match="size_gb is missing"):
        again.single()


def test_a_context_with_few_configurations_is_saved_with_its_shares(tmp_path: Path) -> None:
    fitted = model(write(tmp_path / "runs.csv", known=2, own=1.4))
    mine = fitted.own.counts.tolist().index(2)
    assert fitted.own.few(mine)
    assert len(fitted.own.drawn.owner)
    path = tmp_path / "model.json"
    model_file.write_file(path, ScaleFile("job", "now", (), contexts=(fitted,)))
    again = model_file.read_file(path)
    for machines in (3, 12, 16):
        answer = again.at_context(GIVEN).models[0].predict(Configuration(machines))
        expected = fitted.at(GIVEN).predict(Configuration(machines))
        assert answer.median == pytest.approx(expected.median, rel=1e-9)
        assert answer.upper == pytest.approx(expected.upper, rel=1e-6)


def test_a_file_without_steps_across_cliffs_is_read(without: ContextModel) -> None:
    from kongming.files.sealed_document import checksum

    document = model_file.seal(ScaleFile("job", "now", (), contexts=(without,)))
    old = {key: value for key, value in document.items() if key != "checksum"}
    own = old["contexts"][0]["own"]
    own["places"] = [row[:4] for row in own["places"]]
    old["checksum"] = checksum(old)
    known = {**GIVEN, "k": "3"}
    (other,) = model_file.read(old).at_context(known).models
    answer, expected = (each.predict(Configuration(5)) for each in (other, without.at(known)))
    assert answer.median == pytest.approx(expected.median, rel=0.05)
    own |= {"places": [[0.0] * 5], "owner": [], "way": [], "needed": []}
    old["checksum"] = checksum({key: value for key, value in old.items() if key != "checksum"})
    with pytest.raises(InputError, match="damaged"):
        model_file.read(old)


def test_a_file_of_version_1_is_read() -> None:
    from kongming.files.sealed_document import checksum
    from tests.scale.shapes import fitted, grid, measured, published

    single = fitted(measured(published("pca"), grid()), kind="ernest-relative")
    document = model_file.seal(ScaleFile(None, "now", (single,)))
    old = {key: value for key, value in document.items() if key not in ("contexts", "checksum")}
    old["version"] = 1
    old["checksum"] = checksum(old)
    assert model_file.read(old).single().predict(Configuration(4)).median > 0.0


def answer(kongming: Kongming, *args: str | Path, status: int = 0) -> dict[str, Any]:
    done = kongming("scale", *args, "--json")
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_the_commands_over_contexts(kongming: Kongming, tmp_path: Path) -> None:
    runs, saved = write(tmp_path / "runs.csv"), tmp_path / "model.json"
    columns = ("--context", "size_gb,k", "--context", "cores", "--type-column", "type")
    fitted = answer(kongming, "fit", runs, *columns, "--save", saved)
    assert fitted["model"] == "contexts"
    context = ("--context", "size_gb=40,k=9")
    predicted = answer(kongming, "predict", saved, "--machines", "6", *context, "--type", "large")
    assert predicted["extrapolating"]
    assert predicted["context"]["cores"] == 4.0
    prices = tmp_path / "prices.csv"
    prices.write_text("type,price\nsmall,1\nlarge,1\n")
    advice = answer(
        kongming,
        *("recommend", saved, *context, "--machines", "2..12", "--prices", prices),
        *("--deadline", "5m"),
    )
    # The type that was never run with this input is the faster one at the same price.
    assert advice["type"] == "large"
    assert "no runs at" in advice["reasons"][0]
    assert {row["type"] for row in advice["curve"]} == {"small", "large"}
    missing = answer(kongming, "predict", saved, "--machines", "6", status=2)
    assert "size_gb" in missing["error"]["message"]
    where = ("--machines", "2..12:2", "--scale", "1", "--target", "12@1")
    target = ("--context", "size_gb=40,k=9,type=large")
    chosen = answer(kongming, "next", runs, *where, *target, "--stop-at", "1%")
    assert chosen["stop"] is False
    assert chosen["next"]["variance_after"] < chosen["next"]["variance_now"]
    design = answer(kongming, "design", "--done", runs, *where, *target, "--experiments", "2")
    assert design["count"] == 2
    assert set(design["experiments"][0]["context"]) == {"size_gb", "k", "type"}


@pytest.fixture(scope="module")
def saved(without: ContextModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model.json"
    model_file.write_file(path, ScaleFile(None, "now", (), contexts=(without,)))
    return path


def test_a_machine_type_that_is_given_twice_has_to_agree(kongming: Kongming, saved: Path) -> None:
    call = ("predict", saved, "--machines", "4", "--context", "size_gb=40,k=9,type=large")
    error = answer(kongming, *call, "--type", "small", status=2)["error"]
    assert "--type: contradicts --context type=large" in error["message"]
    assert answer(kongming, *call, "--type", "large") == answer(kongming, *call)


def test_a_machine_type_that_no_run_had_is_named(kongming: Kongming, saved: Path) -> None:
    call = ("predict", saved, "--machines", "4", "--type", "lrage", "--context", "size_gb=40,k=9")
    error = answer(kongming, *call, status=2)["error"]
    assert "no type in the runs named 'lrage'" in error["message"]
    assert "Did you mean large?" in error["hint"]
    assert "also give cores" in error["hint"]
    complete = answer(kongming, *call, "--context", "cores=4")
    assert "no run was at type=lrage: did you mean large?" in complete["warnings"]
    known = answer(kongming, *call[:5], "large", *call[6:])
    assert known["warnings"] == []


def test_missing_numbers_are_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    cells = [f"{m},{size},{100 * size / m + 5}" for size in (2, 8, 16) for m in (2, 4, 8)]
    path.write_text("\n".join(["machines,size,seconds", *cells]) + "\n")
    (table,) = read_context_table(path, Columns(), ("size",))
    of = fit_contexts(table, Settings(read_terms("default", items=None)))
    with pytest.raises(InputError, match="Allowed: 2, 8, 16"):
        of.at({})


def test_a_context_column_that_is_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("machines,size,seconds\n1,3,10\n2,4,6\n")
    with pytest.raises(InputError, match=r"--context: is there twice\. Found 'size'"):
        read_context_table(path, Columns(), ("size", "size"))
    with pytest.raises(InputError, match="--context: has another meaning already"):
        read_context_table(path, Columns(), ("machines",))


@pytest.mark.parametrize("names", ["", " ", "k,", ",k", "k,,type"])
def test_an_empty_name_of_a_column_is_refused(
    kongming: Kongming, tmp_path: Path, names: str
) -> None:
    """It is no fit without contexts, which would take all inputs for repeats."""
    runs = write(tmp_path / "runs.csv")
    error = answer(kongming, "fit", runs, "--context", names, status=2)["error"]
    assert "--context: has an empty name" in error["message"]


@pytest.mark.parametrize(("unit", "noted"), [("GB", True), ("", False)])
def test_names_that_begin_with_digits_are_noted(
    kongming: Kongming, tmp_path: Path, unit: str, noted: bool
) -> None:
    runs, saved = tmp_path / "runs.csv", tmp_path / "model.json"
    cells = [f"{m},{size}{unit},2xl,{100 * size / m + 5}" for size in (2, 8, 16) for m in (2, 4, 8)]
    runs.write_text("\n".join(["machines,size,type,seconds", *cells]) + "\n")
    columns = ("--context", "size", "--type-column", "type")
    warnings = answer(kongming, "fit", runs, *columns, "--save", saved)["warnings"]
    notes = [warning for warning in warnings if "numbers without their units" in warning]
    assert len(notes) == noted
    assert all("size has names, as 16GB" in note for note in notes)


def test_one_context_is_refused(kongming: Kongming, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("machines,k,seconds\n1,3,10\n2,3,6\n")
    error = answer(kongming, "fit", path, "--context", "k", status=2)["error"]
    assert "one context" in error["message"]


@pytest.mark.thorough
def test_many_configurations_are_thinned_at_all_counts(tmp_path: Path) -> None:
    """301 contexts at 2 and 8 machines: machine counts alternate in the table."""
    random = np.random.default_rng(0)
    sizes = np.geomspace(1.0, 100.0, 301)
    path = tmp_path / "runs.csv"
    path.write_text(
        "machines,size,seconds\n"
        + "".join(
            f"{m},{s},{(100 * s / m + 5) * np.exp(0.02 * random.standard_normal())}\n"
            for s in sizes
            for m in (2, 8)
        )
    )
    (table,) = read_context_table(path, Columns(), ("size",))
    of = fit_contexts(table, Settings(read_terms("default", items=None)))
    assert len(of.points) == MOST
    assert set(of.points.machines) == {2.0, 8.0}
    answer = of.at({"size": "10.5"}).predict(Configuration(8))
    assert answer.median == pytest.approx(100 * 10.5 / 8 + 5, rel=0.1)
    assert answer.upper / answer.lower < 1.5


def test_a_thinned_model_is_saved_with_all_that_its_contexts_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the configurations that the common model kept, or each would seem to have few."""
    monkeypatch.setattr(context_fitting, "MOST", 36)
    random = np.random.default_rng(1)
    path = tmp_path / "runs.csv"
    path.write_text(
        "machines,size,seconds\n"
        + "".join(
            f"{m},{s},{(100 * s / m + 5) * np.exp(0.1 * random.standard_normal())}\n"
            for s in range(1, 11)
            for m in (1, 2, 4, 8, 16)
        )
    )
    (table,) = read_context_table(path, Columns(), ("size",))
    fitted = fit_contexts(table, Settings(read_terms("default", items=None)))
    assert len(fitted.points) < 50
    assert not any(fitted.own.few(context) for context in range(10))
    saved_as = tmp_path / "model.json"
    model_file.write_file(saved_as, ScaleFile("job", "now", (), contexts=(fitted,)))
    again = model_file.read_file(saved_as)
    for size in map(str, range(1, 11)):
        answer = again.at_context({"size": size}).models[0].predict(Configuration(32))
        assert answer.median == pytest.approx(
            fitted.at({"size": size}).predict(Configuration(32)).median, rel=1e-9
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "machines,size,seconds\n1,3,10\n2,NA,6\n1,5,7\n",
            r"row 2 .*'size': is not a number.*'NA'",
        ),
        ("machines,size,seconds\n1,nan,10\n2,3,6\n1,5,7\n", r"row 1 .*'size': is not a finite"),
        ("machines,size,seconds\n1,a,10\n2,inf,6\n1,b,7\n", r"row 2 .*'size': is not a finite"),
        ("machines,size,seconds\n1,nan,9\n2,nan,6\n", r"row 1 .*'size': is not a finite number"),
        ("machines,size,seconds\n1,inf,9\n2,-Infinity,6\n", r"row 1 .*'size': is not a finite"),
        ("machines,size,seconds\n1,,10\n2,3,6\n", r"row 1 .*'size': is empty.*a number or a name"),
        ("machines,size,seconds\n1,3,1e308\n2,3,6\n", r"row 1 .*'seconds': is out of range"),
        ("machines,size,seconds\n1,3,1e-300\n2,3,6\n", r"row 1 .*'seconds': is out of range"),
        ("machines,size,seconds\n2.5,3,5\n2,3,6\n", r"row 1 .*'machines': is out of range"),
        ("machines,size,seconds\n1,1,9\n2,2,6\n3,3,4\n", r"same as the number of machines"),
    ],
)
def test_bad_contexts(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_context_table(path, Columns(), ("size",))


def test_failed_runs_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("machines,size,seconds,status\n1,3,9,ok\n1,5,,failed\n2,3,6,ok\n")
    (table,) = read_context_table(path, Columns(), ("size",))
    assert table.runs.seconds.tolist() == [9.0, 6.0]
    assert table.contexts == ((3.0,),)


def test_far_and_untested_contexts_are_named_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    cells = [(m, s) for s in (1.0, 2.0, 4.0, 8.0) for m in (2, 4, 8)]
    rows = [f"{m},{s},7,{100 * s / m + 5}\n" for m, s in cells * 2]
    path.write_text("machines,size,k,seconds\n" + "".join(rows))
    (table,) = read_context_table(path, Columns(), ("size", "k"))
    of = fit_contexts(table, Settings(read_terms("default", items=None)))
    far = of.at({"size": "1e9"}).predict(Configuration(4))
    assert "size 1e+09 is above the trained 1 to 8" in far.reasons
    assert far.lower <= far.median <= far.upper
    untested = of.at({"size": "4", "k": "90"}).predict(Configuration(4))
    assert any("k was 7 in all runs" in reason for reason in untested.reasons)
    assert untested.median == pytest.approx(105.0, rel=0.1)
    tested = of.at({"size": "4", "k": "7"}).predict(Configuration(4))
    assert untested.upper > 5.0 * tested.upper
    assert untested.lower < 0.2 * tested.lower
    unsure = replace(of.at({"size": "4"}), spread=ContextSpread(1e3, None, 0))
    answer = unsure.predict(Configuration(4))
    assert answer.upper <= 4.0 * 3.0 * 405.0
    assert any("cut near the times" in reason for reason in answer.reasons)


def table_of(rows: list[tuple[float, float, float, float]]) -> ContextTable:
    """A table of (machines, size, k, seconds)."""
    cells = np.array(rows)
    contexts = [tuple(each) for each in cells[:, 1:3].tolist()]
    known = tuple(dict.fromkeys(contexts))
    owner = np.array([known.index(each) for each in contexts])
    points = Points(cells[:, 0], np.ones(len(rows)), np.ones(len(rows)))
    return ContextTable(Runs(points, cells[:, 3]), ("size", "k"), known, owner)


def test_other_columns_of_no_effect_do_not_narrow_that_of_an_untested_one() -> None:
    random = np.random.default_rng(2)
    rows = [
        (m, size, 7.0, (100.0 / m + 5.0) * float(np.exp(0.02 * random.standard_normal())))
        for size in (1.0, 2.0, 4.0)
        for m in (2.0, 4.0, 8.0)
    ]
    of = fit_contexts(table_of(rows), Settings(read_terms("default", items=None)))
    answer = of.at({"size": "2", "k": "19"}).predict(Configuration(4))
    # In proportion to k the time would be 2.7 times as long.
    assert answer.lower < answer.median / 2.7
    assert answer.upper > 2.7 * answer.median


def test_a_cliff_is_met_by_an_input_that_no_run_took_across() -> None:
    """Above a size of 8 for each machine a job takes five times as long."""
    random = np.random.default_rng(3)

    def time(m: float, size: float, k: float) -> float:
        return (20.0 + 40.0 * size / m) * k**0.5 * (5.0 if size / m > 8.0 else 1.0)

    rows = [
        (m, size, k, time(m, size, k) * float(np.exp(0.03 * random.standard_normal())))
        for size in (8.0, 16.0, 32.0, 64.0)
        for k in (2.0, 4.0, 8.0)
        for m in (1.0, 2.0, 4.0, 8.0, 16.0)
        # Of the largest input nothing was run where memory ends.
        if size < 64.0 or m >= 8.0
    ]
    of = fit_contexts(table_of(rows), Settings(read_terms("default", items=None)))
    assert of.cliff is not None
    assert of.cliff.over == 0
    assert of.cliff.jump == pytest.approx(np.log(5.0), abs=0.5)
    for size, k, m in ((64, 2, 4), (40, 3, 2), (24, 3, 8)):
        predicted = of.at({"size": str(size), "k": str(k)}).predict(Configuration(m)).median
        assert predicted == pytest.approx(time(m, size, k), rel=0.3)


def test_contexts_that_say_nothing_about_each_other_do_no_harm() -> None:
    """Opposite curves over the machines, which the columns do not explain."""
    random = np.random.default_rng(1)
    counts = (1.0, 2.0, 4.0, 6.0, 8.0, 12.0)
    rows, left = [], []
    for i, size in enumerate((10.0, 20.0, 30.0, 40.0, 50.0, 60.0)):
        for m in counts:
            time = 100.0 / m + 2.0 if i % 2 else 40.0 + 6.0 * m
            row = (m, size, 1.0, time * float(np.exp(0.02 * random.standard_normal())))
            (left if m == counts[-1] else rows).append(row)
    of = fit_contexts(table_of(rows), Settings(read_terms("default", items=None)))
    terms = read_terms("default", items=None).terms
    ours, alone = [], []
    for m, size, k, seconds in left:
        own = of.contexts.index((size, k))
        runs = table_of(rows).runs.take(table_of(rows).owner == own)
        plain = fit_ernest(runs, terms, relative=True, rounds=0).predict(
            Points.of([Configuration(m)])
        )
        answer = of.at({"size": str(size), "k": str(k)}).predict(Configuration(m))
        ours.append(abs(answer.median / seconds - 1.0))
        alone.append(abs(float(plain[0]) / seconds - 1.0))
    assert np.mean(ours) <= 1.1 * np.mean(alone) + 0.01


def test_a_cliff_that_other_contexts_have_widens_and_does_not_move_the_answer() -> None:
    """On one machine every second context takes six times as long, which no column says; of the
    last two contexts that was not run."""
    random = np.random.default_rng(5)

    def time(m: float, size: float, *, cliff: bool) -> float:
        noise = float(np.exp(0.02 * random.standard_normal()))
        return (10.0 + 60.0 * size / m) * (6.0 if cliff and m == 1.0 else 1.0) * noise

    rows = [
        (m, size, 1.0, time(m, size, cliff=i % 2 == 0))
        for i, size in enumerate((8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0))
        for m in (1.0, 2.0, 4.0, 6.0, 8.0, 12.0)
        if m > 1.0 or size < 14.0
    ]
    of = fit_contexts(table_of(rows), Settings(read_terms("default", items=None)))
    for size in (14.0, 15.0):
        at = of.at({"size": str(size)})
        answer, known = at.predict(Configuration(1)), at.predict(Configuration(3))
        usual = 10.0 + 60.0 * size
        assert answer.median == pytest.approx(usual, rel=0.3)
        assert answer.lower < usual
        assert answer.upper > 6.0 * usual
        assert "memory may end below the machines that were run" in answer.reasons
        assert at.probability(answer, 3.0 * answer.median) < 0.9
        assert known.upper < 2.0 * known.lower


def test_the_order_of_rows_changes_no_answer() -> None:
    random = np.random.default_rng(7)
    rows = [
        (m, size, k, (20.0 + 40.0 * size / m) * float(np.exp(0.2 * random.standard_normal())))
        for size in (8.0, 16.0, 32.0)
        for k in (2.0, 4.0)
        for m in (1.0, 2.0, 4.0, 8.0)
        if size < 32.0 or m > 1.0
    ]
    answers = []
    for order in (rows, [rows[i] for i in random.permutation(len(rows))]):
        of = fit_contexts(table_of(order), Settings(read_terms("default", items=None)))
        answers.append(of.at({"size": "32", "k": "2"}).predict(Configuration(1)))
    assert answers[0] == answers[1]


def contexts_of(names: tuple[str, ...], *, scale: float = 1.0, cliff: bool = False) -> ContextTable:
    """Three machine types and sizes, with the columns in this order and all runs at one scale."""
    random = np.random.default_rng(4)
    rows, seconds_of = [], []
    for kind, cores, memory in (("small", 2.0, 4.0), ("large", 8.0, 32.0), ("xl", 16.0, 64.0)):
        for size in (10.0, 20.0, 40.0):
            for machines in (2.0, 4.0, 8.0, 12.0):
                time = 5.0 + 160.0 * size / machines / cores + 3.0 * np.log(machines)
                time *= 4.0 if cliff and size / machines / memory > 1.0 else 1.0
                values = {"size": size, "cores": cores, "memory": memory, "type": kind}
                rows.append((machines, tuple(values[name] for name in names)))
                seconds_of.append(time * float(np.exp(0.04 * random.standard_normal())))
    known = tuple(dict.fromkeys(context for _, context in rows))
    machines_of = np.array([machines for machines, _ in rows])
    points = Points(machines_of, np.full(len(rows), scale), np.ones(len(rows)))
    owner = np.array([known.index(context) for _, context in rows])
    return ContextTable(Runs(points, np.array(seconds_of)), names, known, owner)


def contexts_answers(table: ContextTable, scale: float = 1.0) -> list[float]:
    model = fit_contexts(table, Settings(read_terms("default", items=None)))
    values = []
    for size, kind in (("40", "xl"), ("20", "small"), ("80", "large"), ("15", "large")):
        for machines in (1, 2, 8, 12, 24):
            at = model.at({"size": size, "type": kind}).predict(Configuration(machines, scale))
            values += [at.median, at.lower, at.upper]
    return values


CONTEXT_COLUMNS = ("size", "cores", "memory", "type")


@pytest.mark.parametrize("cliff", variants((False, True)))
def test_the_order_of_columns_changes_no_answer(cliff: bool) -> None:
    expected = contexts_answers(contexts_of(CONTEXT_COLUMNS, cliff=cliff))
    for names in (CONTEXT_COLUMNS[::-1], ("memory", "type", "size", "cores")):
        assert contexts_answers(contexts_of(names, cliff=cliff)) == expected


@pytest.mark.parametrize("scale", variants((1e12, 1e-6)))
def test_the_unit_of_a_constant_scale_changes_no_answer_over_contexts(scale: float) -> None:
    expected = contexts_answers(contexts_of(CONTEXT_COLUMNS))
    assert contexts_answers(contexts_of(CONTEXT_COLUMNS, scale=scale), scale) == pytest.approx(
        expected, rel=1e-6
    )


def test_a_median_at_its_limit_is_within_its_interval() -> None:
    """Two effects of a factor of 30 each, which were never seen together."""
    rows = [
        (m, size, k, (5.0 + 40.0 / m) * size * k * (1.0 + 0.01 * (m % 3.0)))
        for size, k in ((1.0, 1.0), (30.0, 1.0), (1.0, 30.0))
        for m in (1.0, 2.0, 4.0, 8.0)
    ]
    of = fit_contexts(table_of(rows), Settings(read_terms("default", items=None)))
    answer = of.at({"size": "30", "k": "30"}).predict(Configuration(2))
    assert any("cut near the times" in reason for reason in answer.reasons)
    assert answer.lower < answer.median < answer.upper


def test_columns_that_changed_together_are_reported() -> None:
    rows = [(m, size, size / 2.0, 10.0 * size / m) for size in (4.0, 8.0, 16.0) for m in (1, 2, 4)]
    of = fit_contexts(table_of(rows), Settings(read_terms("default", items=None)))
    along, apart = (of.at({"size": "12", "k": k}).predict(Configuration(2)) for k in ("6", "2"))
    assert not any("changed together" in reason for reason in along.reasons)
    assert any("size and k changed together" in reason for reason in apart.reasons)


def test_next_prints_the_experiment_its_context_and_why_it_extrapolates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from kongming.cli.scale.design import _next_document, _print_next
    from kongming.scale.fit.model import ScalePrediction

    at = Configuration(12.0, 1.0)
    prediction = ScalePrediction(at, 1.0, 100.0, 60.0, 120.0, 0.9, ("no runs at 40",), 0.1)
    chosen = {
        "machines": 8,
        "scale": 1.0,
        "context": {"size_gb": 40.0},
        "machine_seconds": 800.0,
        "variance_now": 0.2,
        "variance_after": 0.1,
    }
    document = _next_document(prediction, chosen, 0.1, prediction.reasons)
    assert (document["stop"], document["next"]) == (False, chosen)
    _print_next(prediction, document, as_json=False)
    out, err = capsys.readouterr()
    assert "Next: 8 machines at scale 1 (the interval reaches 20.0 % above the median" in out
    assert "size_gb=40" in out
    assert "warning: no runs at 40" in err
    wide = _next_document(prediction, chosen, 0.3, ())
    assert (wide["stop"], wide["next"]) == (True, None)
    # So few runs that the width of the interval is random.
    assert not _next_document(prediction, chosen, 0.3, (), settled=False)["stop"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param((0, 5), id="small"),
        pytest.param(range(8), marks=pytest.mark.thorough, id="all"),
    ],
)
def test_a_few_runs_of_a_context_do_not_make_it_worse_than_none(jobs: Sequence[int]) -> None:
    """The same left-out counts, from all other contexts and none, two or three configurations."""
    ratios: dict[int, list[float]] = {2: [], 3: []}
    for seed in (27_000 + number for number in jobs):
        job = contexts(seed)
        rows = list(zip(*job.columns.values(), strict=True))
        values = tuple(dict.fromkeys(rows))
        owner = np.array([values.index(row) for row in rows])
        machines = job.runs.points.machines
        random = np.random.default_rng([seed, 2])
        for i in random.permutation(len(values)).tolist():
            counts = random.permutation(np.unique(machines[owner == i]))
            if len(counts) >= 4:
                break
        left, rest = np.split(counts, [len(counts) // 3])
        judged = job.runs.take((owner == i) & np.isin(machines, left))
        errors = {}
        for k in (0, *ratios):
            learn = (owner != i) | np.isin(machines, rest[:k])
            table = ContextTable(
                job.runs.take(learn), tuple(job.columns), values, owner[learn], type_column="type"
            )
            if k == 0:
                others = tuple(each for each in values if each != values[i])
                number = np.array([others.index(values[j]) for j in owner[learn].tolist()])
                table = replace(table, contexts=others, owner=number)
            model = fit_contexts(table, Settings(read_terms("default", items=None)))
            predicted = model.fit_at(values[i]).predict(judged.configurations)
            errors[k] = float(np.mean(np.abs(predicted / judged.typical - 1.0))) + 0.005
        for k, each in ratios.items():
            each.append(np.log(errors[k] / errors[0]))
    # Two were 1.6 times worse than none when the own fit was the anchor.
    for each in ratios.values():
        assert np.exp(np.mean(each)) <= 1.0
