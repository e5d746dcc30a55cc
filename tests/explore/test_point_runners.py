"""What runs of points cost, and which points machines cannot run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import pytest

from kongming.campaigns.point_runners import MachinesRunner, check_machines
from kongming.explore import Space
from kongming.records import moments
from kongming.records.application import Application, Metric
from kongming.records.errors import ApplicationRunError, InputError
from kongming.scale.design.experiments import Experiment, Measured

JOB = Application("job", "job {machines} {scale}")
RATE = replace(JOB, metric=Metric(r"ops=(\d+)", "ops/s", "higher"))


class Scripted:
    """A runner of experiments that answers with the same number, or fails, at once."""

    def __init__(self, number: float | None) -> None:
        self.number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, experiment: Experiment) -> Measured:
        if self.number is None:
            raise ApplicationRunError("no set-up")
        return Measured(self.number, "process", moments.now())


@pytest.mark.parametrize(
    ("app", "number", "cost"), [(JOB, 50.0, 200.0), (RATE, 50_000.0, None), (JOB, None, None)]
)
def test_machines_are_charged_by_seconds(
    app: Application, number: float | None, cost: float | None
) -> None:
    """A metric is no time: what such a run took is measured here, and is next to nothing."""
    with MachinesRunner(app, lambda _: Scripted(number)) as runner:
        (run,) = runner.batch([{"machines": 4, "scale": 1.0}])
    assert run.value == number
    assert run.cost is not None
    if cost is None:
        assert 0.0 < run.cost < 10.0
    else:
        assert run.cost == cost


@pytest.mark.parametrize(
    ("dimensions", "words"),
    [
        ({"machines": {"from": 1, "to": 4.5}}, "space: machines: cannot be run.*whole numbers"),
        ({"machines": [0, 1]}, "space: machines: cannot be run"),
        ({"machines": [1.5, 2]}, "space: machines: cannot be run"),
        ({"scale": {"choices": ["small", "big"]}}, "space: scale: cannot be run.*above 0"),
        ({"scale": "boolean"}, "space: scale: cannot be run"),
        ({"scale": {"from": 0.0, "to": 1.0}}, "space: scale: cannot be run"),
        ({"scale": {"choices": [1, 2], "when": "machines > 1"}}, "scale.when: has to exist"),
    ],
)
def test_points_that_no_machines_run(dimensions: dict[str, Any], words: str) -> None:
    space = Space.from_dict({"machines": [1, 2, 4], "scale": [0.5, 1.0], **dimensions})
    with pytest.raises(InputError, match=words):
        check_machines(JOB, space.dimensions, "local")


def test_points_that_machines_run() -> None:
    for machines in ([1, 2, 4], {"from": 1, "to": 8}, {"choices": [1, 2]}):
        for scale in ([1, 2], {"from": 0.1, "to": 1.0}, {"choices": [0.5, 1.0], "ordered": True}):
            space = Space.from_dict({"machines": machines, "scale": scale})
            check_machines(JOB, space.dimensions, "slurm")
            check_machines(RATE, space.dimensions, "local")


@pytest.mark.parametrize(
    ("app", "kind"),
    [(RATE, "slurm"), (RATE, "kubernetes"), (replace(RATE, command="job {rank}"), "local")],
)
def test_a_metric_that_no_run_would_have_is_refused(app: Application, kind: str) -> None:
    space = Space.from_dict({"machines": [1, 2], "scale": [0.5, 1.0]})
    with pytest.raises(InputError, match=r"apps\.job\.metric: is read from the output"):
        check_machines(app, space.dimensions, kind)
