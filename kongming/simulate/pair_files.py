"""Read tables of measured pairs from a CSV or from the output of ``kongming evaluate --pairs
--json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.files.csv_rows import Row, read_rows
from kongming.files.missing_file import unreadable
from kongming.records.errors import MALFORMED, InputError
from kongming.records.run import geometric_mean
from kongming.simulate.pairs import MeasuredPair, PairTable

COLUMNS = ("app", "neighbour", "slowdown", "solo_s", "predicted", "predicted_upper")

Predicted = dict[tuple[str, str], tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class PairFile:
    """A table of pairs and the predictions in the same file, by application and neighbour. Those
    of ``at_least`` are lower bounds."""

    table: PairTable
    predicted: Predicted
    source: str
    placement: str | None = None
    at_least: frozenset[tuple[str, str]] = frozenset()


def read_pairs(path: Path, model: str = "auto") -> PairFile:
    """Read a ``.json`` evaluation document (predictions of ``model``), or a CSV.

    The CSV has a header: app, neighbour, slowdown, and optionally solo_s (seconds alone),
    predicted and predicted_upper (slowdowns). Several rows of one pair are its repeats.

    Raises:
        InputError: the file cannot be read, or a cell is not plausible (with row and column).
    """
    if path.suffix.lower() == ".json":
        return _of_document(path, model)
    return _of_csv(path)


def _of_csv(path: Path) -> PairFile:
    pairs: list[MeasuredPair] = []
    solos: dict[str, list[float]] = {}
    predicted: dict[tuple[str, str], tuple[tuple[float, float | None], Row]] = {}
    for row in read_rows(path, COLUMNS[:3], COLUMNS):
        app, neighbour = row.name("app"), row.name("neighbour")
        pairs.append(MeasuredPair(app, neighbour, (row.number_in("slowdown", above=True),)))
        solo = row.optional("solo_s")
        if solo is not None:
            solos.setdefault(app, []).append(solo)
        median, upper = row.optional("predicted"), row.optional("predicted_upper")
        if median is None:
            if upper is not None:
                raise InputError(
                    "is set, but 'predicted' is empty.", field=row.where("predicted_upper")
                )
            continue
        if upper is not None and upper < median:
            raise InputError(
                "is below the predicted median.",
                field=row.where("predicted_upper"),
                value=upper,
                allowed=f"{median:g} or more",
            )
        (first_values, first_row) = predicted.setdefault((app, neighbour), ((median, upper), row))
        if first_values != (median, upper):
            raise InputError(
                f"differs from row {first_row.number}, which has the same pair.",
                field=row.where("predicted"),
                value=median,
            )
    if not pairs:
        raise InputError(f"{path} has a header but no rows.")
    solo_s = {app: geometric_mean(values) for app, values in solos.items()}
    table = PairTable.of(pairs, solo_s)
    return PairFile(table, {pair: values for pair, (values, _) in predicted.items()}, str(path))


def _of_document(path: Path, model: str) -> PairFile:
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}).") from error
    if not isinstance(document, dict) or document.get("kind") != "pairs":
        raise InputError(
            f"{path} is not an evaluation of pairs.",
            hint="Create one: kongming evaluate APPS.toml --pairs --json > FILE.json",
        )
    # Bracketed costs are slowdowns already: such a document has no solo seconds.
    has_seconds = document.get("scored") != "bracketed"
    if has_seconds:
        _check_times(document.get("metrics", {}))
    entries = document.get("pairs", [])
    if not isinstance(entries, list):
        raise InputError("is not a list.", field="pairs", value=entries)
    pairs: list[MeasuredPair] = []
    predicted: Predicted = {}
    at_least: set[tuple[str, str]] = set()
    solos: dict[str, list[float]] = {}
    for number, entry in enumerate(entries, start=1):
        try:
            pair, solo, prediction = _entry(entry, model)
        except MALFORMED as error:
            raise InputError(f"{path}: pair {number} is not valid ({error!r}).") from error
        pairs.append(pair)
        solos.setdefault(pair.app, []).append(solo)
        if prediction is not None:
            predicted[pair.app, pair.neighbour] = prediction
            if entry["predictions"][model].get("at_least"):
                at_least.add((pair.app, pair.neighbour))
    solo_s = {app: geometric_mean(values) for app, values in solos.items()} if has_seconds else {}
    table = PairTable.of(pairs, solo_s)
    return PairFile(table, predicted, str(path), document.get("placement"), frozenset(at_least))


def _check_times(metrics: object) -> None:
    """Raise InputError where an application's costs are no seconds. Documents of earlier versions
    do not say what theirs are."""
    if not isinstance(metrics, dict) or not all(isinstance(m, dict) for m in metrics.values()):
        raise InputError("are no metrics by application.", field="metrics", value=metrics)
    for app, metric in sorted(metrics.items()):
        unit, better = metric.get("unit"), metric.get("better")
        if (unit, better) != ("s", "lower"):
            raise InputError(
                "is no time.",
                field=f"metric of {app}",
                value=f"{unit}, {better} is better",
                allowed="s, lower is better: jobs are simulated in seconds",
                hint="Evaluate slowdowns (kongming evaluate APPS.toml --pairs --scored bracketed "
                "--json), and give a --trace with the column 'work'; or take the pairs from the "
                "store, which has the seconds of each run.",
            )


def _entry(
    entry: Mapping[str, Any], model: str
) -> tuple[MeasuredPair, float, tuple[float, float | None] | None]:
    solo = float(entry["measured"]) / float(entry["slowdown"])
    repeats = tuple(float(value) / solo for value in entry["repeats"])
    pair = MeasuredPair(str(entry["app"]), str(entry["neighbour"]), repeats)
    prediction = entry["predictions"].get(model)
    if prediction is None:
        return pair, solo, None
    median, upper = prediction["value"] / solo, prediction.get("upper")
    if not 0.0 < median < math.inf:
        raise ValueError(f"the prediction {median:g}")
    if upper is None or not math.isfinite(upper):
        return pair, solo, (median, None)
    if upper / solo < median:
        raise ValueError(f"the upper end {upper / solo:g} is below the prediction {median:g}")
    return pair, solo, (median, upper / solo)
