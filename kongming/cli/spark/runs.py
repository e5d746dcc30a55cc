"""Further runs of an application: what they say beyond its log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kongming.spark.application import Application
    from kongming.spark.estimation import Estimator, Size
    from kongming.spark.history import Residual


def residual_of(estimator: Estimator, paths: Sequence[Path]) -> tuple[Residual, list[Application]]:
    """Learn from logs, which are returned too, and from a CSV with columns executors, seconds and
    maybe cores. The run of the estimator's own log is no further one, and a log or a file counts
    once, however often it is given."""
    import numpy as np

    from kongming.records.errors import InputError
    from kongming.spark.history import learn_residual

    measured: list[tuple[Size, float]] = []
    others = _applications(estimator, [path for path in paths if path.suffix.lower() != ".csv"])
    tables = {path.resolve(): path for path in paths if path.suffix.lower() == ".csv"}
    for path in tables.values():
        measured += _rows(estimator, path)
    measured += [_size_and_seconds(application) for application in others]
    if not measured:
        raise InputError(
            "holds no run but that of LOG.",
            field="--runs",
            value=", ".join(map(str, paths)),
            allowed="further runs of the application",
        )
    ratios = [
        estimator.cluster(size).slots / estimator.workload.cluster.slots for size, _ in measured
    ]
    # What is compared with a measurement is no answer that --strict would refuse.
    medians = [estimator.estimate(size, strict=False).median_s for size, _ in measured]
    logs = [math.log(seconds / own) for (_, seconds), own in zip(measured, medians, strict=True)]
    return learn_residual(np.log2(ratios), np.array(logs)), others


def _rows(estimator: Estimator, path: Path) -> Iterator[tuple[Size, float]]:
    from kongming.files.csv_rows import read_rows
    from kongming.records.errors import InputError
    from kongming.scale.points import SECONDS
    from kongming.spark.estimation import MOST_CORES, Size

    size = None
    for row in read_rows(path, ("executors", "seconds")):
        executors = int(row.number_in("executors", least=1.0, integer=True))
        cores = None
        if row.text("cores"):
            cores = int(row.number_in("cores", least=1.0, integer=True))
        if executors * (cores or estimator.workload.cluster.cores) > MOST_CORES:
            raise InputError(
                "are too many.",
                field=row.where("executors"),
                value=row.text("executors"),
                allowed=f"up to {MOST_CORES} cores in all",
            )
        size = Size(executors, cores)
        seconds = row.number_in("seconds", above=True)
        if not SECONDS[0] <= seconds <= SECONDS[1]:
            raise InputError(
                "is out of range.",
                field=row.where("seconds"),
                value=row.text("seconds"),
                allowed=f"{SECONDS[0]:g} to {SECONDS[1]:g}",
            )
        yield size, seconds
    if size is None:
        raise InputError(
            "has a header and no row.",
            field="--runs",
            value=str(path),
            allowed="a row for each run: executors, seconds and maybe cores",
        )


def _applications(estimator: Estimator, paths: Sequence[Path]) -> list[Application]:
    from kongming.spark.finished_runs import (
        require_finished,
        require_same_application,
        require_same_input,
    )
    from kongming.spark.reading import read_all
    from kongming.spark.sample_ratio import recorded_ratio

    own = estimator.workload.application
    others = [application for application in read_all(paths) if application.run != own.run]
    for application in others:
        require_same_application(
            application,
            own,
            "--runs",
            named=True,  # all that follows is learned from it
            hint="Runs of other applications on this cluster: --history.",
        )
    require_finished(others, "--runs")
    ratio, recorded = estimator.ratio, recorded_ratio(own)
    if estimator.inputs is not None:
        share = (ratio or 1.0) * estimator.inputs.times
    else:
        # The logs of both have the share that was sampled, --ratio maybe that which was asked for.
        share = recorded or ratio or 1.0
    more = " If LOG is of a run on that share too, say so: --ratio SHARE." if ratio is None else ""
    require_same_input(others, share, "--runs", more=more)
    return others


def _size_and_seconds(application: Application) -> tuple[Size, float]:
    from kongming.spark.estimation import Size
    from kongming.spark.model.workload import workload_of

    work = workload_of(application)
    return Size(work.cluster.executors, work.cluster.cores), work.measured_s
