"""One measurement at a time on a CPU, over processes, and marks where two were asked for."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from kongming.campaigns.campaign import drive
from kongming.cli.main import cli
from kongming.probes import measuring as module
from kongming.probes.measuring import BusyError, disturbed_since, measuring
from kongming.probes.suite import load_suite
from kongming.probes.topology import known_siblings, measure_siblings
from kongming.profiling.events import Event
from kongming.records import moments
from kongming.records.errors import MeasurementError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.run import Run, Signature
from kongming.store import Store
from tests import builders
from tests.conftest import ROOT

ALLOWED = sorted(os.sched_getaffinity(0))
CPU = ALLOWED[0]
FAR = 4096
"""A CPU that no machine of these tests has: locks do not check that."""

HOLDER = """
import sys
from kongming.probes.measuring import measuring
with measuring(sys.argv[1], (int(sys.argv[2]),), anyway=sys.argv[3] == "anyway"):
    print("measuring", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(module.FOLDER, str(tmp_path / "locks"))
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    return tmp_path / "locks"


@contextmanager
def another(command: str, cpu: int = FAR, how: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process that measures; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, command, str(cpu), how],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "measuring\n"
        yield process
    finally:
        process.communicate("")


def test_who_measures_is_named_and_the_cpu_is_free_after_a_kill() -> None:
    with another("kongming profile") as process:
        with pytest.raises(BusyError) as caught, measuring("kongming corun", (FAR,), anyway=False):
            pytest.fail("two measured")
        assert caught.value.holder.pid == process.pid
        assert f"kongming profile (process {process.pid}, since 20" in caught.value.message
        assert "--anyway" in (caught.value.hint or "")
        with measuring("kongming corun", (FAR + 1,)):
            pass
        process.kill()
        process.wait()
        with measuring("kongming corun", (FAR,)):
            pass


def test_a_process_does_not_wait_for_itself_and_a_failure_leaves_nothing_held() -> None:
    with measuring("outer", (FAR,)), measuring("inner", (FAR, FAR + 1)):
        assert disturbed_since(0.0, (FAR, FAR + 1)) is None
    with another("kongming observe", FAR + 1):
        with pytest.raises(BusyError), measuring("both", (FAR, FAR + 1)):
            pytest.fail("two measured")
        with another("it can have the other"):
            pass


def test_both_sides_know_that_they_measured_beside_each_other() -> None:
    with measuring("the first", (FAR,)):
        before = time.time()
        assert disturbed_since(before, (FAR,)) is None
        with another("the second", how="anyway") as process:
            seen = disturbed_since(before, (FAR,))
            assert seen is not None
            assert seen.pid == process.pid
        # It has ended, and was there since.
        assert disturbed_since(before, (FAR,)) is not None
        assert disturbed_since(time.time() + 60.0, (FAR,)) is None
    with another("the first") as process, measuring("the second", (FAR,), anyway=True):
        seen = disturbed_since(time.time(), (FAR,))
        assert seen is not None
        assert (seen.pid, seen.command) == (process.pid, "the first")
    assert disturbed_since(0.0, (FAR,)) is None


@pytest.mark.parametrize("anyway", [False, True])
def test_looking_who_measures_is_not_taken_for_measuring(locks: Path, anyway: bool) -> None:
    """Both files are left from processes that ended long ago."""
    locks.mkdir()
    for kind in ("lock", "anyway"):
        (locks / f"cpu-{FAR}.{kind}").write_text('{"pid": 1, "command": "old", "since": ""}')
    later = time.time() + 60.0
    ending = threading.Event()

    def look() -> None:
        while not ending.is_set():
            for kind in ("lock", "anyway"):
                module._active(FAR, kind, later)

    with ExitStack() as stack:
        with held(locks, FAR) if anyway else nullcontext():
            stack.enter_context(measuring("kongming profile", (FAR,), anyway=anyway))
        lookers = [threading.Thread(target=look) for _ in range(2)]
        for looker in lookers:
            looker.start()
        try:
            seen = {disturbed_since(later, (FAR,)) for _ in range(2000)}
        finally:
            ending.set()
            for looker in lookers:
                looker.join()
    assert seen == {None}


def test_those_who_measure_anyway_see_each_other_and_outlast_the_holder() -> None:
    with another("the first") as first, measuring("the second", (FAR,), anyway=True):
        before = time.time()
        with another("the third", how="anyway") as third:
            first.kill()
            first.wait()
            # At any time since a later moment: the first has ended, the third has not.
            seen = disturbed_since(time.time() + 60.0, (FAR,))
            assert seen is not None
            assert seen.pid == third.pid
        assert disturbed_since(before, (FAR,)) is not None
        assert disturbed_since(time.time() + 60.0, (FAR,)) is None


def test_who_comes_later_is_refused_or_knows_who_measures_there_anyway() -> None:
    with another("the first") as first, another("the second", how="anyway") as second:
        first.kill()
        first.wait()
        with pytest.raises(BusyError) as caught, measuring("the third", (FAR,)):
            pytest.fail("two measured")
        assert caught.value.holder.pid == second.pid
        with measuring("the third", (FAR,), anyway=True):
            seen = disturbed_since(time.time(), (FAR,))
            assert seen is not None
            assert seen.pid == second.pid
    with measuring("the third", (FAR,)):
        pass


WAITER = """
import sys
from kongming.probes.measuring import measuring
print("waiting", flush=True)
with measuring("the third", (int(sys.argv[1]),), patience_s=60.0):
    print("measuring", flush=True)
"""


@contextmanager
def waiting() -> Iterator[subprocess.Popen[str]]:
    """A process that waits for the CPU, and measures when its turn has come."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITER, str(FAR)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            yield process
            assert process.stdout.read() == "measuring\n"
            assert process.wait() == 0
        finally:
            process.kill()


def test_who_waits_for_one_that_measures_anyway_does_not_disturb_it() -> None:
    with (
        another("the first") as first,
        ExitStack() as later,
        measuring("the second", (FAR,), anyway=True),
    ):
        first.kill()
        first.wait()
        later.enter_context(waiting())
        for _ in range(30):
            assert disturbed_since(time.time() + 60.0, (FAR,)) is None
            time.sleep(0.01)


def test_who_waits_for_the_holder_waits_for_those_who_came_meanwhile_too() -> None:
    with another("the first") as first, ExitStack() as later:
        waiter = later.enter_context(waiting())
        # By now it waits for the first.
        time.sleep(0.3)
        with measuring("the second", (FAR,), anyway=True):
            first.kill()
            first.wait()
            assert waiter.stdout is not None
            assert select.select([waiter.stdout], [], [], 0.5)[0] == []


@pytest.mark.parametrize("note", ["", "[]", "{", '{"pid": "x"}', "\0" * 9000])
def test_a_note_that_cannot_be_read_names_nobody(locks: Path, note: str) -> None:
    with held(locks, FAR):
        (locks / f"cpu-{FAR}.lock").write_text(note)
        with pytest.raises(BusyError, match="Another measurement measures on CPU 4096"):
            measuring("x", (FAR,)).__enter__()


def test_a_note_of_others_cannot_write_to_the_terminal(locks: Path) -> None:
    with held(locks, FAR):
        note = {"pid": 7, "command": "\x1b[31mred\n" + "x" * 500, "since": "now\x1b"}
        (locks / f"cpu-{FAR}.lock").write_text(json.dumps(note))
        with pytest.raises(BusyError) as caught:
            measuring("x", (FAR,)).__enter__()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


def test_where_no_locks_can_be_kept_measuring_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(module.FOLDER, str(tmp_path / "file" / "locks"))
    with measuring("x", (FAR,)):
        assert disturbed_since(0.0, (FAR,)) is None


@contextmanager
def held(locks: Path, cpu: int) -> Iterator[None]:
    """The lock of a CPU as another process would hold it."""
    locks.mkdir(exist_ok=True)
    with (locks / f"cpu-{cpu}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


APPS = """
[apps.true]
command = "true"
"""


@pytest.mark.parametrize(
    ("command", "avoidable"),
    [
        ("fingerprint --suite quick --no-store", True),
        ("reference --readings 10 --spread 0", False),
        ("profile apps.toml --placement same-core", True),
        ("observe apps.toml --out out.parquet --no-metadata", False),
        ("scale run apps.toml --app true --experiment 1@1", True),
        ("corun true true --apps apps.toml --placement same-core", True),
        pytest.param(
            "evaluate apps.toml --nodes --placement same-core", True, marks=pytest.mark.thorough
        ),
    ],
)
def test_commands_that_measure_refuse_a_cpu_that_is_taken(
    command: str,
    avoidable: bool,
    locks: Path,
    tmp_path: Path,
    store_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KONGMING_STORE", store_url)
    monkeypatch.setenv("KONGMING_DIR", str(tmp_path))
    (tmp_path / "apps.toml").write_text(APPS)
    with held(locks, CPU):
        result = CliRunner().invoke(cli, command.split())
    assert isinstance(result.exception, BusyError), result.output
    assert ("--anyway" in (result.exception.hint or "")) is avoidable


def test_a_fingerprint_taken_anyway_says_who_measured_meanwhile(
    locks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KONGMING_DIR", str(tmp_path))
    with held(locks, CPU):
        line = "fingerprint --surrogate compute.int --no-store --json --anyway"
        result = CliRunner().invoke(cli, line.split())
    assert result.exit_code == 0, result.output
    warnings = json.loads(result.stdout)["warnings"]
    assert any(f"measured on CPU {CPU} meanwhile" in text for text in warnings)


def test_a_reading_beside_another_measurement_is_no_part_of_a_reference(
    fake: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Fingerprint] = []

    def measure(node: NodeFacts, suite: str, *_: object, **__: object) -> Fingerprint:
        with another("kongming profile", CPU, "anyway") if len(taken) == 3 else nullcontext():
            taken.append(
                builders.fingerprint(
                    {"compute.int": 1e-9},
                    node=node,
                    suite=suite,
                    suite_version=load_suite(node).version,
                    cpu=CPU,
                    started_at=moments.now(),
                )
            )
        return taken[-1]

    monkeypatch.setattr("kongming.cli.measure.fingerprint.measure", measure)
    line = ["reference", "--spread", "0s", "--json", "--store", store_url]
    refused = CliRunner().invoke(cli, line)
    assert isinstance(refused.exception, MeasurementError), refused.output
    assert "A measurement with --anyway (process " in refused.exception.message
    assert "3 of 10 readings are stored" in (refused.exception.hint or "")
    with Store.open(store_url) as store:
        assert store.reference(taken[0].node.id, taken[0].suite_version, CPU) is None
    assert json.loads(CliRunner().invoke(cli, line).stdout)["readings"] == 10
    with Store.open(store_url) as store:
        stored = {reading.started_at for reading in store.fingerprints(purpose="reference")}
    assert stored == {reading.started_at for reading in taken} - {taken[3].started_at}


@pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two CPUs")
def test_a_check_of_two_cpus_beside_another_measurement_is_refused_or_not_stored(
    fake: Path, locks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    pair = f"{ALLOWED[0]},{ALLOWED[1]}"
    with held(locks, ALLOWED[1]):
        with pytest.raises(BusyError):
            measure_siblings("x", ALLOWED[:2], anyway=False)
        assert not (tmp_path / "log").exists()
        disturbed = measure_siblings("x", ALLOWED[:2], anyway=True)[pair]
    assert (disturbed["shares_core"], disturbed["disturbed"]) == (False, True)
    assert known_siblings("x") == {}
    assert "disturbed" not in measure_siblings("x", ALLOWED[:2])[pair]
    assert known_siblings("x").keys() == {pair}


@pytest.mark.parametrize(
    "command",
    ["profile apps.toml", "evaluate apps.toml --pairs", "evaluate apps.toml --nodes"],
)
def test_a_dry_run_measures_nothing_and_names_the_cpus_that_are_to_be_measured(
    command: str,
    fake: Path,
    store_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("KONGMING_STORE", store_url)
    monkeypatch.chdir(tmp_path)
    two_cores = builders.node(cpus=(0, 1), cores={"0": 0, "1": 1}, llc_cpus=((0, 1),), siblings={})
    monkeypatch.setattr("kongming.probes.node.node_facts", lambda: two_cores)
    (tmp_path / "apps.toml").write_text(APPS + APPS.replace("apps.true", "apps.also"))
    line = [*command.split(), "--placement", "cross-core", "--dry-run"]
    result = CliRunner().invoke(cli, [*line, "--json"])
    assert result.exit_code == 0, result.output
    assert "--cpu" not in (tmp_path / "log").read_text()
    assert known_siblings(two_cores.id) == {}
    assert json.loads(result.stdout)["unchecked_cpus"] == [0, 1]
    assert "whether CPUs 0 and 1 share a core" in CliRunner().invoke(cli, line).stdout
    # What is known needs no measurement.
    known = {"0,1": {"shares_core": False}}
    two_cores = builders.node(cpus=(0, 1), cores={}, llc_cpus=((0, 1),), siblings=known)
    assert "share a core" not in CliRunner().invoke(cli, line).stdout


def test_the_disk_is_not_timed_for_the_limits_of_environments_beside_a_measurement(
    fake: Path, locks: Path, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    (tmp_path / "apps.toml").write_text(APPS)
    command = f"evaluate {tmp_path / 'apps.toml'} --nodes --placement same-core"
    with held(locks, CPU):
        result = CliRunner().invoke(cli, [*command.split(), "--store", store_url])
    assert isinstance(result.exception, BusyError), result.output
    commands = [json.loads(line)[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert set(commands) == {"list"}


def test_a_run_of_a_campaign_says_who_measured_meanwhile(locks: Path) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.runs: list[Run] = []

        def add_run(self, run: Run) -> None:
            self.runs.append(run)

        def add_fingerprint(self, fingerprint: Fingerprint, purpose: str = "") -> None: ...

        def add_signature(self, signature: Signature) -> None: ...

    def events() -> Iterator[Event]:
        yield builders.run("gz", 1.0, started_at=moments.now())
        with held(locks, CPU), measuring("kongming profile", (CPU,), anyway=True):
            yield builders.run("gz", 1.0, started_at=moments.now())

    recorder = Recorder()
    undisturbed, disturbed = drive(events(), recorder)
    assert recorder.runs == [undisturbed, disturbed]
    assert not undisturbed.disturbed
    assert not undisturbed.warnings
    assert disturbed.disturbed
    assert f"measured on CPU {CPU} meanwhile" in str(disturbed.warnings)
