"""Tables show what was cut off as a lower bound."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table

from kongming.cli.predict.explain_pod import show
from kongming.cli.predict.prediction_view import (
    add_runtime,
    add_slowdown,
    runtime_text,
    slowdown_text,
    worst_resident_text,
)
from kongming.cli.profile.campaign_view import CampaignView, worst_text
from kongming.records.answers import RankedNode
from kongming.records.fingerprint import Reading
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


def test_a_signature_lacks_what_no_repeat_of_it_has() -> None:
    view = CampaignView(["a"], "title", quiet=True)
    both = {"stream.triad": 1e-9, "net.loopback": 1e-6}
    for lacking in (("net.loopback",), ("net.loopback", "stream.triad"), ("net.loopback",)):
        full = builders.fingerprint(both)
        readings = {
            name: Reading(name, reading.family, error="not seen") if name in lacking else reading
            for name, reading in full.surrogates.items()
        }
        view.see(builders.signature("a", both, fingerprint=replace(full, surrogates=readings)))
    row = view.rows["a"]
    assert (row.signatures, row.lacking) == (3, {"net.loopback"})


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


def test_the_runtime_of_a_job_is_a_bound_where_its_slowdown_is() -> None:
    known = Interval(120.0, 100.0, 140.0, 0.9, True)
    assert runtime_text(known) == "120 s (100 s to 140 s)"
    assert runtime_text(replace(known, at_least=True)) == ">=120 s (100 s or more)"


def test_the_worst_resident_is_a_bound_where_one_of_them_is() -> None:
    slowdown = Interval(1.0, 1.0, 1.0)
    known = RankedNode("a", "a", 0, 0.0, slowdown, 3.0, residents=1)
    open_ = replace(known, worst_resident_slowdown=2.0, worst_resident_at_least=True)
    assert worst_resident_text([replace(known, residents=0)]) is None
    assert worst_resident_text([known]) == "3.00"
    assert worst_resident_text([open_]) == ">=2.00"
    assert worst_resident_text([known, open_]) == ">=3.00"


def test_the_answer_for_a_pod_shows_lower_bounds_as_such(
    capsys: pytest.CaptureFixture[str],
) -> None:
    resident = {"pod": "default/web", "app": "web", "slowdown": 1.1, "limit": 1.3}
    row = {"node": "n0", "slowdown": 1.2, "extrapolating": False, "refused": "unknown"}
    row |= {"score": None, "at_least": True, "resident": resident | {"at_least": True}}
    # An extender of an earlier version says less.
    former = row | {"node": "n1", "resident": resident}
    del former["at_least"]
    document = {"nodes": [row, former], "failure": "", "judged": True, "app": "a", "limit": 1.5}
    show(document | {"pod": "default/p", "answered_at": "2026-01-01T00:00:00Z"}, 10)
    shown = capsys.readouterr().out
    assert [shown.count(text) for text in (">=1.20", "1.20", ">=1.10", "1.10")] == [1, 2, 1, 2]


def test_predictions_that_may_be_larger_are_shown_without_an_upper_end() -> None:
    predicted = Interval(5.0, 4.0, 6.0, at_least=True, expected_lower=4.5, expected_upper=5.5)
    assert slowdown_text(predicted) == ">=5.00 (4.00 or more)"
    assert slowdown_text(replace(predicted, at_least=False)) == "5.00 (4.00 to 6.00)"
    grid = Table.grid()
    add_runtime(grid, predicted.scaled(2.0), "s")
    add_slowdown(grid, predicted, 2.0, "s")
    console = Console(file=io.StringIO(), width=100)
    console.print(grid)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert ">=10" in shown
    assert "one run 8.00 s or more" in shown
    assert "4.00 or more, over 2.00 s alone" in shown
    assert "6.00" not in shown
    metric = Table.grid()
    add_runtime(metric, predicted.inverse(100.0), "ops/s")
    console.print(metric)
    assert "16.67 ops/s to 25 ops/s" in console.file.getvalue()  # type: ignore[attr-defined]
