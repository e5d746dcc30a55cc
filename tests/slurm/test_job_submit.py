"""job_submit.lua, run as slurmctld runs it: exclusions, and damaged files of every kind."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kongming_slurm import policy, tags
from kongming_slurm.hostlist import expand
from kongming_slurm.ranking_file import NEVER, RankingFile

from tests.slurm.lua import Script, interpreters

NOW = 1763732400.0
OFF = "jobs are scheduled without it"

pytestmark = pytest.mark.skipif(not interpreters(), reason="Lua not found: install lua5.1")


def rankings(**changed: object) -> RankingFile:
    values: dict[str, object] = {
        "written_at": NOW,
        "good_for_s": 60.0,
        "limit": 1.5,
        "nodes": ("n1", "n2", "n3", "n4"),
        "up": (True, True, True, False),
        "cpus": (4, 4, 8, 8),
        "memory_mb": (1000, 2000, 2000, 2000),
        "threads": (1, 1, 1, 1),
        "partitions": {"main": (0, 1, 2, 3), "few": (0, 1), "one": (0,)},
        "apps": {"xz": (3.0, 1.0, 1.25, 1.0), "dd-read": (1.0, 1.0, NEVER, None)},
    }
    return RankingFile(**(values | changed))  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rankings"
    path.write_text(rankings().text()[0])
    return path


@pytest.fixture(params=interpreters())
def script(request: pytest.FixtureRequest, file: Path) -> Iterator[Script]:
    with Script(request.param, file) as running:
        yield running


@pytest.mark.parametrize(
    ("job", "excluded"),
    [
        ({"comment": "kongming:app=xz"}, "n1"),
        ({"comment": "kongming:app=xz,limit=1.2"}, "n1,n3"),
        ({"comment": "see note 7 kongming:limit=4,app=xz thanks"}, None),
        ({"comment": "xz"}, "n1"),
        ({"name": "xz"}, "n1"),
        ({"name": "xz", "comment": "nightly"}, "n1"),
        ({"name": "dd-read"}, "n3"),
        ({"name": "another"}, None),
        ({"name": "xz", "comment": "kongming:no-exclusions"}, None),
        ({"comment": "kongming:no-exclusions kongming:app=xz"}, None),
        ({"comment": "kongming:app=another"}, None),
        ({"comment": "notkongming:app=xz"}, None),
        ({"comment": "kongming:app=xz,limit=fast"}, None),
        ({"comment": "kongming:app=xz,limit=0.5"}, None),
        ({}, None),
        # The user's exclusions stay, and those nodes do not count.
        ({"name": "xz", "exc_nodes": "n2"}, "n2,n1"),
        ({"name": "xz", "exc_nodes": "n[2-3]"}, "n[2-3]"),
        ({"name": "xz", "exc_nodes": "n[2-"}, "n[2-"),
        # The least slow remain where the job could not run without them.
        ({"name": "xz", "min_nodes": 3}, None),
        ({"name": "xz", "partition": "few"}, "n1"),
        ({"name": "xz", "partition": "few", "min_nodes": 2}, None),
        ({"name": "xz", "partition": "main,one"}, None),
        ({"name": "xz", "partition": "unknown"}, None),
        ({"name": "xz", "min_cpus": 13}, None),
        ({"name": "xz", "num_tasks": 4, "cpus_per_task": 4}, None),
        ({"name": "xz", "min_mem_per_node": 1500}, None),
        ({"name": "xz", "cpus_per_task": 2, "min_mem_per_cpu": 500}, "n1"),
        # n1 is needed, since not all CPUs of n2 and n3 can be used.
        ({"name": "xz", "num_tasks": 12}, "n1"),
        ({"name": "xz", "num_tasks": 12, "ntasks_per_node": 4}, None),
        ({"name": "xz", "num_tasks": 4, "cpus_per_task": 3}, None),
        ({"name": "xz", "num_tasks": 3, "cpus_per_task": 3}, "n1"),
        ({"name": "xz", "num_tasks": 9, "min_mem_per_cpu": 500}, None),
        ({"comment": "kongming:app=xz,limit=1.2", "num_tasks": 8, "max_nodes": 2}, "n1"),
        # Of one node only n3 has as many.
        ({"comment": "kongming:app=xz,limit=1.2", "num_tasks": 8, "max_nodes": 1}, None),
        # Jobs whose nodes cannot be determined here are unchanged.
        ({"name": "xz", "features": "gpu"}, None),
        ({"name": "xz", "req_nodes": "n1"}, None),
        ({"name": "xz", "tres_per_node": "gres:gpu:1"}, None),
        ({"name": "xz", "reservation": "night"}, None),
        ({"name": "xz", "contiguous": 1}, None),
        ({"name": "xz", "threads_per_core": 1}, None),
        ({"name": "xz", "ntasks_per_core": 1}, None),
        ({"name": "xz", "ntasks_per_socket": 2}, None),
        ({"name": "xz", "sockets_per_node": 1}, None),
        ({"name": "xz", "cores_per_socket": 2}, None),
        ({"name": "xz", "boards_per_node": 0, "ntasks_per_core": 65535}, "n1"),
    ],
)
def test_exclusions_of_a_new_job(
    script: Script, job: dict[str, object], excluded: str | None
) -> None:
    assert script.submit(now=NOW, **job).excluded == excluded


def test_at_least_so_much_does_not_keep_a_limit(script: Script, file: Path) -> None:
    file.write_text(rankings(written_at=NOW + 1.0, least={"xz": (1,), "dd-read": (0,)}).text()[0])
    assert script.submit(now=NOW, name="xz").excluded == "n1,n2"
    # It stays before what is known to be slower.
    assert script.submit(now=NOW, name="xz", min_nodes=2).excluded == "n1"
    assert script.submit(now=NOW, name="dd-read").excluded == "n1,n3"
    broken = file.read_text().replace("least xz 2", "least xz 9")
    file.write_text(broken.replace("written 1763732401", "written 1763732402"))
    assert script.submit(now=NOW, name="xz").excluded is None


def test_a_partition_that_asks_for_more_nodes_keeps_them(script: Script) -> None:
    partitions = {"main": {"flag_default": 1, "min_nodes": 3}}
    assert script.submit(now=NOW, name="xz", partitions=partitions).excluded is None


@pytest.mark.parametrize(
    ("partition", "job", "excluded"),
    [
        ({"max_cpus_per_node": 8}, {"num_tasks": 12}, "n1"),
        ({"max_cpus_per_node": 4}, {"num_tasks": 12}, None),
        ({"def_mem_per_cpu": 500}, {"num_tasks": 6}, "n1"),
        ({"def_mem_per_cpu": 500}, {"num_tasks": 9}, None),
        ({"def_mem_per_cpu": 500}, {"num_tasks": 9, "min_mem_per_node": 100}, "n1"),
        ({"def_mem_per_cpu": 500}, {"num_tasks": 9, "min_mem_per_cpu": 100}, "n1"),
        ({"max_mem_per_cpu": 400}, {"min_mem_per_cpu": 300}, "n1"),
        ({"max_mem_per_cpu": 400}, {"min_mem_per_cpu": 500}, None),
        # With --mem Slurm gives so many CPUs of a node that this holds.
        ({"max_mem_per_cpu": 400}, {"min_mem_per_node": 1000}, "n1"),
        ({"max_mem_per_cpu": 240}, {"min_mem_per_node": 1000, "min_nodes": 2}, None),
        ({"max_mem_per_cpu": 400}, {"min_mem_per_node": 1000, "ntasks_per_node": 1}, None),
        ({"max_mem_per_cpu": 400}, {"min_mem_per_node": 400, "ntasks_per_node": 1}, "n1"),
        ({"max_mem_per_cpu": 400, "def_mem_per_cpu": 500}, {}, None),
        ({"def_mem_per_node": 900}, {"min_nodes": 2}, "n1"),
        ({"def_mem_per_node": 1100}, {"min_nodes": 2}, None),
        ({"def_mem_per_node": 1100}, {"min_nodes": 2, "min_mem_per_node": 900}, "n1"),
        ({"def_mem_per_node": 1100}, {"min_nodes": 2, "min_mem_per_cpu": 100}, "n1"),
        ({"max_nodes": 2}, {"num_tasks": 8}, "n1"),
        ({"max_nodes": 2}, {"num_tasks": 10}, None),
        ({"max_nodes": 2}, {"num_tasks": 10, "max_nodes": 3}, None),
        ({"max_nodes": 4294967295}, {"num_tasks": 12, "max_nodes": 3}, "n1"),
    ],
)
def test_what_a_partition_leaves_of_a_node(
    script: Script, partition: dict[str, int], job: dict[str, int], excluded: str | None
) -> None:
    partitions = {"main": {"flag_default": 1, "min_nodes": 0, "max_cpus_per_node": 4294967295}}
    partitions["main"] |= partition
    assert script.submit(now=NOW, name="xz", partitions=partitions, **job).excluded == excluded


@pytest.mark.parametrize(
    ("threads", "need", "excluded"),
    [
        # Slurm may give complete cores: of n2 and n3 then two and six CPUs, not three and seven.
        ((2, 2, 2, 2), {"num_tasks": 8, "min_mem_per_cpu": 285}, "n1"),
        ((2, 2, 2, 2), {"num_tasks": 11, "min_mem_per_cpu": 285}, None),
        ((1, 1, 1, 1), {"num_tasks": 11, "min_mem_per_cpu": 285}, "n1"),
        # How many threads a core has is in no file of an older bridge.
        ((), {"num_tasks": 2, "min_mem_per_cpu": 285}, None),
        ((), {"num_tasks": 2, "min_mem_per_cpu": 250}, "n1"),
        ((1, 0, 1, 1), {"num_tasks": 7, "min_mem_per_cpu": 285}, "n1"),
        ((1, 1, 0, 1), {"num_tasks": 7, "min_mem_per_cpu": 285}, None),
        ((0, 1, 1, 1), {"num_tasks": 7, "min_mem_per_cpu": 285}, None),
        ((), {"num_tasks": 12}, "n1"),
    ],
)
def test_a_job_may_get_complete_cores(
    script: Script,
    file: Path,
    threads: tuple[int, ...],
    need: dict[str, int],
    excluded: str | None,
) -> None:
    file.write_text(rankings(written_at=NOW + 1.0, threads=threads).text()[0])
    assert script.submit(now=NOW, name="xz", **need).excluded == excluded


def test_prolog_and_bridge_can_read_the_note_of_a_job(script: Script) -> None:
    job = script.submit(now=NOW, name="xz", comment="nightly", exc_nodes="n2", cpus_per_task=2)
    assert job.comment is not None
    assert tags.tag(job.comment) == tags.Tag("xz")
    assert job.comment.startswith("nightly ")
    assert job.note is not None
    assert tags.note(job.note) == tags.Note("xz", 1.5, 1, 2, 0, 2, "n2", task_cpus=2)
    assert tags.note(f"seen by ops {job.note}") == tags.note(job.note)
    assert script.submit(now=NOW, name="another").note is None


@pytest.mark.parametrize(
    "limit", ["1000000", "9" * 24, "1.2345678", "1.23456785", "1.5", "100", "1"]
)
def test_the_bridge_reads_the_limit_that_decided(script: Script, limit: str) -> None:
    job = script.submit(now=NOW, comment=f"kongming:app=xz,limit={limit}")
    assert job.note is not None
    note = tags.note(job.note)
    assert note is not None
    assert note.limit == pytest.approx(min(float(limit), 999999.0), abs=5e-7)


NOTED = "kongming:app=xz,limit=1.5,nodes=1,cpus=1,memory=0,total=1,own="
LEFT = "kongming:no-exclusions"


@pytest.mark.parametrize(
    ("change", "record", "excluded", "comment"),
    [
        # Its user's own list stays, and nothing else is changed of it.
        ({"exc_nodes": "n1"}, {}, "n1", LEFT),
        ({"exc_nodes": ""}, {}, "", LEFT),
        ({"exc_nodes": "n1", "comment": "nightly"}, {}, "n1", f"nightly {LEFT}"),
        # What it needs is not what was noted: it gets all nodes but its user's.
        ({"min_nodes": 3}, {}, ",", LEFT),
        ({"num_tasks": 9}, {"comment": "xz"}, ",", f"xz {LEFT}"),
        ({"req_nodes": "n2"}, {}, ",", LEFT),
        ({"features": ""}, {}, ",", LEFT),
        ({"contiguous": 1}, {}, ",", LEFT),
        # All of a node's memory.
        ({"min_mem_per_node": 0}, {}, ",", LEFT),
        ({"min_mem_per_cpu": 0}, {}, ",", LEFT),
        ({"min_nodes": 3}, {"admin_comment": f"{NOTED}n[2-3]"}, "n[2-3]", LEFT),
        ({"min_nodes": 3, "exc_nodes": "n1"}, {}, "n1", LEFT),
        ({"min_nodes": 3}, {"comment": "a" * 1002}, ",", None),
        # In another partition the bridge looks at it.
        ({"partition": "few"}, {}, ",", None),
        # Once it is left alone it stays so, whatever its user writes into the comment.
        ({"min_nodes": 2}, {"comment": LEFT}, None, None),
        ({"comment": "nightly"}, {"comment": LEFT}, None, f"nightly {LEFT}"),
        ({"comment": ""}, {"comment": LEFT}, None, LEFT),
        # Its user says so: then no nodes but their own stay excluded.
        ({"comment": f"xz {LEFT}"}, {"comment": "xz"}, ",", f"xz {LEFT}"),
        ({"comment": LEFT}, {"admin_comment": f"{NOTED}n[2-3]"}, "n[2-3]", LEFT),
        ({"comment": LEFT, "exc_nodes": "n1"}, {}, "n1", LEFT),
        ({"comment": LEFT}, {"comment": LEFT}, None, LEFT),
        ({"comment": LEFT}, {"job_state": 1}, None, LEFT),
        # The bridge's own changes, and one that comes too late.
        ({"exc_nodes": "n2,n3", "contiguous": 0}, {}, "n2,n3", None),
        ({"exc_nodes": "", "contiguous": 0}, {}, "", None),
        ({"exc_nodes": "n2,n3", "contiguous": 0}, {"comment": LEFT}, None, None),
        # Other changes, other jobs.
        ({"time_limit": 5}, {}, None, None),
        # A memory that was not said is nil, in older versions a number that none has.
        ({"time_limit": 5, "min_mem_per_cpu": 2.0**63}, {}, None, None),
        ({"min_nodes": 3}, {"job_state": 1}, None, None),
        ({"min_nodes": 3}, {"admin_comment": "of the operator"}, None, None),
    ],
)
def test_a_job_that_its_user_changes_is_theirs(
    script: Script,
    change: dict[str, object],
    record: dict[str, object],
    excluded: str | None,
    comment: str | None,
) -> None:
    job = {"admin_comment": NOTED, "job_state": 0, "partition": "main"} | record
    changed = script.submit(record=job, **change)
    assert changed.errors == []
    assert (changed.excluded, changed.comment) == (excluded, comment)


def test_what_the_script_sets_for_a_part_of_an_array_is_not_its_users(script: Script) -> None:
    def modify(before: str, **change: object) -> tuple[str | None, str | None]:
        record = {"admin_comment": NOTED, "job_state": 0, "partition": "main", "array_job_id": 7}
        changed = script.submit(record=record | {"comment": before}, **change)
        assert changed.errors == []
        return changed.excluded, changed.comment

    assert modify("xz", partition="few") == (",", None)
    # The same change for another part, which has what was set for the one before.
    assert modify("xz", partition="few", exc_nodes=",") == (",", None)
    assert modify(LEFT, partition="few", exc_nodes=",") == (None, None)
    assert modify("xz", partition="few") == (",", None)
    # It is a list of its user where the partition stays, or the list is another one.
    assert modify("xz", exc_nodes=",") == (",", f"xz {LEFT}")
    assert modify("dd", exc_nodes=",", comment=f"xz {LEFT}") == (",", f"dd {LEFT}")
    assert modify("xz", partition="few", exc_nodes="n1") == ("n1", f"xz {LEFT}")
    # A later change that has something in common with it is another one.
    assert modify("xz", min_nodes=2) == (",", f"xz {LEFT}")
    assert modify("xz", comment=f"xz {LEFT}") == (",", f"xz {LEFT}")
    assert modify(LEFT, exc_nodes="n2,n3", contiguous=0) == (None, None)
    assert modify(LEFT, time_min=5) == (None, None)


@pytest.mark.parametrize(
    ("few", "excluded", "comment"),
    [
        ({"min_nodes": 1, "max_nodes": 4294967295}, ",", None),
        ({"min_nodes": 2}, ",", LEFT),
        ({"min_nodes": 0, "max_nodes": 1}, ",", LEFT),
        ({"min_nodes": 0, "def_mem_per_node": 1000}, ",", LEFT),
        (None, ",", LEFT),
    ],
)
def test_a_note_does_not_hold_where_a_partition_has_other_bounds(
    script: Script, few: dict[str, int] | None, excluded: str, comment: str | None
) -> None:
    partitions = {"main": {"flag_default": 1, "min_nodes": 0}} | ({"few": few} if few else {})
    record = {"admin_comment": NOTED, "job_state": 0, "partition": "main"}
    changed = script.submit(record=record, partitions=partitions, partition="few")
    assert (changed.excluded, changed.comment) == (excluded, comment)


def test_a_partition_that_is_not_shown_keeps_a_job_as_it_is(script: Script) -> None:
    partitions = {"main": {"flag_default": 1, "min_nodes": 0}}
    job = script.submit(now=NOW, name="xz", partitions=partitions, partition="few")
    assert (job.excluded, job.note, job.errors) == (None, None, [])


def test_a_failure_is_logged_when_it_begins_and_when_it_ends(script: Script, file: Path) -> None:
    text = file.read_text()
    assert script.submit(now=NOW, name="xz").excluded == "n1"
    file.unlink()
    first, second = (script.submit(now=NOW, name="xz") for _ in range(2))
    assert (first.excluded, second.excluded) == (None, None)
    assert [OFF in line for line in first.errors] == [True]
    assert second.log == []
    file.write_text(text)
    again = script.submit(now=NOW, name="xz")
    assert again.excluded == "n1"
    assert [kind for kind, _ in again.log if kind != "debug"] == ["info"]


@pytest.mark.parametrize("age", [61.0, -61.0, 1e9])
def test_a_stale_file_counts_as_none(script: Script, age: float) -> None:
    job = script.submit(now=NOW + age, name="xz")
    assert (job.excluded, job.comment, job.note) == (None, None, None)
    assert "out of date" in job.errors[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 100,
        "hello\n",
        "kongming-slurm-rankings 2\nend 1\n",
        "kongming-slurm-rankings 1\nend 1\n",
        "kongming-slurm-rankings 1\nnodes a a\nend 2\n",
        "kongming-slurm-rankings 1\nup 1\nend 2\n",
        "kongming-slurm-rankings 1\n" + "x" * (9 << 20),
        "kongming-slurm-rankings 1\nnodes " + "n " * 30000 + "\nend 2\n",
    ],
)
def test_a_damaged_file_counts_as_none(script: Script, file: Path, text: str) -> None:
    file.write_text(text)
    job = script.submit(now=NOW, name="xz")
    assert (job.excluded, job.comment, job.note) == (None, None, None)
    assert len(job.errors) == 1


def test_a_folder_in_the_place_of_the_file(script: Script, file: Path) -> None:
    file.unlink()
    file.mkdir()
    assert script.submit(now=NOW, name="xz").excluded is None


def test_jobs_with_absurd_values_are_unchanged(script: Script) -> None:
    nonsense = {"min_nodes": -1, "min_cpus": 1.5e308, "partition": ",,", "exc_nodes": ""}
    assert script.submit(now=NOW, name="xz", **nonsense).errors == []
    assert script.submit(now=NOW, name="xz", comment="kongming:" + "," * 10000).excluded == "n1"
    assert script.submit(now=NOW, name="xz", exc_nodes="n[1-999999999]").errors == []


def test_a_comment_is_made_no_longer_than_slurm_takes(script: Script) -> None:
    fits = script.submit(now=NOW, name="xz", comment="a" * 1008)
    assert fits.comment == "a" * 1008 + " kongming:app=xz"
    job = script.submit(now=NOW, name="xz", comment="a" * 1009)
    assert (job.excluded, job.comment) == ("n1", "a" * 1009)


@pytest.mark.parametrize("before", [0, 1], ids=["spaces-inside", "spaces-before"])
def test_the_time_for_a_comment_grows_no_faster_than_its_length(
    script: Script, before: int
) -> None:
    # Slurm refuses it for its length only after the script has seen it.
    short, times = 500, 16
    least_s = {short: math.inf, times * short: math.inf}
    # CPU seconds, in turn: what else the machine does affects both.
    for spaces in [*least_s] * 5:
        comment = before * spaces * " " + "a" + spaces * " " + "b"
        job = script.submit(now=NOW, name="xz", comment=comment)
        assert job.excluded == "n1"
        least_s[spaces] = min(least_s[spaces], job.clock_s)
    # A pattern that tries each space as a beginning would take the square.
    assert least_s[times * short] < times**1.5 * least_s[short]


def test_spaces_around_a_comment_do_not_count(script: Script) -> None:
    assert script.submit(now=NOW, comment=" \t xz" + 40_000 * " ").excluded == "n1"


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Script, Path]]:
    """One script for all examples, so that its state from earlier files is tested too."""
    path = tmp_path_factory.mktemp("fuzzed") / "rankings"
    with Script(interpreters()[0], path) as running:
        yield running, path


moments = itertools.count()


def later() -> float:
    """Another time for each file: by it the script recognises a new file."""
    return NOW - next(moments) / 1000.0


several = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@several
@given(st.data())
def test_no_content_of_the_file_stops_a_job(
    fuzzed: tuple[Script, Path], data: st.DataObject
) -> None:
    script, path = fuzzed
    text = rankings(written_at=later()).text()[0].encode()
    begin, end = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))
    path.write_bytes(text[:begin] + data.draw(st.binary(max_size=20)) + text[end:])
    job = script.submit(now=NOW, name="xz")
    # Only names reach Slurm, and never all the nodes that are up.
    names = set(expand(job.excluded or ""))
    assert all(tags.is_name(name) for name in names)
    assert not any("failed" in line for line in job.errors)


@st.composite
def questions(draw: st.DrawFn) -> tuple[RankingFile, dict[str, object]]:
    count = draw(st.integers(1, 7))
    slowdown = st.one_of(st.none(), st.just(NEVER), st.integers(4, 40).map(lambda n: n / 8.0))

    def each(of: st.SearchStrategy[object]) -> tuple[object, ...]:
        return tuple(draw(st.lists(of, min_size=count, max_size=count)))

    places = st.lists(st.integers(0, count - 1), unique=True, min_size=1).map(sorted).map(tuple)
    file = rankings(
        nodes=tuple(f"n{n}" for n in range(count)),
        up=each(st.sampled_from([True, True, False])),
        cpus=each(st.integers(1, 8)),
        memory_mb=each(st.sampled_from([1000, 2000])),
        threads=draw(st.sampled_from([(), each(st.integers(0, 2))])),
        partitions={"main": draw(places), "other": draw(places)},
        apps={"xz": each(slowdown)},
        least=draw(st.sampled_from([{}, {"xz": draw(places)}])),
    )
    own = draw(st.lists(st.sampled_from(file.nodes), unique=True, max_size=2))
    job = {
        "comment": f"kongming:app=xz,limit={draw(st.integers(8, 40)) / 8.0}",
        "partition": draw(st.sampled_from(["main", "other", "main,other"])),
        "min_nodes": draw(st.integers(1, 4)),
        "min_cpus": draw(st.integers(1, 20)),
        "pn_min_cpus": draw(st.sampled_from([65534, 1, 4])),
        "num_tasks": draw(st.sampled_from([4294967294, 3, 8])),
        "cpus_per_task": draw(st.sampled_from([65534, 2, 3])),
        "ntasks_per_node": draw(st.sampled_from([65534, 65534, 1, 2])),
        "max_nodes": draw(st.sampled_from([4294967294, 4294967294, 2])),
        "min_mem_per_node": draw(st.sampled_from([None, None, 1500])),
        "min_mem_per_cpu": draw(st.sampled_from([None, None, 400])),
        "exc_nodes": ",".join(own) or None,
    }
    return file, job


@several
@given(questions())
def test_pending_jobs_get_the_exclusions_of_new_jobs(
    fuzzed: tuple[Script, Path], question: tuple[RankingFile, dict[str, object]]
) -> None:
    script, path = fuzzed
    file, job = question
    path.write_text(replace(file, written_at=later()).text()[0])
    submitted = script.submit(now=NOW, **job)
    if submitted.note is None:
        return
    note = tags.note(submitted.note)
    assert note is not None
    own = expand(note.own)
    partitions = str(job["partition"]).split(",")
    pending = policy.divided(file, note, partitions, own)
    assert pending is not None
    assert set(expand(submitted.excluded or "")) == {*own, *pending.names}


@given(st.text(st.sampled_from("kongming:app=xz,limit1.20 \t,=+-_/é"), max_size=60))
@several
def test_python_and_lua_read_tags_alike(fuzzed: tuple[Script, Path], comment: str) -> None:
    script, path = fuzzed
    path.write_text(rankings().text()[0])
    comment_with_tag = f"kongming:app=xz{comment}"
    job = script.submit(now=NOW, comment=comment_with_tag)
    tag = tags.tag(comment_with_tag)
    assert (job.note is not None) == (tag is not None and tag.app in rankings().apps)
    if job.note is not None and tag is not None:
        note = tags.note(job.note)
        assert note is not None
        limit = 1.5 if tag.limit is None else min(tag.limit, 999999.0)
        assert note.limit == pytest.approx(limit, abs=5e-7)


def test_a_file_of_a_large_cluster_is_read_once(tmp_path: Path) -> None:
    count = 5000
    path = tmp_path / "rankings"
    apps = {f"app{n}": tuple(1.0 + (p + n) % 7 / 4 for p in range(count)) for n in range(60)}
    large = rankings(
        nodes=tuple(f"node{n:05d}" for n in range(count)),
        up=(True,) * count,
        cpus=(64,) * count,
        memory_mb=(256000,) * count,
        partitions={"main": tuple(range(count))},
        apps=apps,
        written_at=time.time(),
    )
    path.write_text(large.text()[0])
    with Script(interpreters()[0], path) as script:
        first = script.submit(comment="kongming:app=app1,limit=1.3")
        later = [script.submit(comment=f"kongming:app=app{n},limit=1.3") for n in range(2, 7)]
    assert len(expand(first.excluded or "")) > 3000
    assert all(job.errors == [] for job in later)
    # A later job parses no more than the line of its application.
    assert min(job.clock_s for job in later) < first.clock_s
