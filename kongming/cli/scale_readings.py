"""Readings of launched machines, from fingerprints or a CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path

from kongming.errors import InputError


def readings(files: Sequence[Path], families: str) -> dict[str, dict[str, float]]:
    """Seconds per operation by node and surrogate, of surrogates of these families.

    Raises:
        InputError: a file that is neither a fingerprint nor a table, or a node that is there twice.
    """
    wanted = {name.strip() for name in families.split(",") if name.strip()}
    found: dict[str, dict[str, float]] = {}
    for file in files:
        own = _table(file) if file.suffix == ".csv" else _fingerprint(file, wanted)
        for node, values in own.items():
            if node in found:
                raise InputError(f"{file}: there is a node {node} already.", field="node")
            found[node] = values
    return found


def _fingerprint(file: Path, wanted: set[str]) -> dict[str, dict[str, float]]:
    from kongming.fingerprint import Fingerprint

    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(
            f"{file} is no JSON.", hint="It is what 'kongming fingerprint --json' prints."
        ) from error
    fingerprint = Fingerprint.from_dict(document)
    values = {
        name: float(reading.seconds_per_op)
        for name, reading in fingerprint.surrogates.items()
        if reading.ok and reading.seconds_per_op is not None and reading.family in wanted
    }
    if not values:
        known = sorted({one.family for one in fingerprint.surrogates.values()})
        raise InputError(
            f"{file} has no reading of these families.",
            field="--by",
            found=", ".join(sorted(wanted)),
            allowed=", ".join(known),
        )
    # Copies of one machine image have one name; the file tells them apart.
    return {file.stem: values}


def _table(file: Path) -> dict[str, dict[str, float]]:
    try:
        rows = list(csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from error
    found: dict[str, dict[str, float]] = {}
    for number, row in enumerate(rows, 1):
        node = (row.get("node") or "").strip()
        if not node or node in found:
            raise InputError(
                "is empty or there twice.", field=f"{file}: row {number}, column 'node'", found=node
            )
        found[node] = {}
        for name, text in row.items():
            if name is None or name == "node" or not (text or "").strip():
                continue
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value) or value <= 0.0:
                raise InputError(
                    "is no time.",
                    field=f"{file}: row {number}, column {name!r}",
                    found=text,
                    allowed="seconds per operation, above 0",
                )
            found[node][name] = value
    return found
