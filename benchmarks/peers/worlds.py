"""Made-up nodes in which each paper's assumption holds, and what the programs there really do.

A load and a neighbour are both a pressure: a vector over the node's shared resources. A program
or a probe is slowed by what its law makes of the pressure next to it. Everything measured has
noise; the truth has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.peers.peer import Profile
from kongming.arrays import Floats
from kongming.records.fingerprint import Fingerprint, NodeFacts, Reading
from kongming.records.run import LoadLevel, Run, Signature

Law = Callable[[Floats], float]
"""From a pressure to a slowdown."""

Level = tuple[LoadLevel, ...]

SOLO_RUNS = 6
IDLE_SECONDS = 1e-6
STARTED_AT = "2026-01-01T00:00:00Z"
NODE = NodeFacts(
    id="made-up",
    name="made-up",
    architecture="x86_64",
    cpu_vendor="",
    cpu_model="made-up",
    cpus=(0, 1),
    cores={"0": 0, "1": 1},
    sockets={"0": 0, "1": 0},
    l1d_bytes=32 << 10,
    l2_bytes=1 << 20,
    llc_bytes=32 << 20,
    llc_cpus=((0, 1),),
    memory_bytes=8 << 30,
    kernel="",
    hypervisor=None,
    huge_pages="",
)


@dataclass(frozen=True, slots=True)
class Program:
    """What it suffers under a pressure, what it exerts itself, and how long it runs alone."""

    suffers: Law
    exerts: Floats
    solo_s: float = 3.0


@dataclass(frozen=True, slots=True)
class World:
    """A node: loads with their pressures, probes with their laws, programs.

    ``noise`` and ``reading_noise`` are standard deviations in logs, of runs and of readings.
    """

    levels: Mapping[Level, Floats]
    probes: Mapping[str, Law]
    programs: Mapping[str, Program]
    noise: float = 0.01
    reading_noise: float = 0.01

    def slowdown(self, app: str, neighbour: str) -> float:
        """The truth."""
        return self.programs[app].suffers(self.programs[neighbour].exerts)

    def slowdown_at(self, app: str, level: Level) -> float:
        """The truth under a load level."""
        return self.programs[app].suffers(self.levels[level])

    def profiles(
        self, seed: int, levels: Mapping[str, Sequence[Level]] | None = None
    ) -> dict[str, Profile]:
        """Every program profiled: solo runs, one run a level, two signatures.

        ``levels`` restricts those of the programs that it names.
        """
        random = np.random.default_rng(seed)
        return {
            app: self._profile(app, (levels or {}).get(app, tuple(self.levels)), random)
            for app in self.programs
        }

    def _profile(self, app: str, levels: Sequence[Level], random: np.random.Generator) -> Profile:
        idle = np.zeros_like(self.programs[app].exerts)
        runs = [self._run(app, (), idle, random) for _ in range(SOLO_RUNS)]
        runs += [self._run(app, level, self.levels[level], random) for level in levels]
        signatures = tuple(
            Signature(
                app=app,
                identity=app,
                node_id=NODE.id,
                placement="cross-core",
                fingerprint=self._fingerprint(self.programs[app].exerts, random),
                iterations=3,
            )
            for _ in range(2)
        )
        return Profile(app, tuple(runs), signatures)

    def _run(self, app: str, level: Level, pressure: Floats, random: np.random.Generator) -> Run:
        program = self.programs[app]
        seconds = program.solo_s * program.suffers(pressure)
        seconds *= math.exp(self.noise * random.standard_normal())
        return Run(
            app=app,
            identity=app,
            node_id=NODE.id,
            placement="cross-core",
            kind="induced" if level else "solo",
            started_at=STARTED_AT,
            wall_s=seconds,
            metric=seconds,
            levels=level,
            fingerprint=self._fingerprint(pressure, random),
        )

    def _fingerprint(self, pressure: Floats, random: np.random.Generator) -> Fingerprint:
        readings = {}
        for name, law in self.probes.items():
            seconds = IDLE_SECONDS * law(pressure)
            seconds *= math.exp(self.reading_noise * random.standard_normal())
            readings[name] = Reading(
                name=name,
                family=_family(name),
                op="one operation",
                seconds_per_op=seconds,
                median=seconds,
                p90=seconds,
                n=20,
                ops=1000,
                elapsed_s=0.05,
            )
        return Fingerprint(
            node=NODE,
            suite="standard",
            suite_version="1-made-up",
            cpu=0,
            started_at=STARTED_AT,
            elapsed_s=2.0,
            surrogates=readings,
        )


def bubble_world(seed: int, apps: int = 10) -> World:
    """Bubble-Up's: one pressure on the memory subsystem, and nothing else, slows anybody."""
    random = np.random.default_rng(seed)
    levels = _levels(
        {
            ("stream.triad", 1.0): (1.0,),
            ("stream.triad", 0.4): (0.38,),
            ("memory.random.LLChalf", 1.0): (0.3,),
            ("memory.random.LLChalf", 0.4): (0.1,),
            ("memory.streaming.LLChalf", 1.0): (0.62,),
            ("memory.streaming.LLChalf", 0.5): (0.24,),
            ("memory.streaming.8M", 1.0): (0.5,),
            ("memory.random.8M", 0.6): (0.17,),
            ("memory.random.1G", 1.0): (0.44,),
            ("memory.streaming.1G", 0.7): (0.8,),
            ("memory.streaming.1M", 1.0): (0.04,),
            ("iobench.read.4M", 1.0): (0.0,),
            ("compute.float", 1.0): (0.0,),
        }
    )
    probes: dict[str, Law] = {
        "memory.random.LLChalf": lambda p: 1.0 + 3.0 * p[0] ** 1.5,
        "memory.random.8M": lambda p: 1.0 + 2.5 * p[0] ** 2,
        "stream.triad": lambda p: 1.0 + 1.8 * p[0],
        "compute.int": lambda p: 1.0,
    }
    programs = {}
    for number in range(apps):
        most, bend = random.uniform(0.05, 1.2), random.uniform(0.6, 2.0)
        programs[f"app{number}"] = Program(
            _power_law(most, bend), np.array([random.uniform(0.0, 0.95)])
        )
    return World(levels, probes, programs)


