"""Sibling control groups: where they may be made, and that they go away."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kongming.profiling.seat_groups import SiblingGroups, parents


def test_nothing_to_see_is_a_reason(tmp_path: Path) -> None:
    with SiblingGroups(tmp_path) as groups:
        assert not groups.active
        assert groups.reason == "there is no cpu controller that this process can see"
        assert groups.app_procs == groups.load_procs == ()


def test_version_2_only_where_the_controller_is_handed_down(tmp_path: Path) -> None:
    own, parent = tmp_path / "a" / "b", tmp_path / "a"
    own.mkdir(parents=True)
    (own / "cgroup.subtree_control").write_text("memory")
    (parent / "cgroup.subtree_control").write_text("cpu memory")
    assert list(parents(2, (own, parent, tmp_path))) == [parent]
    assert list(parents(1, (own, parent))) == [own, parent]


@pytest.mark.real
def test_real_groups_have_equal_weight_and_vanish_with_who_is_in_them() -> None:
    with SiblingGroups() as groups:
        if not groups.active:
            pytest.skip(f"no control groups here: {groups.reason}")
        (app,), (load,) = groups.app_procs, groups.load_procs
        assert app.parent.parent == load.parent.parent
        weights = {
            file.read_text()
            for procs in (app, load)
            for file in procs.parent.iterdir()
            if file.name in ("cpu.shares", "cpu.weight")
        }
        assert len(weights) == 1
        stays = subprocess.Popen(["sleep", "60"])
        app.write_text(f"{stays.pid}\n")
        assert str(stays.pid) in app.read_text().split()
    try:
        assert not app.parent.exists()
        assert not load.parent.exists()
        assert stays.poll() is None
    finally:
        stays.kill()
        stays.wait()
    assert not groups.active


@pytest.mark.real
def test_groups_of_a_killed_process_are_swept() -> None:
    with SiblingGroups() as groups:
        if not groups.active:
            pytest.skip(f"no control groups here: {groups.reason}")
        parent = groups.app_procs[0].parent.parent
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = parent / f"kongming-{ended.pid}-app"
    left.mkdir()
    with SiblingGroups() as groups:
        assert groups.active
        assert not left.exists()
        with SiblingGroups() as others:
            assert set(others.app_procs).isdisjoint(groups.app_procs)
        assert groups.app_procs[0].parent.parent == parent
        assert groups.app_procs[0].parent.is_dir()
