"""Read measurements of launched machines from fingerprints or a CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kongming.files.csv_rows import read_rows
from kongming.records.errors import InputError, nearest_names

FAMILIES = ("memory", "network")
"""Families of surrogates by which machines are compared, as in Ernest's section 4.3."""


def readings(files: Sequence[Path], families: str | None = None) -> dict[str, dict[str, float]]:
    """Read seconds per operation by node and surrogate, for surrogates of these families. None:
    ``FAMILIES`` of fingerprints, and every column of a table, whose names are free.

    A column of a table is of the family that it is named after, up to its first point.

    Raises:
        InputError: a file is neither a fingerprint nor a table, has no reading of a family, or a
            node occurs twice.
    """
    requested = None
    if families is not None:
        requested = {name.strip() for name in families.split(",") if name.strip()}
        if not requested:
            raise InputError(
                "names no family.", field="--by", value=families, allowed="as memory,network"
            )
    by_node: dict[str, dict[str, float]] = {}
    for file in files:
        nodes = (
            _table(file, requested)
            if file.suffix.lower() == ".csv"
            else _fingerprint(file, requested or set(FAMILIES))
        )
        for node, values in nodes.items():
            if node in by_node:
                raise InputError(f"{file}: node {node} occurs twice.", field="node")
            by_node[node] = values
    return by_node


def _fingerprint(file: Path, requested: set[str]) -> dict[str, dict[str, float]]:
    from kongming.files.fingerprint_file import read_fingerprint

    fingerprint = read_fingerprint(file)
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


def _table(file: Path, requested: set[str] | None) -> dict[str, dict[str, float]]:
    by_node: dict[str, dict[str, float]] = {}
    for row in read_rows(file, ("node",)):
        node = row.name("node")
        if node in by_node:
            raise InputError("is there twice.", field=row.where("node"), value=node)
        columns = [name for name in row.places if name != "node"]
        if requested is not None:
            _check_families(file, requested, columns)
            columns = [name for name in columns if name.split(".")[0] in requested]
        values = {name: row.optional(name) for name in columns}
        by_node[node] = {name: value for name, value in values.items() if value is not None}
    return by_node


def _check_families(file: Path, requested: set[str], columns: Sequence[str]) -> None:
    """Raise InputError for a family without a column."""
    families = dict.fromkeys(name.split(".")[0] for name in columns)
    for family in sorted(requested - families.keys()):
        near = nearest_names(family, families)
        raise InputError(
            f"{file} has no column of this family.",
            field="--by",
            value=family,
            allowed=", ".join(families),
            hint=f"Did you mean {near[0]}?" if near else "Leave out --by to compare by all.",
        )
