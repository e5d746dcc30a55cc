"""Applications files: what is read, and how each mistake is reported."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.profiling.appfile import KEYS, load, parse, select
from kongming.records.application import Application, Metric
from kongming.records.errors import ApplicationFileError, InputError, UnknownNameError

FULL = """
[apps."big.sort-1"]
command = ["sort", "{dir}/x", "{keep}"]
setup = "make {dir}"
prepare = "sync"
cleanup = "true"
workdir = "sub"
env = { LC_ALL = "C" }
cpus = 2
cache = "cold"
timeout_s = 5
check = "^ok"
metric = { pattern = 'at (\\d+) MB/s', unit = "MB/s", better = "higher" }

[apps.web]
kind = "service"
command = "serve"
ready = "ping"
warmup_s = 1.5
load = ["drive"]
load_cpu = 0
"""


def parsed_application(**keys: Any) -> Application:
    return parse({"apps": {"a": {"command": "true"} | keys}})["a"]


def test_every_key_is_read(tmp_path: Path) -> None:
    file = tmp_path / "apps.toml"
    file.write_text(FULL)
    apps = load(file)
    assert list(apps) == ["big.sort-1", "web"]
    assert apps["big.sort-1"] == Application(
        name="big.sort-1",
        command=("sort", "{dir}/x", "{keep}"),
        setup="make {dir}",
        prepare="sync",
        cleanup="true",
        workdir=str(tmp_path / "sub"),
        env={"LC_ALL": "C"},
        cpus=2,
        cache="cold",
        timeout_s=5.0,
        check="^ok",
        metric=Metric(r"at (\d+) MB/s", "MB/s", "higher"),
    )
    assert apps["web"] == Application(
        name="web",
        kind="service",
        command="serve",
        workdir=str(tmp_path),
        ready="ping",
        warmup_s=1.5,
        load=("drive",),
        load_cpu=0,
    )


def test_the_least_that_is_needed_is_a_command() -> None:
    assert parsed_application() == Application(name="a", command="true")


def test_a_workdir_in_the_scratch_folder_stays_there(tmp_path: Path) -> None:
    document = {"apps": {"a": {"command": "x", "workdir": "{dir}/b"}}}
    assert parse(document, folder=tmp_path)["a"].workdir == "{dir}/b"


SERVICE = {"kind": "service", "ready": "true", "load": "true"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"command": ""}, ["apps.a.command", "''", "a shell line"]),
        ({"command": 7}, ["apps.a.command", "7"]),
        ({"command": []}, ["apps.a.command", "list of an executable"]),
        ({"command": ["sort", 3]}, ["apps.a.command", "3"]),
        ({"setup": False}, ["apps.a.setup", "False"]),
        ({"kind": "deamon"}, ["apps.a.kind", "'deamon'", '"batch" or "service"']),
        ({"cpus": 0}, ["apps.a.cpus", "Found 0", "from 1"]),
        ({"cpus": True}, ["apps.a.cpus", "True"]),
        ({"cpus": 1.5}, ["apps.a.cpus", "whole number"]),
        ({"cache": "hot"}, ["apps.a.cache", '"warm" or "cold"']),
        ({"cache": ["warm"]}, ["apps.a.cache"]),
        ({"timeout_s": 0}, ["apps.a.timeout_s", "above 0"]),
        ({"timeout_s": "9"}, ["apps.a.timeout_s", "'9'", "number of seconds"]),
        ({"timeout_s": float("inf")}, ["apps.a.timeout_s"]),
        ({"timeout_s": float("nan")}, ["apps.a.timeout_s"]),
        ({"env": {"A": 1}}, ["apps.a.env.A", "in quotes"]),
        ({"env": {"A=B": "1"}}, ["apps.a.env", "A=B"]),
        ({"env": "A=1"}, ["apps.a.env", "table"]),
        ({"check": "a(b"}, ["apps.a.check", "at position 1", "'a(b'"]),
        ({"metric": "wall"}, ["apps.a.metric", "pattern, unit"]),
        ({"metric": {"pattern": "(x)"}}, ["apps.a.metric.unit", "missing"]),
        ({"metric": {"unit": "s"}}, ["apps.a.metric.pattern", "missing"]),
        ({"metric": {"pattern": "x", "unit": "s"}}, ["apps.a.metric.pattern", "group"]),
        ({"metric": {"pattern": "(", "unit": "s"}}, ["apps.a.metric.pattern", "position 0"]),
        (
            {"metric": {"pattern": "(x)", "unit": "s", "better": "more"}},
            ["apps.a.metric.better", '"lower" or "higher"'],
        ),
        ({"metric": {"pattern": "(x)", "units": "s"}}, ["apps.a.metric.units", "mean unit?"]),
        ({"comand": "x"}, ["apps.a.comand", "Did you mean command?", "timeout_s"]),
        ({"ready": "true"}, ["apps.a.ready", "services only", 'kind = "service"']),
        ({"warmup_s": 1}, ["apps.a.warmup_s", "services only"]),
        ({"kind": "service", "ready": "true"}, ["apps.a.load", "missing"]),
        ({"kind": "service", "load": "true"}, ["apps.a.ready", "missing"]),
        (SERVICE | {"warmup_s": -1}, ["apps.a.warmup_s", "from 0"]),
        (SERVICE | {"load_cpu": -1}, ["apps.a.load_cpu", "from 0"]),
    ],
)
def test_a_mistake_is_told_with_key_found_and_allowed(
    keys: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ApplicationFileError) as caught:
        parsed_application(**keys)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, ["names no applications", "[apps.sort]"]),
        ({"apps": {}}, ["names no applications"]),
        ({"apps": 3}, ["apps", "3"]),
        ({"apps": {"a": 3}}, ["apps.a", "3"]),
        ({"apps": {"a b": {"command": "x"}}}, ["'a b'", "A-Z"]),
        ({"apps": {"": {"command": "x"}}}, ["not a valid name"]),
        ({"apps": {"a": {}}}, ["apps.a.command", "missing"]),
        ({"app": {"a": {"command": "x"}}}, ["app", "Did you mean apps?"]),
    ],
)
def test_a_wrong_document_is_reported(document: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ApplicationFileError) as caught:
        parse(document)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"[apps.a]\ncommand = x\n", "line 2, column 11"),
        (b"[apps.a\n", "line 1, column 8"),
        (b"[apps.a]\ncommand =", "line 2, column 10"),
        (b"[apps.a]\ncommand = '\xff'", "not UTF-8"),
    ],
)
def test_broken_toml_is_told_with_its_place(tmp_path: Path, text: bytes, place: str) -> None:
    file = tmp_path / "apps.toml"
    file.write_bytes(text)
    with pytest.raises(ApplicationFileError) as caught:
        load(file)
    assert str(file) in str(caught.value)
    assert place in str(caught.value)


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ApplicationFileError, match="kongming init"):
        load(tmp_path / "none.toml")
    with pytest.raises(ApplicationFileError, match="cannot be read"):
        load(tmp_path)


def test_selecting_keeps_the_order_asked_for_and_suggests() -> None:
    apps = parse(tomllib.loads(FULL))
    assert list(select(apps, [])) == ["big.sort-1", "web"]
    assert list(select(apps, ["web", "big.sort-1", "web"])) == ["web", "big.sort-1"]
    with pytest.raises(UnknownNameError, match="Did you mean web"):
        select(apps, ["wep"])


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), values, max_size=6),
    st.booleans(),
)
def test_any_table_is_either_an_application_or_an_input_error(
    table: dict[str, Any], service: bool
) -> None:
    base: dict[str, Any] = {"command": "x"} | (SERVICE if service else {})
    document = {"apps": {"a": base | table}}
    try:
        app = parse(document)["a"]
    except InputError:
        with pytest.raises(ApplicationFileError, match=r"^apps\.a\."):
            parse(document)
    else:
        assert app.cpus >= 1
        assert app.timeout_s > 0


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "apps.toml"
    path.write_text('[apps.nap]\ncommand = "sleep 1"\n', encoding="utf-8-sig")
    assert list(load(path)) == ["nap"]
