"""Benchmarks of pytest-benchmark and pyperf on a made-up machine, by real runs of pytest."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from pyperf import _hooks as hooks

from kongming.gate import watching
from kongming.gate.noise import Goal
from kongming.gate.signals import Signals, State
from kongming.integrations.pytest_takes import Continued, takes_s
from kongming.integrations.pytest_verdicts import rounds_kept, withheld
from kongming.probes import measuring
from kongming.records.errors import ProbeError
from kongming.records.fingerprint import Fingerprint
from tests import builders
from tests.gate.test_disturbance import QUIET, TIMES
from tests.probes.test_measuring import another

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
    stored = benchmark["extra_info"]["kongming"]
    assert stored["before"] == stored["after"] == pytest.approx(TIMES)
    assert stored["disturbed"] == []
    assert 6 <= stored["rounds_needed"] <= stored["rounds"] == 20

    # Undisturbed, a true regression is one, and what did not change is none.
    assert regressed(bench, "--kongming")
    same = bench("--kongming", *CHECK)
    assert same.ret == 0
    assert "withheld:" not in str(same.outlines)

    # Disturbed by steal; and where the machine itself is slower than for the baseline.
    for change, reason in (({"steal": 0.2}, "steal"), ({"factor": 1.1}, "machine itself changed")):
        machine.update(change)
        withheld = bench("--kongming", *CHECK, factor=1.1)
        assert withheld.ret == 0
        withheld.stdout.fnmatch_lines([f"comparison withheld: test_it.py::test_sum*{reason}*"])
        machine.update(steal=0.0, factor=1.0)
    machine["steal"] = 0.2
    assert bench("--kongming", "--kongming-strict", *CHECK).ret == 1

    # Without the option nothing is watched, and nothing withheld.
    assert regressed(bench)


def test_what_a_baseline_says_is_obeyed_by_no_terminal(
    bench: Bench, machine: Machine, pytester: pytest.Pytester
) -> None:
    assert bench("--kongming", "--benchmark-save=base").ret == 0
    (saved,) = Path(pytester.path).glob(".benchmarks/*/*_base.json")
    stored = json.loads(saved.read_text())
    reason = {"reason": "x\n::error::\x1b[2J"}
    stored["benchmarks"][0]["extra_info"]["kongming"]["disturbed"] = [reason]
    saved.write_text(json.dumps(stored))
    shown = bench("--kongming", "--benchmark-compare").stdout
    assert "x\\n::error::\\x1b[2J" in next(line for line in shown.lines if "withheld: " in line)


@pytest.mark.thorough
def test_too_few_rounds_are_no_verdict(bench: Bench, machine: Machine) -> None:
    few = ("--kongming", "--kongming-effect=0.1%")
    stated = bench(*few, "--benchmark-save=base")
    more = r"cannot tell: \d+ more rounds to see 0.1 % \(20 are too few, \d+ are needed\)\."
    stated.stdout.re_match_lines([rf"test_it.py::test_sum: {more}"])
    withheld = bench(*few, *CHECK, factor=1.0005)
    assert withheld.ret == 0
    withheld.stdout.re_match_lines([rf"comparison withheld: .*: {more} The baseline: {more}"])
    # A clear difference needs no more rounds.
    assert regressed(bench, *few)
    for option in ("--kongming-effect=half", "--kongming-budget=soon"):
        assert bench("--kongming", option).ret == pytest.ExitCode.USAGE_ERROR


def test_a_baseline_for_a_larger_effect_is_judged_by_the_one_that_is_asked(
    bench: Bench, machine: Machine
) -> None:
    """What it stated then was for 5 %."""
    assert bench("--kongming", "--benchmark-save=base").ret == 0
    withheld = bench("--kongming", "--kongming-effect=0.1%", *CHECK, factor=1.0005)
    withheld.stdout.fnmatch_lines(["comparison withheld: *The baseline: cannot tell*0.1 %*"])


@pytest.mark.thorough
def test_what_was_not_watched_is_not_compared(
    bench: Bench, machine: Machine, pytester: pytest.Pytester
) -> None:
    """Benchmarks that fail after they were timed, that ask for the fixture late, or whose machine
    cannot be watched; and those without a baseline are named."""
    more = """
