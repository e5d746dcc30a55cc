"""Single-task accuracy (paper, section IV-A, Table IV): runs of a machine that was left out.

A model learns from a program's runs on all machines but one, each with the fingerprint right
before it, and predicts its runs on that one. The paper's models take seconds per operation as they
are. The others work on ratios, and machines differ, so what a reading is divided by is one of

- ``fleet``: what the surrogate costs on the fastest machine trained on;
- ``own``: what it costs on the row's own machine when that is idlest;
- ``both``: the machine's idlest cost over the fleet's, and the reading over that, as two columns.

A machine's own idlest readings are known to whoever has watched it for as long as the file is; no
run of the machine that is left out is ever used. The reference, and the model of ``auto``, are
chosen by leaving machines out of the training machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kongming.arrays import Floats
from kongming.audit.instances.joining import Joined
from kongming.learning.dataset import Dataset
from kongming.learning.fitting import Fitted, fit
from kongming.learning.registry import AUTO, KINDS, STACK, Kind
from kongming.learning.validation import (
    LEAST_NOISE,
    Fold,
    Validation,
    choose,
    cross_validate,
    make_folds,
    positions,
    repeat_noise,
)
from kongming.records.run import SoloTime

Leave = Literal["instance", "session", "block"]
Reference = Literal["fleet", "own", "both"]

REFERENCES: tuple[Reference, ...] = ("fleet", "own", "both")

BLOCKS = 5
"""Blocks of time that a session is cut into, where those are left out."""

FASTEST = 0.05
"""The quantile of the training runs' readings, and of their costs, that ratios are over."""

LEAST_RUNS = 8
"""A program with fewer runs is not scored."""


@dataclass(frozen=True, eq=False, slots=True)
class Left:
    """Predictions of a program's runs when their groups were left out.

    ``log_errors`` holds by model (n,) log of predicted over measured, NaN for a run whose group
    could not be left out; ``chosen`` by group the choice of ``auto``, as "MODEL, reference", and
    ``references`` by model how often each reference was chosen.
    """

    groups: tuple[str, ...]
    log_errors: Mapping[str, Floats]
    chosen: Mapping[str, str]
    references: Mapping[str, Mapping[str, int]]


def groups_of(joined: Joined, leave: Leave) -> tuple[str, ...]:
    """The group of each run (n,), which is left out together."""
    if leave == "instance":
        return joined.machines
    if leave == "session":
        return joined.sessions
    groups = [""] * len(joined.cost)
    for session in sorted(set(joined.sessions)):
        rows = [i for i, name in enumerate(joined.sessions) if name == session]
        for k, block in enumerate(np.array_split(rows, min(BLOCKS, len(rows)))):
            for i in block.tolist():
                groups[i] = f"{session}/{k}"
    return tuple(groups)


def leave_out(
    joined: Joined, leave: Leave, kinds: Sequence[Kind], *, random_state: int = 0
) -> Left:
    """Leave out each group once, and predict it by each of ``kinds``, STACK and ``auto``.

    ``auto`` chooses among those that are no genetic search (which would search again for every
    machine within every other): in kind and reference, by what was left out of the training part.
    """
    groups = groups_of(joined, leave)
    # The idlest readings of a single machine are the same in all rows: no information.
    references = REFERENCES if len(set(joined.machines)) > 1 else REFERENCES[:1]
    errors = {name: np.full(len(groups), np.nan) for name in _names(kinds)}
    chosen: dict[str, str] = {}
    counted: dict[str, Counter[str]] = {}
    with threadpool_limits(1, user_api="blas"):
        for group in sorted(set(groups)):
            test = np.array([i for i, name in enumerate(groups) if name == group])
            train = np.setdiff1d(np.arange(len(groups)), test)
            if len(train) < LEAST_RUNS:
                continue
            part = _Part(joined, groups, train, test, random_state)
            answers, used, best = part.predict(kinds, references)
            for name, predicted in answers.items():
                errors[name][test] = predicted - np.log(joined.cost[test])
            chosen[group] = best
            for name, reference in used.items():
                counted.setdefault(name, Counter())[reference] += 1
    references_used = {name: dict(counts) for name, counts in counted.items()}
    return Left(groups, errors, chosen, references_used)


def _names(kinds: Sequence[Kind]) -> tuple[str, ...]:
    return (*(kind.name for kind in kinds), *((STACK,) if _members(kinds) else ()), AUTO)


