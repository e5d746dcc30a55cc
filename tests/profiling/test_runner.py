"""Batch applications: good runs, every way to fail, and what is left afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.probes.passive import Snapshot
from kongming.processes.boot import boot_id
from kongming.profiling.runs.execution import Output
from kongming.profiling.runs.load_loop import loop
from kongming.profiling.runs.page_cache import FILES_ONLY, WHOLE_NODE, evict
from kongming.profiling.runs.runner import Outcome, open_runner
from kongming.records import moments
from kongming.records.application import Application, Metric, fill
from kongming.records.errors import ApplicationRunError
from tests.profiling.processes import alive, eventually, stubborn_daemon, written_pid


def run(work_dir: Path, **fields: Any) -> Outcome:
    with open_runner(Application(name="a", **fields), work_dir) as runner:
        return runner.run((0,))


@given(st.text(), st.text(alphabet="{}dir $a"))
def test_filling_replaces_the_folder_and_no_other_brace(before: str, after: str) -> None:
    text = before + "{dir}" + after
    filled = fill(text, "\0")
    assert filled == text.replace("{dir}", "\0")
    assert fill((text, after), "\0") == (filled, fill(after, "\0"))
    assert [c for c in fill(after, "") if c in "{}"] == [
        c for c in after.replace("{dir}", "") if c in "{}"
    ]


@given(st.lists(st.text(alphabet="ab\n", max_size=30).map(str.encode), max_size=20))
def test_output_keeps_both_ends(chunks: list[bytes]) -> None:
    output = Output(kept_bytes=16)
    for chunk in chunks:
        output.add(chunk)
    written = b"".join(chunks)
    assert output.total_bytes == len(written)
    if output.truncated:
        head, tail = output.text().encode().split(b"\n[...]\n")
        assert written.startswith(head)
        assert written.endswith(tail)
        assert len(head) == 16 <= len(tail)
    else:
        assert output.text().encode() == written


@pytest.mark.real
@pytest.mark.parametrize("kind", ["batch", "service"])
def test_what_comes_before_a_run_is_not_in_its_signals(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the set-up of a run nor the start of its service: each writes a line, and a counter
    counts lines."""
    log = tmp_path / "log"
    log.touch()

    def lines(*_: object, neighbour: int | None = None, **__: object) -> Snapshot:
        seen = 0 if neighbour is None else 1000 * neighbour
        counters = {"nr_periods": float(len(log.read_text().splitlines()))}
        return Snapshot(time.monotonic(), counters, {"load1": float(seen)})

    monkeypatch.setattr("kongming.probes.passive.snapshot", lines)
    write = f"echo a line >> {log}"
    fields: dict[str, Any] = {"command": write}
    if kind == "service":
        fields = {"command": f"{write}; exec sleep 100", "load": write, "ready": f"test -s {log}"}
    app = Application(name="a", kind=kind, prepare=f"{write}; sleep 0.02", **fields)  # type: ignore[arg-type]
    with open_runner(app, tmp_path / "w") as runner:
        before = time.time()
        outcome = runner.run((0,), neighbour=7)
    assert outcome.ok
    assert outcome.signals == {"nr_periods": 1.0, "load1": 7000.0}
    assert moments.unix(outcome.started_at) >= before + 0.015


@pytest.mark.real
def test_wall_time_is_the_metric_by_default(tmp_path: Path) -> None:
    outcome = run(tmp_path, command="sleep 0.05")
    assert outcome.ok
    assert outcome.metric == outcome.wall_s >= 0.05
    assert outcome.started_at.endswith("Z")
    assert outcome.wall_s == pytest.approx((outcome.end_ns - outcome.start_ns) / 1e9)


@pytest.mark.real
def test_the_last_match_on_stdout_or_stderr_is_the_metric(tmp_path: Path) -> None:
    outcome = run(
        tmp_path,
        command="echo 1 MB/s; echo 2.5e3 MB/s >&2; echo done",
        check="^done$",
        metric=Metric(r"([0-9.e]+) MB/s", "MB/s", "higher"),
    )
    assert outcome.metric == 2500.0