import pytest

def timed(benchmark):
    benchmark.pedantic(sum, args=([1, 2],), rounds=20, iterations=1)

def test_fails_later(benchmark):
    timed(benchmark)
    assert not FAILING

def test_late(request):
    timed(request.getfixturevalue("benchmark"))
"""
    pytester.makepyfile(test_more=f"FAILING = False\n{more}")
    assert bench("--kongming", "--benchmark-save=base").ret == 0
    pytester.makepyfile(test_more=f"FAILING = True\n{more.replace('test_late', 'test_later')}")
    machine["steal"] = 0.2
    done = bench("--kongming", *CHECK, factor=1.5)
    assert REGRESSED not in done.stderr.str()
    done.stdout.fnmatch_lines_random(
        ["comparison withheld: test_more.py::test_fails_later*", "no baseline: *::test_later *"]
    )
    pytester.makepyfile(test_more=f"FAILING = False\n{more}")
    machine["steal"] = 0.0
    late = bench("--kongming", *CHECK, "-k", "test_late", factor=1.5)
    late.stdout.fnmatch_lines(["comparison withheld: test_more.py::test_late *not watched*"])
    assert REGRESSED not in late.stderr.str()


def test_surrogates_that_fail_fail_no_test(
    bench: Bench, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench("--kongming", "--benchmark-save=base").ret == 0

    def fails(*_: object, **__: object) -> NoReturn:
        raise ProbeError("the micro-benchmarks are gone.")

    monkeypatch.setattr(watching, "take_fingerprint", fails)
    done = bench("--kongming", *CHECK, factor=1.5)
    assert done.ret == 0
    done.stdout.fnmatch_lines(["comparison withheld: *micro-benchmarks are gone*"])


def test_nothing_watched_is_reported(bench: Bench, machine: Machine) -> None:
    bench("--kongming", "--benchmark-disable").stdout.fnmatch_lines(["Nothing was watched*"])


def test_takes_go_on_until_they_are_enough() -> None:
    """Inside of the benchmark's own call, after a pause, and no longer than the budget."""
    now, open_, pauses = 0.0, False, 0

    def sleep(seconds: float) -> None:
        nonlocal now, pauses
        now, pauses = now + seconds, pauses + 1

    def work() -> None:
        nonlocal now
        assert open_
        now += 0.01

    class Fixture:
        """As of pytest-benchmark: calibrates once, and makes ten rounds."""

        stats = SimpleNamespace(stats=SimpleNamespace(data=[]), update=lambda _: None)

        def _make_runner(self, function: Callable[[], None]) -> Callable[[object], float]:
            def runner(loops: object) -> float:
                began = now
                function()
                return now - began

            return runner

        def _raw(self, function: Callable[[], None]) -> str:
            self.stats = SimpleNamespace(stats=SimpleNamespace(data=[]))
            self.stats.update = self.stats.stats.data.append
            runner = self._make_runner(function)
            for _ in range(10):
                self.stats.update(runner(range(1)))
            return "result"

    for budget_s, enough_at, takes in ((60.0, 15, 15), (60.0, 3, 12), (5.0, 99, 5), (0.5, 1, 1)):
        fixture = Fixture()
        looked = Continued(
            fixture, budget_s, lambda each, n=enough_at: len(each) >= n,
            clock=lambda: now, sleep=sleep,
        )  # fmt: skip
        open_, began = True, now
        assert fixture._raw(work) == "result"
        open_ = False
        assert looked.rounds == [10] * takes
        assert len(fixture.stats.stats.data) == 10 * takes
        assert now - began <= max(budget_s, 0.2)
        assert takes_s(fixture.stats.stats.data, looked.rounds) == pytest.approx([0.01] * takes)


