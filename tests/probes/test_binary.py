from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kongming.probes.binary import Microbench, locate, stream
from kongming.records.errors import ProbeError

PROBE = ["probe", "--seconds", "0.01", "--rounds", "1", "compute.int"]


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_named_binary_is_used(fake: Path) -> None:
    assert locate() == fake


def test_named_binary_that_does_not_run_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KONGMING_MICROBENCH", str(tmp_path / "missing"))
    with pytest.raises(ProbeError, match="KONGMING_MICROBENCH"):
        locate()


def test_no_binary_tells_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KONGMING_MICROBENCH", raising=False)
    for name in ("PATH", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(ProbeError) as caught:
        locate()
    assert "pip" in (caught.value.hint or "")


def test_binary_in_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KONGMING_MICROBENCH", raising=False)
    executable = script(tmp_path / "kongming-microbench", "exit 0\n")
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setattr(sys, "executable", "/nonexistent/bin/python")
    monkeypatch.setattr(sys, "prefix", "/nonexistent")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert locate() == executable


def test_stream_yields_events_in_order(fake: Path) -> None:
    kinds = [event["event"] for event in stream(PROBE)]
    assert kinds == ["start", "ready", "chunk", "end"]


def test_failure_is_the_binarys_own_sentence(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "fails")
    with pytest.raises(ProbeError, match=r"^there is no such thing\.$"):
        list(stream(PROBE))


def test_malformed_line_is_an_error(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "malformed")
    with pytest.raises(ProbeError, match="not understood"):
        list(stream(PROBE))


def test_newer_schema_is_refused(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "newer")
    with pytest.raises(ProbeError, match="schema 9"):
        list(stream(PROBE))


def test_sudden_death_names_the_signal(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "dies")
    with pytest.raises(ProbeError, match="SIGKILL"):
        list(stream([*PROBE, "os.wakeup"]))


def test_a_line_without_its_end_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path / "half", 'printf \'{"event":"start"}\\n{"event":"chu\'; exit 1\n')
    monkeypatch.setenv("KONGMING_MICROBENCH", str(path))
    events = stream(PROBE)
    assert next(events) == {"event": "start"}
    with pytest.raises(ProbeError, match="status 1"):
        next(events)


def test_silence_times_out_and_leaves_nothing(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "silent")
    with Microbench(PROBE) as running:
        assert running.read(10.0) is not None
        with pytest.raises(TimeoutError):
            running.read(0.05)
        pid = running.pid
    assert gone(pid)


def test_one_that_ignores_sigterm_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "trap '' TERM\nsleep 100 &\necho '{\"event\":\"ready\",\"pid\":'$!'}'\nsleep 100\n"
    monkeypatch.setenv("KONGMING_MICROBENCH", str(script(tmp_path / "deaf", text)))
    with Microbench(["induce"]) as running:
        event = running.read(10.0)
        assert event is not None
        running.stop(0.1)
        pid = running.pid
    assert gone(pid)
    deadline = time.monotonic() + 60.0
    while not gone(event["pid"]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(event["pid"])


def test_a_killed_parent_breaks_the_lifeline(fake: Path) -> None:
    program = (
        "from kongming.probes.binary import Microbench\n"
        "running = Microbench(['induce', '--intensity', '1', 'compute.int'])\n"
        "print(running.read()['pids'][0], flush=True)\n"
        "running.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        worker = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60.0
    while not gone(worker) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(worker)


def test_enters_cgroups_before_it_starts(fake: Path, tmp_path: Path) -> None:
    files = [tmp_path / "a b.procs", tmp_path / "tasks"]
    with Microbench(PROBE, cgroup_procs=files) as running:
        while running.read(10.0) is not None:
            pass
        assert [int(path.read_text()) for path in files] == [running.pid] * 2
        running.finish()


def test_a_cgroup_that_cannot_be_entered_is_an_error(fake: Path, tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="cgroup"):
        list(stream(PROBE, cgroup_procs=[tmp_path / "no" / "cgroup.procs"]))
