"""Fingerprints for benchmarks of the service: a real one, varied for many nodes and times."""

from __future__ import annotations

import json
import math
import random
import uuid
from dataclasses import replace
from pathlib import Path

from kongming.records import moments
from kongming.records.fingerprint import Fingerprint, NodeFacts

RECORDED = Path(__file__).parent / "recorded" / "quick.json"
"""A quick fingerprint as a node took it."""

NOISE = 0.05
"""Standard deviation of what a cost or a signal is multiplied by, in logs."""


def recorded() -> Fingerprint:
    return Fingerprint.from_dict(json.loads(RECORDED.read_text()))


def nodes(count: int, like: NodeFacts) -> list[NodeFacts]:
    """Nodes of the same hardware with names and ids of their own."""
    return [
        replace(like, id=f"{number:016x}", name=f"node-{number:05d}") for number in range(count)
    ]


def varied(like: Fingerprint, node: NodeFacts, at: float, source: random.Random) -> Fingerprint:
    """Another fingerprint of ``node`` at ``at`` (unix seconds), with a real one's digits."""

    def vary(value: float) -> float:
        return value * math.exp(source.gauss(0.0, NOISE))

    surrogates = {}
    for name, reading in like.surrogates.items():
        if reading.seconds_per_op is None or reading.median is None or reading.p90 is None:
            surrogates[name] = reading
            continue
        surrogates[name] = replace(
            reading,
            seconds_per_op=vary(reading.seconds_per_op),
            median=vary(reading.median),
            p90=vary(reading.p90),
            ops=max(1, round(vary(reading.ops))),
            elapsed_s=round(vary(reading.elapsed_s), 9),
        )
    moment = moments.format(at)
    return replace(
        like,
        node=node,
        started_at=moment.replace("+00:00", "Z"),
        elapsed_s=round(vary(like.elapsed_s), 9),
        surrogates=surrogates,
        # A signal that is 0 on a calm node stays 0.
        passive={name: vary(value) for name, value in like.passive.items()},
        id=uuid.UUID(int=source.getrandbits(128)).hex,
    )
