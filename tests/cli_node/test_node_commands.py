from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kongming.cli.measure.fingerprint import show
from kongming.probes.measuring import measuring
from kongming.quantities import count
from kongming.records.fingerprint import COUPLING, Fingerprint
from kongming.store import Store
from kongming.store.reference import Reference
from tests import builders
from tests.conftest import ROOT, Kongming

pytestmark = pytest.mark.usefixtures("fake")

# Every suite is cut short by the fake: it stops after two rounds or the window.
QUICK = ("--suite", "quick")


def document(text: str) -> Any:
    return json.loads(text)


def test_suite_lists_every_surrogate(kongming: Kongming) -> None:
    done = kongming("suite", "--json")
    assert done.returncode == 0, done.stderr
    listed = {item["name"]: item for item in document(done.stdout)}
    assert listed["stream.triad"]["roles"] == ["probe", "inducer"]
    assert listed["os.wakeup"]["no_inducer_reason"] == "waiting loads nothing."
    assert listed["memory.random.512M"]["instead_of"] == "memory.random.1G"
    keys = {"family", "op", "unit", "roles", "paper", "suites", "size_bytes", "description"}
    assert all(keys <= set(item) for item in listed.values())


def test_suite_for_a_person(kongming: Kongming) -> None:
    done = kongming("suite")
    assert done.returncode == 0, done.stderr
    assert "stream.triad" in done.stdout
    assert "waiting loads nothing" in " ".join(done.stdout.split())


def test_fingerprint_is_one_document_and_is_kept(kongming: Kongming, store_url: str) -> None:
    done = kongming("fingerprint", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    printed = document(done.stdout)
    assert printed["schema"] == 1
    assert printed["suite"] == "quick"
    assert printed["surrogates"]["compute.int"]["op"] == "one operation"
    with Store.open(store_url) as store:
        (stored,) = store.fingerprints(purpose="adhoc")
        assert stored.to_dict() == Fingerprint.from_dict(printed).to_dict()
        assert [node.id for node in store.nodes()] == [printed["node"]["id"]]


def test_no_store_keeps_nothing(kongming: Kongming, tmp_path: Path) -> None:
    nowhere = {"KONGMING_STORE": f"sqlite:///{tmp_path / 'new.db'}"}
    assert kongming("fingerprint", *QUICK, "--no-store", "--json", env=nowhere).returncode == 0
    assert not (tmp_path / "new.db").exists()
    # A table has slowdowns, so it reads the store.
    assert kongming("fingerprint", *QUICK, "--no-store", env=nowhere).returncode == 0
    assert not (tmp_path / "new.db").exists()


def test_slowdowns_are_over_the_stored_reference_also_where_nothing_is_stored(
    kongming: Kongming, store_url: str
) -> None:
    line = ("fingerprint", "--surrogate", "compute.int", "--no-store")
    advice = "There is no idle reference yet"
    with Store.open(store_url):
        pass
    assert advice in kongming(*line).stdout
    assert kongming("reference", *QUICK, "--spread", "0", "--json").returncode == 0
    with Store.open(store_url) as store:
        before = len(store.fingerprints())
    done = kongming(*line)
    assert done.returncode == 0, done.stderr
    assert "slowdown" in done.stdout
    assert "1.00" in done.stdout
    assert advice not in done.stdout
    with Store.open(store_url) as store:
        assert len(store.fingerprints()) == before


def test_no_store_upgrades_no_store(kongming: Kongming, tmp_path: Path) -> None:
    old = min((ROOT / "tests/store/fixtures").glob("*.db"))
    before = old.read_bytes()
    (tmp_path / "store.db").write_bytes(before)
    done = kongming("fingerprint", *QUICK, "--no-store")
    assert done.returncode == 0, done.stderr
    assert "slowdowns are not known: The store" in done.stderr
    assert "idle reference" not in done.stdout
    assert (tmp_path / "store.db").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "warning"),
    [((), "could not be stored"), (("--no-store",), "slowdowns are not known")],
)
def test_nothing_is_claimed_of_a_reference_in_a_store_that_cannot_be_read(
    kongming: Kongming, tmp_path: Path, options: tuple[str, ...], warning: str
) -> None:
    (tmp_path / "store.db").write_text("this is no database, and it is long enough to be seen" * 40)
    done = kongming("fingerprint", *QUICK, *options)
    assert done.returncode == 0, done.stderr
    assert warning in done.stderr
    assert "idle reference" not in done.stdout


