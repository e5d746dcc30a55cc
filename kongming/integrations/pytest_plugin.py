"""``pytest --kongming``: benchmarks of pytest-benchmark next to what the machine did meanwhile.

A quick fingerprint is taken before and after each benchmark and kept in its ``extra_info``.
Comparisons (``--benchmark-compare``, ``--benchmark-compare-fail``) are withheld where the benchmark
or its baseline was disturbed, where the machine changed in between, or where there were too few
rounds for the effect; the summary says why, and how many rounds are needed.

pytest loads this module in every session: it imports nothing else of ours before it is asked to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kongming.gate.watching import Watcher


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kongming", "what the machine did during benchmarks")
    group.addoption(
        "--kongming",
        action="store_true",
        help="Take a quick fingerprint before and after each benchmark of pytest-benchmark (a "
        "second in all), and withhold comparisons of what was disturbed.",
    )
    group.addoption(
        "--kongming-effect",
        metavar="SHARE",
        default="5%",
        help="The smallest slowdown that is to be seen (default: %(default)s).",
    )
    group.addoption(
        "--kongming-strict",
        action="store_true",
        help="Fail the session where a comparison was withheld.",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Workers of xdist time nothing: pytest-benchmark is disabled there.
    if config.getoption("--kongming") and not hasattr(config, "workerinput"):
        if not config.pluginmanager.hasplugin("benchmark"):
            raise pytest.UsageError("--kongming needs pytest-benchmark: pip install it.")
        config.pluginmanager.register(Benchmarks(config), "kongming-benchmarks")


class Benchmarks:
    """The hooks of one session with ``--kongming``.

    Raises:
        pytest.UsageError: the effect is no share, or the micro-benchmarks are missing.
    """

    def __init__(self, config: pytest.Config) -> None:
        from kongming.gate.noise import Goal
        from kongming.gate.watching import Watcher
        from kongming.profiling.plans.precision import parse_precision
        from kongming.records.errors import KongmingError

        try:
            effect = config.getoption("--kongming-effect")
            self._goal = Goal(parse_precision(effect, "--kongming-effect"))
            self._watcher: Watcher = Watcher(self._goal.effect)
        except KongmingError as error:
            raise pytest.UsageError(f"--kongming: {error}") from error
        self._watched: dict[str, dict[str, Any]] = {}
        self._withheld: dict[str, list[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        from kongming.gate.watching import KEY

        fixture = getattr(item, "funcargs", {}).get("benchmark")
        if fixture is None or not getattr(fixture, "enabled", False):
            return (yield)
        with contextlib.ExitStack() as stack:
            busy = _locked(stack)
            opened = self._watcher.begin()
            result = yield
            document = self._watcher.end(opened).to_dict()
        document["disturbed"] += busy
        document |= self._rounds(fixture)
        fixture.extra_info[KEY] = self._watched[item.nodeid] = document
        return result

    def _rounds(self, fixture: Any) -> dict[str, Any]:
        """The rounds made, and those that the effect needs; empty if nothing was timed."""
        from kongming.gate.noise import LEAST_RUNS, rounds_needed

        data = [] if fixture.stats is None else fixture.stats.stats.data
        if not data:
            return {}
        enough = len(data) >= LEAST_RUNS and min(data) > 0.0
        return {
            "effect": self._goal.effect,
            "rounds": len(data),
            "rounds_needed": rounds_needed(data, self._goal) if enough else None,
        }

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        # Before pytest-benchmark compares: what it finds no baseline for has no verdict.
        of_benchmarks = getattr(session.config, "_benchmarksession", None)
        for path, baselines in (getattr(of_benchmarks, "compared_mapping", None) or {}).items():
            for name, document in self._watched.items():
                reasons = _withheld(document, baselines[name]) if name in baselines else []
                if reasons:
                    del baselines[name]
                    self._withheld[f"{name} ({path})"] = reasons
        result = yield
        if self._withheld and session.config.getoption("--kongming-strict"):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._watched:
            return
        terminalreporter.section("kongming")
        for name, document in self._watched.items():
            for reason in document["disturbed"]:
                terminalreporter.write_line(f"disturbed: {name}: {reason['reason']}")
            few = _too_few(document)
            if few:
                terminalreporter.write_line(f"{name}: {few}")
        for name, reasons in self._withheld.items():
            terminalreporter.write_line(f"comparison withheld: {name}: {' '.join(reasons)}")
        disturbed = sum(bool(document["disturbed"]) for document in self._watched.values())
        terminalreporter.write_line(
            f"{len(self._watched)} watched, {disturbed} disturbed, "
            f"{len(self._withheld)} comparisons withheld; effect {100.0 * self._goal.effect:g} %, "
            f"false positives {100.0 * self._goal.false_positives:g} %, "
            f"power {100.0 * self._goal.power:g} %"
        )


def _locked(stack: contextlib.ExitStack) -> list[dict[str, Any]]:
    """Hold the locks of measurements until ``stack`` ends, or say who has one."""
    from kongming.gate.disturbance import Reason
    from kongming.probes.measuring import BusyError, measuring

    try:
        stack.enter_context(measuring("pytest --kongming"))
    except BusyError as error:
        text = f"{error.holder} measures on CPU {error.holder.cpu}."
        return [Reason("lock", text, error.holder.since or None).to_dict()]
    return []


def _withheld(document: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """Why a benchmark is not compared with its baseline, of pytest-benchmark's JSON."""
    from kongming.gate.watching import KEY, incomparable

    then = (baseline.get("extra_info") or {}).get(KEY)
    reasons = incomparable(document, then)
    few = [_too_few(document), _too_few(then) if isinstance(then, Mapping) else None]
    return reasons + [text for text in few if text]


def _too_few(document: Mapping[str, Any]) -> str | None:
    """A sentence where there were fewer rounds than the effect needs."""
    rounds = document.get("rounds")
    if rounds is None:
        return None
    needed = document.get("rounds_needed")
    if needed is not None and rounds >= needed:
        return None
    effect = f"{100.0 * document['effect']:g} %"
    if needed is None:
        return f"{rounds} rounds say nothing of the noise."
    return f"{rounds} rounds are too few to see {effect}: {needed} are needed."
