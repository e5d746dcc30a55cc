"""An application that loops as a neighbour."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from kongming.profiling.runs.load_loop import LoadLoop, loop
from kongming.profiling.runs.runner import open_runner
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError
from tests.profiling.processes import alive, eventually, written_pid

pytestmark = pytest.mark.real


@pytest.mark.parametrize("fields", [{}, {"prepare": "true"}, {"cache": "cold"}])
def test_iterations_follow_each_other(tmp_path: Path, fields: dict[str, Any]) -> None:
    app = Application(name="a", command="sleep 0.02", **fields)
    with open_runner(app, tmp_path) as runner, loop(runner, (0,)) as running:
        assert running.wait_warm()
        assert eventually(lambda: len(running.iterations()) >= 3)
        running.check()
        seen = running.iterations()
    assert all(ok and end > start for start, end, ok in seen)
    assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(seen))
    assert len(running.iterations()) >= len(seen)
    assert all(window.ok for window in running.iterations())


@pytest.mark.parametrize("fields", [{}, {"prepare": "true"}])
def test_leaving_it_ends_a_long_iteration(tmp_path: Path, fields: dict[str, Any]) -> None:
    file = tmp_path / "pid"
    app = Application(name="a", command=f"echo $$ > {file}; sleep 60; sleep 60", **fields)
    with open_runner(app, tmp_path / "w") as runner:
        with loop(runner, (0,)) as running:
            pid = written_pid(file)
            assert not running.wait_warm(0.05)
            assert running.iterations() == []
        assert not alive(pid)
        # It was cut off, and did not come to its end.
        assert running.iterations() == []


def test_leaving_it_ends_a_long_prepare(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    app = Application(name="a", command="true", prepare=f"echo $$ > {file}; sleep 60; true")
    with open_runner(app, tmp_path / "w") as runner:
        with loop(runner, (0,)):
            pid = written_pid(file)
        assert not alive(pid)


@pytest.mark.parametrize("fields", [{}, {"prepare": "true"}])
def test_a_failing_iteration_is_told_with_its_output(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    app = Application(name="a", command="echo no luck; exit 5", **fields)
    with open_runner(app, tmp_path) as runner, loop(runner, (0,)) as running:
        assert eventually(lambda: _failed(running))
        with pytest.raises(ApplicationRunError, match=r"(?s)a failed .* exit status 5.*no luck"):
            running.check()
        with pytest.raises(ApplicationRunError):
            running.wait_warm(5.0)


def _failed(running: LoadLoop) -> bool:
    try:
        running.check()
    except ApplicationRunError:
        return True
    return False


def test_a_loop_that_ends_by_a_fault_is_no_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where no process or file may be opened any more."""

    def prepare(*_: object) -> None:
        raise OSError(24, "Too many open files")

    app = Application(name="a", command="sleep 0.05", prepare="true")
    with open_runner(app, tmp_path) as runner:
        monkeypatch.setattr(type(runner), "prepare", prepare)
        with (
            loop(runner, (0,)) as running,
            pytest.raises(ApplicationRunError, match="Too many open files"),
        ):
            running.wait_warm(30.0)


def test_a_prepare_that_fails_ends_the_loop(tmp_path: Path) -> None:
    app = Application(name="a", command="true", prepare="exit 6")
    with (
        open_runner(app, tmp_path) as runner,
        loop(runner, (0,)) as running,
        pytest.raises(ApplicationRunError, match="prepare of a failed: exit status 6"),
    ):
        running.wait_warm(10.0)


def test_two_neighbours_of_one_application_have_folders_of_their_own(tmp_path: Path) -> None:
    app = Application(name="a", command="echo x >> {dir}/x; [ $(wc -l < {dir}/x) -lt 9 ]")
    with open_runner(app, tmp_path) as first, open_runner(app, tmp_path) as second:
        assert first.scratch != second.scratch
        with loop(first, (0,)) as running:
            running.wait_warm()
            assert second.run((0,)).ok
