"""Estimates as a scale model that ``kongming scale`` and ``kongming predict`` take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kongming.records import moments
from kongming.records.errors import InputError
from kongming.scale.fit.model import Ranges, ScaleModel
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.spark_replay import ReplayFit, step_of
from kongming.scale.fit.spread import Spread
from kongming.spark.estimation import Estimate, Estimator, of_sizes
from kongming.spark.model.driver import driver_time

NORMAL = 1e6
"""Degrees of freedom that make Student's distribution normal."""


def scale_model(estimator: Estimator, estimates: Sequence[Estimate]) -> ScaleModel:
    """Return the model of estimates at one number of cores: executors are its machines.

    Raises:
        InputError: the estimates have several numbers of cores.
    """
    cores = {each.cores for each in estimates}
    if len(cores) > 1:
        raise InputError(
            "A scale model has one kind of machine; these executors have several.",
            field="--cores",
            value=", ".join(map(str, sorted(cores))),
            hint="Save a model for each number of cores.",
        )
    own = sorted(estimates, key=lambda each: each.executors)
    workload = estimator.workload
    application = workload.application
    lowest, highest = float(own[0].executors), float(own[-1].executors)
    fit = ReplayFit(
        executors=np.array([float(each.executors) for each in own]),
        seconds=np.array([each.median_s for each in own]),
        deviations=np.array([each.deviation for each in own]),
        driver_s=driver_time(application).total_s,
        slots=max(int(own[0].cores // workload.cluster.task_cpus), 1),
        steps=tuple(step_of(stage.lengths) for stage in workload.stages if len(stage.lengths)),
        reasons=tuple(each.reasons for each in own),
    )
    return ScaleModel(
        fit=fit,
        spread=Spread(
            draws=np.empty((0, 0)),
            noise=float(np.median(fit.deviations)),
            relative=True,
            inside=1.0,
            outside=2.0,
            freedom=NORMAL,
            coverage=None,
            covered=0,
        ),
        # Inside the table nothing is extrapolated but what the estimates themselves said so of.
        ranges=Ranges((lowest, highest), (1.0, 1.0), (1.0 / highest, 1.0 / lowest)),
        report={
            "application": application.id,
            "spark_version": application.spark_version,
            "recorded": {
                "executors": workload.cluster.executors,
                "cores": workload.cluster.cores,
                "slots": workload.cluster.slots,
                "seconds": workload.measured_s,
            },
            "warnings": [
                *estimator.input_warnings(),
                *of_sizes((reason, each.executors) for each in own for reason in each.reasons),
            ],
        },
        group=application.name or None,
    )


def scale_file(
    estimator: Estimator, estimates: Sequence[Estimate], name: str | None = None
) -> ScaleFile:
    """Return the model under a name, by default the application's. Raises as ``scale_model``."""
    model = scale_model(estimator, estimates)
    return ScaleFile(name or model.group, moments.now(), (model,))