@pytest.mark.real
def test_commands_find_folder_environment_and_other_braces(tmp_path: Path) -> None:
    with open_runner(
        Application(
            name="a",
            setup="echo from setup > {dir}/in",
            prepare="echo prepared >> {dir}/in",
            command="cat {dir}/in; echo ${NAME} {other} $PWD",
            cleanup=f"cp {{dir}}/in {tmp_path}/kept",
            env={"NAME": "x{dir}"},
            workdir="{dir}",
        ),
        tmp_path / "new",
    ) as runner:
        runner.run((0,))
        outcome = runner.run((0,))
        scratch = runner.scratch
    assert scratch is not None
    assert outcome.output_tail.splitlines() == [
        "from setup", "prepared", "prepared", f"x{scratch} {{other}} {scratch}",
    ]  # fmt: skip
    assert (tmp_path / "kept").read_text().startswith("from setup")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.real
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"command": "echo broke it; exit 3"}, ["exit status 3", "broke it"]),
        ({"command": ("false",)}, ["exit status 1", "printed nothing"]),
        ({"command": ("no-such-program",)}, ["no-such-program was not found"]),
        ({"command": "sleep 60", "timeout_s": 0.1}, ["did not end within 0.1 s"]),
        ({"command": "kill -9 $$"}, ["killed by SIGKILL"]),
        ({"command": "sh -c 'kill -9 $$'; exit $?"}, ["137", "SIGKILL"]),
        ({"command": "echo hi", "metric": Metric("(x)", "s")}, ["matches its metric", "hi"]),
        ({"command": "echo x", "metric": Metric("(x)", "s")}, ["'x'", "not a number"]),
        ({"command": "echo 0 s", "metric": Metric("(.*) s", "s")}, ["not above 0"]),
        ({"command": "echo hi", "check": "^ok$"}, ["matches its check", "hi"]),
        ({"command": "true", "prepare": "echo no; false"}, ["prepare of a failed", "no"]),
        ({"command": "true", "workdir": "/nowhere"}, ["/nowhere", "not a folder"]),
    ],
)
def test_a_run_that_fails_says_why(
    tmp_path: Path, fields: dict[str, Any], words: list[str]
) -> None:
    outcome = run(tmp_path, **fields)
    assert not outcome.ok
    assert outcome.metric is None
    for word in words:
        assert word in (outcome.error or "")


@pytest.mark.real
def test_of_a_long_output_both_ends_are_searched(tmp_path: Path) -> None:
    outcome = run(
        tmp_path,
        command="echo begin; yes | head -c 50000000; echo took 7 s",
        check="^begin$",
        metric=Metric("took (.*) s", "s"),
    )
    assert outcome.metric == 7.0
    assert len(outcome.output_tail) < 2000
    silent = run(tmp_path, command="yes | head -c 5000000", check="begin")
    assert "first and last MiB" in (silent.error or "")


@pytest.mark.real
def test_a_daemon_that_ignores_sigterm_is_gone_after_the_run(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    outcome = run(tmp_path, command=stubborn_daemon(str(file)))
    assert outcome.ok
    assert not alive(written_pid(file))


@pytest.mark.real
def test_set_up_that_fails_shows_the_end_of_its_output(tmp_path: Path) -> None:
    app = Application(name="a", command="true", setup="seq 9; echo no space >&2; exit 4")
    with pytest.raises(
        ApplicationRunError, match=r"(?s)setup of a failed: exit status 4.*no space"
    ):
        open_runner(app, tmp_path / "w").__enter__()
    assert list((tmp_path / "w").iterdir()) == []


@pytest.mark.real
def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ApplicationRunError, match="No scratch folder can be created in"):
        open_runner(Application(name="a", command="true"), tmp_path / "file").__enter__()


@pytest.mark.real
def test_scratch_of_a_killed_process_is_swept(tmp_path: Path) -> None:
    with open_runner(Application(name="old", command="true"), tmp_path) as killed:
        assert killed.scratch is not None
        left = killed.scratch
    left.mkdir()
    (left / "file").touch()
    os.utime(left, (0, 0))
    with open_runner(Application(name="a", command="true"), tmp_path) as runner:
        assert runner.scratch is not None
        os.utime(runner.scratch, (0, 0))
        with open_runner(Application(name="b", command="true"), tmp_path):
            assert runner.scratch.is_dir()
    assert not left.exists()


