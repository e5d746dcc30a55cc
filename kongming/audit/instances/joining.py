"""Runs joined with the fingerprint before each: the data of single-task models.

The fingerprint of a run is defined in ``readings``: that of the step before it, in its round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow

from kongming.arrays import Floats
from kongming.audit.readings import Observations
from kongming.audit.sizes import unlike
from kongming.learning import reading_pairs
from kongming.learning.columns import MISSING_SHARE, Dropped
from kongming.quantities import per_cent
from kongming.records.errors import IncompatibleError

IDLEST = 0.1
"""The quantile of a machine's readings of a surrogate that is taken as the idle machine's, since
lower ones are chance."""


@dataclass(frozen=True, eq=False, slots=True)
class Joined:
    """The runs of one program on any number of machines, n of them in order of machine, session
    and time, under p surrogates.

    ``known`` (n, p) is the log of the seconds per operation right before each run; ``met`` (n, p)
    the mean of that and of the reading right after it, where there is one: the training data.
    ``own`` (n, p) is the log of the surrogate's cost on the row's machine when that is idlest.
    ``reading_variance`` (p,) is that of an entry of ``met``. ``cost`` (n,) is in the program's
    unit, or its inverse where more is better. ``at`` (n,) is in seconds since 1970.
    """

    program: str
    unit: str
    better: str
    columns: tuple[str, ...]
    families: tuple[str, ...]
    known: Floats
    met: Floats
    own: Floats
    reading_variance: Floats
    cost: Floats
    machines: tuple[str, ...]
    sessions: tuple[str, ...]
    at: Floats
    identities: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    session: str
    machine: str
    at: float
    cost: float
    known: Mapping[str, float]
    after: Mapping[str, float]


def join(observations: Observations) -> tuple[Joined, ...]:
    """Join the runs of each program, in order of name. Runs that failed or have no fingerprint are
    left out, and so are surrogates missing before more than a fifth of the runs of some machine, or
    whose sizes differ between the sessions, as they do where caches do.

    Raises:
        IncompatibleError: the sessions differ in suite or a program's metric, or in suite version
            without the sizes of their surrogates.
    """
    _refuse_mixture(observations)
    names = observations.select("surrogate")["name"].unique().to_pylist()
    of_other_sizes = unlike(observations.sessions.values(), names)
    fingerprints = _fingerprints(observations)
    idlest = _idlest(observations)
    families = {
        name: str(facts.get("family", ""))
        for session in observations.sessions.values()
        for name, facts in (session.get("surrogates") or {}).items()
    }
    runs: dict[str, list[_Run]] = defaultdict(list)
    for row in _columns(
        observations.select("program"),
        ("session", "machine", "name", "position", "round", "value", "at"),
    ):
        session, machine, name, position, number, value, at = row
        known = fingerprints.get((session, position - 1, number))
        if known is None or not value > 0.0:
            continue
        after = fingerprints.get((session, position + 1, number), {})
        program = _program(observations, session, name)
        cost = 1.0 / value if program.get("better") == "higher" else value
        runs[name].append(_Run(session, machine, at.timestamp(), cost, known, after))
    programs = [
        _program_of(name, members, idlest, families, of_other_sizes, observations)
        for name, members in sorted(runs.items())
    ]
    return tuple(joined for joined in programs if joined is not None)


def _refuse_mixture(observations: Observations) -> None:
    suites = sorted({str(s.get("suite")) for s in observations.sessions.values()})
    if len(suites) > 1:
        raise IncompatibleError(
            f"The sessions differ in suite ({', '.join(suites)}) and are not mixed.",
            hint="Give files of one suite only.",
        )
    metrics: dict[str, set[str]] = defaultdict(set)
    for session in observations.sessions.values():
        for name, facts in (session.get("programs") or {}).items():
            unit, better = facts.get("unit", "s"), facts.get("better", "lower")
            metrics[name].add(f"{unit}, {better} is better")
    for name, of_name in sorted(metrics.items()):
        if len(of_name) > 1:
            raise IncompatibleError(
                f"The sessions differ in the metric of {name} ({'; '.join(sorted(of_name))}) and "
                "are not mixed.",
                hint="Give files of one metric only.",
            )


def _columns(table: pyarrow.Table, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def _fingerprints(observations: Observations) -> dict[tuple[str, int, int], dict[str, float]]:
    """The times of each fingerprint by session, position and round."""
    times: dict[tuple[str, int, int], dict[str, float]] = defaultdict(dict)
    for session, position, number, name, value in _columns(
        observations.select("surrogate"), ("session", "position", "round", "name", "value")
    ):
        if value > 0.0:
            times[session, position, number][name] = value
    return times


def _idlest(observations: Observations) -> dict[str, dict[str, float]]:
    """The log of each surrogate's cost when the machine is idlest, by machine."""
    readings: dict[tuple[str, str], list[float]] = defaultdict(list)
    for machine, name, value in _columns(
        observations.select("surrogate"), ("machine", "name", "value")
    ):
        if value > 0.0:
            readings[machine, name].append(value)
    idlest: dict[str, dict[str, float]] = defaultdict(dict)
    for (machine, name), values in readings.items():
        idlest[machine][name] = float(np.log(np.quantile(values, IDLEST)))
    return idlest


