from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from kongming_agent.reporting.delivery import runs_of
from kongming_agent.reporting.spool import Spool

from kongming import Fingerprint, Run, Signature
from kongming.records.errors import IncompatibleError, StoreError
from kongming.rpc.record_codec import run_to_message
from kongming.rpc.v1 import fleet_pb2
from tests.agent.conftest import refused_records
from tests.agent.spooled import assignment_of, record_of, reported
from tests.builders import fingerprint, run, signature

TIMES = {"memory.random.8M": 2e-8, "compute.int": 1e-9}


def test_a_new_spool_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with closing(Spool(tmp_path / "state" / "spool.db")) as spool:
            spool.add_run(run("sort", 1.0))
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    finally:
        os.umask(before)
    files = dict.fromkeys(("spool.db", "spool.db-wal", "spool.db-shm"), 0o600)
    assert modes == {"state": 0o700, **files}
    path = tmp_path / "state" / "spool.db"
    path.chmod(0o640)
    Spool(path).close()
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_was_added_comes_out_in_its_order_as_it_went_in(spool: Spool) -> None:
    records = [fingerprint(TIMES), run("sort", 1.5, TIMES), signature("sort", TIMES)]
    first = spool.add_fingerprint(records[0], "live", 1)
    spool.add_run(records[1], assignment_id="job-7")
    spool.add_signature(records[2])
    entries = spool.oldest()
    assert [record_of(entry) for entry in entries] == records
    assert [entry.sequence for entry in entries] == [first, first + 1, first + 2]
    report = reported(entries[0])
    assert (report.purpose, report.domain) == (fleet_pb2.PURPOSE_LIVE, 1)
    assert assignment_of(entries[1]) == "job-7"
    assert spool.counts() == {"fingerprint": 1, "run": 1, "signature": 1}


def test_it_is_all_there_after_it_was_opened_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    spooled = run("sort", 2.0)
    spool.add_run(spooled)
    spool.put("state", {"left": 3})
    spool.close()
    again = Spool(tmp_path / "spool.db")
    assert [entry.id for entry in again.oldest()] == [spooled.id]
    assert again.get("state") == {"left": 3}
    again.close()


def test_only_what_was_delivered_goes_and_sequences_are_never_given_twice(spool: Spool) -> None:
    runs = [run("sort", 1.0) for _ in range(3)]
    last = [spool.add_run(each) for each in runs][-1]
    assert spool.delivered([runs[0].id, runs[2].id, "unknown"]) == 2
    assert [entry.id for entry in spool.oldest()] == [runs[1].id]
    assert spool.add_run(run("sort", 1.0)) == last + 1


