"""``pytest --kongming``: benchmarks of pytest-benchmark next to what the machine did meanwhile.

A quick fingerprint is taken before and after each benchmark and kept in its ``extra_info``.
Comparisons (``--benchmark-compare``, ``--benchmark-compare-fail``) are withheld where the benchmark
or its baseline was disturbed, where the machine changed in between, or where there were too few
rounds to tell; the summary says why, and how many more are needed. With ``--kongming-budget`` a
benchmark goes on until they are enough.

pytest loads this module in every session: it imports nothing else of ours before it is asked to.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from kongming.quantities import per_cent

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
        "--kongming-budget",
        metavar="TIME",
        default="0s",
        help="Let each benchmark go on for up to this long (30s), in takes with pauses in between, "
        "until its rounds are enough for the effect (default: %(default)s, only its own rounds).",
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
        pytest.UsageError: the effect is no share, the budget no time, or the micro-benchmarks are
            missing.
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
        self._budget_s = _seconds(config.getoption("--kongming-budget"))
        self._watched: dict[str, dict[str, Any]] = {}
        self._withheld: dict[str, list[str]] = {}
        self._without_baseline: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        fixture = getattr(item, "funcargs", {}).get("benchmark")
        if fixture is None or not getattr(fixture, "enabled", False):
            return (yield)
        with contextlib.ExitStack() as stack:
            watch: _Watch | None = _Watch(self._watcher, _locked(stack))
            takes = self._continued(fixture)
            try:
                return (yield)
            except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):
                watch = None
                raise
            finally:
                # What failed after it was timed is in pytest-benchmark's table too.
                if watch is not None:
                    self._keep(item.nodeid, fixture, watch.end(), takes)

    def _continued(self, fixture: Any) -> Sequence[int]:
        """The rounds of each take of this benchmark, as they are made."""
        from kongming.gate.noise import blocks_needed
        from kongming.integrations.pytest_takes import Continued

        if not self._budget_s:
            return ()

        def enough(takes_s: Sequence[float]) -> bool:
            return min(takes_s) > 0.0 and blocks_needed(takes_s, self._goal) <= len(takes_s)

        return Continued(fixture, self._budget_s, enough).rounds

    def _keep(
        self, name: str, fixture: Any, document: dict[str, Any], takes: Sequence[int]
    ) -> None:
        from kongming.gate.watching import KEY
        from kongming.integrations.pytest_verdicts import rounds_kept

        data = [] if fixture.stats is None else fixture.stats.stats.data
        document |= rounds_kept(data, takes, self._goal)
        fixture.extra_info[KEY] = self._watched[name] = document

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        from kongming.gate.watching import KEY
        from kongming.integrations.pytest_verdicts import UNWATCHED, withheld

        # Before pytest-benchmark compares: what it finds no baseline for has no verdict.
        of_benchmarks = getattr(session.config, "_benchmarksession", None)
        timed = [each.fullname for each in getattr(of_benchmarks, "benchmarks", ()) if each]
        for path, baselines in (getattr(of_benchmarks, "compared_mapping", None) or {}).items():
            for name in timed:
                if name not in baselines:
                    self._without_baseline.append(f"{name} ({path})")
                    continue
                document = self._watched.get(name)
                then = (baselines[name].get("extra_info") or {}).get(KEY)
                reasons = [UNWATCHED] if document is None else withheld(document, then, self._goal)
                if reasons:
                    del baselines[name]
                    self._withheld[f"{name} ({path})"] = reasons
        result = yield
        if self._withheld and session.config.getoption("--kongming-strict"):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from kongming.integrations.pytest_verdicts import too_few
        from kongming.printable import printable

        terminalreporter.section("kongming")
        if not self._watched:
            terminalreporter.write_line(
                "Nothing was watched: no test with the fixture was timed. With pytest-xdist or "
                "--benchmark-disable pytest-benchmark times nothing."
            )
        for name, document in self._watched.items():
            for reason in document["disturbed"]:
                text = printable(reason["reason"])
                terminalreporter.write_line(f"disturbed: {name}: {text}")
            few = too_few(document, self._goal)
            if few:
                terminalreporter.write_line(f"{name}: {few}")
        for name, reasons in self._withheld.items():
            text = printable(" ".join(reasons))
            terminalreporter.write_line(f"comparison withheld: {name}: {text}")
        for name in self._without_baseline:
            terminalreporter.write_line(f"no baseline: {name}")
        disturbed = sum(bool(document["disturbed"]) for document in self._watched.values())
        terminalreporter.write_line(
            f"{len(self._watched)} watched, {disturbed} disturbed, "
            f"{len(self._withheld)} comparisons withheld; effect "
            f"{per_cent(100.0 * self._goal.effect, 'g')}, "
            f"false positives {per_cent(100.0 * self._goal.false_positives, 'g')}, "
            f"power {per_cent(100.0 * self._goal.power, 'g')}"
        )


class _Watch:
    """The machine while one benchmark is measured. Surrogates that fail do not fail the test: it is
    taken for disturbed."""

    def __init__(self, watcher: Watcher, busy: list[dict[str, Any]]) -> None:
        from kongming.records.errors import ProbeError

        self._watcher, self._reasons, self._opened = watcher, busy, None
        try:
            self._opened = watcher.begin()
        except ProbeError as error:
            self._reasons.append(_failed(error))

    def end(self) -> dict[str, Any]:
        """Return what was seen, with ``disturbed`` at least."""
        from kongming.records.errors import ProbeError

        document: dict[str, Any] = {"disturbed": []}
        if self._opened is not None:
            try:
                document = self._watcher.end(self._opened).to_dict()
            except ProbeError as error:
                self._reasons.append(_failed(error))
        document["disturbed"] += self._reasons
        return document


def _failed(error: Exception) -> dict[str, Any]:
    from kongming.gate.disturbance import Reason

    return Reason("machine", f"The machine could not be watched: {error}").to_dict()


def _seconds(text: str) -> float:
    """Raises pytest.UsageError."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|)", text.strip())
    if parts is None:
        raise pytest.UsageError(
            f"--kongming-budget: is not a time. Found {text!r}. Allowed: 30s, 2m or 0."
        )
    return float(parts[1]) * {"ms": 1e-3, "s": 1.0, "m": 60.0, "": 1.0}[parts[2]]


def _locked(stack: contextlib.ExitStack) -> list[dict[str, Any]]:
    """Hold the locks of measurements until ``stack`` ends, or say who has one."""
    from kongming.gate.locks import hold

    return [reason.to_dict() for reason in hold(stack, "pytest --kongming")]
