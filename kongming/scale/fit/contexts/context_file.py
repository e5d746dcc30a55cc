"""Scale models over contexts as documents: the runs, and the sizes of the process's parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.files.sealed_document import finite, not_negative, positive
from kongming.scale.context_columns import Column, Value
from kongming.scale.fit.context_spread import ContextSpread
from kongming.scale.fit.contexts.context_cliff import ContextCliff
from kongming.scale.fit.contexts.context_few import Compared
from kongming.scale.fit.contexts.context_fixed import FixedTime
from kongming.scale.fit.contexts.context_model import Center, ContextModel, inputs_of
from kongming.scale.fit.contexts.context_own import REACH, OwnFits
from kongming.scale.fit.contexts.context_process import START, Inputs, Process
from kongming.scale.fit.fit_file import read_ernest, read_floats, read_ranges
from kongming.scale.points import Integers, Points


def context_document(model: ContextModel) -> dict[str, Any]:
    """Return a model over contexts as JSON types."""
    process, points = model.process, model.points
    return {
        "group": model.group,
        "type_column": model.type_column,
        "columns": [column.document() for column in model.columns],
        "contexts": [list(context) for context in model.contexts],
        "machines": points.machines.tolist(),
        "scale": points.scale.tolist(),
        "iterations": points.iterations.tolist(),
        "owner": process.inputs.owner.tolist(),
        **process.document(),
        "trend": model.trend.document(),
        "cliff": None if model.cliff is None else model.cliff.document(),
        "own": model.own.document(),
        "center": model.center.machines,
        "scale_center": model.center.scale,
        "ranges": model.ranges.document(),
        "fixed": None if model.fixed is None else model.fixed.document(),
        "known": model.known.document(),
        "new": model.new.document(),
        "iterated": model.iterated,
        "report": dict(model.report),
    }


def read_context(document: Mapping[str, Any]) -> ContextModel:
    """Read a model over contexts. Raises ``MALFORMED`` errors where it is damaged."""
    columns = tuple(_column(entry) for entry in document["columns"])
    contexts = tuple(
        tuple(_value(column, value) for column, value in zip(columns, entry, strict=True))
        for entry in document["contexts"]
    )
    machines, scale, iterations = (
        _above(document[key]) for key in ("machines", "scale", "iterations")
    )
    owner = np.array(document["owner"], dtype=np.intp)
    lengths = {len(each) for each in (machines, scale, iterations, owner)}
    if len(lengths) != 1 or not len(owner) or owner.min() < 0 or owner.max() >= len(contexts):
        raise ValueError("owner")
    if not columns:
        raise ValueError("columns")
    # Files of earlier models have the logs of scales as they are.
    center = Center(finite(document["center"]), finite(document.get("scale_center", 0.0)))
    points = Points(machines, scale, iterations)
    inputs = inputs_of(columns, contexts, points, owner, center)
    of_type = document["type_column"]
    return ContextModel(
        columns=columns,
        contexts=contexts,
        points=points,
        trend=read_ernest(document["trend"]),
        cliff=_cliff(document.get("cliff"), columns),
        own=_own(document.get("own"), np.bincount(owner, minlength=len(contexts))),
        process=_process(document, inputs),
        center=center,
        ranges=read_ranges(document["ranges"]),
        known=_spread(document["known"]),
        new=_spread(document["new"]),
        fixed=_fixed(document.get("fixed"), columns, inputs),
        report=dict(document["report"]),
        iterated=bool(document["iterated"]),
        group=None if document["group"] is None else str(document["group"]),
        type_column=None if of_type is None else str(of_type),
    )


def _process(document: Mapping[str, Any], inputs: Inputs) -> Process:
    values, noise, extra, sizes = (
        read_floats(document[key]) for key in ("values", "noise", "extra", "sizes")
    )
    if {len(values), len(noise), len(extra)} != {len(inputs)}:
        raise ValueError("values")
    if len(sizes) != len(START) or (sizes <= 0.0).any() or (noise <= 0.0).any():
        raise ValueError("sizes")
    if (extra < 0.0).any():
        raise ValueError("extra")
    return Process.of(inputs, values, noise, extra, sizes)


def _fixed(
    document: Mapping[str, Any] | None, columns: tuple[Column, ...], inputs: Inputs
) -> FixedTime | None:
    """Files of earlier models over contexts have no fixed time."""
    if document is None:
        return None
    return FixedTime(
        seconds=positive(document["seconds"]),
        trend=read_ernest(document["trend"]),
        cliff=_cliff(document["cliff"], columns),
        process=_process(document, inputs),
        known=_spread(document["known"]),
        new=_spread(document["new"]),
    )


def _cliff(document: Mapping[str, Any] | None, columns: tuple[Column, ...]) -> ContextCliff | None:
    if document is None:
        return None
    over, under, by = (
        None if document[key] is None else int(document[key]) for key in ("over", "under", "by")
    )
    for place in (over, under):
        if place is not None and not (0 <= place < len(columns) and columns[place].log):
            raise ValueError("cliff")
    if by is not None and not (0 <= by < len(columns) and columns[by].names):
        raise ValueError("cliff")
    ends = {
        str(name): (finite(inside), finite(beyond))
        for name, (inside, beyond) in document["ends"].items()
    }
    if not ends or any(inside >= beyond for inside, beyond in ends.values()):
        raise ValueError("cliff")
    return ContextCliff(over, under, by, ends, finite(document["jump"]))


def _own(document: Mapping[str, Any] | None, counts: Integers) -> OwnFits:
    """Files of earlier models over contexts have no fits of each alone."""
    contexts = len(counts)
    if document is None:
        return OwnFits.untested((None,) * contexts, counts)
    fits = tuple(None if fit is None else read_ernest(fit) for fit in document["fits"])
    if len(fits) != contexts:
        raise ValueError("own")
    # Files of earlier models compare no contexts with few configurations.
    if "drawn" not in document:
        none = Compared.joined((), len(REACH))
        return OwnFits(fits, counts, _compared(document, contexts), none)
    of_all = np.array(document["counts"], dtype=np.intp)
    # A large table is thinned: the model has at most what its contexts have.
    if of_all.shape != counts.shape or (of_all < counts).any():
        raise ValueError("counts")
    drawn = _compared(document["drawn"], contexts)
    return OwnFits(fits, of_all, _compared(document, contexts), drawn)


def _compared(document: Mapping[str, Any], contexts: int) -> Compared:
    owner = np.array(document["owner"], dtype=np.intp)
    places = read_floats(document["places"])
    places = places.reshape(-1, places.size // len(owner) if len(owner) else len(REACH))
    if places.shape[1] == len(REACH) - 1:
        # Files of earlier models do not tell the step across a cliff.
        places = np.column_stack([places, np.zeros(len(owner))])
    way, needed = read_floats(document["way"]), read_floats(document["needed"])
    if {len(places), len(owner), len(way)} != {len(needed)}:
        raise ValueError("own")
    if len(owner) and not 0 <= owner.min() <= owner.max() < contexts:
        raise ValueError("own")
    if places.shape[1] != len(REACH):
        raise ValueError("places")
    return Compared(places, owner, way, needed)


def _column(document: Mapping[str, Any]) -> Column:
    return Column(
        name=str(document["name"]),
        names=tuple(str(name) for name in document["names"]),
        log=bool(document["log"]),
        center=finite(document["center"]),
        size=positive(document["size"]),
        # Files of earlier models have none.
        shift=not_negative(document.get("shift", 0.0)),
    )


def _value(column: Column, value: object) -> Value:
    if column.names:
        return str(value)
    number = finite(value)
    if column.shift:
        return not_negative(number)
    return positive(number) if column.log else number


def _spread(document: Mapping[str, Any]) -> ContextSpread:
    coverage = document["coverage"]
    return ContextSpread(
        positive(document["widen"]),
        None if coverage is None else finite(coverage),
        int(document["covered"]),
    )


def _above(values: Any) -> Floats:
    numbers = read_floats(values)
    if (numbers <= 0.0).any():
        raise ValueError("a number that is not above 0")
    return numbers
