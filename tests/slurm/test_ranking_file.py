"""The ranking file: what is written can be read, by Python and by Lua alike."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_slurm import ranking_file
from kongming_slurm.hostlist import expand, joined
from kongming_slurm.ranking_file import NEVER, RankingFile, RunTimes
from kongming_slurm.slurm_commands import Slurm

from kongming.records.errors import IncompatibleError, InputError

names = st.text(st.sampled_from("abcXYZ019_.+-"), min_size=1, max_size=12)
slowdowns = st.one_of(st.none(), st.just(NEVER), st.integers(1, 9999).map(lambda n: n / 8.0))


@st.composite
def files(draw: st.DrawFn) -> RankingFile:
    nodes = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    count = len(nodes)

    def numbers(of: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(st.lists(of, min_size=count, max_size=count)))

    def times(apps: list[str]) -> st.SearchStrategy[RunTimes | None]:
        seconds = st.lists(
            st.one_of(st.none(), st.integers(0, 10**6).map(float)), min_size=count, max_size=count
        ).map(tuple)
        users = st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple)
        rows = st.dictionaries(st.sampled_from(apps), seconds) if apps else st.just({})
        share = st.sampled_from([0.75, 0.95, 0.995])
        every = st.builds(RunTimes, st.booleans(), st.booleans(), share, users, users, rows)
        return st.one_of(st.none(), every)

    places = st.lists(st.integers(0, count - 1), unique=True).map(tuple)
    rows = st.lists(slowdowns, min_size=count, max_size=count).map(tuple)
    apps = draw(st.dictionaries(names, rows, max_size=4))
    least = st.dictionaries(st.sampled_from([*apps]), places) if apps else st.just({})
    return RankingFile(
        written_at=draw(st.integers(0, 2**40)) / 8.0,
        good_for_s=draw(st.integers(1, 10000)) / 8.0,
        limit=draw(st.integers(8, 100)) / 8.0,
        nodes=tuple(nodes),
        up=tuple(bool(n) for n in numbers(st.integers(0, 1))),
        cpus=numbers(st.integers(0, 1024)),
        memory_mb=numbers(st.integers(0, 10**7)),
        partitions=draw(st.dictionaries(names, places, max_size=3)),
        apps=apps,
        least=draw(least),
        times=draw(times(list(apps))),
        threads=draw(st.sampled_from([(), numbers(st.integers(0, 4))])),
    )


@given(files())
def test_what_is_written_can_be_read(file: RankingFile) -> None:
    text, omitted = file.text()
    assert omitted == []
    assert ranking_file.parse(text) == file


@given(files(), st.data())
def test_a_damaged_file_is_refused_or_harmless(file: RankingFile, data: st.DataObject) -> None:
    text, _ = file.text()
    at = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(InputError):
        ranking_file.parse(text[:at])
    worse = text[:at] + data.draw(st.text(max_size=3)) + text[at + 1 :]
    try:
        read = ranking_file.parse(worse)
    except InputError:
        return
    assert len(read.up) == len(read.nodes) == len(read.cpus)


def test_applications_that_do_not_fit_are_omitted() -> None:
    count = 200
    apps = {f"app{n}": (1.25,) * count for n in range(50)}
    file = RankingFile(
        1.0,
        60.0,
        1.5,
        tuple(f"n{n}" for n in range(count)),
        (True,) * count,
        (1,) * count,
        (1,) * count,
        {},
        apps,
    )
    text, omitted = file.text(16384)
    assert len(text) <= 16384
    assert 0 < len(omitted) < 50
    assert set(ranking_file.parse(text).apps) == set(apps) - set(omitted)
    with pytest.raises(InputError, match="too small"):
        file.text(1000)


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(IncompatibleError):
        ranking_file.parse("kongming-slurm-rankings 2\nend 1\n")


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "rankings"
    texts = [f"{n}\n" * 20000 for n in range(2)]
    ranking_file.write(file, texts[0])
    stop = threading.Event()

    def keep_writing() -> None:
        while not stop.is_set():
            for text in texts:
                ranking_file.write(file, text)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        texts_read = {file.read_text() for _ in range(200)}
    finally:
        stop.set()
        writer.join()
    assert texts_read <= set(texts)
    assert [entry.name for entry in file.parent.iterdir()] == ["rankings"]
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("hosts", "names_"),
    [
        ("", []),
        ("(null)", []),
        ("n1", ["n1"]),
        ("n[1-3,07],m", ["n1", "n2", "n3", "n07", "m"]),
        ("rack[01-02]-a,b-3.site", ["rack01-a", "rack02-a", "b-3.site"]),
    ],
)
def test_lists_of_hosts(hosts: str, names_: list[str]) -> None:
    assert expand(hosts) == names_


def test_a_list_of_many_hosts_fits_into_one_argument_of_a_command(tmp_path: Path) -> None:
    assert joined(["n2", "n1", "n2"]) == "n2,n1"
    many = [f"node-{number:05d}" for number in range(15_000) if number % 1000]
    names_ = ["login", *many, *(f"gpu{number}" for number in range(8, 12))]
    hosts = joined(names_)
    assert hosts.startswith("login,node-[00001-00999,01001-")
    assert hosts.endswith("],gpu[8-9],gpu[10-11]")
    assert expand(hosts) == names_
    (tmp_path / "scontrol").write_text("#!/bin/sh\n")
    (tmp_path / "scontrol").chmod(0o755)
    slurm = Slurm(folder=str(tmp_path))
    slurm.exclude("1", names_)
    slurm.set_weight(names_, 2)


@pytest.mark.parametrize(
    "hosts",
    ["n[1-99999999]", "n[1", "n]", "a b", "n[x]", "r[1-2]n[1-2]", ",", "n[1-15000],m[1-15000]"],
)
def test_lists_of_hosts_that_are_not_valid(hosts: str) -> None:
    with pytest.raises(InputError):
        expand(hosts)
