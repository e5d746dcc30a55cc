"""Tables of pairs, traces and fleets: what is read, and what is refused where."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.records.errors import InputError, KongmingError, UnknownNameError, UntrainedError
from kongming.simulate import (
    Fleet,
    Kind,
    MeasuredPair,
    PairTable,
    Synthetic,
    alike,
    beliefs_of,
    made_up,
    read_fleet,
    read_pairs,
    read_trace,
)
from kongming.simulate.pairs import together
from tests.simulate.tables import APPS, SOLO_S, drawn, study, table

SOLOS = np.array([SOLO_S[app] for app in APPS])


def written(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_repeats_are_averaged_and_a_speed_up_is_kept(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "app,neighbour,slowdown,solo_s,predicted,predicted_upper\n"
        "a,b,1.2,10,1.25,1.4\na,b,1.25,12,1.25,1.4\nb,a,0.98,5,,\n",
    )
    file = read_pairs(path)
    assert math.exp(file.table.logs[0, 1]) == pytest.approx(math.sqrt(1.2 * 1.25))
    assert file.table.logs[1, 0] == pytest.approx(math.log(0.98))
    assert file.table.faster == 1
    assert file.table.solo_s == pytest.approx([math.sqrt(120.0), 5.0])
    assert file.predicted == {("a", "b"): (1.25, 1.4)}
    assert file.table.noise_pct is not None


@given(st.lists(st.floats(-1.0, 3.0), max_size=6), st.floats(-1.0, 3.0))
def test_several_neighbours_slow_together_and_wake_a_cpu_once(
    logs: list[float], last: float
) -> None:
    combined = together([*logs, last])
    assert combined >= min([0.0, *logs, last])
    assert combined <= together(logs) + max(last, 0.0) + 1e-9
    assert together([last]) == last
    assert together([-0.1, -0.1]) == -0.1
    assert together([]) == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app,neighbour\na,b\n", "header .row 0., column 'slowdown': is missing"),
        ("app,neighbour,slowdown,speed\na,b,1,1\n", "header .row 0., column 'speed': is not known"),
        ("app,neighbour,slowdown,app\n", "column 'app': is there twice"),
        (
            "app,neighbour,slowdown\na,b,1.1\na,,1.1\n",
            "row 2 .line 3., column 'neighbour': is empty",
        ),
        (
            "app,neighbour,slowdown\na,b,fast\n",
            "row 1 .line 2., column 'slowdown': is not a number",
        ),
        ("app,neighbour,slowdown\na,b,0\n", "column 'slowdown': is out of range"),
        ("app,neighbour,slowdown\na,b,inf\n", "column 'slowdown': is out of range"),
        ("app,neighbour,slowdown\na,b,1_0\n", "column 'slowdown': is not a number"),
        ("app,neighbour,slowdown\na,b,1.1,3\n", "row 1 .line 2., column 4: has 4 cells"),
        ("app,neighbour,slowdown\n", "has a header but no rows"),
        ("", "is empty"),
        (
            "app,neighbour,slowdown,predicted,predicted_upper\na,b,1.1,1.2,1.1\n",
            "column 'predicted_upper': is below",
        ),
        ("app,neighbour,slowdown,predicted\na,b,1,1.2\na,b,1,1.3\n", "differs from row 1"),
    ],
)
def test_bad_pairs(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pairs(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file"):
        read_pairs(tmp_path / "none.csv")


def test_the_document_of_an_evaluation(tmp_path: Path) -> None:
    prediction = {"value": 12.5, "lower": 11.0, "upper": 14.0, "level": 0.9}
    document = {
        "kind": "pairs",
        "scored": "raw",
        "placement": "cross-core",
        "pairs": [
            {
                "app": "a",
                "neighbour": "b",
                "measured": 12.0,
                "slowdown": 1.2,
                "repeats": [12.0, 12.0],
                "predictions": {"auto": prediction},
            }
        ],
    }
    path = written(tmp_path, json.dumps(document), "pairs.json")
    file = read_pairs(path)
    assert math.exp(file.table.logs[0, 1]) == pytest.approx(1.2)
    assert file.table.solo_s[0] == pytest.approx(10.0)
    assert file.predicted["a", "b"] == pytest.approx((1.25, 1.4))
    document["scored"] = "bracketed"
    bracketed = read_pairs(written(tmp_path, json.dumps(document), "pairs.json"))
    assert math.isnan(bracketed.table.solo_s[0])
    for wrong in ({"value": 0.0}, {"value": math.nan}, {"value": 12.5, "upper": -1.0}):
        prediction.clear()
        prediction.update(wrong)
        with pytest.raises(InputError, match="pair 1 is not valid"):
            read_pairs(written(tmp_path, json.dumps(document), "pairs.json"))
    with pytest.raises(InputError, match="not an evaluation of pairs"):
        read_pairs(written(tmp_path, "{}", "pairs.json"))


def evaluated(folder: Path, prediction: dict[str, object], **fields: object) -> Path:
    """The document of an evaluation of two programs, each next to the other."""
    pair = {"measured": 12.0, "slowdown": 1.2, "repeats": [12.0]}
    pairs = [
        {"app": app, "neighbour": other, **pair, "predictions": {"auto": prediction}}
        for app, other in (("a", "b"), ("b", "a"))
    ]
    document = {"kind": "pairs", "scored": "raw", "pairs": pairs} | fields
    return written(folder, json.dumps(document), "pairs.json")


def test_costs_that_are_no_seconds_are_no_times(tmp_path: Path) -> None:
    seconds = {"unit": "s", "better": "lower"}
    for unit, better in (("MB/s", "higher"), ("ms", "lower"), ("s", "higher")):
        metrics = {"a": seconds, "b": {"unit": unit, "better": better}}
        with pytest.raises(InputError, match=f"metric of b: is no time.*{unit}") as refused:
            read_pairs(evaluated(tmp_path, {"value": 12.5}, metrics=metrics))
        assert "--scored bracketed" in (refused.value.hint or "")
        # Their slowdowns are slowdowns.
        bracketed = evaluated(tmp_path, {"value": 12.5}, metrics=metrics, scored="bracketed")
        assert np.isnan(read_pairs(bracketed).table.solo_s).all()
    metrics["b"] = seconds
    file = read_pairs(evaluated(tmp_path, {"value": 12.5}, metrics=metrics))
    assert file.table.solo_s == pytest.approx([10.0, 10.0])
    for wrong in ([], {"a": "s"}):
        with pytest.raises(InputError, match="metrics"):
            read_pairs(evaluated(tmp_path, {"value": 12.5}, metrics=wrong))


def test_a_prediction_of_an_evaluation_may_be_a_lower_bound(tmp_path: Path) -> None:
    prediction = {"value": 12.5, "upper": 14.0, "at_least": True}
    file = read_pairs(evaluated(tmp_path, prediction))
    assert file.at_least == {("a", "b"), ("b", "a")}
    beliefs = beliefs_of(file.predicted, file.table, source="a test", at_least=file.at_least)
    # What is estimated from bounds is one.
    assert beliefs.bounded() == [{0, 1}, {0, 1}]
    prediction["at_least"] = False
    assert not read_pairs(evaluated(tmp_path, prediction)).at_least


def test_without_pairs_it_says_how_to_measure_some() -> None:
    with pytest.raises(InputError, match="no measured pair") as refused:
        PairTable.of([], {})
    assert "kongming corun A B" in (refused.value.hint or "")
    assert "--pairs FILE" in (refused.value.hint or "")


def test_a_pair_of_one_application_is_estimated_and_said_so() -> None:
    slowdowns = {("a", "b"): 1.1, ("b", "a"): 1.3, ("a", "c"): 1.2, ("c", "a"): 1.0}
    slowdowns |= {("b", "c"): 1.5, ("c", "b"): 1.05}
    full = PairTable.of([MeasuredPair(a, b, (s,)) for (a, b), s in slowdowns.items()], {})
    filled = full.filled()
    assert filled.estimated == (("a", "a"), ("b", "b"), ("c", "c"))
    assert np.isfinite(filled.logs).all()
    assert (filled.logs >= 0.0).all()
    del slowdowns["b", "c"]
    lacking = PairTable.of([MeasuredPair(a, b, (s,)) for (a, b), s in slowdowns.items()], {})
    with pytest.raises(UntrainedError, match="There is no measurement of b next to c"):
        lacking.filled()
    assert ("b", "c") in lacking.filled(everything=True).estimated


def test_estimates_of_a_table_without_interaction_are_exact() -> None:
    suffers, presses = {"a": 0.1, "b": 0.3, "c": 0.2}, {"a": 0.05, "b": 0.2, "c": 0.4}
    pairs = [
        MeasuredPair(x, y, (math.exp(suffers[x] + presses[y]),))
        for x in suffers
        for y in presses
        if x != y
    ]
    measured = PairTable.of(pairs, {})
    assert np.diag(measured.filled().logs) == pytest.approx(
        [suffers[x] + presses[x] for x in "abc"]
    )
    # As exact where only some of them run: the others' pairs count.
    assert measured.filled(["b"]).logs == pytest.approx(np.array([[0.5]]))
    assert measured.filled(["c", "a"]).logs == pytest.approx(measured.filled().logs[::2, ::2])
    predicted = {(pair.app, pair.neighbour): (pair.slowdowns[0], None) for pair in pairs}
    beliefs = beliefs_of(predicted, measured.filled(["b"]), source="a test")
    assert beliefs.logs == pytest.approx(np.array([[0.5]]))


def test_pairs_that_are_faster_are_those_of_the_applications_that_run() -> None:
    slowdowns = {("a", "b"): 1.1, ("b", "a"): 1.3, ("a", "c"): 0.9, ("c", "a"): 1.0}
    full = PairTable.of([MeasuredPair(a, b, (s,)) for (a, b), s in slowdowns.items()], {})
    assert (full.faster, full.filled(["a", "b"]).faster) == (1, 0)


def test_predictions_that_lack_a_pair() -> None:
    with pytest.raises(UntrainedError, match="There is no prediction for hog next to quiet"):
        beliefs_of({("hog", "victim"): (1.1, None)}, table(), source="a test")


def test_made_up_errors_say_so_and_are_of_the_size_asked_for() -> None:
    truth = table()
    beliefs = made_up(truth, 0.1, 3)
    assert beliefs.made_up
    assert "made up" in beliefs.source
    assert (beliefs.logs == made_up(truth, 0.1, 3).logs).all()
    assert beliefs.error_pct(truth) == pytest.approx(7.0, abs=6.0)
    assert made_up(truth, 0.0, 3).error_pct(truth) == 0.0


def test_a_trace_with_and_without_its_own_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "arrival_s,app,limit,work\n5,hog,1.1,\n0,victim,,7\n\n5,quiet,inf,3\n")
    with pytest.raises(InputError, match="column 'limit': is out of range"):
        read_trace(path, APPS, SOLOS, 1.2)
    written(tmp_path, "arrival_s,app,limit,work\n5,hog,1.1,\n0,victim,,7\n")
    trace = read_trace(path, APPS, SOLOS, 1.2)
    assert trace.arrival_s.tolist() == [0.0, 5.0]
    assert trace.work_s.tolist() == [7.0, 20.0]
    assert trace.limit.tolist() == [1.2, 1.1]
    assert trace.used().apps == ("hog", "victim")
    assert trace.used().app_of.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_s,app\n0,hog\n-1,hog\n", "row 2 .line 3., column 'arrival_s'"),
        ("arrival_s,app\n0,hogg\n", "row 1 .line 2., column 'app': is not in the table"),
        ("arrival_s,app,work\n0,hog,0\n", "column 'work': is out of range"),
        ("arrival_s,app,limit\n0,hog,0.9\n", "column 'limit': is out of range"),
        ("arrival_s\n0\n", "column 'app': is missing"),
        ("arrival_s,app\n", "has a header but no rows"),
    ],
)
def test_bad_traces(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(KongmingError, match=message):
        read_trace(written(tmp_path, text), APPS, SOLOS, 1.2)


def test_a_trace_without_work_needs_solo_times(tmp_path: Path) -> None:
    path = written(tmp_path, "arrival_s,app\n0,hog\n")
    with pytest.raises(UntrainedError, match="solo time of hog is unknown"):
        read_trace(path, APPS, np.full(3, math.nan), 1.2)


def test_a_fleet_of_kinds(tmp_path: Path) -> None:
    path = written(tmp_path, "name,nodes,slots,speed,weight\nold,3,2,0.8,1\nnew,2,4,1.1,5\n")
    fleet = read_fleet(path)
    assert (fleet.nodes, fleet.slots) == (5, 14)
    assert fleet.kind_of() == [0, 0, 0, 1, 1]
    assert fleet.capacity == pytest.approx(6 * 0.8 + 8 * 1.1)
    with pytest.raises(InputError, match="column 'nodes': is out of range"):
        read_fleet(written(tmp_path, "name,nodes\nold,2.5\n"))
    with pytest.raises(InputError, match="slots: is out of range"):
        read_fleet(written(tmp_path, "name,nodes,slots\nold,2,100\n"))


def test_nodes_that_differ_by_name_only_are_one_kind() -> None:
    fleet = Fleet((*(Kind(f"n{k}", 1) for k in range(40)), Kind("fast", 1, speed=2.0)))
    assert fleet.kind_of() == [0] * 40 + [40]
    jobs = drawn(200, 3, every_s=1.0)
    by_name = study(jobs, Fleet(fleet.kinds[:40])).run("oracle")
    counted = study(jobs, alike(40, 2)).run("oracle")
    assert by_name.states == counted.states
    assert by_name.end_s.tolist() == counted.end_s.tolist()


@pytest.mark.parametrize("arrivals", ["poisson", "bursty"])
def test_made_up_jobs_bring_the_load_asked_for(arrivals: str) -> None:
    trace = Synthetic(arrivals, 20_000, 0.6, seed=2).generate(APPS, SOLOS, 50.0, 1.2)
    load = trace.work_s.sum() / (trace.arrival_s[-1] * 50.0)
    assert load == pytest.approx(0.6, rel=0.06)
    shares = np.sort(np.bincount(trace.app_of, minlength=3) / len(trace))[::-1]
    assert shares == pytest.approx(np.array([1.0, 0.5, 1 / 3]) / (11 / 6), abs=0.04)
    together = np.mean(np.diff(trace.arrival_s) == 0.0)
    assert together == pytest.approx(0.9 if arrivals == "bursty" else 0.0, abs=0.02)


def test_a_burst_of_more_jobs_than_there_are_takes_no_room() -> None:
    trace = Synthetic("bursty", 1000, 0.6, burst=1e12).generate(APPS, SOLOS, 50.0, 1.2)
    assert len(trace) == 1000
    assert len(set(trace.arrival_s.tolist())) == 1


def test_an_application_that_is_not_in_the_table() -> None:
    with pytest.raises(UnknownNameError, match="victims"):
        table().only(["victims"])