def _program(observations: Observations, session: str, name: str) -> Mapping[str, object]:
    programs = observations.sessions[session].get("programs") or {}
    facts: Mapping[str, object] = programs.get(name) or {}
    return facts


def _program_of(
    name: str,
    runs: list[_Run],
    idlest: Mapping[str, Mapping[str, float]],
    families: Mapping[str, str],
    of_other_sizes: Mapping[str, str],
    observations: Observations,
) -> Joined | None:
    runs.sort(key=lambda run: (run.machine, run.at))
    columns, dropped = _columns_of(runs, of_other_sizes)
    runs = [run for run in runs if all(column in run.known for column in columns)]
    if not columns or not runs:
        return None
    known = reading_pairs.log_readings([run.known for run in runs], columns)
    shift = reading_pairs.log_readings([run.after for run in runs], columns) - known
    facts = [_program(observations, session, name) for session in {run.session for run in runs}]
    return Joined(
        program=name,
        unit=str(facts[0].get("unit", "s")),
        better=str(facts[0].get("better", "lower")),
        columns=columns,
        families=tuple(families.get(c) or c.partition(".")[0] for c in columns),
        known=known,
        met=reading_pairs.met(known, shift),
        own=np.array([[idlest[run.machine][c] for c in columns] for run in runs]),
        # Half the mean square is one reading's variance; the mean of two readings has half of it.
        reading_variance=reading_pairs.mean_square(shift) / 4.0,
        cost=np.array([run.cost for run in runs]),
        machines=tuple(run.machine for run in runs),
        sessions=tuple(run.session for run in runs),
        at=np.array([run.at for run in runs]),
        identities=tuple(sorted({str(f["identity"]) for f in facts if "identity" in f})),
        dropped=tuple(dropped),
    )


def _columns_of(
    runs: Sequence[_Run], of_other_sizes: Mapping[str, str]
) -> tuple[tuple[str, ...], list[Dropped]]:
    """The surrogates that are known before nearly every run on each machine, vary, and are of one
    size."""
    columns, dropped = [], []
    by_machine: dict[str, list[_Run]] = defaultdict(list)
    for run in runs:
        by_machine[run.machine].append(run)
    for name in sorted({name for run in runs for name in run.known}):
        worst = max(
            sum(name not in run.known for run in members) / len(members)
            for members in by_machine.values()
        )
        if worst > MISSING_SHARE:
            share = f"{per_cent(100.0 * worst, '.0f')} of the runs of a machine"
            dropped.append(Dropped(name, f"is missing before {share}"))
        elif name in of_other_sizes:
            dropped.append(Dropped(name, of_other_sizes[name]))
        elif len({run.known.get(name) for run in runs}) < 2:
            dropped.append(Dropped(name, "is constant"))
        else:
            columns.append(name)
    return tuple(columns), dropped
