"""Observations whose truth is known: what is not put in must not be found."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow

from kongming.arrays import Floats
from kongming.audit.readings import SCHEMA, Observations

START_S = 1_772_323_200.0
"""A midnight, UTC."""

PROGRAMS = {"zip": 2.0, "sort": 5.0, "serve": 0.8}
SURROGATES = {
    "compute.int": 9e-9,
    "iobench.read.4M": 4e-3,
    "memory.random.128M": 1e-7,
    "memory.random.8M": 2e-8,
    "os.syscall": 3e-7,
    "stream.triad": 2e-9,
}
SIGNALS = {"psi.cpu.some": 0.02}


@dataclass(frozen=True, slots=True)
class Moment:
    """What an effect may depend on, by reading of one name: arrays of one length."""

    machine: str
    name: str
    seconds: Floats
    place: Floats
    predecessor: Sequence[str]


Effect = Callable[[Moment], "Floats | float"]
"""The log of a factor on the readings."""


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    type: str = "c1.small"
    kernel: str = "6.1.0"
    tags: Mapping[str, str] = field(default_factory=dict)


def machines(count: int, **facts: Any) -> tuple[Machine, ...]:
    return tuple(Machine(f"node-{k:02d}", **facts) for k in range(count))


def observe(
    of: Sequence[Machine],
    *,
    blocks: int = 60,
    step_s: float = 60.0,
    noise: float = 0.02,
    slow_noise: float = 0.0,
    load: Mapping[str, float] | None = None,
    effects: Sequence[Effect] = (),
    failing: Mapping[str, float] | None = None,
    programs: Mapping[str, float] = PROGRAMS,
    surrogates: Mapping[str, float] = SURROGATES,
    rates: Collection[str] = (),
    sessions: int = 1,
    seed: int = 0,
) -> Observations:
    """Blocks of every program in a random order, a fingerprint before each.

    ``noise`` is the deviation of log readings, ``slow_noise`` that of a first-order process next to
    it. ``load`` gives, by name, how much of a hidden load that changes from step to step it takes;
    ``failing`` the share of readings that fail. Programs of ``rates`` say operations per second.
    """
    random = np.random.default_rng(seed)
    tables, facts = [], {}
    for k, machine in enumerate(of):
        for part in range(sessions):
            session = str(uuid.UUID(int=random.integers(1 << 62).item()))
            facts[session] = _facts(machine, programs, rates)
            begin = START_S + part * (blocks * len(programs) * step_s + 7200.0)
            tables.append(
                _session(
                    random, machine, session, begin + k, blocks, step_s, noise, slow_noise,
                    load or {}, effects, failing or {}, programs, surrogates, rates,
                )
            )  # fmt: skip
    table = pyarrow.concat_tables(tables).unify_dictionaries()
    return Observations(table.sort_by([("at", "ascending")]), facts)


def _facts(
    machine: Machine, programs: Mapping[str, float], rates: Collection[str]
) -> dict[str, Any]:
    metrics = {
        name: {"unit": "op/s", "better": "higher"}
        if name in rates
        else {"unit": "s", "better": "lower"}
        for name in programs
    }
    return {
        "machine": machine.name,
        "started_at": "2026-03-01T00:00:00Z",
        "suite": "quick",
        "suite_version": 1,
        "kongming_version": "0.1.0",
        "command": ["kongming", "observe"],
        "facts": {"kernel": machine.kernel, "hardware": {"cpu_model": "Example CPU"}},
        "instance": {
            "provider": "example",
            "type": machine.type,
            "id": machine.name,
            "zone": "zone-1",
        },
        "tags": dict(machine.tags),
        "programs": {name: {"identity": name, **metric} for name, metric in metrics.items()},
    }


def _session(
    random: np.random.Generator,
    machine: Machine,
    session: str,
    begin: float,
    blocks: int,
    step_s: float,
    noise: float,
    slow_noise: float,
    load: Mapping[str, float],
    effects: Sequence[Effect],
    failing: Mapping[str, float],
    programs: Mapping[str, float],
    surrogates: Mapping[str, float],
    rates: Collection[str],
) -> pyarrow.Table:
    names = list(programs)
    steps = blocks * len(names)
    order = np.concatenate([random.permutation(len(names)) for _ in range(blocks)])
    place = np.tile(np.arange(len(names)), blocks)
    block = np.repeat(np.arange(blocks), len(names))
    before = ["", *(names[k] for k in order[:-1])]
    hidden = random.normal(size=steps)
    time = begin + step_s * np.arange(steps)
    columns: dict[str, list[Any]] = {key: [] for key in ("at", "position", "round", "value", "ok")}
    kinds: list[str] = []
    of_name: list[str] = []
    sizes: list[int] = []

    def add(kind: str, name: str, base: float, which: np.ndarray[Any, Any], run: bool) -> None:
        own = np.flatnonzero(which)
        n = len(own)
        seconds = time[own] + (step_s / 2.0 if run else 0.0)
        y = noise * random.normal(size=n) + load.get(name, 0.0) * hidden[own]
        if slow_noise:
            y += slow_noise * _first_order(random, n)
        moment = Moment(
            machine.name, name, seconds, place[own].astype(float), [before[k] for k in own]
        )
        for effect in effects:
            y = y + effect(moment)
        good = random.random(n) >= failing.get(name, 0.0)
        columns["at"].append((seconds * 1e6).astype(np.int64))
        columns["position"].append((2 * own + run).astype(np.int32))
        columns["round"].append(block[own].astype(np.int32))
        columns["value"].append(
            np.where(good, np.exp(-y) / base if name in rates else base * np.exp(y), np.nan)
        )
        columns["ok"].append(good)
        kinds.append(kind)
        of_name.append(name)
        sizes.append(n)

    for name, base in surrogates.items():
        add("surrogate", name, base, np.ones(steps, dtype=bool), run=False)
    for name, base in SIGNALS.items():
        add("passive", name, base, np.ones(steps, dtype=bool), run=False)
    for k, name in enumerate(names):
        add("program", name, programs[name], order == k, run=True)
    joined = {key: np.concatenate(parts) for key, parts in columns.items()}
    n = len(joined["ok"])
    bad = ~joined["ok"]

    def texts(values: Sequence[str]) -> pyarrow.DictionaryArray:
        distinct = sorted(set(values))
        codes = np.repeat([distinct.index(value) for value in values], sizes).astype(np.int32)
        return pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(distinct))

    def nothing(kind: pyarrow.DataType) -> pyarrow.Array:
        return pyarrow.nulls(n, kind)

    arrays = {
        "session": pyarrow.repeat(session, n),
        "machine": pyarrow.repeat(machine.name, n),
        "at": pyarrow.array(joined["at"]).cast(pyarrow.timestamp("us", tz="UTC")),
        "position": pyarrow.array(joined["position"]),
        "round": pyarrow.array(joined["round"]),
        "kind": texts(kinds),
        "name": texts(of_name),
        "value": pyarrow.array(joined["value"], mask=bad),
        "median": nothing(pyarrow.float64()),
        "p90": nothing(pyarrow.float64()),
        "count": nothing(pyarrow.int64()),
        "unit": texts(
            [
                "%" if kind == "passive" else "op/s" if name in rates else "s"
                for kind, name in zip(kinds, of_name, strict=True)
            ]
        ),
        "ok": pyarrow.array(joined["ok"]),
        "reason": pyarrow.array(np.where(bad, "timed out", None), pyarrow.string()),
        "cpu": nothing(pyarrow.int16()),
    }
    return pyarrow.table([arrays[field.name] for field in SCHEMA], schema=SCHEMA)


def _first_order(random: np.random.Generator, n: int, correlation: float = 0.7) -> Floats:
    series = np.empty(n)
    value = random.normal()
    for k in range(n):
        value = correlation * value + np.sqrt(1.0 - correlation**2) * random.normal()
        series[k] = value
    return series


def only(machine: str | None, name: str | None, effect: Effect) -> Effect:
    """An effect on one machine, or one name; None for all of them."""

    def limited(moment: Moment) -> Floats | float:
        own = machine in (None, moment.machine) and name in (None, moment.name)
        return effect(moment) if own else 0.0

    return limited