def test_a_table_for_a_person(kongming: Kongming) -> None:
    done = kongming("fingerprint", "--surrogate", "stream.triad", "--surrogate", "compute.int")
    assert done.returncode == 0, done.stderr
    assert "3.33 ns" in done.stdout
    assert "7.20 GB/s" in done.stdout
    assert "kongming reference" in done.stdout
    assert "iobench" not in done.stdout


@pytest.mark.parametrize(("coupling", "words"), [(1.02, "hardly slows"), (3.9, "greatly slows")])
def test_the_coupling_is_one_line_in_words(
    coupling: float, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(builders.fingerprint({"compute.int": 1e-9}, passive={COUPLING: coupling}), None, {})
    output = " ".join(capsys.readouterr().out.split())
    assert f"Coupling {coupling:.2f}" in output
    assert words in output


def test_a_broken_store_does_not_lose_the_measurement(kongming: Kongming, tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("this is no database, and it is long enough to be seen" * 40)
    done = kongming("fingerprint", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    assert document(done.stdout)["surrogates"]
    assert "could not be stored" in done.stderr


def test_unknown_names_are_suggested(kongming: Kongming) -> None:
    done = kongming("fingerprint", "--surrogate", "stream.triat")
    assert done.returncode == 2
    assert "stream.triad" in done.stderr
    # Before it waits for another measurement.
    with measuring("kongming profile"):
        assert kongming("fingerprint", "--surrogate", "stream.triat").returncode == 2
    done = kongming("fingerprint", "--suite", "quik", "--json")
    assert done.returncode == 2
    assert "quick" in document(done.stdout)["error"]["hint"]


def test_a_cpu_that_is_not_allowed(kongming: Kongming) -> None:
    done = kongming("fingerprint", "--cpu", "4096")
    assert done.returncode == 2
    assert str(min(os.sched_getaffinity(0))) in done.stderr


def test_failed_io_is_a_warning(kongming: Kongming) -> None:
    done = kongming("fingerprint", *QUICK, "--json", env={"FAKE_MODE": "io-fails"})
    assert done.returncode == 0
    assert document(done.stdout)["surrogates"]["iobench.read.4M"] == {
        "error": "The folder is read-only."
    }
    assert "could not be measured" in done.stderr


def test_every_reading_failing_is_status_1(kongming: Kongming) -> None:
    done = kongming("fingerprint", *QUICK, "--json", env={"FAKE_MODE": "all-fail"})
    assert done.returncode == 1
    assert document(done.stdout)["surrogates"]["compute.int"] == {"error": "It failed."}


def test_a_missing_binary_is_one_sentence(kongming: Kongming) -> None:
    done = kongming("fingerprint", env={"KONGMING_MICROBENCH": "/nonexistent"})
    assert done.returncode == 1
    assert "KONGMING_MICROBENCH" in done.stderr
    assert "Traceback" not in done.stderr


def test_reference_then_slowdown(kongming: Kongming, store_url: str) -> None:
    done = kongming("reference", *QUICK, "--spread", "0", "--json")
    assert done.returncode == 0, done.stderr
    printed = document(done.stdout)
    assert printed["readings"] == 10
    assert printed["surrogates"]["compute.int"]["seconds_per_op"] == pytest.approx(5e-9 / 3)
    with Store.open(store_url) as store:
        assert len(store.fingerprints(purpose="reference")) == 10
        reference = store.reference(printed["node_id"], printed["suite_version"])
        assert reference is not None
        assert reference.readings == 10
    assert "1.00" in kongming("fingerprint", *QUICK).stdout


def test_a_reference_of_fewer_surrogates_leaves_the_others_as_they_were(
    kongming: Kongming, store_url: str
) -> None:
    def stored() -> Reference:
        with Store.open(store_url) as store:
            (reference,) = store.references()
            return reference

    document(kongming("reference", "--spread", "0", "--json").stdout)
    before = stored()
    with Store.open(store_url) as store:
        store.put_reference(
            before.node_id,
            before.suite_version,
            before.cpu,
            {name: 2.0 * seconds for name, seconds in before.times.items()},
            before.readings,
            before.taken_at,
        )
    before = stored()
    done = kongming("reference", *QUICK, "--spread", "0", "--json")
    assert done.returncode == 0, done.stderr
    measured, after = document(done.stdout), stored()
    others = before.times.keys() - measured["surrogates"].keys()
    assert others
    assert measured["not_measured"] == {name: before.times[name] for name in sorted(others)}
    assert after.taken_at > before.taken_at
    assert {name: after.times[name] for name in others} == measured["not_measured"]
    for name in measured["surrogates"]:
        assert after.times[name] == pytest.approx(before.times[name] / 2.0)
    words = " ".join(kongming("reference", *QUICK, "--spread", "0").stdout.split())
    assert f"{count(len(others), 'surrogate')} of other suites" in words
    # Which the store does not tell.
    files = sum(name.startswith("iobench") for name in others)
    assert files
    assert f"as before, for {files} of them in the I/O folder (--dir) of that time" in words


def test_too_few_readings_are_refused(kongming: Kongming) -> None:
    done = kongming("reference", "--readings", "3")
    assert done.returncode == 2
    assert "10 or more" in done.stderr


def start(env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kongming.cli.main", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupt(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Press Ctrl-C and return what it printed; what runs here would go on for a minute."""
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    return out, err


def test_an_interrupted_reference_goes_on(
    kongming: Kongming, kongming_env: dict[str, str], store_url: str, tmp_path: Path
) -> None:
    def stored_count() -> int:
        try:
            with sqlite3.connect(f"file:{tmp_path / 'store.db'}?mode=ro", uri=True) as connection:
                return int(connection.execute("select count(*) from fingerprint").fetchone()[0])
        except sqlite3.Error:
            return 0

    process = start(kongming_env, "reference", *QUICK, "--spread", "600", "--readings", "10")
    deadline = time.monotonic() + 60.0
    while stored_count() == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    _, err = interrupt(process)
    assert process.returncode == 130
    assert "1 of 10 readings are stored" in err
    done = kongming("reference", *QUICK, "--spread", "0", "--json")
    assert document(done.stdout)["readings"] == 10
    with Store.open(store_url) as store:
        assert len(store.fingerprints(purpose="reference")) == 10


def test_induce_ends_at_its_deadline(kongming: Kongming) -> None:
    done = kongming("induce", "stream.triad", "--intensity", "0.5", "--seconds", "0.05", "--json")
    assert done.returncode == 0, done.stderr
    printed = document(done.stdout)
    assert (printed["surrogate"], printed["intensity"], printed["duty"]) == (
        "stream.triad",
        0.5,
        0.5,
    )


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_ctrl_c_ends_induce_and_tells_what_it_did(
    kongming_env: dict[str, str], tmp_path: Path, options: tuple[str, ...]
) -> None:
    log = tmp_path / "log"
    process = start(kongming_env | {"FAKE_LOG": str(log)}, "induce", "compute.int", *options)
    deadline = time.monotonic() + 60.0
    while not (log.exists() and '"induce"' in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    out, _ = interrupt(process)
    assert process.returncode == 130
    if options:
        assert document(out)["duty"] == 1.0
    else:
        assert "duty 1.000" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compute.it",), "compute.int"),
        (("os.wakeup",), "waiting loads nothing"),
        (("compute.int", "--intensity", "2"), "intensity"),
        (("compute.int", "--copies", "0"), "copies"),
        (("compute.int", "--seconds", "0"), "seconds"),
    ],
)
def test_wrong_loads_are_refused(kongming: Kongming, words: tuple[str, ...], message: str) -> None:
    done = kongming("induce", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_full_disk_is_one_sentence(kongming: Kongming) -> None:
    done = kongming("induce", "iobench.write.4M", env={"FAKE_MODE": "disk-full"})
    assert done.returncode == 1
    assert "2 GiB would stay free" in done.stderr


def test_measuring_loads_nothing_heavy(kongming_env: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from kongming.cli.main import run\n"
        "assert run(['fingerprint', '--suite', 'quick', '--json', '--no-store']) == 0\n"
        "heavy = {'numpy', 'sklearn', 'lightgbm', 'pyarrow', 'sqlalchemy', 'rich', 'psutil'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=kongming_env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_ctrl_c_ends_a_fingerprint(kongming_env: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    env = kongming_env | {"FAKE_LOG": str(log), "FAKE_MODE": "silent"}
    process = start(env, "fingerprint", *QUICK, "--json")
    deadline = time.monotonic() + 60.0
    while not (log.exists() and '"probe"' in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    out, _ = interrupt(process)
    assert process.returncode == 130
    assert document(out)["error"]
