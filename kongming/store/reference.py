"""Reference of an idle node: time per operation of each surrogate without interference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kongming.records.errors import MALFORMED, ImplausibleError, InputError
from kongming.records.fingerprint import SCHEMA, check_schema
from kongming.records.moments import unix


@dataclass(frozen=True, slots=True)
class Reference:
    """Surrogate times on the idle node: ``times`` in seconds per operation by name.

    Computed from ``readings`` fingerprints on CPU ``cpu``, the last at ``taken_at`` (UTC). Both are
    of those with the last suite: times of surrogates that it does not have are of before, from as
    many readings as were taken then.
    """

    node_id: str
    suite_version: str
    cpu: int
    times: Mapping[str, float]
    readings: int
    taken_at: str

    def __post_init__(self) -> None:
        unix(self.taken_at)
        for name, seconds in self.times.items():
            if not 0.0 < seconds < math.inf:
                raise ImplausibleError(
                    "is implausible.",
                    field=f"times.{name}",
                    value=seconds,
                    allowed="a finite time above 0 s",
                )

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "node_id": self.node_id,
            "suite_version": self.suite_version,
            "cpu": self.cpu,
            "times": dict(self.times),
            "readings": self.readings,
            "taken_at": self.taken_at,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Reference:
        check_schema(document, "reference")
        try:
            return cls(
                node_id=str(document["node_id"]),
                suite_version=str(document["suite_version"]),
                cpu=int(document["cpu"]),
                times={str(k): float(v) for k, v in document["times"].items()},
                readings=int(document["readings"]),
                taken_at=str(document["taken_at"]),
            )
        except MALFORMED as error:
            raise InputError(
                f"The reference is not valid ({error!r}).", field="reference"
            ) from error
