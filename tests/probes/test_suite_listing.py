from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kongming.probes.folders import io_folder, state_folder
from kongming.probes.node import node_facts
from kongming.probes.suite import io_bytes, load_suite
from kongming.records.errors import InputError, UnknownNameError


def arguments(values: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(values[::2], values[1::2], strict=True))


def test_sizes_come_from_the_limit_and_the_caches(fake: Path, tmp_path: Path) -> None:
    node = replace(
        node_facts(),
        l2_bytes=1 << 20,
        llc_bytes=32 << 20,
        memory_bytes=16 << 30,
        cgroup={"memory_limit_bytes": 4 << 30},
    )
    given = arguments(load_suite(node, tmp_path).arguments)
    assert given["--l2"] == str(1 << 20)
    assert given["--llc"] == str(32 << 20)
    assert given["--memory"] == str(1 << 30)
    assert given["--io-bytes"] == str(io_bytes(tmp_path))


def test_sizes_are_of_the_data_and_of_the_file_around_it(fake: Path, tmp_path: Path) -> None:
    suite = load_suite(directory=tmp_path)
    sizes = {each.name: suite.sizes_of(each) for each in suite.surrogates}
    assert sizes["memory.random.8M"] == {"data": 8 << 20}
    assert sizes["iobench.read.4M"] == {"file": io_bytes(tmp_path)}
    assert sizes["compute.int"] == {}


def test_named_suites(fake: Path) -> None:
    suite = load_suite()
    assert suite.names_of("quick") == ("memory.random.8M", "compute.int", "iobench.read.4M")
    assert set(suite.names_of("quick")) < set(suite.names_of("standard"))
    with pytest.raises(UnknownNameError, match="quick"):
        suite.names_of("quik")


def test_unknown_surrogates_suggest_the_nearest(fake: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_suite().surrogate("stream.triat")
    assert "stream.triad" in caught.value.suggestions


def test_a_size_that_the_node_lacks_names_its_replacement(fake: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"measured as memory\.random\.512M"):
        load_suite().surrogate("memory.random.1G")


def test_a_probe_only_says_why(fake: Path) -> None:
    suite = load_suite()
    assert suite.inducer("stream.triad").family == "memory"
    assert "os.wakeup" not in suite.inducers()
    with pytest.raises(InputError, match="waiting loads nothing"):
        suite.inducer("os.wakeup")


def test_version_follows_sizes_and_nothing_else(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_facts()
    version = load_suite(node, tmp_path).version
    assert version.startswith("1-")
    assert len(version) == 10
    # A limit that leaves every size as it is leaves the version too.
    other = replace(node, cgroup={"memory_limit_bytes": node.memory_bytes // 2})
    assert load_suite(other, tmp_path).version == version
    monkeypatch.setenv("FAKE_SIZE", "4194304")
    third = replace(node, cgroup={"memory_limit_bytes": node.memory_bytes // 3})
    assert load_suite(third, tmp_path).version != version


def test_a_surrogate_of_the_full_suite_alone_makes_no_other_reading_incomparable(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_facts()
    versions = []
    for share, extra in enumerate(("", "full", "standard,full"), start=1):
        monkeypatch.setenv("FAKE_EXTRA", extra)
        # A listing is kept as long as the arguments are the same.
        limited = replace(node, cgroup={"memory_limit_bytes": node.memory_bytes // share})
        suite = load_suite(limited, tmp_path)
        assert ("memory.extra" in suite.names_of("full")) == bool(extra)
        versions.append(suite.version)
    assert versions[0] == versions[1] != versions[2]


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (100 << 30, 2 << 30),
        (20 << 30, 2 << 30),
        (10 << 30, 1 << 30),
        (64 << 20, 4 << 20),
        (1, 1 << 20),
    ],
)
def test_io_file_follows_the_total_size_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, expected: int
) -> None:
    # What is free at the moment must not matter.
    status = SimpleNamespace(f_blocks=total, f_frsize=1, f_bavail=0, f_bfree=0)
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    assert io_bytes(tmp_path) == expected


def test_io_size_of_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert io_bytes(tmp_path / "not" / "yet") == io_bytes(tmp_path)


def test_folders_follow_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_folder() == tmp_path / "state" / "kongming"
    assert io_folder() == tmp_path / "cache" / "kongming"
    assert io_folder().is_dir()
    monkeypatch.setenv("KONGMING_DIR", str(tmp_path))
    assert io_folder() == tmp_path
    assert io_folder(tmp_path / "cache") == tmp_path / "cache"
    monkeypatch.setenv("KONGMING_DIR", str(tmp_path / "made"))
    assert io_folder().is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KONGMING_DIR", str(tmp_path / "file"))
    with pytest.raises(InputError, match="KONGMING_DIR: is not a folder"):
        io_folder()
    with pytest.raises(InputError, match="dir: does not exist"):
        io_folder(tmp_path / "missing")


def test_a_relative_xdg_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_folder() == Path.home() / ".local/state/kongming"
