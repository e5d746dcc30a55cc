"""A node, and what its surrogates cost at one moment: the vector e of the paper (section II)."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kongming.records.errors import MALFORMED, ImplausibleError, IncompatibleError, InputError
from kongming.records.moments import unix
from kongming.records.quantity import LARGEST, check_number

SCHEMA = 1
"""Version of the JSON form of the records here."""

FAMILIES = ("cache", "memory", "compute", "os", "read", "write", "metadata", "network")
"""Resource families of surrogates. Validation leaves out one whole family at a time."""

PLACEMENTS = ("same-core", "smt-sibling", "cross-core", "cross-socket")
"""Where a neighbour runs relative to the program. Everything learned is per placement."""


COUPLING = "coupling"
"""Name of the passive signal (of a run, or of a fingerprint) that says how many times longer a
pointer chase over 8 MiB took next to a stream on a CPU that shares the last-level cache than alone,
right before: what the machine coupled at that moment."""

LEAST_S = 1e-12
"""No operation of a surrogate takes less: a processor at 5 GHz that retires eight in a cycle
needs 25 ps, and the widest vectors a sixteenth of that."""

MOST_S = 3600.0
"""No operation of a surrogate takes longer: probes are stopped long before."""


def check_schema(document: Mapping[str, Any], what: str, newest: int = SCHEMA) -> None:
    """Refuse a document without a version or with a newer one than is understood.

    Raises:
        InputError: there is no ``schema`` number.
        IncompatibleError: the document was written by a newer KONGMING.
    """
    version = document.get("schema")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(
            f"The {what} has no valid version.", field="schema", value=version, allowed="1 or more"
        )
    if version > newest:
        raise IncompatibleError(
            f"The {what} has schema {version}; this KONGMING reads up to {newest}.",
            hint="Upgrade kongming to read it.",
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """One surrogate's cost. A reading that failed has ``error`` and no numbers.

    ``seconds_per_op`` is the mean over the timed work (what a program pays), ``median`` and
    ``p90`` are over the ``n`` timed batches, in seconds per operation as well.
    """

    name: str
    family: str
    op: str = ""
    seconds_per_op: float | None = None
    median: float | None = None
    p90: float | None = None
    n: int = 0
    ops: int = 0
    elapsed_s: float = 0.0
    size_bytes: int | None = None
    partial: bool = False
    direct: bool | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        mean = self.seconds_per_op
        if self.error is not None or mean is None:
            return
        median, p90, size = self.median, self.p90, self.size_bytes
        # Servers make thousands of these a second: what is wrong is only asked where something is.
        if not (
            LEAST_S <= mean <= MOST_S
            and median is not None
            and 0.0 < median <= LARGEST
            and p90 is not None
            and 0.0 < p90 <= LARGEST
            and 0.0 <= self.elapsed_s <= LARGEST
            and self.n >= 0
            and self.ops >= 0
            and (size is None or size >= 0)
        ):
            self._refuse()

    def _refuse(self) -> None:
        """Raises ImplausibleError for the first implausible number."""
        field = f"surrogates.{self.name}"
        for key in ("seconds_per_op", "median", "p90"):
            value = getattr(self, key)
            if value is None or not 0.0 < value <= LARGEST:
                raise ImplausibleError(
                    "is implausible.",
                    field=f"{field}.{key}",
                    value=value,
                    allowed="a finite time above 0 s",
                )
        for key in ("n", "ops", "elapsed_s", "size_bytes"):
            check_number(getattr(self, key) or 0, f"{field}.{key}", 0, "finite, 0 or more")
        raise ImplausibleError(
            "is faster than any processor, or longer than any probe runs.",
            field=f"{field}.seconds_per_op",
            value=self.seconds_per_op,
            allowed=f"{LEAST_S:g} to {MOST_S:g} s",
        )

    @property
    def ok(self) -> bool:
        return self.error is None and self.seconds_per_op is not None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: ``{"error": ...}`` alone for a failed reading."""
        if not self.ok:
            return {"error": self.error or "no timed work"}
        document: dict[str, Any] = {
            "seconds_per_op": self.seconds_per_op,
            "median": self.median,
            "p90": self.p90,
            "n": self.n,
            "ops": self.ops,
            "elapsed_s": self.elapsed_s,
            "op": self.op,
            "family": self.family,
            "size_bytes": self.size_bytes,
            "partial": self.partial,
        }
        if self.direct is not None:
            document["direct"] = self.direct
        return document

    @classmethod
    def from_dict(cls, name: str, document: Mapping[str, Any]) -> Reading:
        """Raises InputError for what is no number."""
        family = str(document.get("family", ""))
        if "error" in document:
            return cls(name=name, family=family, error=str(document["error"]))
        numbers: dict[str, float] = {}
        for key in ("seconds_per_op", "median", "p90"):
            value = document.get(key)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError("is not a number.", field=f"surrogates.{name}.{key}", value=value)
            numbers[key] = float(value)
        size = document.get("size_bytes")
        return cls(
            name=name,
            family=family,
            op=str(document.get("op", "")),
            n=int(document.get("n", 0)),
            ops=int(document.get("ops", 0)),
            elapsed_s=float(document.get("elapsed_s", 0.0)),
            size_bytes=None if size is None else int(size),
            partial=bool(document.get("partial", False)),
            direct=document.get("direct"),
            seconds_per_op=numbers["seconds_per_op"],
            median=numbers["median"],
            p90=numbers["p90"],
        )


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts of a node that do not change with its load.

    ``id`` is stable for one machine (it hashes the machine id and the hardware, never the load
    or a cgroup limit). Sizes are in bytes; 0 or None means that the kernel does not tell.
    ``siblings`` holds what was measured: ``{"0,1": {"shares_core": false, "ratio": 1.02}}``.
    """

    id: str
    name: str
    architecture: str
    cpu_vendor: str
    cpu_model: str
    cpus: tuple[int, ...]
    cores: Mapping[str, int]
    sockets: Mapping[str, int]
    l1d_bytes: int
    l2_bytes: int
    llc_bytes: int
    llc_cpus: tuple[tuple[int, ...], ...]
    memory_bytes: int
    kernel: str
    hypervisor: str | None
    huge_pages: str
    cgroup: Mapping[str, Any] = field(default_factory=dict)
    siblings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.cgroup.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError("is not finite.", field=f"node.cgroup.{name}", value=value)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "hardware": {
                "architecture": self.architecture,
                "cpu_vendor": self.cpu_vendor,
                "cpu_model": self.cpu_model,
                "l1d_bytes": self.l1d_bytes,
                "l2_bytes": self.l2_bytes,
                "llc_bytes": self.llc_bytes,
                "memory_bytes": self.memory_bytes,
            },
            "topology": {
                "cpus": list(self.cpus),
                "cores": dict(self.cores),
                "sockets": dict(self.sockets),
                "llc_cpus": [list(group) for group in self.llc_cpus],
                "siblings": {pair: dict(seen) for pair, seen in self.siblings.items()},
            },
            "kernel": self.kernel,
            "hypervisor": self.hypervisor,
            "huge_pages": self.huge_pages,
            "cgroup": dict(self.cgroup),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> NodeFacts:
        try:
            hardware, topology = document["hardware"], document["topology"]
            return cls(
                id=str(document["id"]),
                name=str(document.get("name", "")),
                architecture=str(hardware["architecture"]),
                cpu_vendor=str(hardware.get("cpu_vendor", "")),
                cpu_model=str(hardware["cpu_model"]),
                cpus=tuple(int(cpu) for cpu in topology["cpus"]),
                cores={str(k): int(v) for k, v in topology.get("cores", {}).items()},
                sockets={str(k): int(v) for k, v in topology.get("sockets", {}).items()},
                l1d_bytes=int(hardware.get("l1d_bytes", 0)),
                l2_bytes=int(hardware.get("l2_bytes", 0)),
                llc_bytes=int(hardware.get("llc_bytes", 0)),
                llc_cpus=tuple(tuple(int(c) for c in g) for g in topology.get("llc_cpus", [])),
                memory_bytes=int(hardware["memory_bytes"]),
                kernel=str(document.get("kernel", "")),
                hypervisor=document.get("hypervisor"),
                huge_pages=str(document.get("huge_pages", "")),
                cgroup=dict(document.get("cgroup", {})),
                siblings={str(k): dict(v) for k, v in topology.get("siblings", {}).items()},
            )
        except MALFORMED as error:
            raise InputError(f"The node facts are not valid ({error!r}).", field="node") from error


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """All readings of one suite on one node, at one time, at one CPU.

    ``started_at`` is UTC in ISO 8601 with a final Z; ``passive`` holds the system's own signals
    over the window (PSI, steal, load, memory, dirty pages, disk), by name.
    """

    node: NodeFacts
    suite: str
    suite_version: str
    cpu: int
    started_at: str
    elapsed_s: float
    surrogates: Mapping[str, Reading]
    passive: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        unix(self.started_at)
        check_number(self.elapsed_s, "elapsed_s", 0.0, "a finite time")
        check_number(self.cpu, "cpu", 0, "0 or more")
        signals = self.passive.values()
        if not (
            all(map(math.isfinite, signals)) and max(map(abs, signals), default=0.0) <= LARGEST
        ):
            for name, value in self.passive.items():
                check_number(value, f"passive.{name}")

    def times(self) -> dict[str, float]:
        """Seconds per operation of every surrogate that was measured, by name."""
        return {
            name: reading.seconds_per_op
            for name, reading in self.surrogates.items()
            if reading.ok and reading.seconds_per_op is not None
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "id": self.id,
            "node": self.node.to_dict(),
            "suite": self.suite,
            "suite_version": self.suite_version,
            "cpu": self.cpu,
            "started_at": self.started_at,
            "elapsed_s": self.elapsed_s,
            "passive": dict(self.passive),
            "warnings": list(self.warnings),
            "surrogates": {name: r.to_dict() for name, r in self.surrogates.items()},
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Fingerprint:
        """Raises InputError naming the field, or IncompatibleError for a newer schema."""
        if not isinstance(document, Mapping):
            raise InputError("The fingerprint is not a JSON object.")
        check_schema(document, "fingerprint")
        for key, kind in (
            ("node", Mapping),
            ("surrogates", Mapping),
            ("suite", str),
            ("suite_version", str),
            ("cpu", int),
            ("started_at", str),
        ):
            if not isinstance(document.get(key), kind):
                raise InputError(
                    "is missing or of the wrong kind.", field=key, value=document.get(key)
                )
        try:
            return cls(
                node=NodeFacts.from_dict(document["node"]),
                suite=document["suite"],
                suite_version=document["suite_version"],
                cpu=document["cpu"],
                started_at=document["started_at"],
                elapsed_s=float(document.get("elapsed_s", 0.0)),
                surrogates={
                    str(name): Reading.from_dict(str(name), reading)
                    for name, reading in document["surrogates"].items()
                },
                passive={str(k): float(v) for k, v in document.get("passive", {}).items()},
                warnings=tuple(str(w) for w in document.get("warnings", [])),
                id=str(document.get("id") or uuid.uuid4().hex),
            )
        except MALFORMED as error:
            raise InputError(
                f"The fingerprint is not valid ({error!r}).", field="fingerprint"
            ) from error
