"""Synthetic observations with one truth in each: the report finds it, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pytest

from kongming.audit.analysis.document import analyse
from kongming.audit.analysis.findings import findings
from kongming.audit.analysis.multiple import benjamini_hochberg
from kongming.audit.analysis.pairing import pair
from kongming.audit.analysis.prices import run_costs
from kongming.audit.readings import Observations
from kongming.audit.report.page import to_html
from kongming.audit.report.sections import machine_matrix
from kongming.records.errors import CannotAnswerError
from tests.audit.synthetic import START_S, Machine, Moment, machines, observe, only

DAY_S = 86400.0
FOUR = machines(4)


def claims(observations: Observations) -> dict[str, list[tuple[Any, ...]]]:
    """What is claimed, by kind; kinds without a claim are left out."""
    document = analyse(observations).document
    claimed = {
        kind: [(row["machine"], row["name"]) for row in document[kind] if row["claimed"]]
        for kind in ("time_of_day", "drift", "place", "predecessor")
    }
    claimed["changes"] = [(row["machine"], row["name"]) for row in document["changes"]]
    claimed["slow"] = [(r["machine"], r["name"]) for r in document["slow_machines"] if r["slow"]]
    claimed["explains"] = [
        (r["program"], r["name"]) for r in document["explanations"] if r["chosen"]
    ]
    return {kind: rows for kind, rows in claimed.items() if rows}


@pytest.mark.parametrize("slow_noise", [0.0, 0.03])
def test_where_nothing_is_nothing_is_found(slow_noise: float) -> None:
    assert claims(observe(FOUR, slow_noise=slow_noise)) == {}


def test_a_drift() -> None:
    drifting = only("node-01", "zip", lambda m: 0.15 * (m.seconds - START_S) / (180 * 60.0))
    assert claims(observe(FOUR, effects=[drifting])) == {"drift": [("node-01", "zip")]}


def test_two_recordings_of_other_levels_are_no_drift() -> None:
    between = START_S + 30 * 3 * 60.0 + 3600.0
    later = only(None, None, lambda m: 0.03 * (m.seconds > between))
    observations = observe(FOUR, blocks=30, sessions=2, effects=[later])
    assert "drift" not in claims(observations)
    # A drift within them still is one, for as long as a recording lasts.
    drifting = only("node-01", "zip", lambda m: 0.2 * ((m.seconds - START_S) % 12600.0) / 5400.0)
    observations = observe(
        FOUR[:2], blocks=30, sessions=2, programs={"zip": 2.0}, step_s=180.0, effects=[drifting]
    )
    (row,) = [row for row in analyse(observations).document["drift"] if row["claimed"]]
    assert (row["machine"], row["name"]) == ("node-01", "zip")
    assert row["hours"] == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("sessions", [2, 4])
def test_short_recordings_are_no_long_one(sessions: int) -> None:
    observations = observe(FOUR[:1], blocks=10, step_s=10.0, sessions=sessions)
    document = analyse(observations).document
    (machine,) = document["machines"]
    assert machine["longest_hours"] == pytest.approx(machine["hours"] / sessions, rel=0.01)
    assert findings(document)[0]["kind"] == "short recording"
    assert "The longest recording lasts 4 min" in findings(document)[0]["text"]
    assert document["drift"] == []


def test_a_change() -> None:
    at = START_S + 90 * 60.0
    changed = only("node-02", "stream.triad", lambda m: 0.15 * (m.seconds > at))
    observations = observe(FOUR, effects=[changed])
    assert claims(observations) == {"changes": [("node-02", "stream.triad")]}
    (row,) = analyse(observations).document["changes"]
    assert row["at"].startswith("2026-03-01T01:3")
    assert row["change_pct"] == pytest.approx(16.2, abs=3.0)


def test_a_slow_machine_is_dropped_first() -> None:
    observations = observe(FOUR, effects=[only("node-03", None, lambda m: 0.2)])
    claimed = claims(observations)
    assert set(claimed) == {"slow"}
    assert {machine for machine, _ in claimed["slow"]} == {"node-03"}
    drop = analyse(observations).document["dropping"][0]
    assert drop["machines"] == ["node-03"]
    assert drop["gain_pct"] == pytest.approx(drop["program_gain_pct"], abs=3.0)
    assert drop["gain_pct"] > 10.0


def test_extra_machines_are_as_many_as_are_needed() -> None:
    """More than the machines that are wanted, if few are measured and some of them are slow."""
    slow = only("node-03", None, lambda m: 0.2)
    rows = analyse(observe(FOUR, blocks=30, effects=[slow])).document["extra_machines"]
    assert [row["wanted"] for row in rows] == [10, 50]
    for row in rows:
        assert row["extra"] > row["wanted"]
        assert row["probability"] >= 0.95 > row["probability_without"]


@pytest.mark.parametrize(("shift", "slow"), [(-0.3, set()), (0.3, {"node-02"})])
def test_of_three_machines_a_fast_one_makes_the_others_no_slower(
    shift: float, slow: set[str]
) -> None:
    observations = observe(FOUR[:3], blocks=30, effects=[only("node-02", None, lambda m: shift)])
    assert {machine for machine, _ in claims(observations).get("slow", [])} == slow


def test_the_first_of_a_block() -> None:
    cold = only(None, "sort", lambda m: 0.05 * (m.place == 0))
    assert claims(observe(FOUR, effects=[cold])) == {"place": [(None, "sort")]}


def test_what_ran_before() -> None:
    after = only(
        None,
        "compute.int",
        lambda m: 0.05 * np.array([program == "sort" for program in m.predecessor]),
    )
    observations = observe(FOUR, effects=[after])
    assert claims(observations) == {"predecessor": [(None, "compute.int")]}
    (row,) = [r for r in analyse(observations).document["predecessor"] if r["claimed"]]
    assert row["after"] == "sort"


def test_what_explains() -> None:
    load = {"zip": 0.05, "memory.random.128M": 0.1}
    assert claims(observe(FOUR, load=load)) == {"explains": [("zip", "memory.random.128M")]}


def test_levels_of_recordings_are_no_explanation() -> None:
    shifts = np.random.default_rng(3)
    levels: dict[tuple[str, str, bool], float] = {}

    def shifted(moment: Moment) -> Any:
        later = moment.seconds >= START_S + 3 * 30 * 60.0 + 3600.0
        early, late = (
            levels.setdefault((moment.machine, moment.name, part), 0.1 * shifts.normal())
            for part in (False, True)
        )
        return np.where(later, late, early)

    observations = observe(FOUR, blocks=30, sessions=2, effects=[shifted])
    assert "explains" not in claims(observations)


def test_a_run_whose_fingerprint_failed_is_not_explained_by_an_earlier_one() -> None:
    load = dict.fromkeys(("zip", "sort", "stream.triad"), 0.1)
    observations = observe(FOUR, programs={"zip": 2.0, "sort": 5.0}, load=load)
    position = observations.table["position"].to_numpy()
    names = observations.table["name"].cast(pyarrow.string()).to_pylist()
    before_zip = {
        (session, at - 1)
        for session, at, name in zip(
            observations.table["session"].to_pylist(), position.tolist(), names, strict=True
        )
        if name == "zip"
    }
    failed = [
        kind == "surrogate" and (session, at) in before_zip
        for kind, session, at in zip(
            observations.table["kind"].cast(pyarrow.string()).to_pylist(),
            observations.table["session"].to_pylist(),
            position.tolist(),
            strict=True,
        )
    ]
    ok = pyarrow.chunked_array([np.logical_not(failed)])
    place = observations.table.schema.get_field_index("ok")
    table = observations.table.set_column(place, observations.table.schema.field(place), ok)
    rows = analyse(replace(observations, table=table)).document["explanations"]
    assert {row["program"] for row in rows} == {"sort"}


def test_a_fast_machine_is_no_explanation() -> None:
    """Both are slower on one machine, but do not go together on any."""
    slower = only("node-00", None, lambda m: 0.5)
    assert "explains" not in claims(observe(FOUR, effects=[slower]))


def test_false_explanations_are_controlled_over_the_audit() -> None:
    fleet = [*FOUR[:2], *(Machine(f"big-{k}", type="c1.large") for k in range(2))]
    rows = analyse(observe(fleet, blocks=30)).document["explanations"]
    assert len({(row["type"], row["program"]) for row in rows}) == 6
    adjusted = benjamini_hochberg([row["p"] for row in rows])
    assert [row["adjusted_p"] for row in rows] == pytest.approx(adjusted)


def test_slow_machines_are_controlled_over_programs_and_surrogates() -> None:
    observations = observe(FOUR, blocks=30, effects=[only("node-03", "zip", lambda m: 0.075)])
    kinds = observations.table["kind"].cast(pyarrow.string())
    programs = observations.table.filter(pyarrow.compute.equal(kinds, "program"))

    def p(these: Observations) -> float:
        return min(row["adjusted_p"] for row in analyse(these).document["slow_machines"])

    # Nine names instead of three: the smallest p-value counts three times as much.
    assert p(observations) == pytest.approx(3.0 * p(replace(observations, table=programs)))


def test_the_stronger_of_two_that_say_the_same() -> None:
    load = {"zip": 0.05, "memory.random.128M": 0.5, "stream.triad": 0.02}
    rows = analyse(observe(FOUR, load=load)).document["explanations"]
    own = {row["name"]: row for row in rows if row["program"] == "zip"}
    assert own["memory.random.128M"]["chosen"] == 1
    assert own["stream.triad"]["claimed"]
    assert own["stream.triad"]["chosen"] is None


def test_the_time_of_day() -> None:
    rhythm = only(
        "node-01", "serve", lambda m: 0.08 * np.cos(2 * np.pi * (m.seconds / DAY_S - 14 / 24))
    )
    observations = observe(FOUR[:2], blocks=144, step_s=1200.0, effects=[rhythm])
    assert claims(observations) == {"time_of_day": [("node-01", "serve")]}
    (row,) = [r for r in analyse(observations).document["time_of_day"] if r["claimed"]]
    assert row["slowest_hour_utc"] == pytest.approx(14.0, abs=1.0)
    assert row["swing_pct"] == pytest.approx(17.4, abs=4.0)


def test_where_more_is_better_less_is_slow() -> None:
    rhythm = only(
        "node-01", "serve", lambda m: 0.08 * np.cos(2 * np.pi * (m.seconds / DAY_S - 14 / 24))
    )
    slow = only("node-03", "serve", lambda m: 0.2)
    observations = observe(
        FOUR, blocks=144, step_s=1200.0, effects=[rhythm, slow], rates=("serve",)
    )
    document = analyse(observations).document
    (row,) = [r for r in document["time_of_day"] if r["claimed"]]
    assert row["slowest_hour_utc"] == pytest.approx(14.0, abs=1.0)
    matrix = machine_matrix(document)
    assert matrix is not None
    machine, cells = matrix["rows"][0]
    cell = cells[matrix["names"].index("serve")]
    assert (machine, cell["class"]) == ("node-03", "slow chosen")
    assert cell["text"].startswith("-1")


def test_missing_readings_are_counted() -> None:
    document = analyse(observe(FOUR, failing={"iobench.read.4M": 0.1})).document
    failed = sum(row["count"] for row in document["failures"])
    assert document["counts"]["failed"] == failed > 0
    assert {row["name"] for row in document["failures"]} == {"iobench.read.4M"}
    assert {row["reason"] for row in document["failures"]} == {"timed out"}
    assert findings(document)[-1]["kind"] == "missing"


def test_where_everything_failed_there_is_no_answer() -> None:
    failing = dict.fromkeys(
        ("compute.int", "zip"),
        1.1,
    )
    observations = observe(
        FOUR, programs={"zip": 1.0}, surrogates={"compute.int": 1e-9}, failing=failing
    )
    with pytest.raises(CannotAnswerError):
        analyse(observations)


@pytest.mark.thorough
def test_a_program_with_the_name_of_a_surrogate_is_apart_from_it() -> None:
    programs = {"compute.int": 2.0, "zip": 1.0}
    audit = analyse(observe(FOUR, programs=programs))
    medians = {
        row["name"]: row["median"] for row in audit.document["summaries"] if row["machine"] is None
    }
    assert medians["compute.int"] == pytest.approx(9e-9, rel=0.05)
    assert medians["compute.int (program)"] == pytest.approx(2.0, rel=0.05)
    assert "compute.int (program)" in to_html(audit)


def test_prices_compare_types() -> None:
    fleet = [*machines(3), *(Machine(f"big-{k}", type="c1.large") for k in range(3))]
    twice = [only(f"big-{k}", None, lambda m: -np.log(2.0)) for k in range(3)]
    prices: Mapping[str, float] = {"c1.small": 0.1, "c1.large": 0.3}
    rows = analyse(observe(fleet, effects=twice), price_of=prices).document["prices"]
    of_all = {r["type"]: r for r in rows if r["kind"] == "program" and r["name"] is None}
    assert of_all["c1.small"]["over_cheapest"] == 1.0
    assert of_all["c1.large"]["over_cheapest"] == pytest.approx(1.5, rel=0.03)
    costs = run_costs(
        {"a": {"x": 1.0, "y": 1.0}, "b": {"x": 1.0}}, {"a": {}, "b": {}}, {"a": 1, "b": 2}
    )
    assert {cost.name for cost in costs} == {"x", ""}
    zipped = next(r for r in rows if r["type"] == "c1.small" and r["name"] == "zip")
    assert zipped["cost"] == pytest.approx(2.0 / 3600.0 * 0.1, rel=0.03)


def _of_sizes(observations: Observations, sizes: Mapping[str, Mapping[str, int]]) -> Observations:
    """The observations with suites of their own by machine: ``compute.int`` is the same in all."""
    sessions = {
        key: {
            **session,
            "suite_version": f"1-{session['machine']}",
            "surrogates": {
                name: {"sizes": sizes[session["machine"]] if name == "stream.triad" else {}}
                for name in ("compute.int", "stream.triad")
            },
        }
        for key, session in observations.sessions.items()
    }
    return replace(observations, sessions=sessions)


def test_surrogates_of_other_sizes_make_no_slow_machine() -> None:
    surrogates = {"compute.int": 9e-9, "stream.triad": 2e-9}
    larger = only("node-03", "stream.triad", lambda m: 0.3)
    observations = observe(FOUR, blocks=30, surrogates=surrogates, effects=[larger])
    assert claims(observations) == {"slow": [("node-03", "stream.triad")]}
    sizes = {f"node-{k:02d}": {"data": 1 << 20} for k in range(4)}
    mixed = _of_sizes(observations, {**sizes, "node-03": {"data": 2 << 20}})
    assert claims(mixed) == {}
    document = analyse(mixed).document
    assert {row["name"] for row in document["summaries"]} >= {"compute.int", "zip"}
    (text,) = [f["text"] for f in findings(document) if f["kind"] == "other sizes"]
    assert "stream.triad has other sizes on other machines: 1.00 MiB, 2.00 MiB" in text
    assert claims(_of_sizes(observations, {key: {"data": 1 << 20} for key in sizes}))


def test_surrogates_of_other_sizes_still_say_what_changed_on_a_machine() -> None:
    at = START_S + 90 * 60.0
    changed = only("node-02", "stream.triad", lambda m: 0.15 * (m.seconds > at))
    surrogates = {"compute.int": 9e-9, "stream.triad": 2e-9}
    observations = observe(FOUR, surrogates=surrogates, effects=[changed])
    sizes = {f"node-{k:02d}": {"data": (1 + (k == 3)) << 20} for k in range(4)}
    mixed = _of_sizes(observations, sizes)
    assert claims(mixed) == {"changes": [("node-02", "stream.triad")]}
    document = analyse(mixed).document
    summaries = [row for row in document["summaries"] if row["name"] == "stream.triad"]
    assert {row["machine"] for row in summaries} == set(sizes)
    assert "stream.triad" not in {row["name"] for row in document["histograms"]}
    matrix = machine_matrix(document)
    assert matrix is not None
    assert "stream.triad" not in matrix["names"]
    # Recordings of one machine that differ make no change of it.
    joined = {key: {**session, "machine": "node"} for key, session in mixed.sessions.items()}
    assert claims(replace(mixed, sessions=joined)) == {}


def _of_versions(observations: Observations) -> Observations:
    """The observations with a suite version of each recording, and no sizes."""
    sessions = {
        key: {**session, "suite_version": f"1-{k}"}
        for k, (key, session) in enumerate(observations.sessions.items())
    }
    return replace(observations, sessions=sessions)


def test_machines_of_other_suite_versions_have_surrogates_of_their_own() -> None:
    apart = _of_versions(observe(FOUR[:2], blocks=10, failing={"zip": 1.1}, programs={"zip": 1.0}))
    document = analyse(apart).document
    surrogates = [row for row in document["summaries"] if row["kind"] == "surrogate"]
    assert {row["machine"] for row in surrogates} == {"node-00", "node-01"}
    single = observe(FOUR[:1], blocks=10, sessions=2, failing={"zip": 1.1}, programs={"zip": 1.0})
    with pytest.raises(CannotAnswerError, match=r"compute\.int is of several suite versions"):
        analyse(_of_versions(single))


def test_a_surrogate_that_a_type_never_measured_is_no_finding_of_it() -> None:
    both = {"compute.int": 9e-9, "stream.triad": 2e-9}
    small = observe(machines(2), blocks=10, surrogates={"compute.int": 9e-9})
    large = [Machine(f"big-{k}", type="c1.large") for k in range(2)]
    other = observe(large, blocks=10, surrogates=both, seed=1)
    table = pyarrow.concat_tables([small.table, other.table]).unify_dictionaries()
    joined = replace(
        small,
        table=table.sort_by([("at", "ascending")]),
        sessions={**small.sessions, **other.sessions},
    )
    sizes = {name: {"data": k + 1 << 20} for k, name in enumerate(("node-00", "node-01"))}
    sizes |= {machine.name: {"data": 1 << 20} for machine in large}
    sized = _of_sizes(joined, sizes)
    assert analyse(sized).document["unlike"] == []
    assert pair(sized, sized, "type").unlike == {}


def test_types_whose_caches_differ_are_not_compared_by_what_follows_the_cache() -> None:
    fleet = [*machines(2), *(Machine(f"big-{k}", type="c1.large") for k in range(2))]
    surrogates = {"compute.int": 9e-9, "stream.triad": 2e-9}
    sizes = {
        machine.name: {"data": 1 << 20 if machine.type == "c1.small" else 2 << 20}
        for machine in fleet
    }
    mixed = _of_sizes(observe(fleet, blocks=10, surrogates=surrogates), sizes)
    document = analyse(mixed, price_of={"c1.small": 0.1, "c1.large": 0.3}).document
    priced = {row["name"] for row in document["prices"] if row["kind"] == "surrogate"}
    assert priced == {"compute.int", None}
    matrix = machine_matrix(document)
    assert matrix is not None
    assert "stream.triad" not in matrix["names"]
    own = {row["type"] for row in document["summaries"] if row["name"] == "stream.triad"}
    assert own == {"c1.small", "c1.large"}


def test_several_programs_of_one_name_are_named() -> None:
    observations = observe(FOUR[:2], blocks=10)
    first, *others = observations.sessions.items()
    programs = {**first[1]["programs"], "zip": {"identity": "another", "unit": "s"}}
    sessions = dict([(first[0], {**first[1], "programs": programs}), *others])
    document = analyse(replace(observations, sessions=sessions)).document
    assert document["identities"] == [{"type": "c1.small", "name": "zip", "identities": 2}]
    assert "several programs" in {finding["kind"] for finding in findings(document)}