def test_above_its_bound_the_oldest_fingerprints_are_thinned_and_runs_never(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "spool.db", most_bytes=20_000)
    runs = [run("sort", 1.0, TIMES) for _ in range(10)]
    prints = [fingerprint(TIMES) for _ in range(100)]
    for number, each in enumerate(prints):
        if number % 10 == 0:
            spool.add_run(runs[number // 10])
        spool.add_fingerprint(each, "live", 0)
    left = [entry.id for entry in spool.oldest(limit=1000, most_bytes=1 << 30)]
    assert [id for id in left if id in {r.id for r in runs}] == [r.id for r in runs]
    remaining = [number for number, each in enumerate(prints) if each.id in left]
    assert spool.bytes() <= 20_000
    assert spool.thinned == 100 - len(remaining)
    # The newest are all there, and the first still shows how it was.
    assert remaining[-5:] == [95, 96, 97, 98, 99]
    assert remaining[0] == 0
    spool.close()


def test_runs_alone_may_exceed_the_bound(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db", most_bytes=1)
    for _ in range(5):
        spool.add_run(run("sort", 1.0))
    spool.add_fingerprint(fingerprint(TIMES), "live", 0)
    assert spool.counts() == {"fingerprint": 1, "run": 5, "signature": 0}
    spool.close()


def test_a_refused_run_is_put_aside_and_a_refused_fingerprint_dropped(spool: Spool) -> None:
    bad, print_ = run("sort", 1.0), fingerprint(TIMES)
    spool.add_run(bad)
    spool.add_fingerprint(print_, "live", 0)
    spool.refused([bad.id], "run.metric: is implausible.")
    spool.refused([print_.id], "no")
    assert spool.oldest() == []
    assert refused_records(spool) == [(bad.id, "run.metric: is implausible.")]


def test_a_run_and_its_step_are_kept_together_or_not_at_all(spool: Spool) -> None:
    first = run("sort", 1.0, step=3)
    spool.add_run(first, campaign="c")
    with pytest.raises(StoreError):
        spool.add_run(run("sort", 1.0, step=4, id=first.id), campaign="c")
    assert spool.steps_done("c") == {3}
    spool.forget_steps("c")
    assert spool.steps_done("c") == frozenset()


def test_a_spool_that_is_younger_than_the_server_is_numbered_anew(spool: Spool) -> None:
    runs = [run("sort", 1.0) for _ in range(3)]
    for each in runs:
        spool.add_run(each)
    assert not spool.go_on_after(2)
    assert spool.go_on_after(1000)
    assert [entry.sequence for entry in spool.oldest()] == [1001, 1002, 1003]
    assert [entry.id for entry in spool.oldest()] == [each.id for each in runs]
    assert spool.add_run(run("sort", 1.0)) == 1004


def _add(path: Path, count: int) -> None:
    spool = Spool(path)
    for _ in range(count):
        spool.add_run(run("sort", 1.0))
    spool.close()


def test_two_processes_may_add_at_once(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    Spool(path).close()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add, args=(path, 30)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    spool = Spool(path)
    assert spool.counts()["run"] == 60
    spool.close()


def test_what_add_has_returned_for_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    script = (
        "import sys; from pathlib import Path; from kongming_agent.reporting.spool import Spool\n"
        "from tests.builders import run\n"
        f"spool = Spool(Path({str(path)!r}))\n"
        "while True:\n"
        "    record = run('sort', 1.0); spool.add_run(record); print(record.id, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().strip() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    acknowledged += process.stdout.read().split()
    process.wait()
    process.stdout.close()
    spool = Spool(path)
    stored = {entry.id for entry in spool.oldest(limit=100_000, most_bytes=1 << 30)}
    assert set(acknowledged) <= stored
    spool.close()


def test_a_damaged_file_is_put_aside_and_the_agent_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    path.write_bytes(b"this is no database, " * 100)
    spool = Spool(path)
    spool.add_run(run("sort", 1.0))
    aside = [each for each in tmp_path.iterdir() if "damaged" in each.name]
    assert aside[0].read_bytes().startswith(b"this is no database")
    spool.close()


def test_tables_whose_names_are_damaged_are_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    Spool(path).close()
    content = path.read_bytes().replace(b"CREATE TABLE refused (", b"CREATE \x80ABLE \x80efused (")
    path.write_bytes(content)
    spool = Spool(path)
    spool.add_run(run("sort", 1.0))
    assert [each for each in tmp_path.iterdir() if "damaged" in each.name]
    spool.close()


def test_a_page_that_cannot_be_read_is_found_before_anything_is_delivered(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    spool = Spool(path)
    spool.add_run(run("sort", 1.0))
    ((root,),) = spool._read("SELECT rootpage FROM sqlite_master WHERE name = 'records'")
    spool.close()
    content = bytearray(path.read_bytes())
    content[4096 * (root - 1) : 4096 * (root - 1) + 8] = b"\xff" * 8
    path.write_bytes(content)
    spool = Spool(path)
    assert spool.oldest() == []
    spool.add_run(run("sort", 1.0))
    aside = [each for each in tmp_path.iterdir() if "damaged" in each.name]
    assert aside[0].read_bytes() == content
    spool.close()


OLDER = Path(__file__).with_name("fixtures") / "spool-1"
"""Written by version 1; the JSON says what it held."""


@pytest.mark.parametrize("renamed", [False, True], ids=["placement_id", "assignment_id"])
def test_a_spool_of_version_1_is_upgraded_without_loss(tmp_path: Path, renamed: bool) -> None:
    path = tmp_path / "spool.db"
    shutil.copy(OLDER.with_suffix(".db"), path)
    if renamed:
        with closing(sqlite3.connect(path)) as database:
            database.execute("ALTER TABLE records RENAME COLUMN placement_id TO assignment_id")
    held = json.loads(OLDER.with_suffix(".json").read_text())
    spool = Spool(path)
    entries = spool.oldest()
    kinds = {"fingerprint": Fingerprint, "run": Run, "signature": Signature}
    assert [(entry.sequence, entry.kind, record_of(entry)) for entry in entries] == [
        (
            expected["sequence"],
            expected["kind"],
            kinds[expected["kind"]].from_dict(expected["record"]),
        )
        for expected in held["records"]
    ]
    for entry, expected in zip(entries, held["records"], strict=True):
        if entry.kind == "fingerprint":
            purpose = fleet_pb2.Purpose.Name(reported(entry).purpose)
            assert purpose == f"PURPOSE_{expected['purpose'].upper()}"
            assert reported(entry).domain == expected["domain"]
        elif entry.kind == "run":
            assert assignment_of(entry) == expected["assignment_id"]
    assert refused_records(spool) == [("run-refused", "run.metric: cannot be true.")]
    assert spool.steps_done("campaign:abc") == {3, 4}
    assert spool.get("state") == {"left": 3}
    # The last number was given to a run that is delivered.
    assert spool.add_run(run("sort", 1.0)) == held["highest"] + 1
    spool.close()
    again = Spool(path)
    assert again.counts() == {"fingerprint": 2, "run": 3, "signature": 1}
    again.close()


def test_an_older_row_that_fits_no_message_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    shutil.copy(OLDER.with_suffix(".db"), path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE records SET body = x'00' WHERE id = 'run-placed'")
    spool = Spool(path)
    assert spool.counts() == {"fingerprint": 2, "run": 1, "signature": 1}
    assert [id for id, _ in refused_records(spool)] == ["run-refused", "run-placed"]
    spool.close()


def test_what_was_spooled_is_sent_as_it_lies(spool: Spool) -> None:
    spooled = run("sort", 1.5, TIMES)
    spool.add_run(spooled, assignment_id="job-7")
    (entry,) = spool.oldest()
    expected = fleet_pb2.ReportedRun(
        sequence=entry.sequence, run=run_to_message(spooled), assignment_id="job-7"
    )
    assert list(runs_of("node-1", [entry]).runs) == [expected]


def test_a_newer_spool_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(IncompatibleError, match="version 9"):
        Spool(path)


def test_a_full_disk_refuses_what_is_new_and_keeps_what_is_there(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    earlier = run("sort", 1.0)
    spool.add_run(earlier)
    pages = spool._database.execute("PRAGMA page_count").fetchone()[0]
    spool._database.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for _ in range(200):
            spool.add_run(run("sort", 1.0, TIMES))

    with pytest.raises(StoreError, match="full"):
        fill()
    before = spool.counts()["run"]
    spool._database.execute("PRAGMA max_page_count = 1000000")
    spool.add_run(run("sort", 1.0))
    assert spool.counts()["run"] == before + 1
    assert earlier.id in {entry.id for entry in spool.oldest(limit=1000, most_bytes=1 << 30)}
    spool.close()
