"""Generated tables of runs as clusters make them, with their true times.

``table(seed)`` draws a job on one machine type: from 3 to 15 configurations, 1 to 10 repeats; a
memory cliff at few machines (also below a superlinear speed-up), a step at many, plateaus, waves,
steps, super- or sublinear speed-up, growth, a fastest count between; noise that grows with the
time, and outliers, in some tables among most repeats. ``contexts(seed)`` draws a job over several
inputs and machine types, which share its law and have a memory cliff each where its input says.
Nothing here is fitted to any measured table. ``simulated.py`` makes tables in another way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.scale.points import Points, Runs

Law = Callable[[Floats, Floats], Floats]

SHAPES = (
    "ernest",
    "low_cliff",
    "high_cliff",
    "plateau",
    "waves",
    "growth",
    "superlinear",
    "saturating",
    "superlinear_cliff",
    "steps",
    "all_to_all",
    "fastest_between",
    "traffic",
)

COUNTS = (
    (2, 4, 6, 8, 10, 12),
    (1, 2, 4, 8, 16, 32),
    (2, 3, 4, 6, 8, 12, 16),
    (4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60),
    (2, 5, 10, 20, 30, 40, 60),
    (1, 2, 3, 4, 5, 6, 7, 8),
    (3, 6, 9, 12, 15, 18),
)


@dataclass(frozen=True, eq=False)
class Generated:
    """A table, and the name of its shape."""

    runs: Runs
    shape: str


def table(seed: int, shape: str | None = None) -> Generated:
    """Draw a table of one job; the same seed gives the same table."""
    random = np.random.default_rng([seed, 17])
    drawn = str(random.choice(SHAPES))
    shape = shape or drawn
    counts = np.array(COUNTS[random.integers(len(COUNTS))], dtype=float)
    scales = np.array([1.0])
    if random.random() < 0.35:
        scales = np.array([(0.25, 0.5, 1.0), (0.5, 1.0), (0.1, 0.3, 0.6, 1.0)][random.integers(3)])
    machines, scale = (axis.ravel() for axis in np.meshgrid(counts, scales))
    most = int(random.integers(3, 16))
    if len(machines) > most:
        # The ends of the machine counts stay more often than chance has it.
        chosen = np.sort(random.choice(len(machines), most, replace=False))
        machines, scale = machines[chosen], scale[chosen]
    if len(np.unique(machines)) < 3:
        return table(seed + 1_000_003, shape)
    low, high = float(machines.min()), float(machines.max())
    law = _law(random, shape, low, high, float(scale.max()))
    repeats = int(random.choice((1, 2, 3, 5, 5, 5, 10)))
    points = Points(np.repeat(machines, repeats), np.repeat(scale, repeats), np.ones(0))
    points = Points(points.machines, points.scale, np.ones(len(points)))
    return Generated(measure(random, law, points, repeats), shape)


def measure(random: np.random.Generator, law: Law, points: Points, repeats: int) -> Runs:
    """Draw runs: noise of a configuration's day and of each run, and outliers."""
    truth = law(points.machines, points.scale)
    noise = float(np.exp(random.uniform(np.log(0.01), np.log(0.12))))
    # Relative noise that grows slowly with the time.
    own = noise * (truth / np.median(truth)) ** random.uniform(0.0, 0.4)
    day = np.repeat(random.standard_normal(len(points) // repeats), repeats) * own * 0.5
    logs = day + own * random.standard_normal(len(points))
    if random.random() < 0.35:
        slow = random.random(len(points)) < random.uniform(0.03, 0.35)
        logs = logs + np.where(slow, random.uniform(0.1, 0.9, len(points)), 0.0)
    elif random.random() < 0.25 and repeats >= 5:
        # Two or three of five repeats are slow at some configurations.
        worst = np.repeat(random.random(len(points) // repeats) < 0.3, repeats)
        slow = worst & (random.random(len(points)) < random.uniform(0.4, 0.6))
        logs = logs + np.where(slow, random.uniform(0.2, 1.0, len(points)), 0.0)
    return Runs(points, truth * np.exp(logs))


def _law(random: np.random.Generator, shape: str, low: float, high: float, scale: float) -> Law:
    """Draw a law: Ernest's parts with random shares of the time, and what the shape adds."""
    middle = float(np.sqrt(low * high))
    parallel = random.uniform(0.35, 0.97)
    rest = random.dirichlet((1.0, 0.5, 0.5)) * (1.0 - parallel)
    size = float(np.exp(random.uniform(np.log(10.0), np.log(2000.0))))
    data = random.uniform(0.0, 1.0) if random.random() < 0.5 else 0.0
    still = float(random.uniform(0.0, 1.0))

    def ernest(m: Floats, s: Floats, power: float = 1.0) -> Floats:
        fixed = rest[0] * (1.0 - data + data * s / scale)
        tree, linear = rest[1] * np.log1p(m) / np.log1p(middle), rest[2] * m / middle
        return np.asarray(
            size * (fixed + parallel * (s / scale) * (middle / m) ** power + tree + linear)
        )

    if shape in ("low_cliff", "superlinear_cliff"):
        power = 1.0 if shape == "low_cliff" else random.uniform(1.1, 1.8)
        limit = scale / (low * random.uniform(1.05, 2.6))
        times, steep = float(np.exp(random.uniform(np.log(3.0), np.log(25.0)))), random.random()
        return lambda m, s: (
            ernest(m, s, power)
            * np.where(
                s / m > limit,
                times ** (1.0 - steep + steep * np.clip(s / m / limit, 1.0, 1.5)),
                1.0,
            )
        )
    if shape == "high_cliff":
        limit, times = high * random.uniform(0.35, 0.9), random.uniform(1.15, 2.0)
        return lambda m, s: ernest(m, s) * np.where(m > limit, times, 1.0)
    if shape == "plateau":
        end, rise = middle * random.uniform(0.6, 2.0), random.uniform(0.0, 0.5)
        return lambda m, s: ernest(np.minimum(m, end), s) * (np.maximum(m, end) / end) ** rise
    if shape == "waves":
        tasks, cores = random.uniform(1.0, 6.0) * high, float(random.integers(1, 5))
        part = size / max(np.ceil(tasks / (middle * cores)), 1.0)
        return lambda m, s: (
            0.3 * ernest(m, s) + 0.7 * part * np.ceil(tasks * s / scale / (m * cores))
        )
    if shape == "growth":
        share, power, more = random.uniform(0.05, 0.6), random.uniform(1.2, 2.0), random.random()
        return lambda m, s: (
            ernest(m, s) * (s / scale) ** (0.4 * more) + size * share * (m / high) ** power
        )
    if shape == "steps":
        # Nothing but waves of equal tasks, the last of which drags.
        tasks, cores = random.uniform(1.5, 8.0) * high, float(random.integers(1, 9))
        drag = random.uniform(0.0, 0.5)
        part = size / (np.ceil(tasks / (middle * cores)) + drag)
        return lambda m, s: part * (np.ceil(tasks * s / scale / (m * cores)) + drag)
    if shape == "all_to_all":
        share, squared = random.uniform(0.05, 0.5), random.random() < 0.5
        messages = (lambda m: m**2) if squared else (lambda m: m * np.log1p(m))
        return lambda m, s: ernest(m, s) + size * share * messages(m) / messages(high)
    if shape == "fastest_between":
        turn, power = middle * random.uniform(0.5, 1.8), random.uniform(0.8, 2.0)
        return lambda m, s: size * ((s / scale) * turn / m + (m / turn) ** power / power + still)
    if shape == "traffic":
        # Every machine sends what grows with the input, as in a ring or a broadcast.
        share, power = random.uniform(0.05, 0.8), random.uniform(0.5, 1.2)
        return lambda m, s: ernest(m, s) + size * share * (s / scale) * (m / high) ** power
    if shape == "superlinear":
        power = random.uniform(1.1, 2.0)
        return lambda m, s: ernest(m, s, power)
    if shape == "saturating":
        power = random.uniform(0.3, 0.9)
        return lambda m, s: ernest(m, s, power)
    return ernest


@dataclass(frozen=True, eq=False)
class GeneratedContexts:
    """Rows of a job over contexts: ``columns`` by name, numbers or names, one value a row."""

    runs: Runs
    columns: dict[str, tuple[float | str, ...]]


TYPES = {
    "c.large": (2.0, 4.0),
    "c.xlarge": (4.0, 8.0),
    "m.xlarge": (4.0, 16.0),
    "r.2xl": (8.0, 64.0),
}


def contexts(
    seed: int, *, count: int | None = None, repeats: int | None = None
) -> GeneratedContexts:
    """Draw a job over ``count`` contexts: input size, a parameter, a machine type with its cores
    and memory (some tables give the type alone). Times are additive in logs but for a memory
    cliff, serial work, an interaction."""
    random = np.random.default_rng([seed, 71])
    count = count or int(random.integers(4, 21))
    repeats = repeats or int(random.choice((1, 3, 5)))
    counts = np.array(COUNTS[random.integers(len(COUNTS))], dtype=float)
    sizes = np.round(np.exp(np.linspace(np.log(10.0), np.log(40.0), 4)), 1).tolist()
    parameters = (3.0, 5.0, 9.0)
    types = [str(name) for name in random.permutation(list(TYPES))[: random.integers(1, 4)]]
    cells = [(d, k, t) for d in sizes for k in parameters for t in types]
    chosen = [cells[i] for i in random.choice(len(cells), min(count, len(cells)), replace=False)]
    base = _law(random, str(random.choice(SHAPES[:1] + SHAPES[3:])), counts[0], counts[-1], 1.0)
    growth, effect = random.uniform(0.6, 1.3), random.uniform(-0.2, 1.1)
    per_core, needs = random.uniform(0.5, 1.0), random.uniform(0.3, 2.5)
    speed = {name: float(np.exp(0.15 * random.standard_normal())) for name in TYPES}
    together, spill = 0.1 * random.standard_normal(), random.uniform(1.0, 6.0)
    fixed, steep, with_resources = random.uniform(0.0, 0.2), 0.0, True
    log_memory = np.zeros(len(parameters))
    if random.random() < 0.6:
        # The larger inputs exceed the memory of the fewest machines, the smaller ones do not.
        spill = float(np.exp(random.uniform(np.log(2.0), np.log(20.0))))
        memory = float(np.median([TYPES[name][1] for name in types]))
        needs = memory * counts[0] * random.uniform(1.02, 1.9) / sizes[random.integers(1, 4)]
        steep, with_resources = random.random(), random.random() < 0.6
        log_memory = np.log(parameters) - np.log(5.0) if random.random() < 0.3 else log_memory
    rows: list[tuple[float, float, float, str, float, float]] = []
    truth: list[float] = []
    for size, parameter, name in chosen:
        cores, memory = TYPES[name]
        used = counts if random.random() < 0.7 else np.sort(random.choice(counts, 3, replace=False))
        work = (size / 20.0) ** growth * (parameter / 5.0) ** effect * (4.0 / cores) ** per_core
        work *= np.exp(together * np.log(size / 20.0) * np.log(parameter / 5.0))
        seconds = base(used, np.ones(1)) * work * speed[name]
        full = size * needs * np.exp(log_memory[parameters.index(parameter)]) / used / memory
        exponent = 1.0 - steep + steep * np.clip(full, 1.0, 1.5)
        seconds = seconds * np.where(full > 1.0, spill**exponent, 1.0)
        seconds = seconds + fixed * float(np.median(base(counts, np.ones(1))))
        for machines, time in zip(used, seconds, strict=True):
            rows += [(machines, size, parameter, name, cores, memory)] * repeats
            truth += [time] * repeats
    values = np.array(truth)
    points = Points(np.array([row[0] for row in rows]), np.ones(len(rows)), np.ones(len(rows)))
    runs = measure(random, lambda m, s: values, points, repeats)
    names = ("size_gb", "parameter", "type", *(("cores", "memory_gb") if with_resources else ()))
    columns = {name: tuple(row[i + 1] for row in rows) for i, name in enumerate(names)}
    return GeneratedContexts(runs, columns)
