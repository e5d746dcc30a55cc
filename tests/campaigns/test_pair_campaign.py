"""When a campaign of pairs is complete."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kongming.campaigns.pair_campaign import PairCampaign
from tests import builders

MOST = 8


def campaign(imprecise_runs: int) -> PairCampaign:
    """``a`` next to ``b`` is precise after four runs, ``b`` next to ``a`` never is."""
    runs = [
        builders.run("a", 1.0 + 0.001 * k, kind="corun", neighbours=("b",), step=k)
        for k in range(4)
    ]
    runs += [
        builders.run("b", 1.0 + 0.6 * (k % 2), kind="corun", neighbours=("a",), step=10 + k)
        for k in range(imprecise_runs)
    ]
    store: Any = SimpleNamespace(
        runs=lambda **_: runs, campaign_steps_done=lambda _: {run.step for run in runs}
    )
    names = {"a": "1", "b": "2"}
    document = {"apps": names, "repeats": MOST, "precision": 0.03, "seed": 1}
    stored: Any = SimpleNamespace(id="pairs", document=document, finished_at=None)
    settings: Any = None
    apps: Any = {"a": None, "b": None}
    return PairCampaign(settings, apps, store, stored)


def test_a_pair_that_stays_imprecise_ends_with_its_last_round() -> None:
    assert not campaign(MOST - 1).complete
    assert campaign(MOST).complete
