"""Different "nodes" on one machine: limits and unseen neighbours to measure under. Pure.

The paper measures in ten rented instances (section IV.C, Table IV). Here an environment stands
for an instance: a share of a CPU, a slower disk, another CPU, less memory, or neighbours that the
models are not told of.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kongming.errors import InputError
from kongming.fingerprint import NodeFacts
from kongming.run import LoadLevel

KINDS = ("quota", "io", "cpuset", "memory", "mix", "idle")
"""quota: a share of a CPU; io: a slower disk; cpuset: another CPU, or one CPU for all; memory: room
for the program but hardly for a page cache; mix: neighbours; idle: none of these."""

LIMITED = ("quota", "io", "cpuset", "memory")
"""Kinds that are made by control groups."""

FEWEST = 6
DEFAULT = 11
"""Two of each kind, and the idle node."""

_MIB = 1 << 20

# Most telling first; with two, a model that was trained on one is asked about the other.
_QUOTAS = (0.5, 0.8, 0.65, 0.9, 0.4, 0.7)
# What volumes of cloud providers are sold at: MiB/s, and operations per second.
_DISKS = ((64, 4000), (128, 8000), (96, 6000), (192, 12000), (48, 3000))
# How often what the program itself needs, and how many MiB on top.
_MEMORIES = ((1.25, 16), (2.0, 64), (1.5, 32), (3.0, 128))
_COMPETITOR = LoadLevel(surrogate="compute.float", family="compute")
_IDLE_SHARE = 0.5
"""An I/O limit above what the disk gives anyway is none: the highest is this share of that."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment. ``parameters`` are JSON values, by kind:

    quota: ``cpu_quota`` in CPUs; io: ``read_bytes_per_s``, ``write_bytes_per_s``, ``read_iops``,
    ``write_iops``; cpuset: ``cpu``; memory: ``of_need`` (times what the program needs) and
    ``plus_bytes``; mix: ``programs`` that loop. Where something runs beside the program,
    ``seat`` is ``same`` or ``other`` (CPU) and ``levels`` are inducers.

    ``synthetic`` ones stand in for what the machine does not permit; ``unavailable`` is the
    reason why this one cannot be made here.
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
                found=self.kind,
                allowed=", ".join(KINDS),
            )

    @property
    def programs(self) -> tuple[str, ...]:
        """Applications that loop beside what is measured."""
        return tuple(self.parameters.get("programs", ()))

    @property
    def levels(self) -> tuple[LoadLevel, ...]:
        """Inducers that run beside what is measured."""
        return tuple(LoadLevel.from_dict(level) for level in self.parameters.get("levels", ()))

    @property
    def loaded(self) -> bool:
        """Whether anything of it runs beside what is measured."""
        return bool(self.programs or self.levels)

    @property
    def shares_cpu(self) -> bool:
        """Whether that runs on the program's own CPU."""
        return self.loaded and self.parameters.get("seat") == "same"

    @property
    def in_slices(self) -> bool:
        """Whether CPU or disk come in slices, so that short readings see all or nothing.

        The kernel hands out a CPU quota, and what a throttled disk may do, every 100 ms.
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
    """``n`` environments of this node, two of each kind before a third of any.

    Kinds that cannot be made here follow at the end, each with its reason in ``unavailable``.
    Where no kind of limit can be made, unseen mixes of inducers at random intensity stand in
    for limits: they are ``synthetic``.

    Args:
        applications: names of the programs that mixes are drawn from.
        reasons: by kind of limit, why it cannot be made, or None (see ``limits.reasons``).
        inducers: surrogates that can be loads, with their families: for synthetic ones.
        reference: idle seconds per operation by surrogate; I/O limits are kept below what the
            disk gives without one.
        seed: of the mixes.
    """
    if n < FEWEST:
        raise InputError(
            "is out of range.", field="environments", found=n, allowed=f"{FEWEST} or more"
        )
    known = dict(reasons or {})
    possible = [kind for kind in LIMITED if known.get(kind) is None]
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
    chosen = [made for kind in order for made in islice(ladders[kind], 2)]
    chosen.append(Environment("idle", "idle"))
    while len(chosen) < n:
        more = [made for kind in order for made in islice(ladders[kind], 1)]
        if not more:
            raise InputError(
                "are more than can be made here.",
                field="environments",
                found=n,
                allowed=f"up to {len(chosen)}",
                hint="With two applications or more there are mixes of them as well.",
            )
        chosen += more
    missing = [
        Environment(kind, kind, unavailable=reason)
        for kind in LIMITED
        if (reason := known.get(kind)) is not None
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
        wanted = float(mib * _MIB)
        # A disk that is slow anyway has to be slowed too, and differently by each environment.
        share = _IDLE_SHARE * mib / fastest
        limits = {way: min(wanted, rate * share) for way, rate in idle.items()}
        name = f"io-{mib}M" if min(limits.values()) == wanted else f"io-{rank}"
        parameters: dict[str, Any] = {
            f"{way}_bytes_per_s": int(limit) for way, limit in limits.items()
        }
        for way, limit in limits.items():
            parameters[f"{way}_iops"] = max(10, int(iops * limit / wanted))
        yield Environment(name, "io", parameters)


def _cpusets(facts: NodeFacts) -> Iterator[Environment]:
    first, *others = sorted(facts.cpus)
    beside = {"seat": "same", "levels": [_COMPETITOR.to_dict()]}
    if others:
        yield Environment(f"cpuset-{others[0]}", "cpuset", {"cpu": others[0]})
    yield Environment(f"cpuset-{first}-shared", "cpuset", {"cpu": first, **beside})
    for cpu in others:
        yield Environment(f"cpuset-{cpu}-shared", "cpuset", {"cpu": cpu, **beside})
    for cpu in others[1:]:
        yield Environment(f"cpuset-{cpu}", "cpuset", {"cpu": cpu})


def _memories() -> Iterator[Environment]:
    for times, mib in _MEMORIES:
        parameters = {"of_need": times, "plus_bytes": mib * _MIB}
        yield Environment(f"memory-{times:g}x", "memory", parameters)


def _mixes(facts: NodeFacts, applications: Sequence[str], seed: int) -> Iterator[Environment]:
    """One or two programs, in turn on another and on the same CPU."""
    names = sorted(set(applications))
    rng = random.Random(f"mix {seed}")
    seen: set[str] = set()
    # Few programs make few mixes: what was drawn too often already ends it.
    for number in range(50 * (len(names) ** 2)):
        seat = "same" if number % 2 or len(facts.cpus) < 2 else "other"
        count = min(len(names), 2 if number % 4 in (0, 3) else 1)
        programs = sorted(rng.sample(names, count))
        name = f"mix-{seat}-{'+'.join(programs)}"
        if name not in seen:
            seen.add(name)
            yield Environment(name, "mix", {"programs": programs, "seat": seat})


def _synthetic(facts: NodeFacts, inducers: Mapping[str, str], seed: int) -> Iterator[Environment]:
    """One or two inducers of different families at random intensity."""
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
