"""The best places without working all of them out: the same as when all were."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kongming.engine.ranking import shortlist
from kongming.engine.ranking.shortlist import Shortlist
from kongming.steps import Steps, finish

logs = st.floats(0.0, 2.0).map(lambda value: round(value, 3))


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, list[float]]:
    """Places: what the newcomer meets, what it adds in truth and by the estimate, the resident
    that it harms most, whose place it is, and how many residents there are."""
    rows = draw(
        st.lists(
            st.tuples(logs, logs, logs, logs, st.integers(0, 400), st.integers(0, 3)),
            min_size=1,
            max_size=200,
        )
    )
    names = ("newcomer", "added", "estimate", "worst", "node", "residents")
    fleet = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    for i, count in enumerate(fleet["residents"]):
        if not count:
            fleet["added"][i] = fleet["estimate"][i] = fleet["worst"][i] = 0.0
    return fleet


class CountingSearch:
    """Finds the best of a fleet, and records which places were worked out for that."""

    def __init__(self, fleet: dict[str, list[float]]) -> None:
        self.fleet = {name: np.array(values) for name, values in fleet.items()}
        self.worked_out: list[int] = []

    def best(self, seed: int = 1, **options: float | None) -> Shortlist:
        fleet = self.fleet
        own, others = options.pop("own", 1.0), options.pop("others", 1.0)
        given = {"limit": 5, "tolerance": 0.05, "most_harmed": math.inf, "most": 10**6} | options

        def harm(places: list[int]) -> Steps[list[tuple[float, float]]]:
            self.worked_out += places
            yield
            return [(float(fleet["added"][p]), float(fleet["worst"][p])) for p in places]

        steps = shortlist.best(
            fleet["newcomer"].astype(float),
            fleet["estimate"].astype(float),
            np.arange(len(fleet["node"]), dtype=np.intp),
            fleet["node"].astype(np.int32),
            fleet["residents"].astype(np.intp),
            weights=(own, others),
            harm=harm,
            random=np.random.default_rng(seed),
            **given,  # type: ignore[arg-type]
        )
        return finish(steps)

    def truth(self, own: float, others: float, most_harmed: float) -> dict[int, float]:
        """The exact score of each node, by its best place."""
        fleet = self.fleet
        scores: dict[int, float] = {}
        for i, node in enumerate(fleet["node"].tolist()):
            if fleet["worst"][i] <= most_harmed:
                score = own * float(fleet["newcomer"][i]) + others * float(fleet["added"][i])
                scores[node] = min(score, scores.get(node, math.inf))
        return scores


@given(
    fleets(),
    st.integers(1, 12),
    st.sampled_from((0.0, 0.05, 0.4)),
    st.sampled_from((math.inf, 0.5, 1.5)),
    st.sampled_from(((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (1.0, 5.0))),
    st.integers(0, 3),
)
def test_it_is_what_brute_force_finds(
    fleet: dict[str, list[float]],
    limit: int,
    tolerance: float,
    most_harmed: float,
    weights: tuple[float, float],
    seed: int,
) -> None:
    search = CountingSearch(fleet)
    own, others = weights
    options = {"limit": limit, "tolerance": tolerance, "most_harmed": most_harmed}
    chosen = search.best(seed, own=own, others=others, **options)
    truth = search.truth(own, others, most_harmed)

    assert chosen.proven
    assert len(set(search.worked_out)) == len(search.worked_out)
    nodes = [int(fleet["node"][entry.place]) for entry in chosen.places]
    assert len(set(nodes)) == len(nodes) == min(limit, len(truth))
    assert all(fleet["worst"][entry.place] <= most_harmed for entry in chosen.places)
    for node, entry in zip(nodes, chosen.places, strict=True):
        assert entry.score >= truth[node] - 1e-12
    if not truth:
        return
    least = min(truth.values())
    tied = [node for node, score in truth.items() if score <= least + tolerance]
    inside = [entry for entry in chosen.places if entry.tied]
    assert chosen.places[0].tied
    assert all(entry.score <= least + tolerance + 1e-9 for entry in inside)
    assert all(nodes[i] in tied for i in range(len(inside)))
    # The tied ones first, as many as there are or fit; then the others, best first.
    assert len(inside) == min(limit, len(tied))
    rest = [entry.score for entry in chosen.places[len(inside) :]]
    others_in_truth = sorted(score for node, score in truth.items() if node not in tied)
    assert rest == sorted(rest)
    assert np.allclose(rest, others_in_truth[: len(rest)])


def test_few_are_worked_out_where_the_estimate_is_good() -> None:
    random = np.random.default_rng(3)
    added = random.uniform(0.05, 0.2, 10_000)
    fleet = {
        "newcomer": random.uniform(0.0, 1.5, 10_000).tolist(),
        "added": added.tolist(),
        "estimate": (added * random.uniform(0.8, 1.2, 10_000)).tolist(),
        "worst": added.tolist(),
        "node": list(range(10_000)),
        "residents": [3] * 10_000,
    }
    search = CountingSearch(fleet)
    assert search.best(limit=10, tolerance=0.01).proven
    assert len(search.worked_out) < 1500


def test_where_all_are_alike_the_estimate_decides_in_the_end() -> None:
    fleet = {
        "newcomer": [0.0] * 9000,
        "added": [0.5] * 9000,
        "estimate": [0.4] * 9000,
        "worst": [0.5] * 9000,
        "node": list(range(9000)),
        "residents": [2] * 9000,
    }
    search = CountingSearch(fleet)
    chosen = search.best(limit=10, tolerance=0.0, most=None)
    assert not chosen.proven
    assert len(search.worked_out) <= 13 + 2 * shortlist.MOST
    assert [entry.score for entry in chosen.places] == [0.5] * 10


def test_ties_are_spread_and_a_seed_repeats_them() -> None:
    fleet = {
        "newcomer": [0.0] * 50,
        "added": [0.0] * 50,
        "estimate": [0.0] * 50,
        "worst": [0.0] * 50,
        "node": list(range(50)),
        "residents": [0] * 50,
    }
    firsts = {CountingSearch(fleet).best(seed).places[0].place for seed in range(60)}
    assert len(firsts) > 20
    assert CountingSearch(fleet).best(7) == CountingSearch(fleet).best(7)
