"""The example in Python of docs/explore.md runs, and ends as the page says."""

from __future__ import annotations

import pytest

from tests.docs.tables import ROOT
from tests.integrations.examples import run_example

PAGE = ROOT / "docs" / "explore.md"


def test_the_example_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    """With one kind of model, which takes a tenth of the time of choosing one."""
    variables = run_example("explore", {"budget=30,": 'budget=30, model="lines",'}, PAGE)
    profiler = variables["profiler"]
    report = profiler.report()
    assert (report["runs"], report["metrics"]) == (30, ["joules", "seconds"])
    assert report["failed"] > 0
    assert report["timed_out"] > 0
    assert variables["forecast"].median == pytest.approx(14.0, rel=0.2)
    point = {"nodes": 4, "mem_gb": 16, "codec": "gz"}
    assert profiler.predict([point], metric="joules").median == pytest.approx(700.0, rel=0.2)
    assert len(capsys.readouterr().out.splitlines()) == 3
