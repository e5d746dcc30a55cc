"""What was acknowledged is there, whoever else writes and however the writer ends."""

from __future__ import annotations

import signal
import subprocess
import sys

from kongming.store import Store
from tests.conftest import ROOT

WRITER = """
import sys
from kongming.store import Store
from tests import builders
with Store.open(sys.argv[1]) as store:
    for step in range(int(sys.argv[2])):
        run = builders.run(sys.argv[3], 1.0, {"stream.triad": 1e-9}, step=step)
        store.add_run(run)
        print(run.id, flush=True)
"""

CAMPAIGN = """
import sys
from kongming.store import Store
with Store.open(sys.argv[1]) as store:
    print(store.open_campaign("key", {}).id, store.put_model("a", "i", "n", "cross-core", {}))
"""


def start(code: str, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *args]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_acknowledged_runs_survive_kill_9(new_store_url: str) -> None:
    writer = start(WRITER, new_store_url, "1000000", "sort")
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
    writers = [start(WRITER, new_store_url, "40", app) for app in ("sort", "gzip")]
    ids = {
        app: w.communicate()[0].split() for app, w in zip(("sort", "gzip"), writers, strict=True)
    }
    assert [writer.returncode for writer in writers] == [0, 0]
    with Store.open(new_store_url) as store:
        for app, printed in ids.items():
            assert len(printed) == 40
            assert {run.id for run in store.runs(app=app)} == set(printed)


def test_processes_agree_on_one_campaign_and_on_versions(new_store_url: str) -> None:
    openers = [start(CAMPAIGN, new_store_url) for _ in range(3)]
    printed = [opener.communicate()[0].split() for opener in openers]
    assert [opener.returncode for opener in openers] == [0, 0, 0]
    assert len({campaign for campaign, _ in printed}) == 1
    assert sorted(version for _, version in printed) == ["1", "2", "3"]
