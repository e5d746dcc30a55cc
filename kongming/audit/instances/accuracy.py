"""The figures of Table IV from observations: errors by program and model, and the noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.audit.instances.joining import Joined, join
from kongming.audit.instances.leave_out import LEAST_RUNS, Leave, groups_of, leave_out
from kongming.audit.readings import Observations, machine_of
from kongming.learning.registry import KINDS, STACK, Kind
from kongming.records.errors import CannotAnswerError, UnknownNameError

LEAST_PCT = 1e-3
"""Errors below this count as this much in a geometric mean, which one 0 would make 0."""

Task = tuple[Joined, Leave, tuple[str, ...], int]
Mapper = Callable[
    [Callable[[Task], dict[str, Any]], Iterable[Task]], Iterable[tuple[Task, dict[str, Any]]]
]
"""Applies a function to tasks, in order, perhaps by several processes."""


def accuracy(
    observations: Observations,
    leave: Leave = "instance",
    *,
    programs: Sequence[str] = (),
    models: Sequence[str] | None = None,
    random_state: int = 0,
    mapper: Mapper | None = None,
) -> dict[str, Any]:
    """Errors of each program when machines (or sessions, or blocks of time) are left out: JSON.

    ``models`` None: all but the optional ones. Errors are |predicted - measured| / measured, in
    per cent, over all runs that were left out.

    Raises:
        CannotAnswerError: there is one machine (or session) alone, or no program ran often enough
            on two of them.
        UnknownNameError: no such program or model.
        IncompatibleError: sessions of different suites, or of different metrics of a program.
    """
    _refuse_too_few(observations, leave)
    joined = join(observations)
    names = [data.program for data in joined]
    for name in programs:
        if name not in names:
            raise UnknownNameError("program", name, names)
    kinds = tuple(kind.name for kind in _kinds(models))
    tasks = [
        (data, leave, kinds, random_state)
        for data in joined
        if (not programs or data.program in programs) and _is_enough(data, leave)
    ]
    if not tasks:
        raise CannotAnswerError(
            f"No program has {LEAST_RUNS} runs left to learn from when one of its "
            f"{_PLURAL[leave]} is left out.",
            hint="Observe for longer: kongming observe APPS.toml --for 24h --resume",
        )
    scores = {task[0].program: score for task, score in (mapper or _serially)(_score, tasks)}
    return {
        "kind": "instances",
        "leave": leave,
        "machines": len(observations.machines),
        "sessions": len(observations.sessions),
        "machine": {
            machine: machine_of(session) for machine, session in _by_machine(observations).items()
        },
        "programs": scores,
        "left_out": sorted(set(programs or names) - set(scores)),
        "geomean_pct": _geomeans([score["error_pct"] for score in scores.values()]),
        "geomean_iqr_pct": _geomeans([score["iqr_pct"] for score in scores.values()]),
        "noise_floor_pct": _geometric_mean(
            [score["floor_pct"] for score in scores.values() if score["floor_pct"] is not None]
        ),
    }


_PLURAL: Mapping[Leave, str] = {
    "instance": "machines",
    "session": "sessions",
    "block": "blocks of time",
}


def _refuse_too_few(observations: Observations, leave: Leave) -> None:
    count = len(observations.machines if leave == "instance" else observations.sessions)
    if leave != "block" and count < 2:
        what = "machine" if leave == "instance" else "session"
        raise CannotAnswerError(
            f"There is one {what} alone: leaving it out would leave nothing to learn from.",
            hint="Give files of two or more, or --leave block to leave out blocks of time instead, "
            "which is an easier question: the model then knows the machine.",
        )


def _is_enough(joined: Joined, leave: Leave) -> bool:
    groups = Counter(groups_of(joined, leave))
    most = max(groups.values())
    return len(groups) >= 2 and len(joined.cost) - most >= LEAST_RUNS


def _kinds(models: Sequence[str] | None) -> list[Kind]:
    """The named kinds and MEAN; for None all but the optional ones. Raises UnknownNameError."""
    wanted = {name for name, kind in KINDS.items() if not kind.optional}
    if models is not None:
        for name in models:
            if name not in KINDS and name != STACK:
                raise UnknownNameError("model", name, (*KINDS, STACK))
        wanted = {*models, "MEAN"}
        if STACK in wanted:
            wanted |= {name for name, kind in KINDS.items() if kind.member}
    return [kind for name, kind in KINDS.items() if name in wanted]


def _serially(
    function: Callable[[Task], dict[str, Any]], tasks: Iterable[Task]
) -> Iterator[tuple[Task, dict[str, Any]]]:
    for task in tasks:
        yield task, function(task)


def _score(task: Task) -> dict[str, Any]:
    """Score one program. A module-level function, so that another process can run it."""
    joined, leave, names, random_state = task
    left = leave_out(joined, leave, [KINDS[name] for name in names], random_state=random_state)
    errors = {
        model: 100.0 * np.abs(np.expm1(logs[np.isfinite(logs)]))
        for model, logs in left.log_errors.items()
    }
    return {
        "runs": len(joined.cost),
        "machines": len(set(joined.machines)),
        "groups": len(set(left.groups)),
        "identities": len(joined.identities),
        "surrogates": list(joined.columns),
        "dropped_surrogates": {column.name: column.reason for column in joined.dropped},
        "sd_pct": 100.0 * float(np.std(np.log(joined.cost))),
        "floor_pct": _floor(joined),
        "error_pct": {model: float(np.median(values)) for model, values in errors.items()},
        "iqr_pct": {
            model: float(np.subtract(*np.quantile(values, [0.75, 0.25])))
            for model, values in errors.items()
        },
        "auto": dict(Counter(left.chosen.values())),
        "references": {model: dict(used) for model, used in left.references.items()},
    }


def _floor(joined: Joined) -> float | None:
    """Noise of a run in per cent, from the differences of consecutive runs, which have the noise
    of both: a lower bound for the error of any predictor."""
    steps = [
        abs(math.log(joined.cost[i + 1] / joined.cost[i]))
        for i in range(len(joined.cost) - 1)
        if joined.sessions[i] == joined.sessions[i + 1]
    ]
    return 100.0 * float(np.median(steps)) / math.sqrt(2.0) if steps else None


def _by_machine(observations: Observations) -> dict[str, Mapping[str, Any]]:
    return {
        str(session["machine"]): session
        for _, session in sorted(observations.sessions.items(), reverse=True)
    }


def _geomeans(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = list(figures[0]) if figures else []
    return {
        name: float(_geometric_mean([figure[name] for figure in figures]) or 0.0)
        for name in names
        if all(name in figure for figure in figures)
    }


def _geometric_mean(values: Sequence[float] | Floats) -> float | None:
    if not len(values):
        return None
    return math.exp(float(np.mean(np.log(np.maximum(values, LEAST_PCT)))))
