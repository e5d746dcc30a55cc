from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kongming.probes.node import node_facts
from kongming.probes.topology import check_siblings, judge, known_siblings, measure_siblings
from kongming.records.errors import InputError, ProbeError

ALLOWED = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two CPUs")


def test_the_lowest_ratio_counts() -> None:
    # A neighbour disturbed two of three rounds.
    assert judge([(1.0, 2.0), (1.0, 1.05), (1.0, 1.9)]) == (False, 1.05)
    shares, ratio = judge([(1.0, 1.8), (1.0, 1.6), (2.0, 3.0)])
    assert shares
    assert ratio == pytest.approx(1.6)


def test_other_work_next_to_a_reading_alone_hides_no_shared_core() -> None:
    shares, ratio = judge([(1.0, 1.6), (2.6, 1.7), (1.1, 1.6)])
    assert shares
    assert ratio == pytest.approx(1.6)


@pytest.mark.parametrize("pairs", [[], [(0.0, 1.0)], [(1.0, -1.0)]])
def test_times_that_cannot_be_true_are_refused(pairs: list[tuple[float, float]]) -> None:
    with pytest.raises(ProbeError):
        judge(pairs)


@two_cpus
def test_results_are_kept_by_node_and_pair(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    node = node_facts()
    assert node.siblings == {}
    siblings = measure_siblings(node.id, ALLOWED[:2])
    pair = f"{ALLOWED[0]},{ALLOWED[1]}"
    assert siblings[pair]["shares_core"] is False
    assert siblings[pair]["ratio"] == pytest.approx(1.0)
    assert node_facts().siblings == siblings
    assert known_siblings("another node") == {}
    runs = (tmp_path / "log").read_text().count("\n")
    assert measure_siblings(node.id, ALLOWED[:2]) == siblings
    assert (tmp_path / "log").read_text().count("\n") == runs


@two_cpus
def test_a_damaged_cache_is_measured_again(fake: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "kongming" / "topology.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"schema": 1, "nodes": {"x": ')
    assert known_siblings("x") == {}
    measure_siblings("x", ALLOWED[:2])
    assert json.loads(path.read_text())["nodes"]["x"]


@two_cpus
def test_a_load_that_fails_is_an_error(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "disk-full")
    with pytest.raises(ProbeError, match="stay free"):
        check_siblings(*ALLOWED[:2], seconds=0.01)


@two_cpus
@pytest.mark.parametrize(
    ("mode", "shares"), [("busy", False), ("preempted", False), ("shared", True)]
)
def test_other_work_of_a_busy_node_is_no_shared_core(
    mode: str, shares: bool, fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", mode)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    assert check_siblings(*ALLOWED[:2], seconds=0.01).shares_core is shares


def test_cpus_that_are_not_allowed_are_refused() -> None:
    with pytest.raises(InputError, match="cpu"):
        check_siblings(ALLOWED[0], 4096)
    with pytest.raises(InputError, match="no pair"):
        check_siblings(ALLOWED[0], ALLOWED[0])
