"""The examples for other tools do what docs/audits.md says."""

from __future__ import annotations

import json
import math
import os
import random
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kongming.cli.extras import EXTRAS
from kongming.gate.comparison import Comparison
from kongming.gate.noise import Goal
from kongming.integrations.pyperf_check import Runs, check, command, verdicts
from kongming.integrations.pyperf_hook import PREFIX
from kongming.records.errors import InputError
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


@pytest.mark.parametrize(
    ("gate_status", "status", "output"), [(0, 0, "fit=yes\n"), (4, 0, ""), (1, 1, ""), (2, 1, "")]
)
def test_the_workflow_goes_on_only_where_the_gate_says_so(
    tmp_path: Path, gate_status: int, status: int, output: str
) -> None:
    """The step as GitHub runs it: not fit is no failure, an error is one."""
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / "examples" / "github-actions-benchmarks.yml").read_text())
    (step,) = (s for s in workflow["jobs"]["benchmarks"]["steps"] if s.get("id") == "gate")
    program = tmp_path / "kongming"
    program.write_text(f"#!/bin/sh\nexit {gate_status}\n")
    program.chmod(0o755)
    output_file = tmp_path / "output"
    output_file.touch()
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "EFFECT": "5%",
            "GITHUB_OUTPUT": str(output_file),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, output_file.read_text()) == (status, output)
    assert ("::warning::" in done.stdout) == (gate_status == 4)


@pytest.mark.thorough
@pytest.mark.real
def test_real_benchmarks_of_pyperf_and_pytest(tmp_path: Path) -> None:
    """As anybody calls them: what is installed finds the hook and the plugin."""
    # Else the inner pytest takes itself for a worker of this one, and writes no results.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}

    def python(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *args],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    hook = ("--hook", "kongming", "-p", "2", "-n", "1", "-w", "0", "--loops", "8")
    timed = python("pyperf", "timeit", *hook, "-o", "result.json", "sum(range(1000))")
    assert timed.returncode == 0, timed.stderr
    checked = python("kongming.integrations.pyperf_check", "result.json")
    assert checked.returncode == 4, checked.stderr
    assert re.search(r"cannot tell: \d of 2 processes undisturbed, needed: too few", checked.stdout)

    (tmp_path / "test_it.py").write_text("def test_it(benchmark):\n    benchmark(sum, [1, 2])\n")
    limits = ("--benchmark-max-time=0.1", "-p", "no:cacheprovider", "-p", "no:xdist")
    watched = python("pytest", "--kongming", "--benchmark-json=b.json", *limits)
    assert watched.returncode == 0, watched.stdout
    (benchmark,) = json.loads((tmp_path / "b.json").read_text())["benchmarks"]
    stored = benchmark["extra_info"]["kongming"]
    assert {"compute.int", "compute.float"} <= stored["before"].keys() == stored["after"].keys()
    # They are of all that was timed.
    assert stored["signals"]["seconds"] > benchmark["stats"]["total"]


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


def test_results_of_pyperf_are_judged_by_their_undisturbed_runs(tmp_path: Path) -> None:
    wobble = (1.0, 1.002, 0.998, 1.001, 0.999)
    quiet = [((wobble[k % 5],), {"kongming_disturbed": "no"}) for k in range(20)]
    loud = [((3.0 * wobble[k % 5],), {"kongming_disturbed": "steal"}) for k in range(30)]
    judged = check(quiet + loud, "sum", Goal(0.02))
    assert judged.fit
    assert (judged.runs, judged.undisturbed, judged.needed) == (50, 20, 6)
    assert "cannot tell" in str(check(loud, "sum", Goal(0.02)))
    # With its own noise it needs so many more.
    noisy = [((1.0 + 0.02 * (k % 5),), {"kongming_disturbed": "no"}) for k in range(10)]
    missing = check(noisy, "sum", Goal(0.02))
    assert missing.needed is not None
    assert f"cannot tell: {missing.needed - 10} more processes" in str(missing)

    # A verdict by the undisturbed processes of both, on one machine.
    def verdict(before: Runs, after: Runs) -> Comparison | None:
        return verdicts({"sum": before}, {"sum": after}, Goal(0.02))["sum"]

    slower = [((1.1 * value,), metadata) for (value,), metadata in quiet]
    for before, after, expected in (
        (quiet + loud, quiet, "not slower"),
        (quiet, slower + loud, "slower"),
        (noisy, noisy, "cannot tell"),
    ):
        judged_pair = verdict(before, after)
        assert judged_pair is not None
        assert judged_pair.verdict == expected
        assert (judged_pair.more > 0) == (expected == "cannot tell")
    elsewhere = [(values, metadata | {"kongming_machine": "m2"}) for values, metadata in quiet]
    assert verdict(quiet, elsewhere) is None
    assert verdict(loud, quiet) is None
    # Those that do not count decide nothing by their machine either.
    unwatched = [((1.0,), {}), ((9.0,), elsewhere[0][1] | {"kongming_disturbed": "steal"})]
    here = [(values, metadata | {"kongming_machine": "m1"}) for values, metadata in quiet]
    assert verdict(here + unwatched, here) is not None
    # Without the hook nothing is known of a run.
    without_hook = check([(values, {}) for values, _ in quiet], "sum", Goal(0.02))
    assert not without_hook.fit
    assert f"{len(quiet)} measured without --hook kongming" in str(without_hook)
    for no_results in ("{}", "import pyperf"):
        (tmp_path / "file").write_text(no_results)
        with pytest.raises(InputError, match="no file of results"):
            command.main([str(tmp_path / "file")], standalone_mode=False)