def low_rank_world(seed: int, apps: int = 40) -> World:
    """Paragon's: a few latent resources, of which most programs use much the same mix."""
    random = np.random.default_rng(seed)
    levels = _levels(
        {
            ("memory.random.LLChalf", 1.0): (1.0, 0.3, 0.0),
            ("memory.random.LLChalf", 0.4): (0.4, 0.1, 0.0),
            ("memory.streaming.LLChalf", 1.0): (0.9, 0.6, 0.0),
            ("memory.random.8M", 0.6): (0.5, 0.2, 0.0),
            ("stream.triad", 1.0): (0.6, 1.0, 0.1),
            ("stream.triad", 0.4): (0.2, 0.4, 0.0),
            ("memory.streaming.1G", 0.7): (0.4, 0.7, 0.1),
            ("memory.random.1G", 1.0): (0.3, 0.5, 0.0),
            ("iobench.read.4M", 1.0): (0.2, 0.3, 1.0),
            ("iobench.write.4M", 1.0): (0.1, 0.3, 0.9),
            ("iobench.read.4M", 0.4): (0.1, 0.1, 0.4),
            ("iobench.fsync", 1.0): (0.0, 0.1, 0.6),
        }
    )
    probes: dict[str, Law] = {
        "memory.random.LLChalf": _exponential(np.array([1.2, 0.3, 0.0])),
        "memory.random.8M": _exponential(np.array([0.9, 0.2, 0.0])),
        "memory.random.128M": _exponential(np.array([0.2, 0.6, 0.1])),
        "stream.triad": _exponential(np.array([0.1, 0.9, 0.0])),
        "iobench.read.4M": _exponential(np.array([0.0, 0.1, 1.1])),
        "iobench.write.4M": _exponential(np.array([0.0, 0.2, 1.3])),
        "compute.int": _exponential(np.zeros(3)),
    }
    programs = {}
    for number in range(apps):
        scale = random.uniform(0.2, 1.5)
        mix = np.array([0.35, 0.3, 0.2]) * np.exp(0.35 * random.standard_normal(3))
        exerts = random.uniform(0.0, 1.0) * random.dirichlet([1.0, 1.0, 1.0]) * 1.5
        programs[f"app{number}"] = Program(_exponential(scale * mix), exerts)
    return World(levels, probes, programs)


PIECE_STARTS = 0.6
"""Bandwidth pressure at which bandwidth becomes the dominant factor in ``piecewise_world``."""


def piecewise_world(seed: int, apps: int = 10) -> World:
    """Zhao's: the cache decides while bandwidth suffices, and bandwidth once it does not."""
    random = np.random.default_rng(seed)
    levels = _levels(
        {
            ("stream.triad", 1.0): (0.8, 1.6),
            ("stream.triad", 0.4): (0.4, 0.75),
            ("memory.random.LLChalf", 1.0): (1.4, 0.2),
            ("memory.random.LLChalf", 0.4): (0.6, 0.1),
            ("memory.streaming.LLChalf", 1.0): (1.8, 0.35),
            ("memory.streaming.LLChalf", 0.5): (0.9, 0.2),
            ("memory.streaming.8M", 1.0): (1.0, 0.3),
            ("memory.random.8M", 0.6): (0.5, 0.1),
            ("memory.random.1G", 1.0): (0.3, 0.5),
            ("memory.streaming.1G", 0.7): (0.6, 1.1),
            ("stream.copy", 0.8): (0.6, 1.35),
        }
    )
    probes: dict[str, Law] = {
        "memory.random.LLChalf": lambda p: 1.0 + p[0],
        "memory.random.8M": lambda p: 1.0 + 0.9 * p[0],
        "stream.triad": lambda p: 1.0 + p[1],
        "memory.streaming.128M": lambda p: 1.0 + 0.9 * p[1],
    }
    programs = {}
    for number in range(apps):
        law = _dominated(random.uniform(0.05, 0.5), random.uniform(0.1, 0.9))
        exerts = np.array([random.uniform(0.0, 1.7), random.uniform(0.0, 1.5)])
        programs[f"app{number}"] = Program(law, exerts)
    return World(levels, probes, programs)


def _levels(
    pressures: Mapping[tuple[str, float], tuple[float, ...]],
) -> dict[Level, Floats]:
    return {
        (LoadLevel(name, _family(name), intensity),): np.array(pressure)
        for (name, intensity), pressure in pressures.items()
    }


def _family(name: str) -> str:
    first, _, rest = name.partition(".")
    if first == "iobench":
        return "read" if rest.startswith("read") else "write"
    if first == "compute":
        return "compute"
    return "cache" if name.endswith(("1M", "8M", "LLChalf")) else "memory"


def _power_law(most: float, bend: float) -> Law:
    return lambda p: 1.0 + most * float(p[0]) ** bend


def _exponential(sensitivity: Floats) -> Law:
    return lambda p: math.exp(float(sensitivity @ p))


def _dominated(by_cache: float, by_bandwidth: float) -> Law:
    def law(p: Floats) -> float:
        beyond = float(p[1]) - PIECE_STARTS
        return 1.0 + (by_cache * float(p[0]) if beyond < 0.0 else by_cache + by_bandwidth * beyond)

    return law
