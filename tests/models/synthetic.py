"""A made-up node and programs of known sensitivity, for tests of models and predictions.

A surrogate's slowdown under a load is what the load does to its family; a program's is what its
sensitivities make of those of the surrogates. Noise comes from a seeded generator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kongming.records.run import Run, Signature
from tests import builders

IDLE = {
    "memory.random.8M": 20e-9,
    "memory.random.LLChalf": 30e-9,
    "memory.random.128M": 90e-9,
    "memory.streaming.128M": 5e-9,
    "stream.triad": 2e-9,
    "memory.fault": 0.4e-6,
    "compute.int": 0.3e-9,
    "compute.float": 0.5e-9,
    "os.syscall": 80e-9,
    "os.switch": 2e-6,
    "iobench.read.4M": 2e-3,
    "iobench.write.4M": 3e-3,
    "iobench.fsync": 1e-3,
    "metadata.create": 20e-6,
    "net.loopback": 9e-6,
}
"""Seconds per operation on the idle node."""

QUICK = tuple(name for name in IDLE if name not in ("compute.float", "net.loopback"))

INDUCERS = (
    "memory.random.8M",
    "memory.random.128M",
    "stream.triad",
    "memory.streaming.128M",
    "compute.int",
    "os.switch",
    "iobench.read.4M",
    "iobench.write.4M",
    "iobench.fsync",
    "metadata.create",
    "net.loopback",
)

SPILL = {
    ("cache", "memory"): 0.3,
    ("memory", "cache"): 0.5,
    ("read", "write"): 0.4,
    ("write", "read"): 0.5,
    ("metadata", "write"): 0.3,
    ("write", "metadata"): 0.4,
}
"""A load on one family slows another by this power of its own slowdown."""


def environment(
    loads: Mapping[str, float], random: np.random.Generator, noise: float = 0.02
) -> Any:
    """Seconds per operation under loads: log slowdown by family that each inflicts."""
    times = {}
    for name, idle in IDLE.items():
        family = builders.family_of(name)
        log = sum(
            amount * (1.0 if source == family else SPILL.get((source, family), 0.0))
            for source, amount in loads.items()
        )
        times[name] = idle * math.exp(log + noise * random.standard_normal())
    return times


def slowdown(sensitivity: Mapping[str, float], times: Mapping[str, float]) -> float:
    """A product of surrogate slowdowns to the powers in ``sensitivity``."""
    return math.exp(
        sum(power * math.log(times[name] / IDLE[name]) for name, power in sensitivity.items())
    )


def sum_of_parts(shares: Mapping[str, float], times: Mapping[str, float]) -> float:
    """The paper's section II: shares of the solo runtime, each slowed as its surrogate is."""
    rest = 1.0 - sum(shares.values())
    return rest + sum(share * times[name] / IDLE[name] for name, share in shares.items())


def campaign(
    app: str,
    sensitivity: Mapping[str, float],
    *,
    seed: int = 0,
    law: Any = slowdown,
    solo_s: float = 3.0,
    noise: float = 0.01,
    intensities: tuple[float, ...] = (0.5, 1.0),
    solos: int = 6,
    **changes: Any,
) -> list[Run]:
    """A quick plan's runs: solo runs among runs under each inducer at each intensity."""
    random = np.random.default_rng(seed)
    steps: list[tuple[str, float] | None] = [(n, i) for n in INDUCERS for i in intensities]
    steps += [None] * solos
    random.shuffle(steps)
    runs = []
    for number, step in enumerate(steps):
        loads = {} if step is None else {builders.family_of(step[0]): 0.8 * step[1]}
        times = environment(loads, random)
        metric = solo_s * law(sensitivity, times) * math.exp(noise * random.standard_normal())
        levels = () if step is None else (builders.level(step[0], intensity=step[1]),)
        values: dict[str, Any] = {
            "levels": levels,
            "before": builders.fingerprint({n: times[n] for n in QUICK}, suite="quick"),
            "campaign": "c1",
            "step": number,
        }
        runs.append(builders.run(app, metric, times, **(values | changes)))
    return runs


def signature(app: str, loads: Mapping[str, float], *, seed: int = 0, **changes: Any) -> Signature:
    """What a neighbour of a program that loads these families sees."""
    return builders.signature(app, environment(loads, np.random.default_rng(seed)), **changes)
