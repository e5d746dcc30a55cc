"""Tables show what was cut off as a lower bound."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from kongming.cli.predict.prediction_view import add_runtime, add_slowdown, slowdown_text
from kongming.cli.profile.campaign_view import CampaignView, worst_text
from kongming.records.prediction import Interval
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
        shown.append(worst_text(row.worst, row.worst_at_least))
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


def test_predictions_that_may_be_larger_are_shown_without_an_upper_end() -> None:
    said = Interval(5.0, 4.0, 6.0, at_least=True, expected_lower=4.5, expected_upper=5.5)
    assert slowdown_text(said) == ">=5.00 (4.00 or more)"
    assert slowdown_text(replace(said, at_least=False)) == "5.00 (4.00 to 6.00)"
    grid = Table.grid()
    add_runtime(grid, said.scaled(2.0), "s")
    add_slowdown(grid, said, 2.0, "s")
    console = Console(file=io.StringIO(), width=100)
    console.print(grid)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert ">=10" in shown
    assert "one run 8.00 s or more" in shown
    assert "4.00 or more, over 2.00 s alone" in shown
    assert "6.00" not in shown
    metric = Table.grid()
    add_runtime(metric, said.inverse(100.0), "ops/s")
    console.print(metric)
    assert "16.67 ops/s to 25 ops/s" in console.file.getvalue()  # type: ignore[attr-defined]
