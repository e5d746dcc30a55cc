"""A genetic search for which surrogates to use and how many observations of each inducer.

The search of the paper (section IV-A; Figures 4 and 5), with DEAP. An individual is a list: for
each column 0 or 1, then for each inducer how many of its observations are trained on. Every draw
comes from one generator, so that the same seed finds the same selection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from deap import base, tools
from numpy.random import Generator
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.learning.estimators.fitness import Flags, Scorer

__all__ = ["Layout", "Selection", "Settings", "search"]

ELITE = 2
"""How many of the best individuals pass unchanged to the next generation."""

TOURNAMENT = 3
CROSSING = 0.8
"""Share of the children that combine two parents; the others start as a copy of one."""

FEW = 8
"""Maximum number of columns of a random individual of the first generation."""

LEAST_GAIN = 1e-3
"""Share of the best cost that a generation must gain to count as a gain."""


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The columns and observations to select from. ``columns`` is the number of columns.
    ``inducer`` (n,) is the number of each observation's inducer, ``least`` and ``most`` (k,) how
    many observations of each may be trained on. The first ones are used: observations are in order
    of time, so their number identifies them.
    """

    columns: int
    inducer: NDArray[np.intp]
    least: NDArray[np.intp]
    most: NDArray[np.intp]

    @classmethod
    def of(cls, columns: int, keys: Sequence[str], names: Sequence[str], needed: str) -> Layout:
        """Return the choices among observations whose inducers are ``keys`` (n,), each one of
        ``names``. At least one observation of ``needed`` is kept, if there is one."""
        number = {name: k for k, name in enumerate(names)}
        inducer = np.array([number[key] for key in keys], dtype=np.intp)
        return cls(
            columns=columns,
            inducer=inducer,
            least=np.array([int(name == needed) for name in names], dtype=np.intp),
            most=np.bincount(inducer, minlength=len(names)).astype(np.intp),
        )

    def selections(self, individuals: Sequence[Sequence[int]]) -> tuple[Flags, Flags]:
        """Return the observations (k, n) and the columns (k, p) of individuals."""
        genes = np.array(individuals, dtype=np.intp)
        order = np.empty(len(self.inducer), dtype=np.intp)
        for k in range(len(self.most)):
            order[self.inducer == k] = np.arange(self.most[k])
        counts = genes[:, self.columns :]
        return counts[:, self.inducer] > order, genes[:, : self.columns] > 0


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of the search: at most ``evaluations`` selections are scored, and the search ends
    after ``patience`` generations without a gain. A column must lower the error by ``price``, a
    share of the error of predicting the mean."""

    evaluations: int
    population: int
    patience: int
    price: float


@dataclass(frozen=True, eq=False, slots=True)
class Selection:
    """The best selection: flags of observations (n,) and columns (p,), the number of observations
    of each inducer (k,), its cost, and how many different selections were scored."""

    observations: Flags
    columns: Flags
    counts: NDArray[np.intp]
    cost: float
    evaluations: int


class _Fitness(base.Fitness):  # type: ignore[misc]  # DEAP is untyped
    weights: ClassVar[tuple[float, ...]] = (-1.0,)


class _Individual(list[int]):
    def __init__(self, genes: Sequence[int]) -> None:
        super().__init__(genes)
        self.fitness = _Fitness()
        self.cost = np.inf

    def score(self, cost: float) -> None:
        self.cost = cost
        self.fitness.values = (cost,)


def search(
    scorer: Scorer,
    layout: Layout,
    ranking: Sequence[int],
    settings: Settings,
    random: Generator,
) -> Selection:
    """Return the selection of least cost: its error over that of the mean, plus the price of its
    columns.

    ``ranking`` holds the columns, most informative first: some individuals of the first generation
    use the first few of it. If nothing can be scored, everything is selected; if the mean has no
    error, no column is.
    """
    everything = [1] * layout.columns + layout.most.tolist()
    mean = [0] * layout.columns + layout.most.tolist()
    costs: dict[tuple[int, ...], float] = {}
    reference = float(scorer.errors(*layout.selections([mean]))[0])
    costs[tuple(mean)] = 1.0
    if not np.isfinite(reference) or reference <= 0.0:
        individual = mean if reference <= 0.0 else everything
        return _selection(individual, layout, 1.0, len(costs))

    def evaluate(population: Sequence[_Individual]) -> None:
        unseen = list(
            dict.fromkeys(
                tuple(individual) for individual in population if tuple(individual) not in costs
            )
        )
        unseen = unseen[: settings.evaluations - len(costs)]
        if unseen:
            observations, columns = layout.selections(unseen)
            errors = scorer.errors(observations, columns) / reference
            priced: Floats = errors + settings.price * columns.sum(axis=1)
            costs.update(zip(unseen, priced.tolist(), strict=True))
        for individual in population:
            # Beyond the last evaluation there may be children that were never scored.
            individual.score(costs.get(tuple(individual), np.inf))

    toolbox = _toolbox(layout, evaluate, random)
    population = toolbox.population(mean, everything, ranking, settings.population)
    toolbox.evaluate(population)
    best: _Individual = toolbox.best(population, 1)[0]
    waited = 0
    while len(costs) < settings.evaluations and waited < settings.patience:
        population = _generation(toolbox, population, random)
        toolbox.evaluate(population)
        leader: _Individual = toolbox.best(population, 1)[0]
        waited = 0 if leader.cost < (1.0 - LEAST_GAIN) * best.cost else waited + 1
        best = leader
    return _selection(best, layout, best.cost, len(costs))


def _selection(
    individual: Sequence[int], layout: Layout, cost: float, evaluations: int
) -> Selection:
    observations, columns = layout.selections([individual])
    counts = np.array(individual[layout.columns :], dtype=np.intp)
    return Selection(observations[0], columns[0], counts, cost, evaluations)


def _toolbox(
    layout: Layout, evaluate: Callable[[Sequence[_Individual]], None], random: Generator
) -> Any:
    """Return DEAP's toolbox with operators that draw from ``random`` instead of the global
    generator.
    """
    toolbox = base.Toolbox()
    toolbox.register("clone", _Individual)
    toolbox.register("population", _first_generation, layout, random)
    toolbox.register("evaluate", evaluate)
    toolbox.register("select", _tournament, random)
    toolbox.register("mate", _cross, random)
    toolbox.register("mutate", _mutate, layout, random)
    toolbox.register("best", tools.selBest)
    return toolbox


def _generation(
    toolbox: Any, population: Sequence[_Individual], random: Generator
) -> list[_Individual]:
    children: list[_Individual] = [
        toolbox.clone(individual) for individual in toolbox.best(population, ELITE)
    ]
    while len(children) < len(population):
        child, other = (toolbox.clone(toolbox.select(population)) for _ in range(2))
        if random.random() < CROSSING:
            toolbox.mate(child, other)
        children.append(toolbox.mutate(child))
    return children


def _first_generation(
    layout: Layout,
    random: Generator,
    mean: Sequence[int],
    everything: Sequence[int],
    ranking: Sequence[int],
    size: int,
) -> list[_Individual]:
    """Return the first generation: the mean, everything, the first few of the ranking, and random
    ones.
    """
    first = [_Individual(mean), _Individual(everything)]
    p = layout.columns
    few = 1
    while len(first) < size:
        individual = _Individual(mean)
        if len(first) % 2 == 0 and few <= p:
            for j in ranking[:few]:
                individual[j] = 1
            few += 1 + few // 3
        else:
            for j in random.permutation(p)[: 1 + random.integers(min(p, FEW))].tolist():
                individual[j] = 1
            for k in np.flatnonzero(random.random(len(layout.most)) < 0.3).tolist():
                individual[p + k] = _drawn(layout, random, k)
        first.append(individual)
    return first


def _drawn(layout: Layout, random: Generator, inducer: int) -> int:
    return int(random.integers(layout.least[inducer], layout.most[inducer] + 1))


def _tournament(random: Generator, population: Sequence[_Individual]) -> _Individual:
    drawn: list[int] = random.integers(len(population), size=TOURNAMENT).tolist()
    return min((population[i] for i in drawn), key=lambda individual: individual.cost)


def _cross(random: Generator, individual: _Individual, other: _Individual) -> None:
    """Replace each gene of ``individual`` by the other's with probability one half."""
    for i in np.flatnonzero(random.random(len(individual)) < 0.5).tolist():
        individual[i] = other[i]


def _mutate(layout: Layout, random: Generator, individual: _Individual) -> _Individual:
    """Exchange a column for another, remove one, or switch a few (one on average); and draw the
    number of observations again for some inducers (one on average): all of them, or any number."""
    p = layout.columns
    used = [j for j in range(p) if individual[j]]
    unused = [j for j in range(p) if not individual[j]]
    way = random.integers(3)
    if way == 0 and used and unused:
        individual[used[random.integers(len(used))]] = 0
        individual[unused[random.integers(len(unused))]] = 1
    elif way == 1 and used:
        individual[used[random.integers(len(used))]] = 0
    else:
        for j in np.flatnonzero(random.random(p) < 1.0 / p).tolist():
            individual[j] = 1 - individual[j]
    inducers = len(layout.most)
    for k in np.flatnonzero(random.random(inducers) < 1.0 / inducers).tolist():
        all_of_it = random.random() < 0.5
        individual[p + k] = int(layout.most[k]) if all_of_it else _drawn(layout, random, k)
    return individual
