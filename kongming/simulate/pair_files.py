"""Tables of measured pairs from files: a CSV, or what ``kongming evaluate --pairs --json`` said."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.errors import InputError
from kongming.run import geometric_mean
from kongming.simulate.pairs import MeasuredPair, PairTable
from kongming.simulate.rows import Row, read_rows

COLUMNS = ("app", "beside", "slowdown", "solo_s", "predicted", "predicted_upper")

Predicted = dict[tuple[str, str], tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class PairFile:
    """A table and what it says about predictions, by application and neighbour."""

    table: PairTable
    predicted: Predicted
    source: str
    placement: str | None = None


def read_pairs(path: Path, model: str = "auto") -> PairFile:
    """A ``.json`` document of an evaluation (``model`` of its predictions), or a CSV.

    The CSV has a header: app, beside, slowdown, and where known solo_s (seconds alone),
    predicted and predicted_upper (slowdowns). Several rows of a pair are its repeats.

    Raises:
        InputError: it cannot be read, or a cell cannot be true (with row and column).
    """
    if path.suffix.lower() == ".json":
        return _of_document(path, model)
    return _of_csv(path)


def _of_csv(path: Path) -> PairFile:
    pairs: list[MeasuredPair] = []
    solos: dict[str, list[float]] = {}
    said: dict[tuple[str, str], tuple[tuple[float, float | None], Row]] = {}
    for row in read_rows(path, COLUMNS[:3], COLUMNS):
        app, beside = row.name("app"), row.name("beside")
        pairs.append(MeasuredPair(app, beside, (row.number_in("slowdown", above=True),)))
        solo = row.optional("solo_s")
        if solo is not None:
            solos.setdefault(app, []).append(solo)
        median, upper = row.optional("predicted"), row.optional("predicted_upper")
        if median is None:
            if upper is not None:
                raise InputError("stands without 'predicted'.", field=row.where("predicted_upper"))
            continue
        if upper is not None and upper < median:
            raise InputError(
                "is below what is predicted.",
                field=row.where("predicted_upper"),
                found=upper,
                allowed=f"{median:g} or more",
            )
        before = said.setdefault((app, beside), ((median, upper), row))
        if before[0] != (median, upper):
            raise InputError(
                f"differs from row {before[1].number}, which is of the same pair.",
                field=row.where("predicted"),
                found=median,
            )
    if not pairs:
        raise InputError(f"{path} has a header and no row.")
    solo_s = {app: geometric_mean(values) for app, values in solos.items()}
    table = PairTable.of(pairs, solo_s)
    return PairFile(table, {pair: one for pair, (one, _) in said.items()}, str(path))


def _of_document(path: Path, model: str) -> PairFile:
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}).") from error
    if not isinstance(document, dict) or document.get("kind") != "pairs":
        raise InputError(
            f"{path} is no evaluation of pairs.",
            hint="Make one: kongming evaluate APPS.toml --pairs --json > FILE.json",
        )
    pairs: list[MeasuredPair] = []
    predicted: Predicted = {}
    solos: dict[str, list[float]] = {}
    for number, entry in enumerate(document.get("pairs", []), start=1):
        try:
            pair, solo, one = _entry(entry, model)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise InputError(f"{path}: pair {number} is not valid ({error!r}).") from error
        pairs.append(pair)
        solos.setdefault(pair.app, []).append(solo)
        if one is not None:
            predicted[pair.app, pair.beside] = one
    # Bracketed costs are slowdowns already: seconds are not in such a document.
    known = {} if document.get("scored") == "bracketed" else solos
    table = PairTable.of(pairs, {app: geometric_mean(values) for app, values in known.items()})
    return PairFile(table, predicted, str(path), document.get("placement"))


def _entry(
    entry: Mapping[str, Any], model: str
) -> tuple[MeasuredPair, float, tuple[float, float | None] | None]:
    solo = float(entry["measured"]) / float(entry["slowdown"])
    repeats = tuple(float(value) / solo for value in entry["repeats"])
    pair = MeasuredPair(str(entry["app"]), str(entry["beside"]), repeats)
    said = entry["predictions"].get(model)
    if said is None:
        return pair, solo, None
    upper = said.get("upper")
    if upper is not None and not math.isfinite(upper):
        upper = None
    return pair, solo, (said["value"] / solo, None if upper is None else upper / solo)
