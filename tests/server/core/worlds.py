"""A small fleet that is put into an engine, with models of known law and made-up signatures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np

from kongming import Fingerprint, Signature
from kongming.engine.engine import Engine
from kongming.engine.settings import Settings
from kongming.learning.model_file import ModelFile, read, seal
from kongming.learning.scorer import scorer_of
from kongming.records.resident import BOUND, RELEASED, RESERVED, Resident
from tests import builders

NOW = 1_800_000_000.0
"""Unix seconds at which the questions here are asked."""

IDLE = {
    "memory.random.8M": 20e-9,
    "memory.random.128M": 90e-9,
    "stream.triad": 2e-9,
    "compute.int": 0.3e-9,
    "os.switch": 2e-6,
    "iobench.read.4M": 2e-3,
    "iobench.fsync": 1e-3,
}
"""Seconds per operation on the idle node of the training."""

NAMES = tuple(IDLE)
QUICK = NAMES[:5]
SUITE = "1-0123abcd"


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def slowed(
    logs: Mapping[str, float], idle: Mapping[str, float] = IDLE, names: Sequence[str] = NAMES
) -> dict[str, float]:
    """Seconds per operation of surrogates that are slowed by these logs; the others are idle."""
    return {name: idle[name] * math.exp(logs.get(name, 0.0)) for name in names}


def fingerprint(
    times: Mapping[str, float], taken_at: float = NOW - 10.0, node_id: str = "node-1", **facts: Any
) -> Fingerprint:
    """A fingerprint whose window has its middle at ``taken_at``."""
    node = builders.node(id=node_id, name=f"name-{node_id}", **facts)
    return builders.fingerprint(
        times, node=node, started_at=iso(taken_at - 1.0), elapsed_s=2.0, suite_version=SUITE
    )


def model(
    app: str = "app", sensitivity: Mapping[str, float] | None = None, **changes: Any
) -> ModelFile:
    """A model whose log slowdown is the sum of sensitivity times the surrogates' log slowdown."""
    return read(document(app, sensitivity, **changes))


def document(
    app: str = "app", sensitivity: Mapping[str, float] | None = None, **changes: Any
) -> dict[str, Any]:
    """The same, as it is stored."""
    variants = {
        "full": _variant(NAMES, sensitivity or {}),
        "quick": _variant(QUICK, sensitivity or {}),
    }
    payload: dict[str, Any] = {
        "app": app,
        "identity": builders.identity_of(app),
        "node_id": "trainer",
        "placement": "cross-core",
        "suite_version": SUITE,
        "metric_unit": "s",
        "better": "lower",
        "cpu": 0,
        "solo": {"median": 10.0, "noise_pct": 1.0, "n": 6},
        "variants": variants,
    }
    return seal(payload | changes)


def trained_on_slower(app: str, factor: float, **changes: Any) -> ModelFile:
    """A model of ``app`` whose training found the idle node slower by this factor."""
    payload = document(app, SENSITIVITY.get(app, {"stream.triad": 0.5}), **changes)
    del payload["checksum"]
    for variant in payload["variants"].values():
        variant["idle"] = {name: factor * seconds for name, seconds in variant["idle"].items()}
    return read(seal(payload))


def ended(app: str, known_up_to: float) -> ModelFile:
    """The model of ``app``, of a profile in which all runs that were slower were cut off."""
    payload = document(app, SENSITIVITY[app])
    del payload["checksum"]
    for variant in payload["variants"].values():
        variant["models"]["LM"] |= {"bounds": [-0.02, known_up_to], "worst": known_up_to}
    return read(seal(payload))


def _variant(names: Sequence[str], sensitivity: Mapping[str, float]) -> dict[str, Any]:
    random = np.random.default_rng(1)
    flat = dict.fromkeys(names, 0.0)
    linear = {
        "type": "linear",
        "coef": [float(sensitivity.get(name, 0.0)) for name in names],
        "intercept": 0.0,
    }
    frozen = {
        "frozen": linear,
        "space": "log",
        "bounds": [-0.02, 12.0],
        "weights": {name: float(sensitivity.get(name, 0.0)) for name in names},
        "residuals": random.normal(0.0, 0.03, 40).tolist(),
        "severities": random.uniform(0.0, 0.5, 40).tolist(),
        "groups": 12,
        "scores": {},
    }
    return {
        "columns": list(names),
        "families": {name: builders.family_of(name) for name in names},
        "idle": {name: IDLE[name] for name in names},
        "spread": flat,
        "low": {name: IDLE[name] for name in names},
        "high": {name: 4.0 * IDLE[name] for name in names},
        "noise": 0.01,
        "chosen": "LM",
        "models": {"LM": frozen},
    }


