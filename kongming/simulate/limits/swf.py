"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kongming.files.missing_file import unreadable
from kongming.records.errors import InputError
from kongming.simulate.limits.jobs import LimitedJobs

_FIELDS = 18
_SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _USER, _EXECUTABLE = 1, 2, 3, 4, 7, 8, 11, 13
_MOST_PROCESSORS = 999_999_999
"""Of one job: what the header's MaxProcs can say."""
_CAPACITY = re.compile(r";\s*MaxProcs:\s*([0-9]{1,9})\b", re.IGNORECASE)


def read_swf(path: Path, capacity: int | None = None) -> LimitedJobs:
    """Read a trace. ``capacity`` None is the header's MaxProcs.

    An application is what one user runs of one executable, or at one size where the trace has no
    executables. Jobs without a run time, processors or time limit are skipped. A run beyond its
    limit (systems end jobs some seconds late) counts as one up to it.

    Raises:
        InputError: the file cannot be read, a line is damaged, or the machine's size is unknown.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            rows, skipped, header = _rows(path, file)
    except OSError as error:
        raise unreadable(path, error) from error
    if capacity is None and header is None:
        raise InputError(
            f"{path} has no MaxProcs in its header.", hint="Give --nodes (and --slots)."
        )
    if not rows:
        raise InputError(
            f"{path} has no job with a run time, processors and a time limit ({skipped} without)."
        )
    table = np.array(rows, dtype=np.float64).reshape(-1, 7)
    table = table[np.argsort(table[:, 0], kind="stable")]
    arrival, wait, run, processors, limit = table[:, :5].T
    _, app_of = np.unique(table[:, 5:], axis=0, return_inverse=True)
    run = np.minimum(run, limit)
    return LimitedJobs(
        arrival_s=arrival,
        app_of=app_of.ravel().astype(np.int64),
        processors=processors.astype(np.int64),
        run_s=run,
        limit_s=limit,
        known_from_s=arrival + np.maximum(wait, 0.0) + run,
        capacity=capacity or header or 0,
        source=str(path),
        skipped=skipped,
    )


def _rows(path: Path, lines: Iterable[str]) -> tuple[list[list[float]], int, int | None]:
    rows: list[list[float]] = []
    skipped, header = 0, None
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(";"):
            match = _CAPACITY.search(line)
            header = int(match[1]) if match and int(match[1]) else header
            continue
        words = line.split()
        if not words:
            continue
        try:
            fields = [float(word) for word in words]
        except ValueError:
            fields = []
        if len(fields) != _FIELDS or not all(map(math.isfinite, fields)):
            raise InputError(
                "is damaged.", field=f"{path}: line {number}", allowed=f"{_FIELDS} numbers"
            )
        processors = fields[_REQUESTED] if fields[_REQUESTED] > 0.0 else fields[_ALLOCATED]
        if min(fields[_RUN], fields[_LIMIT]) <= 0.0 or processors < 1.0 or fields[_SUBMIT] < 0.0:
            skipped += 1
            continue
        if processors % 1.0 or processors > _MOST_PROCESSORS:
            raise InputError(
                "is not a number of processors.",
                field=f"{path}: line {number}",
                value=f"{processors:g}",
                allowed=f"a whole number up to {_MOST_PROCESSORS}",
            )
        program = fields[_EXECUTABLE] if fields[_EXECUTABLE] > 0.0 else -processors
        rows.append(
            [
                *(fields[place] for place in (_SUBMIT, _WAIT, _RUN)),
                *(processors, fields[_LIMIT], fields[_USER], program),
            ]
        )
    return rows, skipped, header
