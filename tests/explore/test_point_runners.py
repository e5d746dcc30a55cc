"""What runs of points cost, and which points machines cannot run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from kongming.campaigns.point_runners import MachinesRunner, NodeRunner, check_machines
from kongming.explore import Space
from kongming.records import moments
from kongming.records.application import Application, Metric
from kongming.records.errors import ApplicationRunError, InputError
from kongming.scale.design.experiments import Experiment, Measured

JOB = Application("job", "job {machines} {scale}")
RATE = replace(JOB, metric=Metric(r"ops=(\d+)", "ops/s", "higher"))


class Scripted:
    """A runner of experiments that answers with the same numbers, or fails, at once."""

    def __init__(self, seconds: float | None, metric: float | None) -> None:
        self.seconds, self.metric = seconds, metric

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, experiment: Experiment) -> Measured:
        if self.seconds is None:
            raise ApplicationRunError("no set-up")
        return Measured(self.seconds, "process", moments.now(), metric=self.metric)


@pytest.mark.parametrize(
    ("app", "seconds", "metric", "value"),
    [(JOB, 50.0, None, 50.0), (RATE, 0.5, 50_000.0, 50_000.0), (JOB, None, None, None)],
)
def test_machines_are_charged_by_seconds(
    app: Application, seconds: float | None, metric: float | None, value: float | None
) -> None:
    """A metric is no time, and a failed run takes what it took here: next to nothing."""
    with MachinesRunner(app, lambda _: Scripted(seconds, metric)) as runner:
        (run,) = runner.batch([{"machines": 4, "scale": 1.0}])
    assert run.value == value
    assert run.cost is not None
    if seconds is None:
        assert 0.0 < run.cost < 10.0
    else:
        assert run.cost == 4 * seconds


@pytest.mark.parametrize(("app", "limit"), [(JOB, JOB.timeout_s), (RATE, None)])
def test_what_machines_were_given_too_little_time_for_is_a_lower_bound_of_seconds(
    app: Application, limit: float | None
) -> None:
    class Ended(Scripted):
        def run(self, experiment: Experiment) -> Measured:
            return Measured(None, "process", moments.now(), "hung", timed_out=True)

    with MachinesRunner(app, lambda _: Ended(None, None)) as runner:
        (run,) = runner.batch([{"machines": 4, "scale": 1.0}])
    assert (run.value, run.error, run.limit) == (None, "hung", limit)
    assert run.seconds_limit == (RATE.timeout_s if app is RATE else None)


@pytest.mark.parametrize("metric", [None, RATE.metric])
def test_what_this_node_was_given_too_little_time_for_is_a_lower_bound_of_seconds(
    metric: Metric | None, tmp_path: Path
) -> None:
    app = Application("job", "sleep {n}", timeout_s=0.2, metric=metric)
    with NodeRunner(app, tmp_path, jobs=1, available=sorted(os.sched_getaffinity(0))) as runner:
        (run,) = runner.batch([{"n": 60}])
    limits = (run.limit, run.seconds_limit)
    assert limits == ((0.2, None) if metric is None else (None, 0.2))
    assert run.status == ("timeout" if metric is None else "failed")


def test_whether_to_go_on_is_asked_where_a_run_could_begin(tmp_path: Path) -> None:
    """The answer may take time, and a run is timed meanwhile."""
    times = []

    def go_on() -> bool:
        times.append(True)
        return True

    app = Application("nap", "sleep {t}")
    with NodeRunner(app, tmp_path, jobs=1, available=sorted(os.sched_getaffinity(0))) as runner:
        runs = list(runner.batch([{"t": 0.5}, {"t": 0.4}], go_on))
    assert [run.error for run in runs] == [None, None]
    assert len(times) == 2


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


def test_a_run_does_not_pay_for_the_set_up_of_another(tmp_path: Path) -> None:
    """The first run has long ended when the set-up of the second, of 1.5 s, has."""
    app = Application("job", "true", setup="sleep {wait}")
    cpu = min(os.sched_getaffinity(0))
    with NodeRunner(app, tmp_path, jobs=2, available=[cpu, cpu]) as runner:
        runs = list(runner.batch([{"wait": 0.0}, {"wait": 1.5}]))
    costs = {run.point["wait"]: run.cost for run in runs}
    assert costs[0.0] is not None
    assert costs[1.5] is not None
    assert costs[0.0] < 1.0 < 1.5 < costs[1.5]


@pytest.mark.parametrize("jobs", [1, 2])
def test_set_up_next_to_another_run_has_the_cpus_of_its_own(tmp_path: Path, jobs: int) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    app = Application(
        "job",
        "cat {dir}/seen && echo {n}",
        setup="grep Cpus_allowed_list /proc/self/status > {dir}/seen",
        check=r"^Cpus_allowed_list:\s+\d+$",
    )
    with NodeRunner(app, tmp_path, jobs=jobs, available=cpus) as runner:
        runs = list(runner.batch([{"n": 1}, {"n": 2}]))
    assert [run.value is not None for run in runs] == [jobs == 2] * 2
