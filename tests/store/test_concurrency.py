"""What was acknowledged is there, whoever else writes and however the writer ends."""

from __future__ import annotations

import signal
import subprocess

from kongming.store import Store
from tests import warm_start
from tests.conftest import ROOT


def start(*args: str) -> warm_start.Started:
    return warm_start.start("tests.store.writers", *args, cwd=ROOT, stdout=subprocess.PIPE)


def printed_by(writer: warm_start.Started) -> list[str]:
    """All words that it prints until it ends, which is in good order."""
    assert writer.stdout is not None
    words = writer.stdout.read().split()
    writer.stdout.close()
    assert writer.wait() == 0
    return words


def test_acknowledged_runs_survive_kill_9(new_store_url: str) -> None:
    writer = start("runs", new_store_url, "1000000", "sort")
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().strip() for _ in range(30)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += writer.stdout.read().split()
    writer.stdout.close()
    writer.wait()
    with Store.open(new_store_url) as store:
        runs = store.runs()
    assert set(acknowledged) <= {run.id for run in runs}
    assert all(run.fingerprint is not None for run in runs)


def test_two_processes_make_and_fill_one_store(new_store_url: str) -> None:
    apps = ("sort", "gzip")
    writers = [start("runs", new_store_url, "40", app) for app in apps]
    ids = {app: printed_by(writer) for app, writer in zip(apps, writers, strict=True)}
    with Store.open(new_store_url) as store:
        for app, printed in ids.items():
            assert len(printed) == 40
            assert {run.id for run in store.runs(app=app)} == set(printed)


def test_processes_agree_on_one_campaign_and_on_versions(new_store_url: str) -> None:
    openers = [start("campaign", new_store_url) for _ in range(3)]
    printed = [printed_by(opener) for opener in openers]
    assert len({campaign for campaign, _ in printed}) == 1
    assert sorted(version for _, version in printed) == ["1", "2", "3"]