@pytest.mark.real
def test_only_scratch_of_this_machine_is_swept(tmp_path: Path) -> None:
    with open_runner(Application(name="old", command="true"), tmp_path) as runner:
        assert runner.scratch is not None
        own = runner.scratch.name
    boot = boot_id()[:12]
    assert boot
    others = (
        own.replace(boot, "0123456789ab"),  # another machine's, whose lock is not seen here
        "kongming-app-old-abcd1234",  # of an earlier version
        "kongming-app-notes",
        f"{own}-copy",
    )
    for name in others:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    with open_runner(Application(name="a", command="true"), tmp_path):
        pass
    assert {path.name for path in tmp_path.iterdir()} == set(others)


@pytest.mark.real
def test_a_cold_run_says_what_was_evicted(tmp_path: Path) -> None:
    app = Application(name="a", command="true", setup="echo x > {dir}/x", cache="cold")
    with open_runner(app, tmp_path) as runner:
        assert runner.run((0,)).warnings == (FILES_ONLY,)


@pytest.fixture
def evicted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that are evicted, in their order."""
    files: list[str] = []
    advise = os.posix_fadvise

    def recorded(fd: int, *more: int) -> None:
        files.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        advise(fd, *more)

    monkeypatch.setattr(os, "posix_fadvise", recorded)
    return files


@pytest.mark.real
@pytest.mark.parametrize("role", ["batch", "service", "neighbour"])
def test_cold_is_the_same_alone_and_as_a_neighbour(
    role: str, tmp_path: Path, evicted: list[str]
) -> None:
    (tmp_path / "input").write_text("x")
    (tmp_path / "link").symlink_to("input")
    (tmp_path / "other").write_text("x")
    read = f"cat {tmp_path}/link {{dir}}/made > /dev/null; sleep 0.01"
    fields: dict[str, Any] = {"command": read}
    if role == "service":
        fields = {"kind": "service", "command": "exec sleep 100", "load": read}
    app = Application(name="a", setup="echo x > {dir}/made", cache="cold", **fields)
    with open_runner(app, tmp_path / "w") as runner:
        inside = str(runner.scratch) + "/made"
        if role == "neighbour":
            with loop(runner, (0,)) as running:
                assert running.wait_warm(60.0)
        else:
            assert runner.run((0,)).warnings == (FILES_ONLY,)
    assert {str(tmp_path / "input"), inside} <= set(evicted)
    assert str(tmp_path / "other") not in evicted


@pytest.mark.real
def test_a_cold_neighbour_evicts_what_it_may_share_only_before_it_loops(
    tmp_path: Path, evicted: list[str]
) -> None:
    (tmp_path / "input").write_text("x")
    read = f"cat {tmp_path}/input {{dir}}/made > /dev/null; sleep 0.01"
    app = Application(name="a", setup="echo x > {dir}/made", cache="cold", command=read)
    with open_runner(app, tmp_path / "w") as runner:
        inside = str(runner.scratch) + "/made"
        with loop(runner, (0,)) as running:
            assert eventually(lambda: len(running.iterations()) >= 3)
    assert evicted.count(inside) >= 3
    assert evicted.count(str(tmp_path / "input")) == 1
    assert evicted.index(str(tmp_path / "input")) < 2


def test_the_whole_page_cache_is_dropped_where_that_may_be_written(tmp_path: Path) -> None:
    switch = tmp_path / "drop_caches"
    assert evict(tmp_path, drop_caches=switch) == WHOLE_NODE
    assert switch.read_text() == "1\n"
    assert evict(tmp_path, drop_caches=tmp_path / "no" / "such") == FILES_ONLY


@pytest.mark.real
def test_ctrl_c_reaps_cleans_up_and_removes_the_folder(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from kongming.records.application import Application\n"
        "from kongming.profiling.runs.runner import open_runner\n"
        "app = Application('a', sys.argv[1], cleanup=sys.argv[2])\n"
        "with open_runner(app, sys.argv[3]) as runner:\n"
        "    runner.run((0,))\n"
    )
    file, cleaned = tmp_path / "pid", tmp_path / "cleaned"
    python = subprocess.Popen(
        [sys.executable, "-c", program, stubborn_daemon(str(file)) + "; sleep 60",
         f"touch {cleaned}", str(tmp_path / "w")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    pids = [written_pid(file)]
    pids += [child.pid for child in psutil.Process(python.pid).children(recursive=True)]
    python.send_signal(signal.SIGINT)
    try:
        python.wait(10)
    finally:
        python.kill()
    assert eventually(lambda: not any(map(alive, pids)))
    assert cleaned.exists()
    assert list((tmp_path / "w").iterdir()) == []
