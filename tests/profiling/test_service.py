"""Services: start, ready, load, death and restart, moving between cgroups."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from kongming.profiling.runs.load_loop import loop
from kongming.profiling.runs.runner import AnyRunner, open_runner
from kongming.profiling.runs.service import RESTARTED, ServiceRunner
from kongming.records.application import Application, Metric
from kongming.records.errors import ApplicationRunError
from tests.profiling.processes import alive, eventually, written_pid

pytestmark = pytest.mark.real

ALLOWED = sorted(os.sched_getaffinity(0))


def service(pid_file: Path, **changes: Any) -> Application:
    fields: dict[str, Any] = {
        "name": "s",
        "kind": "service",
        "command": f"echo started >> {{dir}}/log; sleep 0.05; echo $$ > {pid_file}; exec sleep 100",
        "ready": f"test -s {pid_file}",
        "load": "echo $(wc -l < {dir}/log) starts; echo 12.5 ops/s",
        "metric": Metric("(.*) ops/s", "1/s", "higher"),
        "timeout_s": 20.0,
    }
    return Application(**(fields | changes))


def test_it_is_started_once_and_driven_by_its_load(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with open_runner(service(file, warmup_s=0.05), tmp_path / "w") as runner:
        first, second = runner.run((0,)), runner.run((0,))
        pid = written_pid(file)
        assert alive(pid)
    assert first.metric == second.metric == 12.5
    assert "1 starts" in second.output_tail
    assert second.warnings == ()
    assert not alive(pid)


def test_one_that_died_is_started_again_and_the_run_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with open_runner(service(file), tmp_path / "w") as runner:
        assert runner.run((0,)).warnings == ()
        psutil.Process(written_pid(file)).kill()
        assert eventually(lambda: _died(runner))
        file.unlink()
        again, after = runner.run((0,)), runner.run((0,))
    assert again.ok
    assert again.warnings == (RESTARTED,)
    assert "2 starts" in again.output_tail
    assert after.warnings == ()


def _died(runner: AnyRunner) -> bool:
    assert isinstance(runner, ServiceRunner)
    try:
        runner.check()
    except ApplicationRunError:
        return True
    return False


def test_a_run_during_which_it_dies_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    app = service(file, load=f"kill -9 $(cat {file}); sleep 0.3; echo 1 ops/s")
    with open_runner(app, tmp_path / "w") as runner:
        outcome = runner.run((0,))
    assert not outcome.ok
    assert outcome.metric is None
    assert "ended by itself: was killed by SIGKILL" in (outcome.error or "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"command": "echo port in use; exit 7"},
            ["ended by itself: exit status 7", "port in use"],
        ),
        ({"ready": "false", "timeout_s": 0.3}, ["was not ready within 0.3 s"]),
        ({"load": "echo refused; exit 1"}, ["exit status 1", "refused"]),
        ({"load": "echo nothing"}, ["matches its metric"]),
        ({"load": "sleep 60", "timeout_s": 0.5}, ["did not end within 0.5 s"]),
    ],
)
def test_what_fails_is_reported(tmp_path: Path, changes: dict[str, Any], words: list[str]) -> None:
    app = service(tmp_path / "pid", **changes)
    with open_runner(app, tmp_path / "w") as runner:
        outcome = runner.run((0,))
    assert not outcome.ok
    for word in words:
        assert word in (outcome.error or "")


def test_as_a_neighbour_its_load_loops(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with open_runner(service(file), tmp_path / "w") as runner:
        with loop(runner, (0,)) as running:
            assert running.wait_warm()
            assert eventually(lambda: len(running.iterations()) > 3)
            psutil.Process(written_pid(file)).kill()
            assert eventually(lambda: _died(runner))
            with pytest.raises(
                ApplicationRunError, match=r"ended by itself|failed while it looped"
            ):
                running.check()
        file.unlink()
    with (
        open_runner(service(file, command="exit 7"), tmp_path / "w") as runner,
        loop(runner, (0,)) as running,
        pytest.raises(ApplicationRunError, match="exit status 7"),
    ):
        running.wait_warm(5.0)


def test_it_moves_to_other_cgroups_without_a_restart(tmp_path: Path) -> None:
    file, procs = tmp_path / "pid", tmp_path / "cgroup.procs"
    procs.touch()
    with open_runner(service(file), tmp_path / "w") as runner:
        runner.start((0,))
        runner.start((0,), (procs,))
        assert procs.read_text() == file.read_text()
        assert "1 starts" in runner.run((0,)).output_tail


@pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two CPUs")
def test_it_stays_on_its_cpus_where_a_cgroup_gives_it_others(tmp_path: Path) -> None:
    file, procs = tmp_path / "pid", tmp_path / "cgroup.procs"
    procs.touch()
    with open_runner(service(file), tmp_path / "w") as runner:
        runner.start((ALLOWED[0],))
        # As kernels before 6.2 do where the group has CPUs of its own.
        os.sched_setaffinity(written_pid(file), ALLOWED)
        runner.start((ALLOWED[0],), (procs,))
        assert os.sched_getaffinity(written_pid(file)) == {ALLOWED[0]}


def test_the_cpu_of_the_load() -> None:
    app = service(Path("pid"), load_cpu=1)
    runner = ServiceRunner(app, "unused")
    assert runner.load_cpus((0,)) == (1,)
    assert runner.load_cpus((0,), avoid=(1,)) == (0,)
    assert ServiceRunner(service(Path("pid")), "unused").load_cpus((0, 2)) == (0, 2)
