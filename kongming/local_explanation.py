"""Why a prediction of the local store is what it is: the part of each surrogate."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from kongming.models.persist import ModelFile
from kongming.models.readings import row_of, variant_for
from kongming.rpc.answers import Contribution

Times = Mapping[str, float]


def by_model(
    file: ModelFile, times: Times, model: str | None, carried: Times
) -> tuple[Contribution, ...]:
    """What the log slowdown would lose were each surrogate as on the idle node.

    ``times`` are seconds per operation as the model understands them; ``carried`` is by how much
    the node's own readings differ from them, a ratio by surrogate, empty on the model's own node.
    """
    warnings: list[str] = []
    variant = variant_for(file, times, None, warnings)
    values = row_of(variant, times, warnings)
    rows = np.tile(values, (len(values) + 1, 1))
    np.fill_diagonal(rows[1:], variant.idle)
    predicted = variant.model(model).log_slowdown(rows)
    lost = (predicted[0] - predicted[1:]).tolist()
    found = [
        Contribution(
            surrogate=name,
            family=family,
            seconds_per_op=seconds * carried.get(name, 1.0),
            idle_seconds_per_op=idle * carried.get(name, 1.0),
            log_slowdown=part,
        )
        for name, family, seconds, idle, part in zip(
            variant.columns, variant.families, values.tolist(), variant.idle.tolist(), lost,
            strict=True,
        )
    ]  # fmt: skip
    return _in_order(found)


def by_node(times: Times, idle: Times, families: Mapping[str, str]) -> tuple[Contribution, ...]:
    """Of a general slowdown every surrogate has the same share."""
    known = [name for name in times if name in idle]
    return _in_order(
        [
            Contribution(
                surrogate=name,
                family=families.get(name, ""),
                seconds_per_op=times[name],
                idle_seconds_per_op=idle[name],
                log_slowdown=math.log(times[name] / idle[name]) / len(known),
            )
            for name in known
        ]
    )


def _in_order(found: list[Contribution]) -> tuple[Contribution, ...]:
    return tuple(sorted(found, key=lambda one: (-one.log_slowdown, one.surrogate)))