def test_takes_that_differ_are_too_few_however_many_rounds_they_have() -> None:
    """Drift between takes counts, and not the noise inside of them alone."""
    r = random.Random(4)
    rounds = [level * r.gauss(1.0, 0.001) for level in (1.0, 1.04) * 7 for _ in range(50)]
    as_one, as_takes = (rounds_kept(rounds, takes, Goal(0.02)) for takes in ((), (50,) * 14))
    assert as_takes["takes"] == 14
    assert as_takes["rounds_needed"] > as_takes["rounds"]
    steady = rounds_kept([r.gauss(1.0, 0.01) for _ in rounds], (50,) * 14, Goal(0.02))
    assert steady["rounds_needed"] <= steady["rounds"] == as_one["rounds"]
    # Fewer takes say nothing of the drift.
    assert rounds_kept(rounds[:400], (50,) * 8, Goal(0.5))["rounds_needed"] == 600


def test_a_baseline_that_was_edited_is_no_baseline() -> None:
    watched = {
        "machine": "m", "cpu": 0, "suite_version": "1", "before": TIMES, "after": TIMES,
        "disturbed": [], **rounds_kept([1.0, 1.1] * 10, (), Goal(0.001)),
    }  # fmt: skip
    goal = Goal(0.001)
    # JSON as Python reads it has NaN and infinity.
    for change in (
        *({"blocks_s": 3}, {"blocks_s": ["x"] * 9}, {"rounds": None}, {"takes": "two"}),
        *({"blocks_s": [1.0, float(text)] * 9} for text in ("nan", "inf")),
    ):
        assert withheld(watched, watched | change, goal) == [
            "What KONGMING kept with the baseline cannot be read."
        ], change
    older = {name: value for name, value in watched.items() if name != "blocks_s"}
    assert "older version" in withheld(watched, older, goal)[1]


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


def test_another_measurement_disturbs_a_run_of_pyperf_and_fails_no_worker(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has the locks before, or comes with --anyway; and the hook has them meanwhile."""
    monkeypatch.setenv(measuring.FOLDER, str(tmp_path / "locks"))
    cpu = min(os.sched_getaffinity(0))

    def metadata(during: AbstractContextManager[object]) -> dict[str, object]:
        (hook,) = hooks.instantiate_selected_hooks(["kongming"]).values()
        with hook, during:
            pass
        shown: dict[str, object] = {}
        hook.teardown(shown)
        return shown

    with another("kongming profile", cpu) as process:
        before = metadata(nullcontext())
    assert before["kongming_disturbed"] == "lock"
    assert f"kongming profile (process {process.pid}) measures on CPU {cpu}." in str(
        before["kongming_reasons"]
    )
    # It would have the lock itself if the hook had not.
    anyway = metadata(another("kongming profile", cpu, "anyway"))
    assert anyway["kongming_disturbed"] == "lock"
    assert metadata(nullcontext())["kongming_disturbed"] == "no"


@pytest.mark.parametrize("taken", [0, 1])
def test_surrogates_that_fail_fail_no_worker_of_pyperf(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """Before the values, or after them."""
    costs = iter([builders.fingerprint(TIMES)] * taken)

    def fails(*_: object, **__: object) -> Fingerprint:
        for fingerprint in costs:
            return fingerprint
        raise ProbeError("a line\nof two.")

    monkeypatch.setattr(watching, "take_fingerprint", fails)
    (hook,) = hooks.instantiate_selected_hooks(["kongming"]).values()
    for _ in range(2):
        with hook:
            pass
    metadata: dict[str, object] = {}
    hook.teardown(metadata)
    reasons = "The machine could not be watched: a line\\nof two."
    assert metadata == {"kongming_disturbed": "machine", "kongming_reasons": reasons}
