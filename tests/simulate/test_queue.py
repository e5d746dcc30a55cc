"""The queue of real jobs: runs to its end, and says what a study needs to be credible."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.simulate import queue

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif((psutil.cpu_count() or 1) < 2, reason="a queue needs two CPUs"),
]


@pytest.mark.parametrize(
    ("layout", "policies"),
    [("cross-core", {"first", "best-fit", "limit"}), ("same-core", {"slurm", "random", "aware"})],
)
def test_a_queue_of_real_jobs(
    tmp_path: Path,
    layout: str,
    policies: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "apps.toml"
    file.write_text('[apps.short]\ncommand = "sleep 0.1"\n[apps.long]\ncommand = "sleep 0.2"\n')
    arguments = ["--layout", layout, "--file", str(file), "--app", "short", "--app", "long"]
    arguments += ["--budget", "0.05", "--jobs", "8", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["queue", *arguments])
    assert queue.main() == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["policies"]) == policies
    assert document["jobs"] == 8
    assert document["pairs"]["rounds"] >= 2
    for own in document["policies"].values():
        # Sleeping jobs disturb nothing: eight jobs of at least 0.1 s each, at most four at once.
        assert own["makespan"]["measured"][0] > 0.2
        assert own["makespan"]["simulated"] > 0.2
    errors = [own["job_error_pct"] for own in document["policies"].values()]
    assert document["median_job_error_pct"] == statistics.median(errors)
    for entries in document["order"].values():
        assert len(entries) == 3
        for entry in entries:
            both_ahead = (entry["measured"] > 1.0) == (entry["simulated"] > 1.0)
            assert entry["agrees"] == both_ahead
