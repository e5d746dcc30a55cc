"""The agent as a whole: a real process with a made-up binary, and a Fleet server."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from kongming_agent import agent_command as main
from kongming_agent.agent import Agent as AgentHere
from kongming_agent.agent_config import Budget, Files, Probing, Profile, Settings
from kongming_agent.probing import prober, signals
from kongming_agent.probing.budget import Cost
from kongming_agent.probing.schedule import Probe
from kongming_agent.profiling import LATER, profile_allowed
from kongming_agent.reporting.metrics import METRICS, PREFIX
from kongming_agent.reporting.spool import Spool
from kongming_agent.state_lock import only_agent

from kongming.probes.measuring import measuring
from kongming.records.run import Run
from kongming.rpc.v1 import fleet_pb2
from tests import warm_start
from tests.agent.conftest import FAST, Agent, log_of, wait_until
from tests.agent.fleet import Fleet
from tests.agent.spooled import record_of
from tests.ports import free_port

APPS = """
[apps.nap]
command = "sleep 0.01"
[apps.secret]
command = "sleep 0.01"
"""


def once(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm_start.run(
        "kongming_agent.agent_command", "--once", "--metrics", "", *arguments, timeout=60
    )


def test_once_takes_and_delivers_a_fingerprint(fleet: tuple[Fleet, str], fake: Path) -> None:
    servicer, address = fleet
    done = once("--server", address, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["delivered"] is True
    assert document["fingerprints"][0]["suite"] == "quick"
    assert set(document["fingerprints"][0]["surrogates"]) == {
        "memory.random.8M",
        "compute.int",
        "iobench.read.4M",
    }
    assert [row[1] for row in servicer.stored()] == ["fingerprint"]


def run_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """The status of ``kongming-agent ARGUMENTS`` in this process, its output and its errors."""
    monkeypatch.setattr(main, "log_to_stderr", lambda level: None)
    return main.run(arguments), *capsys.readouterr()


def test_once_without_a_server_keeps_it_and_says_so(
    fake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = tmp_path / "agent.toml"
    settings.write_text("[server]\naddress = '127.0.0.1:1'\n")
    monkeypatch.setattr(main, "_ONCE_S", 0.5)
    status, out, _ = run_here(monkeypatch, capsys, "--once", "--config", str(settings))
    assert status == 1
    assert "1 records wait for 127.0.0.1:1" in out


def test_nothing_heavy_is_loaded_and_memory_stays_small(
    fleet: tuple[Fleet, str], fake: Path
) -> None:
    script = (
        "import json, sys\n"
        "from kongming_agent import agent_command as main\n"
        "from kongming_agent.reporting import status as process_status\n"
        f"status = main.run(['--once', '--metrics', '', '--server', {fleet[1]!r}])\n"
        "print(json.dumps([status, process_status.pss_bytes(), sorted(sys.modules)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    status, pss, modules = json.loads(done.stdout.splitlines()[-1])
    assert status == 0, done.stderr
    heavy = "numpy scipy sklearn lightgbm deap sqlalchemy pandas matplotlib kongming_server rich"
    assert {name.split(".")[0] for name in modules} & set(heavy.split()) == set()
    branch = {
        "kongming.store",
        "kongming.learning",
        "kongming.learning.predict",
        "kongming.profiling.runs.runner",
    }
    assert branch & set(modules) == set()
    assert 0 < pss < 64 << 20


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--server", "nowhere"], "server.address"),
        (["--config", "absent.toml"], "absent.toml"),
        (["profile", "nap"], "profile.apps"),
        (["--ca", "absent.pem"], "ca"),
        (["--token-file", "absent"], "token_file"),
    ],
)
def test_a_wrong_setting_is_named_and_ends_it_with_two(
    arguments: list[str],
    says: str,
    fake: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, _, err = run_here(monkeypatch, capsys, *arguments)
    assert status == 2
    assert says in err


def test_it_probes_reports_serves_metrics_and_ends_in_order(
    fleet: tuple[Fleet, str], agent_process: Agent, tmp_path: Path
) -> None:
    servicer, address = fleet
    port = free_port()
    text = tmp_path / "textfile" / "kongming.prom"
    settings = FAST + f"[metrics]\ntextfile = '{text}'\ntextfile_s = 0.3\n"
    process = agent_process(
        "--server", address, "--metrics", f"127.0.0.1:{port}", settings=settings
    )
    wait_until(lambda: len(servicer.stored()) >= 5, what="five fingerprints")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=100) as answer:
        page = answer.read().decode()
    for declared in METRICS:
        assert f"# HELP {PREFIX}{declared.name}" in page, declared.name
    assert re.search(PREFIX + r'surrogate_seconds{domain="0",surrogate="compute.int"} ', page)
    assert re.search(PREFIX + r"server_connected 1.0", page)
    assert re.search(PREFIX + r"budget_cpu_ratio 1.0", page)
    wait_until(lambda: text.exists() and PREFIX in text.read_text(), what="the text file")
    rows = servicer.stored()
    assert [row[2] for row in rows] == sorted(row[2] for row in rows)
    assert len({row[0] for row in rows}) == len(rows)
    assert 0.0 <= servicer.beats[-1].passive["cpu_busy"] <= 1.0
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


def test_a_second_agent_with_the_same_state_folder_is_refused(
    fleet: tuple[Fleet, str],
    fake: Path,
    agent_process: Agent,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    servicer, address = fleet
    line = ("--server", address, "--state", str(tmp_path / "own"), "--metrics", "")
    first = agent_process(*line, settings=FAST)
    wait_until(lambda: servicer.stored(), what="a fingerprint")
    status, _, err = run_here(monkeypatch, capsys, *line)
    assert status == 1
    assert f"Another agent uses the state folder {tmp_path / 'own'}" in err
    # A single fingerprint is taken next to it, as before.
    assert once(*line[:4]).returncode == 0
    first.kill()
    first.wait()
    with only_agent(tmp_path / "own"):
        pass


def test_where_no_lock_can_be_kept_an_agent_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with only_agent(tmp_path / "file"):
        pass


def test_a_stop_in_the_midst_of_a_probe_ends_the_probe(
    fleet: tuple[Fleet, str],
    agent_process: Agent,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("FAKE_MODE", "silent")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "calls"))
    process = agent_process("--server", fleet[1], settings=FAST)
    calls = tmp_path / "calls"
    wait_until(lambda: calls.exists() and '"probe"' in calls.read_text(), what="a probe")
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=100) == 0
    assert children_of(process.pid) == []


def children_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def test_probes_that_fail_are_counted_and_do_not_end_the_agent(
    fleet: tuple[Fleet, str], agent_process: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_MODE", "all-fail")
    process = agent_process("--server", fleet[1], settings=FAST)
    wait_until(lambda: len(fleet[0].beats) >= 3, what="three heartbeats")
    assert process.poll() is None


@pytest.mark.parametrize(("busy_cpus", "idle"), [(0, True), (12, False)])
def test_a_node_is_idle_by_all_its_cpus_and_not_by_those_that_the_agent_may_use(
    fake: Path,
    spool: Spool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    busy_cpus: int,
    idle: bool,
) -> None:
    """Of 64 CPUs, which is more than this process may use where the tests run."""
    read, stat, seconds = signals.sample, tmp_path / "proc/stat", itertools.count()
    stat.parent.mkdir()

    def sample(root: Path) -> signals.Sample:
        ticks, cpus = 100 * next(seconds), [*[1] * busy_cpus, *[0] * (64 - busy_cpus)]
        rows = [("cpu", sum(cpus)), *((f"cpu{cpu}", busy) for cpu, busy in enumerate(cpus))]
        stat.write_text(
            "".join(
                f"{name} {ticks * busy} 0 0 {ticks * ((64 if name == 'cpu' else 1) - busy)} 0\n"
                for name, busy in rows
            )
        )
        return read(root)

    monkeypatch.setattr(signals, "sample", sample)
    settings = Settings(
        files=Files(state=str(tmp_path / "state"), io=str(tmp_path)), probing=Probing(idle_s=0.0)
    )
    agent = AgentHere(settings, spool, rng=random.Random(1), root=tmp_path)
    agent.once(pause_s=0.0)
    assert agent.schedule.idle(time.monotonic()) is idle


def test_a_probe_that_fails_is_charged_what_it_took_and_its_memory_is_known(
    fake: Path, spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = tmp_path / "late"
    fails = "sleep 0.2; dd if=/dev/zero of=/dev/null bs=1M count=64 2>/dev/null; exit 1"
    late.write_text(f'#!/bin/sh\n[ "$1" = list ] || {{ {fails}; }}\nexec {fake} "$@"\n')
    late.chmod(0o755)
    monkeypatch.setenv("KONGMING_MICROBENCH", str(late))
    settings = Settings(
        files=Files(state=str(tmp_path)),
        probing=Probing(signals_s=0.05, start_s=0.0, memory_pressure=1.0, io_pressure=1.0),
        budget=Budget(cpu_share=1.0, probe_share=1.0),
    )
    agent = AgentHere(settings, spool, rng=random.Random(1))
    charged: list[Cost] = []

    def probed(probe: Probe, cost: Cost, now: float, *, ok: bool) -> None:
        assert not ok
        charged.append(cost)
        agent.stop()

    monkeypatch.setattr(agent.schedule, "probed", probed)
    # Later ones that need no more do not show in what the kernel tells.
    largest = itertools.count(1 << 20)
    monkeypatch.setattr(prober, "_largest_child_bytes", lambda: next(largest))
    began = time.monotonic()
    agent.run()
    (cost,) = charged
    assert 0.2 <= cost.wall_s <= time.monotonic() - began
    assert cost.cpu_s > 0.0
    assert agent.totals.peak_bytes == next(largest) - 1


def test_the_server_is_obeyed_within_the_nodes_own_list_only(
    fleet: tuple[Fleet, str], agent_process: Agent, tmp_path: Path
) -> None:
    servicer, address = fleet
    apps = tmp_path / "apps.toml"
    apps.write_text(APPS)
    settings = (
        FAST + f"[profile]\napps = '{apps}'\nallow = ['nap']\nplacement = 'same-core'\n"
        "minutes = 0.05\n"
    )
    servicer.orders = fleet_pb2.Instructions(profile_apps=["secret", "nap"])
    agent_process("--server", address, settings=settings)
    wait_until(
        lambda: any(row[1] == "run" for row in servicer.stored()),
        60.0,
        what="a run of the campaign",
    )
    assert servicer.registered[0].allowed_apps == ["nap"]
    wait_until(lambda: any("ended with status" in line for line in log_of(tmp_path)), 60.0)
    assert any("not profiled: secret" in line for line in log_of(tmp_path))


def test_a_server_that_means_harm_neither_fills_the_log_nor_keeps_the_agent_from_ending(
    fleet: tuple[Fleet, str], agent_process: Agent, tmp_path: Path
) -> None:
    servicer, address = fleet
    servicer.heartbeat_s = 0.001
    harm = fleet_pb2.Instructions(
        profile_apps=[f"rm{number}" for number in range(2000)],
        assignment_ids=[f"job-{number}" for number in range(10000)],
        probe_now=True,
        register_again=True,
    )
    servicer.always = harm
    process = agent_process("--server", address, settings=FAST)
    wait_until(lambda: len(servicer.beats) >= 10, what="ten heartbeats")
    process.terminate()
    assert process.wait(timeout=60) == 0
    lines = log_of(tmp_path)
    assert sum("not profiled" in line for line in lines) == 1
    assert sum("not looked at" in line for line in lines) == 1
    assert max(map(len, lines)) < 1000


def test_the_operator_may_not_profile_what_is_not_in_the_list(
    fake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "apps.toml").write_text(APPS)
    file = tmp_path / "agent.toml"
    file.write_text(f"[profile]\napps = '{tmp_path / 'apps.toml'}'\nallow = ['nap']\n")
    status, _, err = run_here(monkeypatch, capsys, "profile", "secret", "--config", str(file))
    assert status == 2
    assert "profile.allow" in err


def test_a_requested_campaign_whose_agent_has_ended_already_measures_nothing(
    fake: Path, tmp_path: Path
) -> None:
    (tmp_path / "apps.toml").write_text(APPS)
    file = tmp_path / "agent.toml"
    file.write_text(f"[profile]\napps = '{tmp_path / 'apps.toml'}'\nallow = ['nap']\n")
    # Its parent is another process then.
    arguments = ("profile", "nap", "--requested", "--parent", "1", "--config", file)
    done = warm_start.run(
        "kongming_agent.agent_command", *arguments, "--state", tmp_path / "state", timeout=60
    )
    assert done.returncode == LATER, done.stderr
    assert not (tmp_path / "state").exists()


def test_an_agent_of_before_an_upgrade_starts_campaigns_of_the_new_package(
    fake: Path, tmp_path: Path
) -> None:
    """It does not say who it is, and drops a request whose campaign does not start."""
    (tmp_path / "apps.toml").write_text(APPS)
    file = tmp_path / "agent.toml"
    file.write_text(
        f"[profile]\napps = '{tmp_path / 'apps.toml'}'\nallow = ['nap']\n"
        "placement = 'same-core'\nminutes = 1e-6\n"
    )
    done = warm_start.run(
        *("kongming_agent.agent_command", "profile", "--requested", "--state", tmp_path / "state"),
        *("--config", file, "--campaign", "c1", "nap"),
        timeout=60,
    )
    assert done.returncode < 2, done.stderr
    with closing(Spool(tmp_path / "state/spool.db")) as spool:
        assert sum(spool.counts().values())


def test_a_campaign_is_resumed_where_it_stopped_and_makes_no_run_twice(
    fake: Path, tmp_path: Path
) -> None:
    (tmp_path / "apps.toml").write_text(APPS)
    profile = Profile(apps=str(tmp_path / "apps.toml"), allow=("nap",), placement="same-core")
    settings = Settings(profile=profile, files=Files(state=str(tmp_path)))
    with closing(Spool(tmp_path / "spool.db")) as spool:
        first = profile_allowed(settings, ("nap",), spool, lambda: any(spool.counts().values()))
        assert (first.complete, first.runs) == (False, 1)
        documents = [first.to_dict()]
        for minutes in (1e-6, 5.0):
            file = tmp_path / "agent.toml"
            file.write_text(
                f"[profile]\napps = '{profile.apps}'\nallow = ['nap']\n"
                f"placement = 'same-core'\nminutes = {minutes}\n"
            )
            arguments = ("profile", "nap", "--config", file, "--state", tmp_path, "--json")
            documents.append(
                json.loads(warm_start.run("kongming_agent.agent_command", *arguments).stdout)
            )
        _, brief, last = documents
        # However short the time is, each command goes on by a step.
        assert (brief["complete"], brief["runs"]) == (False, 1)
        assert last["complete"]
        assert {document["campaign"] for document in documents} == {first.campaign}
        entries = spool.oldest(limit=1000, most_bytes=1 << 30)
    records = [record_of(entry) for entry in entries if entry.kind in ("run", "signature")]
    # Nothing can be run by this binary, and a first run that failed is tried again.
    for record in records[:2]:
        assert isinstance(record, Run)
        assert (record.step, record.ok) == (0, False)
    steps = [record.step for record in records[2:]]  # type: ignore[union-attr]
    assert sorted(steps) == list(range(len(steps)))
    assert len(records) == sum(d["runs"] + d["signatures"] for d in documents)


def test_systemd_hears_that_it_is_ready_alive_and_stopping(
    fleet: tuple[Fleet, str],
    agent_process: Agent,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    address = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(30)
        process = agent_process("--server", fleet[1], settings=FAST)
        assert listener.recv(200).startswith(b"READY=1")
        assert listener.recv(200).startswith(b"WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        while listener.recv(200) != b"STOPPING=1":
            pass
        assert process.wait(timeout=100) == 0


def test_the_budget_outlives_a_kill(
    fleet: tuple[Fleet, str], agent_process: Agent, tmp_path: Path
) -> None:
    servicer, address = fleet
    state = tmp_path / "own"
    arguments = ("--server", address, "--state", str(state))
    process = agent_process(*arguments, settings=FAST)
    wait_until(lambda: len(servicer.stored()) >= 2, what="two fingerprints")
    process.kill()
    process.wait()
    with closing(Spool(state / "spool.db")) as spool:
        written = spool.get("state")
        # As one that had spent far more than it may: days pass before it may probe again.
        spool.put("state", written | {"at": time.time(), "cpu_left": -1e6})
        known = {entry.id for entry in spool.oldest(1000)} | {row[0] for row in servicer.stored()}
    assert 0.0 < written["cpu_left"] <= 600.0

    process = agent_process(*arguments, settings=FAST)
    beats = len(servicer.beats)
    wait_until(lambda: len(servicer.beats) > beats + 3, what="heartbeats")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert {row[0] for row in servicer.stored()} <= known
    with closing(Spool(state / "spool.db")) as spool:
        assert spool.get("state")["cpu_left"] < -9e5


def test_it_does_not_probe_while_somebody_else_measures(
    fleet: tuple[Fleet, str], agent_process: Agent, tmp_path: Path
) -> None:
    servicer, address = fleet
    state = str(tmp_path / "state")
    with measuring("kongming profile"):
        agent_process("--server", address, "--state", state, settings=FAST)
        # Signals are sampled and reported meanwhile.
        wait_until(lambda: len(servicer.beats) >= 3, what="reports")
        assert servicer.stored() == []
    wait_until(lambda: servicer.stored() != [], what="a fingerprint once the CPU is free")


def test_a_spool_on_a_full_disk_does_not_end_the_agent(
    fleet: tuple[Fleet, str], agent_process: Agent, tmp_path: Path
) -> None:
    state = tmp_path / "small"
    state.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(state)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        process = agent_process("--server", "127.0.0.1:1", "--state", str(state), settings=FAST)
        wait_until(
            lambda: any("cannot be written" in line for line in log_of(tmp_path)),
            what="a full disk",
        )
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=100) == 0
    finally:
        subprocess.run(["umount", "-l", str(state)], check=False)
    assert os.path.ismount(state) is False


def test_it_probes_on_where_it_may_run_from_now_on(
    fleet: tuple[Fleet, str], agent_process: Agent, tmp_path: Path
) -> None:
    servicer, address = fleet
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one CPU here")
    process = agent_process("--server", address, settings=FAST)
    wait_until(lambda: len(servicer.stored()) >= 2, what="two fingerprints")
    for cpu in (max(allowed), min(allowed)):
        os.sched_setaffinity(process.pid, {cpu})
        wait_until(
            lambda cpu=cpu: list(servicer.registered[-1].node.cpus) == [cpu],
            what=f"news of CPU {cpu}",
        )
        before = len(servicer.stored())
        wait_until(lambda before=before: len(servicer.stored()) >= before + 2, what="fingerprints")
    assert not any("no fingerprint" in line for line in log_of(tmp_path)[-3:])
