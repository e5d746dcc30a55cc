"""Benchmarks of pytest-benchmark and pyperf on a made-up machine, by real runs of pytest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyperf import _hooks as hooks

from kongming.gate import watching
from kongming.gate.signals import Signals, State
from kongming.records.fingerprint import Fingerprint
from tests import builders
from tests.gate.test_disturbance import QUIET, TIMES

pytest_plugins = ["pytester"]

# Rounds last what this clock says, so that a test's verdict depends on no machine.
CLOCK = """
import itertools, os
FACTOR = float(os.environ.get("FACTOR", "1"))
steps = itertools.cycle([1e-3, 1.002e-3, 0.998e-3, 1.001e-3])
now = 0.0

def tick():
    global now
    now += FACTOR * next(steps)
    return now
"""
BENCHMARK = """
def test_sum(benchmark):
    benchmark.pedantic(sum, args=([1, 2],), rounds=20, iterations=1)

def test_nothing_is_timed():
    pass
"""

Machine = dict[str, float]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose steal and whose costs (factor) are what the test says."""
    now = {"steal": 0.0, "factor": 1.0}

    def take_fingerprint(*_: object, **__: object) -> Fingerprint:
        costs = {name: now["factor"] * seconds for name, seconds in TIMES.items()}
        return builders.fingerprint(costs)

    def between(before: State, after: State, cpus: object) -> Signals:
        return replace(QUIET, steal=now["steal"])

    monkeypatch.setattr(watching.Watcher, "__init__", lambda self, effect: prepare(self, effect))
    monkeypatch.setattr(watching, "take_fingerprint", take_fingerprint)
    monkeypatch.setattr(watching, "between", between)
    monkeypatch.setattr(watching, "state", lambda: None)
    return now


def prepare(watcher: watching.Watcher, effect: float) -> None:
    watcher.effect, watcher.cpu, watcher.node = effect, 0, builders.node()
    watcher._names, watcher._prints = list(TIMES), []


Bench = Callable[..., pytest.RunResult]


@pytest.fixture
def bench(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run the benchmark, ``factor`` times slower than it is."""
    pytester.makepyfile(clock=CLOCK, test_it=BENCHMARK)
    pytester.syspathinsert()

    def call(*args: str, factor: float = 1.0) -> pytest.RunResult:
        monkeypatch.setenv("FACTOR", str(factor))
        # With it pytest-benchmark takes itself for a part of a parallel session, and times nothing.
        monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
        return pytester.runpytest_inprocess(
            "-p", "no:xdist", "-p", "no:cacheprovider", "--benchmark-timer=clock.tick", *args
        )

    return call


CHECK = ("--benchmark-compare", "--benchmark-compare-fail=mean:5%")
REGRESSED = "Performance has regressed"


def regressed(bench: Bench, *args: str) -> bool:
    """Whether a benchmark that is 10 % slower fails: pytest-benchmark ends pytest by an error."""
    result = bench(*args, *CHECK, factor=1.1)
    assert (result.ret != 0) == (REGRESSED in result.stderr.str())
    return result.ret != 0


def test_verdicts_on_disturbed_runs_are_withheld(
    bench: Bench, machine: Machine, pytester: pytest.Pytester
) -> None:
    quiet = bench("--kongming", "--benchmark-save=base")
    assert quiet.ret == 0
    quiet.stdout.fnmatch_lines(["1 watched, 0 disturbed, 0 comparisons withheld*"])
    (saved,) = Path(pytester.path).glob(".benchmarks/*/*_base.json")
    (benchmark,) = json.loads(saved.read_text())["benchmarks"]
    kept = benchmark["extra_info"]["kongming"]
    assert kept["before"] == kept["after"] == pytest.approx(TIMES)
    assert kept["disturbed"] == []
    assert 6 <= kept["rounds_needed"] <= kept["rounds"] == 20

    # Undisturbed, a true regression is one, and what did not change is none.
    assert regressed(bench, "--kongming")
    same = bench("--kongming", *CHECK)
    assert same.ret == 0
    assert "withheld:" not in str(same.outlines)

    # Disturbed by steal; and where the machine itself is slower than for the baseline.
    for change, said in (({"steal": 0.2}, "steal"), ({"factor": 1.1}, "machine itself changed")):
        machine.update(change)
        withheld = bench("--kongming", *CHECK, factor=1.1)
        assert withheld.ret == 0
        withheld.stdout.fnmatch_lines([f"comparison withheld: test_it.py::test_sum*{said}*"])
        machine.update(steal=0.0, factor=1.0)
    machine["steal"] = 0.2
    assert bench("--kongming", "--kongming-strict", *CHECK).ret == 1

    # Without the option nothing is watched, and nothing withheld.
    assert regressed(bench)


def test_too_few_rounds_are_no_verdict(bench: Bench, machine: Machine) -> None:
    few = ("--kongming", "--kongming-effect=0.1%")
    stated = bench(*few, "--benchmark-save=base")
    stated.stdout.re_match_lines([r".*20 rounds are too few to see 0.1 %: \d+ are needed."])
    withheld = bench(*few, *CHECK, factor=1.1)
    assert withheld.ret == 0
    withheld.stdout.fnmatch_lines(["comparison withheld: *too few*"])
    assert bench("--kongming", "--kongming-effect=half").ret == pytest.ExitCode.USAGE_ERROR


def test_runs_of_pyperf_carry_what_disturbed_them(machine: Machine) -> None:
    for steal, disturbed in ((0.0, "no"), (0.3, "steal")):
        machine["steal"] = steal
        (hook,) = hooks.instantiate_selected_hooks(["kongming"]).values()
        for _ in range(2):
            with hook:
                pass
        metadata: dict[str, object] = {}
        hook.teardown(metadata)
        assert metadata["kongming_disturbed"] == disturbed
        assert metadata["kongming_compute.int"] == pytest.approx(TIMES["compute.int"])
        assert ("kongming_reasons" in metadata) == (steal > 0.0)
