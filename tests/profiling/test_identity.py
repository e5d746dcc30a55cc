"""An application's identity: what changes it and what does not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kongming.profiling.plans.identity import find_executable, identity, inputs_named
from kongming.records.application import Application, Metric

APP = Application(name="a", command="sort {dir}/x", setup="seq 9 > {dir}/x")


def program(folder: Path, text: str = "#!/bin/sh\n", name: str = "tool") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_it_is_16_hexadecimal_digits_and_stable() -> None:
    assert identity(APP) == identity(replace(APP))
    assert len(identity(APP)) == 16
    int(identity(APP), 16)


@pytest.mark.parametrize(
    "change",
    [
        {"command": "sort -r {dir}/x"},
        {"command": ("sort", "{dir}/x")},
        {"setup": None},
        {"prepare": "sync"},
        {"env": {"LC_ALL": "C"}},
        {"kind": "service", "load": "x", "ready": "y"},
        {"cpus": 2},
        {"cache": "cold"},
        {"metric": Metric("(.*)", "s")},
    ],
)
def test_what_decides_the_work_changes_it(change: dict[str, Any]) -> None:
    assert identity(replace(APP, **change)) != identity(APP)


@pytest.mark.parametrize(
    "change", [{"name": "b"}, {"timeout_s": 9.0}, {"check": "x"}, {"workdir": "/"}]
)
def test_what_does_not_decide_it_leaves_it(change: dict[str, Any]) -> None:
    assert identity(replace(APP, **change)) == identity(APP)


def test_a_cold_cache_is_not_mixed_with_what_it_meant_before() -> None:
    app = Application(name="a", command="{dir}/tool", setup="make -C {dir}")
    assert identity(app) == "836c9b9dbf6fe022"
    # Of when root's solo runs began with the whole node's cache dropped.
    assert identity(replace(app, cache="cold")) != "698841054ac104f7"


def test_the_content_of_the_executable_counts_and_its_place_does_not(tmp_path: Path) -> None:
    app = Application(name="a", command="tool --x")
    file = program(tmp_path / "one")
    first = identity(app, str(tmp_path / "one"))
    program(tmp_path / "two")
    assert identity(app, str(tmp_path / "two")) == first
    file.write_text("#!/bin/sh\nexit 1\n")
    assert identity(app, str(tmp_path / "one")) != first
    assert identity(app, str(tmp_path / "none")) not in (first, "")


def test_a_file_of_the_same_size_that_was_changed_is_read_again(tmp_path: Path) -> None:
    app = Application(name="a", command="tool")
    file = program(tmp_path / "one", "#!a\n")
    before = identity(app, str(tmp_path / "one"))
    file.write_text("#!b\n")
    os.utime(file, ns=(1, 1))
    assert identity(app, str(tmp_path / "one")) != before


@pytest.mark.parametrize(
    "command",
    ["tool 1 | sort", "A=1 B='x y' tool", "exec tool", "env -i A=1 tool", ("tool", "it's"),
     "tool it's"],
)  # fmt: skip
def test_the_first_word_of_a_shell_line_names_it(tmp_path: Path, command: Any) -> None:
    file = program(tmp_path / "bin")
    assert find_executable(Application(name="a", command=command), str(file.parent)) == file


def test_a_path_is_relative_to_the_workdir_and_path_to_the_environment(tmp_path: Path) -> None:
    file = program(tmp_path / "bin")
    by_path = Application(name="a", command="./bin/tool", workdir=str(tmp_path))
    by_name = Application(name="a", command="tool", env={"PATH": str(tmp_path / "bin")})
    assert find_executable(by_path) == tmp_path / "bin/tool"
    assert find_executable(by_name) == file


@pytest.mark.parametrize("command", ["{dir}/made by setup", "cd /; ls", ":", "#", ("/no/such",)])
def test_what_is_no_file_has_no_executable(command: Any) -> None:
    assert find_executable(Application(name="a", command=command), "/nowhere") is None


@pytest.mark.parametrize(
    "command",
    [
        "cat input",
        ("dd", "if=input"),
        "dd if=input of=/dev/null",
        "scan --input=input",
        "cat <input",
        "cat 0<input >/dev/null",
        "cat < input; true",
        "cat input; true",
        "(cat input)",
        "bash -c 'cat input | wc'",
        ("sh", "-ec", "cat <input"),
        "sort ~/input",
        "sh -c 'sort ~/input'",
    ],
)
def test_an_input_that_a_command_names_in_any_way(
    command: str | tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "input").touch()
    app = Application(name="a", command=command, workdir=str(tmp_path))
    assert {str(path) for path in inputs_named(app)} == {str(tmp_path / "input")}
    # Without a shell, a tilde is one.
    assert not inputs_named(replace(app, command=("sort", "~/input")))
