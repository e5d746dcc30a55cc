"""Tables of runs from a simulated cluster: stages of tasks on the slots of machines.

Nothing of the models was chosen on these tables: they are what ``stacking.py --simulated`` proves
them on. A job has stages, each with tasks of uneven length in proportion to the input, which are
handed to the first free slot; machines differ in speed from run to run; cached data that exceed
the memory of all machines are read again; a shuffle costs bandwidth and a latency for each peer, a
broadcast a step for each doubling of the machines, each task some time of the one driver.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from generated import COUNTS, TYPES, Generated, GeneratedContexts

from kongming.arrays import Floats
from kongming.scale.points import Points, Runs


@dataclass(frozen=True, slots=True)
class Stage:
    """``tasks`` at all of the input, seconds of ``work`` each, ``skew`` of their logs; ``shuffled``
    seconds of all data through one machine, and as often as the stage is repeated: ``rounds``."""

    tasks: float
    work: float
    skew: float
    shuffled: float
    latency: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Job:
    """``cached``: data that should stay in memory at all of the input, in units of a machine of 16
    GB; ``again``: factor of a task whose data is not in memory; ``driver`` seconds for a task."""

    stages: tuple[Stage, ...]
    start: float
    driver: float
    broadcast: float
    cached: float
    again: float
    uneven: float

    @classmethod
    def draw(cls, random: np.random.Generator, low: float, high: float) -> Job:
        stages = tuple(
            Stage(
                tasks=float(np.exp(random.uniform(np.log(1.0), np.log(6.0)))) * high,
                work=float(np.exp(random.uniform(np.log(0.5), np.log(20.0)))),
                skew=random.uniform(0.02, 0.5),
                shuffled=random.uniform(0.0, 30.0) if random.random() < 0.6 else 0.0,
                latency=random.uniform(0.0, 0.3) if random.random() < 0.4 else 0.0,
                rounds=int(random.choice((1, 1, 3, 6))),
            )
            for _ in range(int(random.integers(1, 4)))
        )
        return cls(
            stages=stages,
            start=random.uniform(1.0, 20.0),
            driver=random.uniform(0.0, 0.02),
            broadcast=random.uniform(0.0, 1.0),
            cached=low * random.uniform(1.1, 2.4) if random.random() < 0.5 else 0.0,
            again=float(np.exp(random.uniform(np.log(2.0), np.log(25.0)))),
            uneven=float(np.exp(random.uniform(np.log(0.01), np.log(0.1)))),
        )

    def seconds(
        self,
        random: np.random.Generator,
        machines: int,
        scale: float,
        *,
        cores: int = 2,
        memory: float = 16.0,
        heavy: float = 1.0,
    ) -> float:
        """Simulate one run."""
        share = min(machines * memory / 16.0 / max(self.cached * scale, 1e-9), 1.0)
        spilled = 1.0 + (1.0 - share) * (self.again - 1.0)
        speed = np.exp(self.uneven * random.standard_normal(machines))
        total = self.start
        for stage in self.stages:
            tasks = max(int(np.ceil(stage.tasks * scale)), 1)
            work = stage.work * heavy * spilled * np.exp(stage.skew * random.standard_normal(tasks))
            stage_s = _makespan(work, np.repeat(speed, cores))
            stage_s += stage.shuffled * scale / machines + stage.latency * (machines - 1)
            stage_s += self.broadcast * np.log2(machines) + self.driver * tasks
            total += stage.rounds * stage_s
        return float(total * np.exp(self.uneven * random.standard_normal()))


def _makespan(work: Floats, speed: Floats) -> float:
    """Return when the last task ends; each goes to the slot that is free first."""
    slots = [(0.0, i) for i in range(len(speed))]
    end = 0.0
    for each in work.tolist():
        free, i = heapq.heappop(slots)
        ends = free + each * float(speed[i])
        end = max(end, ends)
        heapq.heappush(slots, (ends, i))
    return end


def table(seed: int) -> Generated:
    """Draw a table of one job; the same seed gives the same table."""
    random = np.random.default_rng([seed, 29])
    counts = np.array(COUNTS[random.integers(len(COUNTS))], dtype=float)
    scales = (0.3, 0.6, 1.0) if random.random() < 0.3 else (1.0,)
    machines, scale = (axis.ravel() for axis in np.meshgrid(counts, scales))
    most = int(random.integers(4, 13))
    if len(machines) > most:
        chosen = np.sort(random.choice(len(machines), most, replace=False))
        machines, scale = machines[chosen], scale[chosen]
    if len(np.unique(machines)) < 3:
        return table(seed + 1_000_003)
    job = Job.draw(random, float(machines.min()), float(machines.max()))
    repeats = int(random.choice((1, 3, 5)))
    points = Points(
        np.repeat(machines, repeats),
        np.repeat(scale, repeats),
        np.ones(len(machines) * repeats),
    )
    seconds = [
        job.seconds(random, int(m), float(s))
        for m, s in zip(points.machines, points.scale, strict=True)
    ]
    return Generated(Runs(points, _with_outliers(random, np.array(seconds))), "simulated")


def contexts(seed: int) -> GeneratedContexts:
    """Draw a job over 4 to 16 contexts of 5 runs of each configuration."""
    random = np.random.default_rng([seed, 31])
    counts = np.array(COUNTS[random.choice((0, 2, 6))], dtype=float)
    job = Job.draw(random, counts[0], counts[-1])
    types = [str(name) for name in random.permutation(list(TYPES))[: random.integers(1, 4)]]
    cells = [(s, k, t) for s in (10.0, 16.0, 25.0) for k in (3.0, 5.0, 9.0) for t in types]
    power, repeats = random.uniform(0.0, 1.0), 5
    rows: list[tuple[float, float, float, str]] = []
    seconds: list[float] = []
    chosen = random.choice(len(cells), min(int(random.integers(4, 17)), len(cells)), replace=False)
    for size, parameter, name in (cells[i] for i in chosen):
        cores, memory = TYPES[name]
        for m in counts:
            for _ in range(repeats):
                rows.append((m, size, parameter, name))
                heavy = (parameter / 5.0) ** power
                time = job.seconds(
                    random, int(m), size / 16.0, cores=int(cores), memory=memory, heavy=heavy
                )
                seconds.append(time)
    machines = np.array([row[0] for row in rows])
    points = Points(machines, np.ones(len(rows)), np.ones(len(rows)))
    columns = {
        name: tuple(row[i + 1] for row in rows)
        for i, name in enumerate(("size_gb", "parameter", "type"))
    }
    return GeneratedContexts(Runs(points, _with_outliers(random, np.array(seconds))), columns)


def _with_outliers(random: np.random.Generator, seconds: Floats) -> Floats:
    share = random.uniform(0.0, 0.2)
    slow = random.random(len(seconds)) < share
    return seconds * np.where(slow, random.uniform(1.1, 2.5, len(seconds)), 1.0)
