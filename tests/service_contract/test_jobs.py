"""Jobs on several machines, asked of a local store and of a real server."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kongming.learning.model_file import seal as seal_model
from kongming.local_service import LocalService
from kongming.records.answers import Forecast
from kongming.records.errors import (
    ExtrapolationError,
    InputError,
    KongmingError,
    UnknownNameError,
    UntrainedError,
)
from kongming.records.questions import Question, RankQuestion
from kongming.records.scaling import Scaling
from kongming.rpc.protocol import PredictionService
from kongming.store import Store
from kongming.store.models import SCALE
from tests.conftest import Kongming
from tests.service_contract.conftest import NODES, expected, job, scale_document
from tests.service_contract.test_commands import answer, ask
from tests.service_contract.test_prediction_service import forecast

__all__ = ["ask"]

TWO = Scaling(2)


def question(*nodes: str, scaling: Scaling = TWO, **changes: Any) -> Question:
    return Question("chaser", scaling=scaling, nodes=nodes, **changes)


def test_a_job_follows_the_slowest_node_and_its_driver(service: PredictionService) -> None:
    prediction = forecast(service, question("calm", "busy"))
    slow = expected("busy")
    assert prediction.runtime_s is not None
    assert prediction.runtime_s.median == pytest.approx(2.0 + 4.0 * slow, rel=0.06)
    assert prediction.solo_s == pytest.approx(job(2, 1.0), rel=0.02)
    assert prediction.slowdown.median == pytest.approx(prediction.runtime_s.median / 6.0, rel=0.02)
    assert (prediction.metric_unit, prediction.node_id, prediction.model) == (
        "s",
        NODES["busy"][0],
        "NNLS",
    )
    assert prediction.drivers[0].family == "memory"
    scaled = prediction.scaled
    assert scaled is not None
    assert (scaled.driver, scaled.slowest) == (NODES["calm"][0], NODES["busy"][0])
    assert (scaled.machines, scaled.scale, scaled.model) == (2, 1.0, "chaser")
    assert [node.name for node in scaled.nodes] == ["calm", "busy"]
    parts = {part.term: part for part in scaled.parts}
    assert parts["scale/machines"].node_id == NODES["busy"][0]
    assert parts["intercept"].node_id == NODES["calm"][0]
    assert parts["scale/machines"].share > parts["intercept"].share
    assert not prediction.extrapolating
    assert json.loads(json.dumps(prediction.to_dict(), allow_nan=False))["scaled"]["machines"] == 2


def test_the_driver_can_be_named(service: PredictionService) -> None:
    first, named = (
        forecast(service, question("calm", "busy", driver=driver)).runtime_s
        for driver in (None, "busy")
    )
    assert first is not None
    assert named is not None
    assert named.median > first.median


def test_one_node_and_more_machines(service: PredictionService) -> None:
    prediction = forecast(service, question("busy", scaling=Scaling(4, 0.5)))
    assert prediction.runtime_s is not None
    assert prediction.runtime_s.median == pytest.approx(job(4, 0.5) * expected("busy"), rel=0.06)
    assert any("4 machines on one node:" in note for note in prediction.notes)


@pytest.mark.parametrize(
    ("job_question", "kind", "words"),
    [
        (question("calm", "bussy"), UnknownNameError, "bussy"),
        (question("calm", "busy", "dozing"), InputError, "more than the machines"),
        (question("calm", "calm"), InputError, "duplicate"),
        (question("calm", scaling=Scaling(2, model="other")), UnknownNameError, "other"),
        (question("calm", scaling=Scaling(2, machine_type="m5")), InputError, "no machine types"),
        (question("calm", scaling=Scaling(2, iterations=3.0)), InputError, "iterations"),
        (question("calm", driver="busy"), InputError, "driver"),
        (question("calm", scaling=Scaling(64), strict=True), ExtrapolationError, "machines 64"),
        (question("wild", "calm", strict=True), ExtrapolationError, "outside"),
        (Question("stranger", scaling=TWO, nodes=("calm",)), UntrainedError, "no scale model"),
    ],
)
def test_what_cannot_be_answered_says_why(
    service: PredictionService, job_question: Question, kind: type[KongmingError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        forecast(service, job_question)


def test_extrapolation_of_either_part_is_flagged(service: PredictionService) -> None:
    for job_question, words in (
        (question("calm", scaling=Scaling(64)), "scale model: machines 64"),
        (question("calm", "wild"), "slowdown: outside"),
    ):
        prediction = forecast(service, job_question)
        assert prediction.extrapolating
        assert prediction.scaled is not None
        assert any(words in reason for reason in prediction.scaled.reasons)


def test_a_job_of_a_stranger_goes_by_the_nodes(service: PredictionService) -> None:
    job_question = Question("stranger", scaling=Scaling(2, model="chaser"), nodes=("calm", "busy"))
    prediction = forecast(service, job_question)
    assert prediction.basis == "node-only"
    assert prediction.runtime_s is not None
    assert prediction.runtime_s.median > job(2, 1.0)
    assert any("Nobody profiled" in warning for warning in prediction.warnings)


def test_a_batch_mixes_jobs_and_single_nodes(service: PredictionService) -> None:
    answers = service.predict([Question("chaser", "busy"), question("calm"), question("nowhere")])
    assert [isinstance(answer, Forecast) for answer in answers] == [True, True, False]


@pytest.mark.parametrize(
    "values",
    [
        {"node": "calm", "nodes": ("busy",), "scaling": TWO},
        {"nodes": (), "scaling": TWO},
        {"node": "calm", "nodes": ("busy",)},
        {"node": "calm", "driver": "busy"},
        {"nodes": ("calm",), "scaling": TWO, "domain": 0},
        {"nodes": ("calm",), "scaling": TWO, "resident_id": "job-1"},
    ],
)
def test_questions_that_contradict_themselves(values: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Question("chaser", **values)


def test_sets_are_of_the_least_slowed(service: PredictionService) -> None:
    rank_question = RankQuestion("chaser", ("wild", "busy", "calm"), limit=1, scaling=TWO, seed=1)
    ranking = service.rank(rank_question)
    (best,) = ranking.sets
    assert [node.name for node in best.nodes] == ["calm", "busy"]
    assert ranking.nodes == best.nodes
    assert (ranking.candidates, ranking.basis) == (3, "model")
    prediction = forecast(service, question("calm", "busy"))
    assert best.runtime_s is not None
    assert prediction.runtime_s is not None
    assert best.runtime_s.median == pytest.approx(prediction.runtime_s.median, rel=0.01)
    assert best.slowdown.median == pytest.approx(prediction.slowdown.median, rel=0.01)
    assert best.scaled is not None
    assert best.scaled.driver == NODES["calm"][0]
    assert best.score == pytest.approx(max(node.score for node in best.nodes), rel=1e-6)
    assert json.dumps(ranking.to_dict(), allow_nan=False)


def test_sets_have_no_common_node(service: PredictionService) -> None:
    ranking = service.rank(RankQuestion("chaser", limit=5, scaling=TWO, stale_policy="widen"))
    assert len(ranking.sets) == 2
    names = [node.name for node_set in ranking.sets for node in node_set.nodes]
    assert sorted(names) == sorted(NODES)
    assert ranking.sets[0].score <= ranking.sets[1].score
    assert ranking.sets[1].extrapolating  # wild is in it


def test_sets_that_cannot_be_made(service: PredictionService) -> None:
    few = service.rank(
        RankQuestion("chaser", ("calm", "busy"), scaling=TWO, limit=1, slowdown_limit=1.2)
    )
    assert (few.sets, few.nodes) == ((), ())
    assert sum(few.refused.values()) == 1


def test_sets_without_a_scale_model_have_no_runtime(service: PredictionService) -> None:
    ranking = service.rank(RankQuestion("stranger", ("calm", "busy", "wild"), scaling=TWO, limit=1))
    (best,) = ranking.sets
    assert [node.name for node in best.nodes] == ["calm", "busy"]
    assert (best.runtime_s, best.scaled) == (None, None)
    assert any("no runtime is predicted" in text for text in best.warnings)


def test_server_and_store_say_the_same(local: PredictionService, remote: PredictionService) -> None:
    here, there = (
        forecast(service, question("calm", "busy", scaling=Scaling(4, 0.5)))
        for service in (local, remote)
    )
    assert here.runtime_s is not None
    assert there.runtime_s is not None
    for end in ("lower", "median", "upper"):
        quantile = getattr(here.runtime_s, end)
        assert quantile == pytest.approx(getattr(there.runtime_s, end), rel=1e-2)
    assert here.scaled is not None
    assert there.scaled is not None
    assert [part.term for part in here.scaled.parts] == [part.term for part in there.scaled.parts]


# -- commands ----------------------------------------------------------------------------------


def test_predict_of_a_job(ask: Kongming) -> None:
    arguments = ("predict", "chaser", "--machines", "2", "--scale", "1", "--nodes", "calm,busy")
    document = answer(ask(*arguments, "--json"))
    assert document["runtime_s"]["median"] == pytest.approx(2.0 + 4.0 * expected("busy"), rel=0.06)
    assert document["scaled"]["slowest"] == NODES["busy"][0]
    shown = ask(*arguments).stdout
    for word in ("chaser on 2 nodes", "runtime", "idle", "parts", "scale/machines", "slowest"):
        assert word in shown


def test_rank_of_sets(ask: Kongming) -> None:
    arguments = ("rank", "chaser", "--machines", "2", "--scale", "0.5", "--seed", "1")
    arguments += ("--node", "calm", "--node", "busy", "--node", "wild")
    document = answer(ask(*arguments, "--json"))
    (best,) = document["sets"]
    assert [node["name"] for node in best["nodes"]] == ["calm", "busy"]
    assert best["runtime_s"]["median"] > job(2, 0.5)
    shown = ask(*arguments).stdout
    assert "calm, busy" in shown
    none = ask(*arguments, "--slowdown-limit", "1.2")
    assert (none.returncode, "Fewer than 2 nodes" in none.stdout) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("predict", "chaser", "--machines", "2"), 2, "--nodes"),
        (("predict", "chaser", "--node", "calm", "--scale", "0.5"), 2, "--machines K"),
        (("predict", "chaser", "--nodes", "calm", "--node", "calm"), 2, "--node: cannot"),
        (
            ("predict", "chaser", "--nodes", "calm", "--machines", "64", "--strict"),
            3,
            "outside the range of the runs",
        ),
        (("rank", "chaser", "--scale", "0.5"), 2, "--machines K"),
    ],
)
def test_what_cannot_be_done_says_the_way_out(
    ask: Kongming, arguments: tuple[str, ...], status: int, words: str
) -> None:
    done = ask(*arguments)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_scale_model_in_a_file_is_for_the_store_alone(
    kongming: Kongming, local_url: str, tmp_path: Path
) -> None:
    table = tmp_path / "runs.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("machines", "scale", "seconds"))
        writer.writerows((m, s, 3.0 * job(m, s)) for m in (1, 2, 4) for s in (0.5, 1.0))
    assert kongming("scale", "fit", table, "--save", "slower.json").returncode == 0
    arguments = ("predict", "chaser", "--nodes", "calm", "--machines", "2")
    arguments += ("--scale-model", "slower.json", "--json")
    document = answer(kongming(*arguments, "--store", local_url))
    assert document["runtime_s"]["median"] == pytest.approx(3.0 * job(2, 1.0), rel=0.05)
    assert document["scaled"]["model"] == "slower.json"
    refused = kongming(*arguments, "--server", "127.0.0.1:1")
    assert refused.returncode == 2
    assert "kongming scale fit" in refused.stderr


def test_profiles_of_a_job_are_read_from_a_store(local_url: str, tmp_path: Path) -> None:
    """Of a job that has no profile under its own name."""
    shutil.copy(local_url.removeprefix("sqlite:///"), tmp_path / "store.db")
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        document = store.model("chaser", "cross-core")
        assert document is not None
        del document["checksum"]
        for app in ("walker.1x1", "walker.8x1", "walkers.2x1"):
            theirs = seal_model({**document, "app": app})
            store.put_model(app, theirs["identity"], "node-1", "cross-core", theirs)
        store.put_model("scale:walker", SCALE, "", SCALE, scale_document())
        with_one = forecast(LocalService(store), question("calm", "busy"))
        prediction = forecast(LocalService(store), replace(question("calm", "busy"), app="walker"))
    assert (prediction.app, prediction.basis) == ("walker", "model")
    assert prediction.runtime_s is not None
    assert with_one.runtime_s is not None
    assert any("1 machine at scale 1; 8 machines at scale 1." in note for note in prediction.notes)
    # Both are the same model, so that its parts are slowed alike.
    assert prediction.runtime_s.median == pytest.approx(with_one.runtime_s.median, rel=1e-6)
