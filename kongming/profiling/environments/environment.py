"""Environments that emulate different nodes on one machine: limits and neighbours. Pure.

The paper measures in ten rented instances (section IV.C, Table IV). Here an environment
replaces an instance: a share of a CPU, a slower disk, another CPU, less memory, or neighbours
that the models do not know of.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kongming.records.errors import InputError
from kongming.records.fingerprint import NodeFacts
from kongming.records.run import LoadLevel

KINDS = ("quota", "io", "cpuset", "memory", "mix", "idle")
"""quota: a share of a CPU; io: a slower disk; cpuset: another CPU, or one shared CPU; memory: room
for the program but little page cache; mix: neighbours; idle: none of these."""

LIMITED = ("quota", "io", "cpuset", "memory")
"""Kinds that are implemented by control groups."""

FEWEST = 6
DEFAULT = 11
"""Default number: two of each kind, and the idle node."""

_MIB = 1 << 20

# Most informative first; with two, a model trained on one can be tested on the other.
_QUOTAS = (0.5, 0.8, 0.65, 0.9, 0.4, 0.7)
# Typical volumes of cloud providers: MiB/s, and operations per second.
_DISKS = ((64, 4000), (128, 8000), (96, 6000), (192, 12000), (48, 3000))
# Multiple of the program's own need, and additional MiB.
_MEMORIES = ((1.25, 16), (2.0, 64), (1.5, 32), (3.0, 128))
_COMPETITOR = LoadLevel(surrogate="compute.float", family="compute")
_IDLE_SHARE = 0.5
"""Highest I/O limit as a share of the idle disk's rate: a limit above that has no effect."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Environment to measure in. ``parameters`` are JSON values, by kind:

    quota: ``cpu_quota`` in CPUs; io: ``read_bytes_per_s``, ``write_bytes_per_s``, ``read_iops``,
    ``write_iops``; cpuset: ``cpu``; memory: ``of_need`` (times what the program needs) and
    ``plus_bytes``; mix: ``programs`` that loop. With co-located load, ``seat`` is ``same`` or
    ``other`` (CPU) and ``levels`` are inducers.

    ``synthetic`` ones replace limits that the machine does not permit; ``unavailable`` is the
    reason why this one cannot be created here.
    """

    name: str
    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    synthetic: bool = False
    unavailable: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                "is not a kind of environment.",
                field="kind",
                value=self.kind,
                allowed=", ".join(KINDS),
            )

    @property
    def programs(self) -> tuple[str, ...]:
        """Applications that loop co-located with the measured program."""
        return tuple(self.parameters.get("programs", ()))

    @property
    def levels(self) -> tuple[LoadLevel, ...]:
        """Inducers that run co-located with the measured program."""
        return tuple(LoadLevel.from_dict(level) for level in self.parameters.get("levels", ()))

    @property
    def loaded(self) -> bool:
        """Return whether any load is co-located with the measured program."""
        return bool(self.programs or self.levels)

    @property
    def shares_cpu(self) -> bool:
        """Return whether the co-located load runs on the program's own CPU."""
        return self.loaded and self.parameters.get("seat") == "same"

    @property
    def in_slices(self) -> bool:
        """Return whether CPU or disk are granted in slices, so that short readings are all or
        nothing.

        The kernel refills a CPU quota and the budget of a throttled disk every 100 ms.
        """
        return self.kind in ("quota", "io") or self.shares_cpu

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "parameters": dict(self.parameters),
            "synthetic": self.synthetic,
            "unavailable": self.unavailable,
        }


def environments(
    n: int,
    facts: NodeFacts,
    applications: Sequence[str],
    *,
    reasons: Mapping[str, str | None] | None = None,
    inducers: Mapping[str, str] | None = None,
    reference: Mapping[str, float] | None = None,
    seed: int = 0,
) -> tuple[Environment, ...]:
    """Select ``n`` environments of this node, two of each kind before a third of any.

    Kinds that cannot be created here follow at the end, with the reason in ``unavailable``.
    If no kind of limit is available, unseen mixes of inducers at random intensity replace
    limits: they are ``synthetic``.

    Args:
        applications: names of the programs to draw mixes from.
        reasons: by kind of limit, why it is unavailable, or None (see ``limits.reasons``).
        inducers: surrogates that can induce load, with their families, for synthetic ones.
        reference: idle seconds per operation by surrogate; I/O limits are kept below the
            unlimited rate of the disk.
        seed: seed of the mixes.
    """
    if n < FEWEST:
        raise InputError(
            "is out of range.", field="environments", value=n, allowed=f"{FEWEST} or more"
        )
    unavailable = dict(reasons or {})
    possible = [kind for kind in LIMITED if unavailable.get(kind) is None]
    ladders: dict[str, Iterator[Environment]] = {
        "quota": _quotas(),
        "io": _disks(reference or {}),
        "cpuset": _cpusets(facts),
        "memory": _memories(),
        "mix": _mixes(facts, applications, seed),
    }
    order = [*possible, "mix"]
    if not possible:
        ladders["synthetic"] = _synthetic(facts, inducers or {}, seed)
        order = ["synthetic", "mix"]
    chosen = [environment for kind in order for environment in islice(ladders[kind], 2)]
    chosen.append(Environment("idle", "idle"))
    while len(chosen) < n:
        more = [environment for kind in order for environment in islice(ladders[kind], 1)]
        if not more:
            raise InputError(
                "are more than are available here.",
                field="environments",
                value=n,
                allowed=f"up to {len(chosen)}",
                hint="Two or more applications allow mixes of them as well.",
            )
        chosen += more
    missing = [
        Environment(kind, kind, unavailable=reason)
        for kind in LIMITED
        if (reason := unavailable.get(kind)) is not None
    ]
    return (*chosen[:n], *missing)