def _members(kinds: Sequence[Kind]) -> tuple[str, ...]:
    """The members of STACK, if all are among ``kinds``: some of them are another model."""
    members = tuple(kind.name for kind in kinds if kind.member)
    return members if len(members) == sum(kind.member for kind in KINDS.values()) else ()


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """One group left out: the rows to train on and to score."""

    joined: Joined
    groups: tuple[str, ...]
    train: NDArray[np.intp]
    test: NDArray[np.intp]
    random_state: int

    @property
    def base(self) -> float:
        """The base of slowdowns: nearly the least cost of the training runs."""
        return float(np.quantile(self.joined.cost[self.train], FASTEST))

    def predict(
        self, kinds: Sequence[Kind], references: Sequence[Reference]
    ) -> tuple[dict[str, Floats], dict[str, Reference], str]:
        """The log cost of the test rows and the reference by model, and the choice of ``auto``."""
        data = {reference: self.dataset(reference) for reference in references}
        raw = self.dataset("fleet", denoise=False)
        levels = [raw.levels[i] for i in self.train]
        noise = max(LEAST_NOISE, repeat_noise(levels, raw.y[self.train]) or 0.0)
        folds = make_folds(raw, self.train)
        answers: dict[str, Floats] = {}
        used: dict[str, Reference] = {}
        validations: dict[str, Validation] = {}
        for kind in kinds:
            tried: dict[Reference, Validation] = {}
            if kind.space == "raw":
                source: dict[Reference, Dataset] = {"fleet": raw}
            else:
                source = data
            searching = kind.estimator.startswith("genetic:")
            if not searching:
                tried = {
                    reference: cross_validate(
                        kind, dataset, folds, noise=noise, random_state=self.random_state
                    )
                    for reference, dataset in source.items()
                }
            reference = min(tried, key=lambda r: tried[r].error) if tried else "fleet"
            if tried:
                validations[kind.name] = tried[reference]
            if kind.space != "raw":
                used[kind.name] = reference
            answers[kind.name] = self.answer(kind, source[reference], folds, noise)
        best = self.best(kinds, validations, noise)
        answers[AUTO] = answers[best]
        self.stack(kinds, answers)
        return answers, used, f"{best}, {used[best]}" if best in used else best

    def answer(self, kind: Kind, data: Dataset, folds: Sequence[Fold], noise: float) -> Floats:
        """The log cost of the test rows, by a model of all training rows."""
        fitted: Fitted = fit(
            kind,
            data,
            noise=noise,
            rows=self.train,
            inner=positions(folds, self.train),
            random_state=self.random_state,
        )
        times = np.exp(data.known[self.test])
        return np.asarray(fitted.log_slowdown(times) + np.log(self.base), dtype=np.float64)

    def best(
        self, kinds: Sequence[Kind], validations: Mapping[str, Validation], noise: float
    ) -> str:
        rows, columns = len(self.train), len(self.joined.columns)
        allowed = [
            kind
            for kind in kinds
            if kind.name in validations and (rows > columns or not kind.unpenalised)
        ]
        return choose([validations[kind.name] for kind in allowed], allowed, noise)

    @staticmethod
    def stack(kinds: Sequence[Kind], answers: dict[str, Floats]) -> None:
        """Add the mean of the members."""
        members = [answers[name] for name in _members(kinds)]
        if members:
            answers[STACK] = np.asarray(np.mean(members, axis=0), dtype=np.float64)

    def dataset(self, reference: Reference, *, denoise: bool = True) -> Dataset:
        """All rows, as ratios over a reference from the training rows alone."""
        joined = self.joined
        known, met = joined.known, joined.met if denoise else joined.known
        columns, families = joined.columns, joined.families
        variance = joined.reading_variance if denoise else 2.0 * joined.reading_variance
        if reference == "fleet":
            idle = np.quantile(met[self.train], FASTEST, axis=0)
        else:
            known, met = known - joined.own, met - joined.own
            idle = np.zeros(len(columns))
        if reference == "both":
            known, met = np.hstack([joined.own, known]), np.hstack([joined.own, met])
            idle = np.concatenate([joined.own[self.train].min(axis=0), idle])
            columns = (*(f"{name} of the machine" for name in columns), *columns)
            # Differences between machines are weighted apart from slowdowns on one of them.
            families = (*(f"{name} of the machine" for name in families), *families)
            variance = np.concatenate([np.zeros(len(variance)), variance])
        dataset = Dataset(
            app=joined.program,
            identity="",
            node_id="",
            placement="",
            suite_version="",
            metric_unit=joined.unit,
            better="lower",
            solo=SoloTime(self.base, None, len(self.train)),
            columns=columns,
            families=families,
            X=met,
            known=known,
            y=np.log(joined.cost / self.base),
            idle=idle,
            reading_variance=variance,
            suite_offset=np.zeros(len(columns)),
            awake=0.0,
            groups=tuple(frozenset({group}) for group in self.groups),
            inducers=((),) * len(self.groups),
            # Runs of one session are repeats of each other: their spread is the noise.
            levels=joined.sessions,
            # No run is a solo run, which would mean that nothing disturbed it.
            kinds=("observed",) * len(self.groups),
            run_ids=tuple(map(str, range(len(self.groups)))),
            cpu=0,
        )
        return _varying(dataset, self.train)


def _varying(data: Dataset, rows: NDArray[np.intp]) -> Dataset:
    """Drop columns that are constant in the training rows, unless all are."""
    varies = np.ptp(data.X[rows], axis=0) > 0.0
    if varies.all() or not varies.any():
        return data
    return data.select(name for name, keep in zip(data.columns, varies, strict=True) if keep)
