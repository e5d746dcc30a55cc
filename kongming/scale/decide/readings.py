"""Read measurements of launched machines from fingerprints or a CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kongming.csv_rows import read_rows
from kongming.missing_file import unreadable
from kongming.records.errors import InputError


def readings(files: Sequence[Path], families: str) -> dict[str, dict[str, float]]:
    """Read seconds per operation by node and surrogate, for surrogates of these families.

    Raises:
        InputError: a file is neither a fingerprint nor a table, or a node occurs twice.
    """
    requested = {name.strip() for name in families.split(",") if name.strip()}
    by_node: dict[str, dict[str, float]] = {}
    for file in files:
        nodes = _table(file) if file.suffix == ".csv" else _fingerprint(file, requested)
        for node, values in nodes.items():
            if node in by_node:
                raise InputError(f"{file}: node {node} occurs twice.", field="node")
            by_node[node] = values
    return by_node


def _fingerprint(file: Path, requested: set[str]) -> dict[str, dict[str, float]]:
    from kongming.records.fingerprint import Fingerprint

    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(file, error) from error
    except ValueError as error:
        raise InputError(
            f"{file} is not JSON.", hint="Use the output of 'kongming fingerprint --json'."
        ) from error
    try:
        fingerprint = Fingerprint.from_dict(document)
    except InputError as error:
        raise InputError(
            f"{file} is not a fingerprint ({error.message.rstrip('.')}).",
            hint="Use the output of 'kongming fingerprint --json'.",
        ) from error
    values = {
        name: float(reading.seconds_per_op)
        for name, reading in fingerprint.surrogates.items()
        if reading.ok and reading.seconds_per_op is not None and reading.family in requested
    }
    if not values:
        known = sorted({reading.family for reading in fingerprint.surrogates.values()})
        raise InputError(
            f"{file} has no reading of these families.",
            field="--by",
            value=", ".join(sorted(requested)),
            allowed=", ".join(known),
        )
    # Copies of one machine image share a host name, so the file name identifies the node.
    return {file.stem: values}


def _table(file: Path) -> dict[str, dict[str, float]]:
    by_node: dict[str, dict[str, float]] = {}
    for row in read_rows(file, ("node",)):
        node = row.name("node")
        if node in by_node:
            raise InputError("is there twice.", field=row.where("node"), value=node)
        values = {name: row.optional(name) for name in row.places if name and name != "node"}
        by_node[node] = {name: value for name, value in values.items() if value is not None}
    return by_node