def test_files_of_pyperf_are_compared(tmp_path: Path) -> None:
    pyperf = pytest.importorskip("pyperf")

    def file(
        name: str, factor: float, benchmark: str = "sum", runs: int = 20, machine: str = "m1"
    ) -> str:
        metadata = {
            "name": benchmark,
            f"{PREFIX}disturbed": "no",
            f"{PREFIX}machine": machine,
        }
        each = [
            pyperf.Run(
                [factor * (1.0 + 0.001 * (k % 5))], metadata=metadata, collect_metadata=False
            )
            for k in range(runs)
        ]
        pyperf.Benchmark(each).dump(str(tmp_path / name))
        return str(tmp_path / name)

    def status(now: str) -> tuple[int, str]:
        args = [now, "--baseline", baseline]
        done = CliRunner().invoke(command, args, standalone_mode=False)
        return int(done.return_value), done.output

    baseline = file("base", 1.0)
    assert status(baseline)[0] == 0
    assert status(file("slower", 1.1))[0] == 4
    few = status(file("few", 1.1, runs=3))
    assert few[0] == 3
    assert few[1].startswith("sum: cannot tell: ")
    elsewhere = status(file("elsewhere", 1.1, machine="m2"))
    assert elsewhere == (3, "sum: cannot tell: they are of 2 machines\n")
    # A benchmark that only one file has may have failed, or be another by its name.
    renamed = status(file("new", 1.0, "other"))
    assert renamed[0] == 3
    assert "other: cannot tell: no baseline\n" in renamed[1]
    assert "sum: cannot tell: only in the baseline" in renamed[1]
    both = [pyperf.Benchmark.load(str(tmp_path / name)) for name in ("base", "new")]
    for name, suite in (("more", both), ("fewer", both[:1])):
        pyperf.BenchmarkSuite(suite).dump(str(tmp_path / name))
    baseline = str(tmp_path / "more")
    assert status(baseline)[0] == 0
    assert status(str(tmp_path / "fewer"))[0] == 3


def test_false_positives_are_those_of_all_benchmarks_of_a_file() -> None:
    r, trials, count = random.Random(5), 100, 10

    def suite(*factors: float) -> dict[str, Runs]:
        return {
            str(k): [
                ((factor * math.exp(r.gauss(0.0, 0.02)),), {"kongming_disturbed": "no"})
                for _ in range(16)
            ]
            for k, factor in enumerate(factors)
        }

    def called(before: dict[str, Runs], after: dict[str, Runs]) -> set[str]:
        judged = verdicts(before, after, Goal(0.05))
        return {name for name, each in judged.items() if each and each.verdict == "slower"}

    unchanged = [1.0] * count
    false = sum(bool(called(suite(*unchanged), suite(*unchanged))) for _ in range(trials))
    # 5 %, and three standard errors: each by itself would make it 40 %.
    assert false / trials < 0.05 + 0.065
    # Those that are clearly slower do not hide one another.
    assert called(suite(*unchanged), suite(*([1.1] * 4), *unchanged[4:])) == {"0", "1", "2", "3"}


def test_benchmark_runners_need_no_numpy() -> None:
    """What ``pip install kongming`` brings is enough for the plugin, the hook and the verdicts."""
    lines = [f"sys.modules[{name!r}] = None" for name in EXTRAS]
    lines += [
        f"import {module}"
        for module in (
            "kongming.gate.session",
            "kongming.integrations.pytest_plugin",
            "kongming.integrations.pytest_verdicts",
            "kongming.integrations.pyperf_check",
        )
    ]
    code = "\n".join(["import sys", *lines])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