def signature(app: str, logs: Mapping[str, float], **changes: Any) -> Signature:
    """What a neighbour of ``app`` sees on the node of the training."""
    values = {
        "node_id": "trainer",
        "fingerprint": fingerprint(slowed(logs), node_id="trainer"),
    }
    return builders.signature(app, {}, **(values | changes))


def engine(**settings: Any) -> Engine:
    """An engine without nodes that has models and signatures of memory, disk and quiet."""
    filled = Engine(Settings(**settings))
    for app, sensitivity, pressure in APPS:
        filled.put_model(model(app, sensitivity), 1)
        filled.put_signatures([signature(app, pressure)])
    return filled


APPS = (
    (
        "memory",
        {"memory.random.8M": 0.3, "stream.triad": 0.5},
        {"memory.random.8M": 0.6, "memory.random.128M": 0.3, "stream.triad": 0.5},
    ),
    (
        "disk",
        {"iobench.read.4M": 0.6, "iobench.fsync": 0.2},
        {"iobench.read.4M": 0.8, "iobench.fsync": 0.4},
    ),
    ("quiet", {"compute.int": 0.4}, {"compute.int": 0.05}),
)

SENSITIVITY = {app: sensitivity for app, sensitivity, _ in APPS}
PRESSURE = {app: pressure for app, _, pressure in APPS}


def add_node(
    target: Engine,
    node_id: str = "node-1",
    logs: Mapping[str, float] | None = None,
    *,
    taken_at: float = NOW - 10.0,
    idle: Mapping[str, float] = IDLE,
    reference: bool = True,
    names: Sequence[str] = NAMES,
    **facts: Any,
) -> None:
    """A node that reported just now, with a fingerprint whose surrogates are slowed by ``logs``."""
    node = builders.node(id=node_id, name=f"name-{node_id}", **facts)
    target.put_node(node, NOW)
    for domain in range(len(node.llc_cpus)):
        if reference:
            target.put_reference(node_id, domain, dict(idle), SUITE)
        if logs is not None:
            newest = fingerprint(slowed(logs, idle, names), taken_at, node_id, **facts)
            target.put_fingerprint(node_id, domain, newest, now=NOW)


def add_occupied(target: Engine, app: str, count: int) -> None:
    """So many quiet nodes with a resident of ``app`` each, which are named after it."""
    for n in range(count):
        add_node(target, f"{app}-{n}", {})
        target.put_assignment(bound(f"on-{app}-{n}", app, NOW - 100.0, f"{app}-{n}"))


def expected(app: str, *loads: Mapping[str, float]) -> float:
    """The log slowdown that the law of ``app`` gives under the sum of these loads, each surrogate
    at most at the edge of the training runs."""
    edges = _edges(app)
    return sum(
        power * min(sum(load.get(name, 0.0) for load in loads), edges[name])
        for name, power in SENSITIVITY[app].items()
    )


@cache
def _edges(app: str) -> dict[str, float]:
    scorer = scorer_of(model(app, SENSITIVITY[app]).variants["full"])
    slowed = scorer.log_edge - scorer.log_idle
    return dict(zip(scorer.variant.columns, slowed.tolist(), strict=True))


def bound(
    assignment_id: str, app: str, at: float, node_id: str = "node-1", **changes: Any
) -> Resident:
    values: dict[str, Any] = {"state": BOUND, "reserved_at": at, "bound_at": at}
    return Resident(assignment_id, app, node_id, **(values | changes))


def reserved(assignment_id: str, app: str, at: float, node_id: str = "node-1") -> Resident:
    return Resident(
        assignment_id, app, node_id, state=RESERVED, reserved_at=at, expires_at=at + 60.0
    )


def released(resident: Resident, at: float) -> Resident:
    return replace(resident, state=RELEASED, ended_at=at, expires_at=None)
