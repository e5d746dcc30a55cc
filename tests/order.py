"""Which tests one process runs after another, and which of these groups come first.

Tests of a module share its fixtures, so that one process runs them. Tests of several modules over
one fixture that takes long to make are one group. Groups that take longest come first: the end is
then short, when one process still works and the others wait. Tests that want the machine to
themselves are a group too, and come first of all: the others wait for them once (turns.py).

How it works with xdist: every worker collects all tests, sorts them alike (``longest_first``) and
writes down which group each belongs to (``write_groups``). The process that hands out the tests
collects nothing; its scheduler (``GroupScheduling``) reads that, and gives a worker that is free
the next group. All of it is called by hooks in conftest.py, and nothing of it without ``-n``.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["GroupScheduling", "group", "is_alone", "longest_first", "write_groups"]

SHARED = {
    "fleet": "tests/integrations/",
    "profiled": "tests/campaigns/",
    "trained_store": "tests/monitoring/",
}
"""Fixtures that several modules use and that take long to make, and the folder of these modules:
elsewhere a fixture of that name is another one."""

SECONDS = {
    "profiled": 3.0,
    "stack": 2.0,
    "hasty": 6.0,
    "start_server": 2.0,
    "server": 1.0,
    "agent_process": 2.0,
    "ask": 0.5,
    "kongming": 0.3,
    "postgres_url": 0.3,
    "runs": 0.3,
}
"""About how many seconds a test takes that uses a fixture of this name; others take 0.05 s."""

MODULES = {
    "tests/audit/test_audit_commands.py": 15.0,
    "tests/audit/test_observe.py": 15.0,
    "tests/cli/test_evaluate_pairs.py": 15.0,
    "tests/cli/test_process_pool.py": 10.0,
    "tests/evaluate/test_tables_and_figures.py": 18.0,
    "tests/gate/test_gate_command.py": 8.0,
    "tests/models/test_training.py": 18.0,
    "tests/peers/test_predictions.py": 9.0,
    "tests/predict/test_commands.py": 30.0,
    "tests/predict/test_model_command.py": 12.0,
    "tests/profiling/test_environments_real.py": 25.0,
    "tests/scale/test_fitting.py": 15.0,
    "tests/server/profiles/test_dask.py": 17.0,
    "tests/server/profiles/test_drift.py": 10.0,
    "tests/server/profiles/test_training.py": 15.0,
    "tests/server/security/test_fuzzing.py": 6.0,
    "tests/store/test_concurrency.py": 6.0,
    "tests/together/test_program_changes.py": 40.0,
}
"""About how many seconds a module takes whose fixtures do not show it; a wrong figure costs a
little of the order and nothing else. Anew by ``pytest -n 0 --durations=0 PATH``."""


def is_alone(item: pytest.Item) -> bool:
    """Whether nothing may be tested at the same time."""
    return item.get_closest_marker("alone") is not None


def group(item: pytest.Item) -> str:
    """The name of the group that a test belongs to."""
    if is_alone(item):
        return "alone"
    names = getattr(item, "fixturenames", ())
    module = item.nodeid.partition("::")[0]
    shared = (
        name for name, folder in SHARED.items() if name in names and module.startswith(folder)
    )
    return next(shared, module)


def longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests by groups; those that want to be alone come first."""
    members: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        members[group(item)].append(item)
    ordered = sorted(members.values(), key=lambda tests: (not is_alone(tests[0]), -_seconds(tests)))
    return [item for tests in ordered for item in tests]


def write_groups(items: Sequence[pytest.Item], folder: Path) -> None:
    """For the process that hands out the tests: it does not collect them itself, and all that it
    gets of a test is its id. Each of the others writes the same."""
    # Renamed when complete: the reader finds a whole file, whoever wrote it.
    written = folder / f"groups-{os.getpid()}"
    written.write_text(json.dumps({item.nodeid: group(item) for item in items}), encoding="utf-8")
    written.rename(folder / _GROUPS)


class GroupScheduling(LoadScopeScheduling):
    """Hands out one group after another in the order of the tests, each to one process.

    With pytest 9.2 xdist's own ``--dist loadgroup`` hands out each test by itself: the group that
    it adds to a test's id is lost.
    """

    def __init__(self, config: pytest.Config, log: Any, folder: Path) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._folder = folder

    @cached_property
    def _groups(self) -> dict[str, str]:
        groups: dict[str, str] = json.loads((self._folder / _GROUPS).read_text(encoding="utf-8"))
        return groups

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]


_GROUPS = "groups.json"


def _seconds(tests: list[pytest.Item]) -> float:
    known = MODULES.get(group(tests[0]))
    if known is not None:
        return known
    return sum(
        max((SECONDS.get(name, 0.05) for name in getattr(item, "fixturenames", ())), default=0.05)
        for item in tests
    )
