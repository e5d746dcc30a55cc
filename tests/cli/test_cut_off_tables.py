"""Tables show what was cut off as a lower bound."""

from __future__ import annotations

from kongming.cli.profile.campaign_view import CampaignView, format_slowdown
from kongming.records.run import CUT_OFF, Run
from kongming.store import Store
from tests import builders
from tests.conftest import Kongming

TIMES = {"stream.triad": 1e-9}


def loaded(cost: float, surrogate: str, *, cut: bool = False) -> Run:
    passive = {CUT_OFF: 1.0} if cut else {}
    return builders.run("slow", cost, TIMES, levels=(builders.level(surrogate),), passive=passive)


def test_the_worst_slowdown_of_a_campaign_is_a_bound_where_its_run_was_cut_off() -> None:
    view = CampaignView(["slow"], "title", quiet=True)
    shown = []
    for run in (
        builders.run("slow", 2.0, TIMES),
        loaded(8.0, "stream.add"),
        loaded(10.0, "stream.triad", cut=True),
        loaded(28.0, "stream.copy"),
    ):
        view.see(run)
        row = view.rows["slow"]
        shown.append(format_slowdown(row.worst, row.worst_at_least))
    assert shown == [None, "4.00", ">=5.00", "14.00"]


def test_runs_that_were_cut_off_are_listed_as_bounds(kongming: Kongming, store_url: str) -> None:
    with Store.open(store_url) as store:
        for run in (
            builders.run("slow", 2.0, TIMES),
            loaded(10.0, "stream.triad", cut=True),
            loaded(28.0, "stream.copy"),
        ):
            store.add_run(run)
    done = kongming("runs")
    assert done.returncode == 0, done.stderr
    assert ">=5.00" in done.stdout
    assert done.stdout.count(">=") == 2
    assert "14.00" in done.stdout
