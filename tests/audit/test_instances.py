"""``kongming evaluate --instances``: machines left out, and questions that have no answer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.audit.instances.accuracy import accuracy
from kongming.audit.instances.joining import Joined, join
from kongming.audit.instances.leave_out import groups_of, leave_out
from kongming.audit.readings import Observations, table_of, write_observations
from kongming.cli.main import run
from kongming.learning.registry import KINDS
from kongming.records.errors import CannotAnswerError, IncompatibleError, UnknownNameError
from tests.audit.sessions import fleet, later, reading, session

FEW = ["LM", "RIDGE", "PLS"]


def _observations(*speeds: float, **settings: Any) -> Observations:
    rows, sessions = fleet(speeds, **settings)
    return Observations(table_of(rows), sessions)


@pytest.fixture(scope="module")
def four() -> Observations:
    return _observations(1.0, 1.5, 2.0, 1.2)


def _joined(observations: Observations, program: str = "walk") -> Joined:
    return next(candidate for candidate in join(observations) if candidate.program == program)


def test_a_run_has_the_fingerprint_right_before_it_in_its_round() -> None:
    def fingerprint(value: float, position: int, number: int) -> dict[str, Any]:
        return reading("chase", value, position=position, round=number, at=later(position))

    def program(value: float | None, position: int, number: int) -> dict[str, Any]:
        return reading(
            "sort", value, kind="program", position=position, round=number, at=later(position)
        )

    rows = [
        fingerprint(1.0, 0, 0),
        program(10.0, 1, 0),
        fingerprint(2.0, 2, 0),
        program(None, 3, 0),  # failed
        fingerprint(3.0, 4, 0),
        program(30.0, 5, 0),
        fingerprint(0.0, 6, 1) | {"value": None, "ok": False},  # failed
        program(40.0, 7, 1),
        fingerprint(5.0, 8, 1),
        program(50.0, 9, 1),
        fingerprint(0.0, 10, 1) | {"value": None, "ok": False},
        program(60.0, 11, 1),  # that of the run before is no fingerprint of this one
        fingerprint(7.0, 12, 1),
        program(70.0, 13, 1),
    ]
    joined = _joined(Observations(table_of(rows), {"s1": session()}), "sort")
    assert np.exp(joined.known[:, 0]) == pytest.approx([1.0, 3.0, 5.0, 7.0])
    assert joined.cost == pytest.approx([10.0, 30.0, 50.0, 70.0])
    # The mean with what was read after it, in the same round.
    assert np.exp(joined.met[:, 0]) == pytest.approx([math.sqrt(2.0), 3.0, 5.0, 7.0])


def test_where_more_is_better_the_cost_is_the_inverse() -> None:
    rows = []
    for k in range(2):
        rows.append(reading("chase", 1.0 + k, position=2 * k, at=later(2 * k)))
        rows.append(
            reading("serve", 50.0, kind="program", unit="ops/s", position=2 * k + 1, at=later(k))
        )
    session_document = session(programs={"serve": {"unit": "ops/s", "better": "higher"}})
    joined = _joined(Observations(table_of(rows), {"s1": session_document}), "serve")
    assert joined.cost == pytest.approx([0.02, 0.02])


def test_every_machine_is_left_out_and_models_beat_mean(four: Observations) -> None:
    report = accuracy(four, models=FEW)
    assert (report["machines"], report["leave"]) == (4, "instance")
    assert set(report["programs"]) == {"walk", "spin"}
    for program in report["programs"].values():
        errors = program["error_pct"]
        assert set(errors) == {"MEAN", *FEW, "auto"}
        assert errors["LM"] < 0.2 * errors["MEAN"]
        assert errors["auto"] < 0.5 * errors["MEAN"]
        assert sum(program["auto"].values()) == program["groups"] == 4
        assert set(program["references"]) == {"RIDGE", "PLS"}
    assert set(report["machine"]) == set(four.machines)
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_what_is_left_out_moves_no_prediction_of_it(four: Observations) -> None:
    joined = _joined(four)
    kinds = [KINDS[name] for name in ("MEAN", "RIDGE", "LM")]
    before = leave_out(joined, "instance", kinds)
    mine = np.array(joined.machines) == "m1"
    slower = replace(joined, cost=np.where(mine, 7.0 * joined.cost, joined.cost))
    after = leave_out(slower, "instance", kinds)
    for model, errors in before.log_errors.items():
        moved = after.log_errors[model][mine] - errors[mine]
        assert moved == pytest.approx(-math.log(7.0)), model


@pytest.mark.thorough
def test_the_noise_of_what_is_left_out_chooses_no_model() -> None:
    joined = _joined(_observations(1.0, 1.2, noise=0.1))
    kinds = [KINDS[name] for name in ("MEAN", "NNLOG", "FAMILY")]
    mine = np.array(joined.machines) == "m1"
    noise = np.exp(1.5 * np.random.default_rng(0).normal(size=len(mine)))
    noisier = replace(joined, cost=np.where(mine, noise * joined.cost, joined.cost))
    before, after = (leave_out(data, "instance", kinds) for data in (joined, noisier))
    assert before.chosen["m1"] == after.chosen["m1"]
    assert before.chosen["m1"] != "MEAN"


def test_the_same_files_give_the_same_answer(four: Observations) -> None:
    reports = [accuracy(four, models=["RIDGE"], programs=["spin"]) for _ in range(2)]
    assert reports[0] == reports[1]


def test_one_machine_alone_cannot_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, sessions = fleet([1.0], runs=15)
    path = tmp_path / "one.parquet"
    write_observations(path, table_of(rows), sessions)
    start = ["evaluate", str(path), "--instances", "--models", "LM", "--jobs", "1"]
    assert run(start) == 3
    err = capsys.readouterr().err
    assert "one machine alone" in err
    assert "--leave block" in err
    assert run([*start, "--leave", "session"]) == 3
    capsys.readouterr()
    assert run([*start, "--leave", "block"]) == 0
    assert "FALLBACK, NOT TABLE IV" in capsys.readouterr().out
    assert run([*start, "--leave", "block", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["leave"], document["machines"]) == ("block", 1)
    assert document["programs"]["walk"]["groups"] == 5


def test_the_command_prints_the_table(
    four: Observations, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "four.parquet"
    write_observations(path, four.table, four.sessions)
    start = ["evaluate", str(path), "--instances", "--jobs", "1", "--models", "LM"]
    assert run([*start, "--app", "walk"]) == 0
    out = capsys.readouterr().out
    assert "1 programs on 4 machines" in out
    assert "geo.mean" in out
    assert run([*start, "--app", "wakl"]) == 2
    assert "Did you mean walk?" in capsys.readouterr().err
    assert run([*start, "--budget", "3"]) == 2
    assert "--instances measures nothing" in capsys.readouterr().err
    assert run(["evaluate", str(path), "--pairs", "--leave", "block"]) == 2
    assert "belongs to --instances" in capsys.readouterr().err
    assert run(["evaluate", str(path), str(path), "--pairs"]) == 2
    assert "takes one applications file" in capsys.readouterr().err
    assert run(["evaluate", str(path), "--pairs", "--instances"]) == 2
    assert "--pairs and --instances are 2 evaluations" in capsys.readouterr().err


def test_questions_without_an_answer(four: Observations) -> None:
    with pytest.raises(UnknownNameError, match="RIDGEE"):
        accuracy(four, models=["RIDGEE"])
    with pytest.raises(CannotAnswerError, match="No program has"):
        accuracy(_observations(1.0, 2.0, runs=3), models=["LM"])
    rows, sessions = fleet([1.0, 2.0])
    sessions["s1"]["suite_version"] = "2"
    with pytest.raises(IncompatibleError, match="differ in suite version"):
        accuracy(Observations(table_of(rows), sessions), models=["LM"])
    _, sessions = fleet([1.0, 2.0])
    sessions["s1"]["programs"] = {"walk": {"unit": "op/s", "better": "higher"}}
    with pytest.raises(IncompatibleError, match="differ in the metric of walk"):
        accuracy(Observations(table_of(rows), sessions), models=["LM"])


def test_a_surrogate_that_one_machine_lacks_is_dropped(four: Observations) -> None:
    rows = [
        row for row in four.table.to_pylist() if (row["name"], row["machine"]) != ("blocks", "m1")
    ]
    joined = _joined(Observations(table_of(rows), four.sessions))
    assert joined.columns == ("chase", "ints")
    assert [
        (surrogate.name, "missing before 100 %" in surrogate.reason) for surrogate in joined.dropped
    ] == [("blocks", True)]
    assert joined.families == ("memory", "compute")


def _versions(
    four: Observations, *versions: str, **sizes: Sequence[Mapping[str, int]]
) -> Observations:
    """The four machines with suite versions, and sizes of surrogates, of their own."""
    sessions = {
        key: {
            **session,
            "suite_version": versions[k],
            "surrogates": {
                name: {"family": name, "op": "access", "sizes": dict(of_machines[k])}
                for name, of_machines in sizes.items()
            },
        }
        for k, (key, session) in enumerate(sorted(four.sessions.items()))
    }
    return Observations(four.table, sessions)


def test_surrogates_of_the_same_sizes_are_compared_between_machines_of_other_caches(
    four: Observations, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same, small, large = {"data": 1024}, {"data": 2048, "file": 8192}, {"data": 4096, "file": 8192}
    mixed = _versions(
        four, "1-a", "1-b", "1-a", "1-b", chase=[same] * 4, ints=[{}] * 4,
        blocks=[small, large, small, large],
    )  # fmt: skip
    joined = _joined(mixed)
    assert joined.columns == ("chase", "ints")
    assert [(surrogate.name, surrogate.reason) for surrogate in joined.dropped] == [
        (
            "blocks",
            "has other sizes on other machines: 2.00 KiB in 8.00 KiB, 4.00 KiB in 8.00 KiB",
        )
    ]
    path = tmp_path / "mixed.parquet"
    write_observations(path, mixed.table, mixed.sessions)
    assert run(["evaluate", str(path), "--instances", "--models", "LM", "--jobs", "1"]) == 0
    assert "Not used: blocks, which has other sizes" in capsys.readouterr().out
    alike = _versions(four, *["1-a"] * 4, blocks=[small, large, small, large])
    assert _joined(alike).columns == ("blocks", "chase", "ints"), "of one version all are the same"
    sessions = {key: dict(session) for key, session in mixed.sessions.items()}
    facts = dict(sessions["s2"]["surrogates"])
    del facts["chase"]
    sessions["s2"]["surrogates"] = facts
    assert _joined(Observations(four.table, sessions)).columns == ("ints",), "not said: not alike"
    nobody = _versions(four, "1-a", "1-b", "1-a", "1-b", ints=[{}] * 4)
    assert _joined(nobody).columns == ("ints",), "nobody says them"
    near = [{"data": 307_863_552}, {"data": 307_900_416}] * 2
    close = _versions(four, "1-a", "1-b", "1-a", "1-b", chase=near)
    assert _joined(close).columns == ("chase",), "memory of machines of one kind differs a little"
    other = _versions(four, "1-a", "1-a", "1-a", "2-a", chase=[same] * 4)
    with pytest.raises(IncompatibleError, match="do not say which surrogates are the same"):
        _joined(other)


def test_blocks_are_contiguous_and_sessions_apart(four: Observations) -> None:
    joined = _joined(four)
    groups = groups_of(joined, "block")
    assert len(set(groups)) == 5 * 4
    changes = sum(previous != following for previous, following in pairwise(groups))
    assert changes == len(set(groups)) - 1
    assert groups_of(joined, "session") == joined.sessions
