"""A replay that was saved as a scale model answers as the estimates did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kongming.files.sealed_document import checksum
from kongming.records.errors import InputError
from kongming.scale.fit.model_file import read
from kongming.scale.points import Configuration
from tests.conftest import Kongming
from tests.spark.event_logs import write
from tests.spark.programs import Part, Program, Stage, run

PROGRAM = Program((Part((Stage((3.0,) * 24), Stage((2.0,) * 12, (0,)))),))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(run(PROGRAM, 3), tmp_path_factory.mktemp("logs") / "app-1")


def estimate(kongming: Kongming, *args: str | Path) -> dict[str, Any]:
    done = kongming("spark", "estimate", *args, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def _sealed_again(document: dict[str, Any]) -> dict[str, Any]:
    content = {key: value for key, value in document.items() if key != "checksum"}
    return {**content, "checksum": checksum(content)}


def test_a_saved_replay_has_the_reasons_of_its_sizes(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.json"
    report = estimate(kongming, log, "--executors", "2,8,20,32", "--save", model)
    reasons = {each["executors"]: each["reasons"] for each in report["estimates"]}
    assert not reasons[8]
    assert len(reasons[20]) == 1

    def predicted(machines: int, *args: str, status: int = 0) -> dict[str, Any]:
        done = kongming("scale", "predict", model, "--machines", str(machines), *args, "--json")
        assert done.returncode == status, done.stderr
        document = json.loads(done.stdout)
        assert isinstance(document, dict)
        return document

    for machines in (2, 4, 8):
        assert predicted(machines, "--strict")["reasons"] == []
    assert predicted(20)["reasons"] == reasons[20]
    # Of the two sizes that it lies between.
    assert predicted(12)["reasons"] == [f"20 executors: {reasons[20][0]}"]
    assert len(predicted(24)["reasons"]) == len(reasons[20]) + len(reasons[32])
    assert "slots than the recorded run" in predicted(20, "--strict", status=3)["error"]["message"]
    # As wide as the estimate itself.
    for each in report["estimates"]:
        upper = predicted(each["executors"])["runtime_s"]["upper"]
        assert upper == pytest.approx(each["runtime_s"]["upper"], rel=1e-3)
    warnings = json.loads(model.read_text())["models"][0]["report"]["warnings"]
    assert warnings == [f"{count} executors: {reasons[count][0]}" for count in (20, 32)]


def test_beyond_its_sizes_a_saved_replay_is_no_faster_for_fewer_executors(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.json"
    estimate(kongming, log, "--executors", "4,8", "--save", model)
    known = estimate(kongming, log, "--executors", "1,2")["estimates"]
    saved = read(json.loads(model.read_text())).models[0]
    for each in known:
        answer = saved.predict(Configuration(float(each["executors"]), 1.0))
        assert answer.extrapolating
        assert answer.median == pytest.approx(each["runtime_s"]["median"], rel=0.1)
    ends = [saved.predict(Configuration(count, 1.0)).median for count in (4.0, 8.0, 64.0)]
    assert ends[0] > ends[1] == ends[2]


def test_a_saved_replay_without_reasons_is_read(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    """As it was saved before there were any."""
    model = tmp_path / "model.json"
    estimate(kongming, log, "--executors", "2,20", "--save", model)
    document = json.loads(model.read_text())
    del document["models"][0]["fit"]["reasons"]
    saved = read(_sealed_again(document))
    assert saved.models[0].predict(Configuration(20.0, 1.0)).reasons == ()
    document["models"][0]["fit"]["reasons"] = [[]]
    with pytest.raises(InputError):
        read(_sealed_again(document))
