"""A replay as a scale model on nodes as loaded as they are."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from kongming.records.errors import InputError
from kongming.records.prediction import Interval
from kongming.records.scaling import Scaling, SlowedNode
from kongming.scale.decide.combination import Combination, combine
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.model_file import read, seal
from kongming.scale.fit.scale_file import ScaleFile
from kongming.spark.estimation import Estimator, Size
from kongming.spark.saving import scale_model
from tests.spark.programs import Part, Program, Stage, run


def _model(tasks: int, seconds: float, gap: float = 0.0) -> ScaleModel:
    program = Program((Part((Stage((seconds,) * tasks),), gap=gap),), end=0.0)
    estimator = Estimator(run(program, 4))
    return scale_model(estimator, estimator.estimates([Size(n) for n in (1, 2, 4, 8)]))


def _combined(model: ScaleModel, *slowdowns: float) -> Combination:
    nodes = [SlowedNode(f"node{k}", f"node{k}", Interval(s, s, s)) for k, s in enumerate(slowdowns)]
    return combine(model, Scaling(len(nodes), 1.0), nodes, driver="node0")


def test_free_slots_take_more_tasks_so_that_a_slow_node_costs_little() -> None:
    combined = _combined(_model(400, 1.0), 1.0, 1.0, 1.0, 2.0)
    # Three nodes and a half do the work of four.
    assert combined.slowdown.median == pytest.approx(4 / 3.5, rel=0.03)


def test_one_task_a_slot_waits_for_the_slowest() -> None:
    combined = _combined(_model(4, 10.0), 1.0, 1.0, 1.0, 2.0)
    assert combined.slowdown.median == pytest.approx(2.0, rel=0.02)


def test_the_driver_s_gaps_follow_its_own_node() -> None:
    model = _model(4, 10.0, gap=10.0)
    assert _combined(model, 3.0, 1.0, 1.0, 1.0).slowdown.median == pytest.approx(3.0, rel=0.02)
    slow_worker = _combined(model, 1.0, 1.0, 1.0, 3.0).slowdown.median
    assert slow_worker == pytest.approx(2.0, rel=0.02)


def test_idle_nodes_take_the_estimate_s_time() -> None:
    model = _model(40, 1.0, gap=2.0)
    combined = _combined(model, 1.0, 1.0, 1.0, 1.0)
    assert combined.runtime.median == pytest.approx(12.0, rel=0.02)
    assert math.isclose(combined.slowdown.median, 1.0, rel_tol=1e-6)


def test_a_saved_replay_is_read_as_it_was(tmp_path: Path) -> None:
    model = _model(2000, 1.0, gap=2.0)
    document = json.loads(json.dumps(seal(ScaleFile("job", "2026-01-01T00:00:00Z", (model,)))))
    (other,) = read(document).models
    assert other.fit.document() == model.fit.document()
    slowed = [_combined(each, 1.0, 1.0, 1.0, 2.0).slowdown.median for each in (model, other)]
    assert slowed[0] == slowed[1]


def test_several_kinds_of_executors_are_not_one_model() -> None:
    estimator = Estimator(run(Program((Part((Stage((1.0,) * 8),)),)), 2, 2))
    with pytest.raises(InputError, match="several"):
        scale_model(estimator, estimator.estimates([Size(2, 1), Size(2, 2)]))
