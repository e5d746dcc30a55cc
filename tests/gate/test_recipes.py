"""The examples for other tools do what docs/audits.md says."""

from __future__ import annotations

import runpy
import shlex

import pytest

from kongming.gate.noise import Goal
from kongming.integrations.pyperf_check import check
from tests.docs import commands
from tests.docs.tables import ROOT
from tests.gate.test_benchmark_runners import Machine, machine
from tests.gate.test_disturbance import TIMES

__all__ = ["machine"]


def test_the_workflow_asks_the_gate_before_it_measures() -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / "examples" / "github-actions-benchmarks.yml").read_text())
    steps = workflow["jobs"]["benchmarks"]["steps"]
    (gate,) = (k for k, step in enumerate(steps) if step.get("id") == "gate")
    (line,) = (line for line in steps[gate]["run"].splitlines() if "kongming audit" in line)
    words = shlex.split(line.partition("if ")[2].partition(";")[0])
    assert commands.unknown(words) == []
    measuring = [k for k, step in enumerate(steps) if "--kongming " in step.get("run", "")]
    assert len(measuring) == 2
    assert all(k > gate and steps[k]["if"] == "steps.gate.outputs.fit" for k in measuring)


def test_asv_skips_what_was_disturbed(machine: Machine) -> None:
    recipe = runpy.run_path(str(ROOT / "examples" / "asv_benchmarks.py"))
    suite, series = recipe["SumSuite"](), recipe["MachineSuite"]()
    suite.setup()
    assert [series.track_seconds(name) for name in TIMES] == pytest.approx(list(TIMES.values()))
    machine["steal"] = 0.5
    # One look a process: asv starts one for each benchmark.
    recipe["look"].cache_clear()
    with pytest.raises(NotImplementedError, match="steal"):
        suite.setup()


def test_results_of_pyperf_are_judged_by_their_undisturbed_runs() -> None:
    wobble = (1.0, 1.002, 0.998, 1.001, 0.999)
    quiet = [((wobble[k % 5],), {"kongming_disturbed": "no"}) for k in range(20)]
    loud = [((3.0 * wobble[k % 5],), {"kongming_disturbed": "steal"}) for k in range(30)]
    judged = check(quiet + loud, "sum", Goal(0.02))
    assert judged.fit
    assert (judged.runs, judged.undisturbed, judged.needed) == (50, 20, 6)
    assert "withheld" in str(check(loud, "sum", Goal(0.02)))
    # Without the hook nothing is known of a run.
    assert not check([(values, {}) for values, _ in quiet], "sum", Goal(0.02)).fit
