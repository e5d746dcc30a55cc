"""--time-min: decided alike in Python and Lua, never against the user, and always taken back."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kongming_slurm import tags, time_limits
from kongming_slurm.ranking_file import RankingFile, RunTimes
from kongming_slurm.slurm_commands import LimitedJob, minutes

from kongming.records.answers import Forecast, RankedNode
from kongming.records.prediction import Interval
from tests.slurm.cluster import DEPLOYED
from tests.slurm.lua import Script, interpreters

NOW = 1763732400.0
NO_VAL, UNLIMITED = 4294967294, 4294967295
needs_lua = pytest.mark.skipif(not interpreters(), reason="Lua not found: install lua5.1")

seconds = st.lists(st.one_of(st.none(), st.integers(0, 10**5).map(float)), max_size=4)
limits = st.integers(1, 2000)


@given(seconds, limits, st.integers(1, 500))
def test_time_min_is_below_the_limit_and_monotone(
    by_node: list[float | None], limit: int, more: int
) -> None:
    least = time_limits.time_min(by_node, limit)
    known = [value for value in by_node if value is not None]
    if least is None:
        slowest = max(known, default=0.0)
        assert (
            slowest > 60.0 * (limit - 1) or limit == 1 or 2 * len(known) < len(by_node) or not known
        )
        return
    assert 1 <= least < limit
    assert 60.0 * least >= max(known)
    # A longer limit changes nothing, and a slower node never shortens it.
    assert time_limits.time_min(by_node, limit + more) == least
    slower = [None if value is None else value + more for value in by_node]
    longer = time_limits.time_min(slower, limit)
    assert longer is None or longer >= least


def ranked(name: str, upper: float, **changed: object) -> RankedNode:
    flags = {key: changed.pop(key) for key in ("calibrated", "at_least") if key in changed}
    interval = Interval(1.0, 0.9, upper, **flags)  # type: ignore[arg-type]
    return RankedNode(name, name, 0, 0.0, interval, **changed)  # type: ignore[arg-type]


def forecast(**changed: object) -> Forecast:
    values: dict[str, object] = {"basis": "model", "solo_s": 100.0} | changed
    unslowed = Interval(1.0, 1.0, 1.0)
    return Forecast(
        app="xz",
        node_id="a",
        domain=0,
        placement="cross-core",
        slowdown=unslowed,
        **values,  # type: ignore[arg-type]
    )


def test_only_a_calibrated_interval_says_how_long_a_run_takes() -> None:
    nodes = [
        ranked("a", 1.5),
        ranked("b", 1.5, calibrated=False),
        ranked("c", 1.5, at_least=True),
        ranked("d", 1.5, extrapolating=True),
    ]
    assert time_limits.run_seconds(nodes, forecast(), 0.1) == {"a": pytest.approx(165.0)}
    for unusable in ({"basis": "node-only", "solo_s": None}, {"metric_unit": "requests/s"}):
        assert time_limits.run_seconds(nodes, forecast(**unusable), 0.1) == {}


def note(limit: int) -> tags.Note:
    return tags.Note("xz", 1.5, limit_min=limit)


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 3000))
def test_a_limit_is_only_ever_raised_to_its_users(limit: int, least: int, own: int) -> None:
    restored = time_limits.limit_to_restore(LimitedJob("1", limit, least, note(own)))
    assert restored in (None, own)
    assert restored is None or (limit < own and least > 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8:00", 8), ("8:01", 9), ("2:05:00", 125), ("1-02:05:00", 1565), ("UNLIMITED", 0), ("", 0)],
)
def test_times_of_slurm(text: str, expected: int) -> None:
    assert minutes(text) == expected


def rankings(**times: object) -> RankingFile:
    values: dict[str, object] = {"sets": True, "advises": True, "share": 0.95} | times
    values.setdefault("apps", {"xz": (3600.0, 290.0, 301.0, None)})
    return RankingFile(
        written_at=NOW,
        good_for_s=60.0,
        limit=1.5,
        nodes=("n1", "n2", "n3", "n4"),
        up=(True,) * 4,
        cpus=(4,) * 4,
        memory_mb=(1000,) * 4,
        partitions={"main": (0, 1, 2, 3), "other": (0, 3)},
        apps={"xz": (3.0, 1.0, 1.25, 1.0), "dd-read": (1.0, 1.0, 1.0, 1.0)},
        times=RunTimes(**values),  # type: ignore[arg-type]
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rankings"
    path.write_text(rankings().text()[0])
    return path


@pytest.fixture
def script(file: Path) -> Iterator[Script]:
    with Script(interpreters()[0], file) as running:
        yield running


@needs_lua
@pytest.mark.parametrize(
    ("job", "least", "limit"),
    [
        # n1 is excluded; n3 takes five minutes and a second.
        ({"time_limit": 480}, 6, 480),
        ({"time_limit": 480, "exc_nodes": "n3"}, 5, 480),
        ({"time_limit": 480, "array_inx": "1-9"}, 6, 480),
        ({"time_limit": 480, "comment": "kongming:app=xz,limit=4"}, 60, 480),
        ({"time_limit": 7}, 6, 7),
        # Nothing is gained.
        ({"time_limit": 6}, None, 6),
        # Without --time it is the partition's.
        ({}, 6, 100),
        ({"partition": "other"}, None, 0),
        ({"partition": "main,other"}, None, 0),
        ({"time_limit": UNLIMITED}, None, 0),
        # Slurm would not start it: the restored limit is never beyond the partition's.
        ({"time_limit": 1001}, None, 0),
        ({"time_limit": 1001, "partition": "other,main"}, None, 0),
        # Left alone, by what the user has said.
        ({"time_limit": 480, "time_min": 30}, 30, 0),
        ({"time_limit": 480, "comment": "kongming:no-time"}, None, 0),
        ({"time_limit": 480, "comment": "nightly\tkongming:no-time kongming:app=xz"}, None, 0),
        ({"time_limit": 480, "comment": "kongming:app=xz kongming:no-times"}, 6, 480),
        ({"time_limit": 480, "het_job_offset": 0}, None, 0),
        ({"time_limit": 480, "min_nodes": 2}, None, 0),
        # No node holds all of it.
        ({"time_limit": 480, "num_tasks": 5}, None, 0),
        ({"time_limit": 480, "num_tasks": 4}, 6, 480),
        ({"time_limit": 480, "user_id": 1001}, None, 0),
        # Without a history.
        ({"time_limit": 480, "name": "dd-read"}, None, 480),
    ],
)
def test_time_min_of_a_new_job(
    script: Script, file: Path, job: dict[str, object], least: int | None, limit: int
) -> None:
    file.write_text(rankings(skip=(1001,)).text()[0])
    partitions = {
        "main": {"flag_default": 1, "max_time": 1000, "default_time": 100},
        "other": {"max_time": UNLIMITED, "default_time": NO_VAL},
    }
    submitted = script.submit(now=NOW, partitions=partitions, **({"name": "xz"} | job))
    assert submitted.errors == []
    assert submitted.time_min == least
    written = tags.note(submitted.note or "")
    assert written is not None
    assert written.limit_min == limit
    is_advised = limit and least and 2 * least <= limit
    assert [f"within {least} min" in line for line in submitted.advice] == [True] * bool(is_advised)


@needs_lua
@pytest.mark.parametrize(
    ("times", "user", "least", "advised"),
    [
        ({}, 7, 6, True),
        ({"sets": False}, 7, None, True),
        ({"advises": False}, 7, 6, False),
        ({"only": (7, 8)}, 7, 6, True),
        ({"only": (7, 8)}, 9, None, False),
        ({"skip": (7,)}, 7, None, False),
        ({"only": (7,), "skip": (7,)}, 7, None, False),
        ({"apps": {}}, 7, None, False),
    ],
)
def test_switches(
    script: Script,
    file: Path,
    times: dict[str, object],
    user: int,
    least: int | None,
    advised: bool,
) -> None:
    file.write_text(rankings(**times).text()[0])
    job = script.submit(now=NOW, name="xz", time_limit=480, user_id=user)
    assert (job.time_min, bool(job.advice)) == (least, advised)
    if not times.get("sets", True):
        assert ",time=" not in (job.note or "")


NOTED = "kongming:app=xz,limit=1.5,nodes=1,cpus=1,memory=0,total=1,time=480,own="


@needs_lua
@pytest.mark.parametrize(
    ("change", "record", "comment", "least"),
    [
        ({"time_limit": 100}, {}, "kongming:no-time", 0),
        ({"time_limit": 100}, {"comment": "nightly"}, "nightly kongming:no-time", 0),
        ({"time_limit": 100}, {"job_state": 1}, "kongming:no-time", None),
        ({"time_limit": 100, "time_min": 5}, {}, "kongming:no-time", 5),
        # With the word Slurm would refuse the comment, and the change with it.
        ({"time_limit": 100}, {"comment": "a" * 1007}, "a" * 1007 + " kongming:no-time", 0),
        ({"time_limit": 100}, {"comment": "a" * 1008}, None, 0),
        # The limit is restored, or something else changed.
        ({"time_limit": 480}, {}, None, None),
        ({"nice": 2}, {}, None, None),
        # So long nobody knows how long it takes there.
        ({"min_cpus": 2}, {}, "kongming:no-exclusions", 0),
        ({"exc_nodes": "n1"}, {}, "kongming:no-exclusions", 0),
        ({"exc_nodes": "n1", "contiguous": 0}, {}, None, None),
        # In another partition the bridge looks at it first.
        ({"partition": "few"}, {}, None, 0),
        ({"partition": "few"}, {"comment": "kongming:no-time"}, None, None),
        ({"comment": "kongming:no-time"}, {}, "kongming:no-time", 0),
        ({"time_limit": 100}, {"admin_comment": "of the operator"}, None, None),
    ],
)
def test_a_limit_that_others_change_is_theirs(
    script: Script,
    change: dict[str, object],
    record: dict[str, object],
    comment: str | None,
    least: int | None,
) -> None:
    job = {"admin_comment": f"by ops {NOTED}", "job_state": 0, "partition": "main"} | record
    changed = script.submit(record=job, **change)
    assert changed.errors == []
    assert (changed.comment, changed.time_min) == (comment, least)
    last_word = (comment or "").rpartition(" ")[2]
    assert tags.wants_no_time(comment or "") == (last_word == "kongming:no-time")


@needs_lua
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("looked at", f"looked at {NOTED}"),
        ("", NOTED),
        (f"looked at {NOTED}", f"looked at {NOTED}"),
        (None, None),
    ],
)
def test_a_note_outlives_what_an_operator_writes(
    script: Script, text: str | None, expected: str | None
) -> None:
    job = {"admin_comment": NOTED, "job_state": 0}
    changed = script.submit(record=job, **({} if text is None else {"admin_comment": text}))
    assert changed.errors == []
    assert (changed.note, changed.time_min) == (expected, None)


moments = itertools.count()


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Script, Path]]:
    path = tmp_path_factory.mktemp("times") / "rankings"
    with Script(interpreters()[0], path) as running:
        yield running, path


@needs_lua
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.one_of(st.none(), st.integers(0, 40000)), min_size=4, max_size=4), limits)
def test_python_and_lua_decide_alike(
    fuzzed: tuple[Script, Path], by_node: list[int | None], limit: int
) -> None:
    script, path = fuzzed
    values = tuple(None if value is None else float(value) for value in by_node)
    file = rankings(apps={"dd-read": values})
    # By its moment the script recognises a new file.
    path.write_text(replace(file, written_at=NOW - next(moments) / 1000.0).text()[0])
    submitted = script.submit(now=NOW, name="dd-read", time_limit=limit)
    assert submitted.time_min == time_limits.time_min(values, limit)


PROGRAM = '#!/bin/sh\necho "$0 $*" | sed "s,.*/,," >> "$LOG"\n'


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (f"3:00|3:00|{NOTED}n[1-2]", 480),
        (f"3:00|3:00|by ops {NOTED}", 480),
        (f"7:59:00|3:00|{NOTED}", 480),
        (f"8:00:00|3:00|{NOTED}", None),
        (f"1-00:00:00|3:00|{NOTED}", None),
        (f"3:00|0:00|{NOTED}", None),
        ("3:00|3:00|of the operator", None),
        ("UNLIMITED|3:00|" + NOTED, None),
        ("", None),
        ("slurm_load_jobs error: Invalid job id", None),
    ],
)
def test_the_script_restores_the_users_limit(
    tmp_path: Path, shown: str, expected: int | None
) -> None:
    log = tmp_path / "log"
    (tmp_path / "squeue").write_text(f"{PROGRAM}cat <<'END'\n{shown}\nEND\n")
    (tmp_path / "scontrol").write_text(f"{PROGRAM}exit 1\n")
    for name in ("squeue", "scontrol"):
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    job = {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    done = subprocess.run(
        [DEPLOYED / "restore-limit.sh"],
        env={"PATH": path, "LOG": str(log)} | job,
        capture_output=True,
        text=True,
        check=False,
    )
    # Any other status would put the job back into the queue.
    assert done.returncode == 0
    squeue, *updates = log.read_text().splitlines()
    assert "-j 7_2 " in squeue
    restored = [f"scontrol update JobId=7_2 TimeLimit={expected}"] if expected else []
    assert updates == restored
    assert bool(done.stderr) == bool(expected)
    limit, least, text = ("", "", "") if shown.count("|") < 2 else shown.split("|", 2)
    job_note = tags.note(text)
    if job_note is not None:
        limited = LimitedJob("7_2", minutes(limit), minutes(least), job_note)
        assert time_limits.limit_to_restore(limited) == expected