def _quotas() -> Iterator[Environment]:
    for quota in _QUOTAS:
        yield Environment(f"quota-{quota:g}", "quota", {"cpu_quota": quota})


def _disks(reference: Mapping[str, float]) -> Iterator[Environment]:
    block = 4 * _MIB
    idle = {
        way: block / reference[name] if name in reference else float("inf")
        for way, name in (("read", "iobench.read.4M"), ("write", "iobench.write.4M"))
    }
    fastest = max(mib for mib, _ in _DISKS)
    for rank, (mib, iops) in enumerate(_DISKS, start=1):
        nominal = float(mib * _MIB)
        # A slow disk has to be limited too, and differently by each environment.
        share = _IDLE_SHARE * mib / fastest
        limits = {way: min(nominal, rate * share) for way, rate in idle.items()}
        name = f"io-{mib}M" if min(limits.values()) == nominal else f"io-{rank}"
        parameters: dict[str, Any] = {
            f"{way}_bytes_per_s": int(limit) for way, limit in limits.items()
        }
        for way, limit in limits.items():
            parameters[f"{way}_iops"] = max(10, int(iops * limit / nominal))
        yield Environment(name, "io", parameters)


def _cpusets(facts: NodeFacts) -> Iterator[Environment]:
    first, *others = sorted(facts.cpus)
    competitor = {"seat": "same", "levels": [_COMPETITOR.to_dict()]}
    if others:
        yield Environment(f"cpuset-{others[0]}", "cpuset", {"cpu": others[0]})
    yield Environment(f"cpuset-{first}-shared", "cpuset", {"cpu": first, **competitor})
    for cpu in others:
        yield Environment(f"cpuset-{cpu}-shared", "cpuset", {"cpu": cpu, **competitor})
    for cpu in others[1:]:
        yield Environment(f"cpuset-{cpu}", "cpuset", {"cpu": cpu})


def _memories() -> Iterator[Environment]:
    for times, mib in _MEMORIES:
        parameters = {"of_need": times, "plus_bytes": mib * _MIB}
        yield Environment(f"memory-{times:g}x", "memory", parameters)


def _mixes(facts: NodeFacts, applications: Sequence[str], seed: int) -> Iterator[Environment]:
    """Yield mixes of one or two programs, alternately on another and on the same CPU."""
    names = sorted(set(applications))
    rng = random.Random(f"mix {seed}")
    names_used: set[str] = set()
    # Few programs have few mixes: a bound on the draws ends the search.
    for number in range(50 * (len(names) ** 2)):
        seat = "same" if number % 2 or len(facts.cpus) < 2 else "other"
        count = min(len(names), 2 if number % 4 in (0, 3) else 1)
        programs = sorted(rng.sample(names, count))
        name = f"mix-{seat}-{'+'.join(programs)}"
        if name not in names_used:
            names_used.add(name)
            yield Environment(name, "mix", {"programs": programs, "seat": seat})


def _synthetic(facts: NodeFacts, inducers: Mapping[str, str], seed: int) -> Iterator[Environment]:
    """Yield loads of one or two inducers of different families at random intensity."""
    families: dict[str, list[str]] = {}
    for name, family in sorted(inducers.items()):
        families.setdefault(family, []).append(name)
    rng = random.Random(f"synthetic {seed}")
    number = 0
    while families:
        number += 1
        seat = "same" if number % 2 == 0 or len(facts.cpus) < 2 else "other"
        picked = rng.sample(sorted(families), min(len(families), 1 + number % 2))
        levels = [
            LoadLevel(rng.choice(families[family]), family, round(rng.uniform(0.15, 1.0), 2))
            for family in picked
        ]
        parameters = {"seat": seat, "levels": [level.to_dict() for level in levels]}
        yield Environment(f"synthetic-{number}", "mix", parameters, synthetic=True)
