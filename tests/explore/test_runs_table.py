"""The table that ``kongming explore run`` appends to."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kongming.explore import ExploreError, Space
from kongming.explore.fitting import fit_runs
from kongming.explore.measured_table import read_measured
from kongming.explore.regions import regions
from kongming.explore.runs_table import PointRun, RunsTable, read_runs
from kongming.files.line_file import LineFile
from kongming.records.errors import InputError


def test_ctrl_c_while_a_run_is_written_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Space.from_dict({"n": [1, 2, 3]})
    table = RunsTable(tmp_path / "runs.csv", space, "wall_s", identity="a program")
    sync = LineFile.sync

    def interrupted(file: LineFile) -> None:
        signal.raise_signal(signal.SIGINT)
        sync(file)

    monkeypatch.setattr(LineFile, "sync", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            table.add(PointRun({"n": 1}, 0.5))
    finally:
        signal.signal(signal.SIGINT, before)
        table.close()
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 2
    assert len(table.runs) == 1


def table_of(path: Path, identity: str = "a program") -> RunsTable:
    return RunsTable(path, Space.from_dict({"n": [1, 2, 3]}), "seconds", identity=identity)


def filled(path: Path, **changes: Any) -> bytes:
    """The content of a table of two runs, of which the last one is changed."""
    with closing(table_of(path)) as table:
        table.add(PointRun({"n": 1}, 0.5, started_at="2026-03-01T05:00:00Z"))
        second: dict[str, Any] = {"value": 0.75, "started_at": "2026-03-01T05:00:01.250Z"}
        table.add(PointRun({"n": 2}, **second | changes))
    return path.read_bytes()


@pytest.mark.parametrize(
    ("saved", "problem", "hint"),
    [
        (lambda row: b";".join(row.split(b",")), "separated by ';'", "Save the table with commas"),
        (
            lambda row: b"\t".join(row.split(b",")),
            "separated by '\\t'",
            "Save the table with commas",
        ),
        (lambda row: b",".join(row.split(b",")[::-1]), "in another order", "Give the columns"),
        (lambda row: b"m" + row[1:], "a table with other columns", "Choose another file."),
    ],
)
def test_a_table_that_was_saved_in_another_way(
    tmp_path: Path, saved: Callable[[bytes], bytes], problem: str, hint: str
) -> None:
    """Such runs are not lost: the refusal names what is different."""
    path = tmp_path / "runs.csv"
    header, *rows = filled(path).splitlines()
    content = b"\xef\xbb\xbf" + b"\r\n".join(map(saved, [header, *rows])) + b"\r\n"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        table_of(path)
    assert problem in error.value.message
    assert f"Found {saved(header).decode()!r}" in error.value.message
    assert hint in (error.value.hint or "")
    assert path.read_bytes() == content


def test_a_row_that_only_lacks_its_end_is_kept(tmp_path: Path) -> None:
    """As an editor or a spreadsheet leaves a table."""
    path = tmp_path / "runs.csv"
    content = filled(path).removesuffix(b"\n")
    older = b"\n".join(line.rpartition(b",")[0] for line in content.split(b"\n"))
    spreadsheet = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    for edited in (content, older, spreadsheet, spreadsheet + b"\r\n"):
        path.write_bytes(edited)
        with pytest.raises(InputError, match="another one"):
            table_of(path, "another program")
        assert path.read_bytes() == edited
        with closing(table_of(path)) as table:
            assert [run.value for run in table.runs] == [0.5, 0.75]
            assert table.removed == ""
            table.add(PointRun({"n": 3}, 1.0, started_at="2026-03-01T05:00:02Z"))
        assert [run.value for run in read_runs(path, Space.from_dict({"n": [1, 2, 3]}))] == [
            *(0.5, 0.75, 1.0)
        ]


def test_a_row_that_was_cut_off_is_removed_and_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    content = filled(path)
    begin = content[:-1].rfind(b"\n") + 1
    timeout = {"value": None, "error": "too long", "limit": 12.5}
    limited = filled(tmp_path / "limited.csv", **timeout)
    cuts = [content[:end] for end in range(begin + 1, len(content) - 1)]
    # Of the time limit it cannot be known whether digits are missing.
    for cut in (*cuts, *(limited[:-count] for count in (1, 3, 5))):
        path.write_bytes(cut)
        with pytest.raises(InputError, match="another one"):
            table_of(path, "another program")
        assert path.read_bytes() == cut
        with closing(table_of(path)) as table:
            assert [run.value for run in table.runs] == [0.5]
            assert table.removed == cut[begin:].decode()
        assert path.read_bytes() == content[:begin]


def test_a_table_that_was_begun_without_time_limits_goes_on(tmp_path: Path) -> None:
    space = Space.from_dict({"n": [1, 2, 3]})
    path = tmp_path / "runs.csv"
    table = RunsTable(path, space, "seconds", identity="a program")
    table.add(PointRun({"n": 1}, 0.5))
    table.close()
    # As it was written before.
    before = path.read_text().splitlines()
    path.write_text("".join(f"{line.rpartition(',')[0]}\n" for line in before))
    table = RunsTable(path, space, "seconds", identity="a program")
    table.add(PointRun({"n": 2}, None, cost=2.0, error="too long", limit=1.5))
    table.close()
    assert {line.count(",") for line in path.read_text().splitlines()} == {8}
    assert [run.limit for run in read_runs(path, space)] == [None, 2.0]


def test_a_table_of_a_metric_that_was_begun_without_seconds_goes_on(tmp_path: Path) -> None:
    space = Space.from_dict({"n": [1, 2, 3]})
    path = tmp_path / "runs.csv"
    table = RunsTable(path, space, "metric", identity="a-program")
    table.add(PointRun({"n": 1}, -0.5, seconds=2.0))
    table.close()
    assert [run.value for run in read_runs(path, space, "seconds")] == [2.0]
    # As it was written before.
    with path.open(newline="") as file:
        header, cells = csv.reader(file)
    place = header.index("seconds")
    lines = [[*line[:place], *line[place + 1 :]] for line in (header, cells)]
    path.write_text("".join(f"{','.join(line)}\n" for line in lines))
    table = RunsTable(path, space, "metric", identity="a-program")
    table.add(PointRun({"n": 2}, 0.0, seconds=3.0))
    table.close()
    assert [run.value for run in read_runs(path, space, "metric")] == [-0.5, 0.0]
    assert "seconds" not in path.read_text()
    # Before that there were no time limits either.
    path.write_text("".join(f"{line.rpartition(',')[0]}\n" for line in path.read_text().split()))
    table = RunsTable(path, space, "metric", identity="a-program")
    table.add(PointRun({"n": 3}, 2.5, seconds=3.0))
    table.close()
    assert [run.value for run in read_runs(path, space, "metric")] == [-0.5, 0.0, 2.5]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(
        st.floats(-1e90, 1e90, allow_subnormal=False), min_size=2, max_size=5, unique=True
    ),
    drawn=st.floats(0.1, 2.0 / 3.0),
    limit=st.floats(1e-3, 1e6),
)
def test_what_is_written_is_read_as_it_was(
    tmp_path: Path, values: list[float], drawn: float, limit: float
) -> None:
    space = Space.from_dict(
        {
            "ratio": values,
            "share": {"from": 0.1, "to": 2.0 / 3.0},
            "on": "boolean",
            "flag": {"choices": ["", "--fast"]},
        }
    )
    path = tmp_path / "runs.csv"
    path.unlink(missing_ok=True)
    points: list[dict[str, Any]] = [
        {"ratio": value, "share": drawn, "on": True, "flag": ""} for value in values
    ]
    table = RunsTable(path, space, "seconds", identity="a program")
    table.add(PointRun(points[0], None, cost=3e6, error="too long", limit=limit))
    for point in points[1:]:
        table.add(PointRun(point, 1.0))
    table.close()
    again = RunsTable(path, space, "seconds", identity="a program")
    again.close()
    assert np.array_equal(
        space.encode([run.point for run in again.runs]),  # type: ignore[misc]
        space.encode(points),
    )
    assert again.runs[0].limit == pytest.approx(limit, rel=1e-8)


@pytest.mark.parametrize(
    ("dimension", "words"),
    [
        ({"choices": ["a ", "b"]}, "flag: begins or ends with a blank"),
        ({"choices": ["a\nb", "b"]}, "flag: .* several lines"),
        ({"choices": ["", "b"], "when": "n > 1"}, "flag: is empty"),
    ],
)
def test_texts_that_no_table_keeps_are_no_choices(dimension: Any, words: str) -> None:
    with pytest.raises(ExploreError, match=words):
        Space.from_dict({"n": [1, 2], "flag": dimension})


@pytest.mark.parametrize("table", ["codec,seconds\nxz,1\n", "codec,level,seconds\nxz,,1\n"])
def test_a_parameter_that_a_row_lacks_is_the_one_that_is_named(tmp_path: Path, table: str) -> None:
    (tmp_path / "runs.csv").write_text(table)
    level = {"from": 1, "to": 9, "when": "codec == 'xz'"}
    space = Space.from_dict({"codec": {"choices": ["gz", "xz"]}, "level": level})
    with pytest.raises(InputError, match=r"row 1 \(line 2\), column 'level': is missing"):
        read_runs(tmp_path / "runs.csv", space)


@pytest.mark.parametrize("cost", ["-1", "1e300", "x"])
def test_a_cost_that_is_none_is_named_by_its_row(tmp_path: Path, cost: str) -> None:
    (tmp_path / "runs.csv").write_text(f"n,seconds,cost\n1,2,3\n2,3,{cost}\n")
    with pytest.raises(InputError, match=r"row 2 \(line 3\), column 'cost': is.*Allowed: "):
        read_runs(tmp_path / "runs.csv", Space.from_dict({"n": [1, 2]}))


def test_the_target_is_no_parameter(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("n,seconds\n1,2\n2,3\n")
    space = Space.from_dict({"n": [1, 2]})
    with pytest.raises(InputError, match="target: is a parameter"):
        read_runs(tmp_path / "runs.csv", space, "n")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("1,5\n2,\n3,\n", "column 'seconds': has too few values"),
        ("1,0\n2,5e-324\n3,1e-310\n", "is constant"),
    ],
)
def test_values_of_which_no_model_is_made(tmp_path: Path, rows: str, words: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("n,seconds\n" + rows)
    space = Space.from_dict({"n": [1, 2, 3]})
    with pytest.raises(InputError, match=words):
        fit_runs(space, read_runs(path, space), "seconds", str(path))


def test_a_model_that_is_asked_for_is_that_or_none() -> None:
    space = Space.from_dict({"n": {"from": 1, "to": 40}})
    runs = [PointRun({"n": at}, float(at)) for at in range(1, 17)]
    with pytest.raises(InputError, match=r"too few points.*'boosting'.*Found 16.*20 or more"):
        fit_runs(space, runs, "seconds", "runs.csv", model="boosting")


def test_runs_that_were_ended_do_not_make_a_model_flat() -> None:
    """Levels 1 to 3 lie on a line; the others were ended at 0.8 s."""
    space = Space.from_dict({"level": {"from": 1, "to": 9}})
    runs = [PointRun({"level": at}, 0.2 * at) for at in (1, 2, 3)]
    runs += [
        PointRun({"level": at}, None, cost=9.0, error="too long", limit=0.8) for at in (5, 7, 8, 9)
    ]
    model = fit_runs(space, runs, "seconds", "runs.csv")
    forecast = model.profiler.predict([{"level": at} for at in (4, 6, 9)])
    assert forecast.median == pytest.approx([0.8, 1.2, 1.8], rel=0.1)
    assert forecast.extrapolating[2]


def ended_beyond_20() -> list[PointRun]:
    """Runs of n = 1 to 40 that take n seconds, those from 21 ended after 12."""
    runs = [PointRun({"n": at}, float(at)) for at in range(1, 21)]
    return runs + [PointRun({"n": at}, None, error="too long", limit=12.0) for at in range(21, 41)]


def test_bounds_are_no_errors_of_the_model() -> None:
    space = Space.from_dict({"n": {"from": 1, "to": 40}})
    model = fit_runs(space, ended_beyond_20(), "seconds", "runs.csv", model="lines")
    assert model.profiler.report()["error"]["mre_pct"] < 1.0
    assert model.profiler.report()["timed_out"] == 20


def test_both_errors_of_a_model_are_of_the_runs_that_were_measured() -> None:
    """A noisy line; what another model says of the runs that were ended is on a line."""
    space = Space.from_dict({"n": {"from": 0, "to": 40}})
    noise = np.random.default_rng(0).normal(size=20)
    runs = [PointRun({"n": at}, at - 8.0 + noise[at]) for at in range(20)]
    runs += [PointRun({"n": at}, None, error="too long", limit=14.0) for at in range(20, 41)]
    profiler = fit_runs(space, runs, "seconds", "runs.csv", model="lines").profiler
    error = profiler.report()["error"]
    means, held_out, shares = profiler._fitted().left_out()
    assert len(means) == 20
    squared = np.average((means - held_out) ** 2, weights=shares)
    assert error["rmse"] == pytest.approx(np.sqrt(squared))
    assert error["of_learners_rmse"]["lines"] == pytest.approx(error["rmse"])


def test_a_region_of_runs_that_were_ended_has_a_mean_that_is_a_bound() -> None:
    space = Space.from_dict({"n": {"from": 1, "to": 40}})
    tree = regions(fit_runs(space, ended_beyond_20(), "seconds", "runs.csv", model="lines"))
    leaves = [region for region in tree if region.cut is None]
    assert (sum(leaf.runs for leaf in leaves), sum(leaf.ended for leaf in leaves)) == (40, 20)
    assert [leaf.mean for leaf in leaves if leaf.ended == leaf.runs] == [12.0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "model", ["bagged_lines", pytest.param("auto", marks=pytest.mark.thorough)]
)
def test_a_model_does_not_depend_on_the_order_of_rows(model: str) -> None:
    """Points with repeats, a condition, failures and limits, as they were run and sorted."""
    space = Space.from_dict(
        {
            "n": {"from": 1, "to": 30},
            "codec": {"choices": ["gz", "xz", "zst"]},
            "level": {"from": 1, "to": 9, "when": "codec != 'zst'"},
        }
    )
    rng = np.random.default_rng(0)
    runs = []
    for place, point in enumerate(space.decode(space.draw(40, rng))):
        seconds = 5.0 + float(point["n"]) * (1.0 + 0.1 * float(point.get("level", 0)))
        if place % 10 == 3:
            runs.append(PointRun(point, None, error="out of memory"))
        elif seconds > 40.0:
            runs.append(PointRun(point, None, error="too long", limit=40.0))
        else:
            runs += [PointRun(point, seconds + rng.normal()) for _ in range(1 + place % 3)]
    queries = space.decode(space.draw(30, rng))
    forecasts = [
        fit_runs(space, table, "seconds", "runs.csv", model=model).profiler.predict(queries)
        for table in (runs, runs[::-1], [runs[at] for at in rng.permutation(len(runs))])
    ]
    for other in forecasts[1:]:
        for column in ("median", "lower", "upper", "extrapolating", "failure_probability"):
            np.testing.assert_allclose(
                getattr(other, column), getattr(forecasts[0], column), rtol=1e-9
            )


def test_runs_of_one_point_are_told_as_that() -> None:
    runs = [PointRun({"n": 1}, seconds) for seconds in (1.0, 1.1, 1.2)]
    with pytest.raises(InputError, match="has no parameter that varies"):
        fit_runs(Space.from_dict({"n": [1, 2]}), runs, "seconds", "runs.csv")


def test_choices_of_more_digits_than_a_float_keeps_are_read_as_they_were(tmp_path: Path) -> None:
    seeds = [9007199254740993, 9007199254740992, 7]
    space = Space.from_dict({"seed": {"choices": seeds}})
    path = tmp_path / "runs.csv"
    table = RunsTable(path, space, "seconds", identity="a program")
    for seed in seeds:
        table.add(PointRun({"seed": seed}, 0.5))
    table.close()
    assert [run.point["seed"] for run in read_runs(path, space)] == seeds


def test_a_parameter_may_have_the_name_of_what_explore_run_writes(tmp_path: Path) -> None:
    space = Space.from_dict({"cost": [-1, 2], "status": {"choices": ["timeout", "ok"]}})
    path = tmp_path / "runs.csv"
    path.write_text("cost,status,seconds\n-1,ok,3\n2,timeout,\n")
    first, second = read_runs(path, space)
    assert (first.point, first.cost, first.value) == ({"cost": -1, "status": "ok"}, None, 3.0)
    assert (second.status, second.limit) == ("failed", None)


def test_a_time_limit_is_a_bound_of_the_seconds_alone(tmp_path: Path) -> None:
    space = Space.from_dict({"x": [1, 2]})
    path = tmp_path / "runs.csv"
    columns = "x,seconds,cost,status,error,how,identity,space,started_at,at_least,ops"
    path.write_text(f"{columns}\n1,3,3.1,ok,,,i,s,,10,0.5\n2,,10.2,timeout,ended,,i,s,,10,\n")
    assert [run.limit for run in read_runs(path, space, "seconds")] == [None, 10.0]
    _, ended = read_runs(path, space, "ops")
    assert (ended.value, ended.limit, ended.error) == (None, None, "ended")
    limits = {
        target: read_measured(path, target, ignored=("ops",) if target != "ops" else ()).limits
        for target in ("seconds", "cost", "ops")
    }
    assert {target: np.isfinite(each).tolist() for target, each in limits.items()} == {
        "seconds": [False, True],
        "cost": [False, False],
        "ops": [False, False],
    }


def test_a_time_limit_of_a_program_with_a_metric_bounds_its_seconds(tmp_path: Path) -> None:
    space = Space.from_dict({"x": [1, 2, 3]})
    table = RunsTable(tmp_path / "runs.csv", space, "metric", identity="a program")
    table.add(PointRun({"x": 1}, 50.0, 2.0, seconds=2.0))
    table.add(PointRun({"x": 2}, None, 5.1, error="ended", seconds_limit=5.0))
    table.add(PointRun({"x": 3}, None, 0.1, error="broken"))
    table.close()
    by_target = {
        target: [(run.status, run.limit) for run in read_runs(table.path, space, target)]
        for target in ("metric", "seconds")
    }
    assert by_target["metric"] == [(run.status, run.limit) for run in table.runs]
    assert by_target["metric"] == [("ok", None), ("failed", None), ("failed", None)]
    assert by_target["seconds"] == [("ok", None), ("timeout", 5.0), ("failed", None)]
    again = RunsTable(table.path, space, "metric", identity="a program")
    again.close()
    assert [run.error for run in again.runs] == [None, "ended", "broken"]


def test_a_parameter_has_not_the_name_of_what_is_measured(tmp_path: Path) -> None:
    for name in ("metric", "seconds"):
        space = Space.from_dict({name: ["l1", "l2"]})
        with pytest.raises(InputError, match=f"space: {name}"):
            RunsTable(tmp_path / "runs.csv", space, "seconds", identity="a program")


@pytest.mark.parametrize(
    ("own", "status", "value", "words"),
    [
        (True, "failed", "5", "contradicts the value in column 'seconds'. Found 'failed'"),
        (True, "timeout", "5", "contradicts the value"),
        (True, "ok", "", "has no value in column 'seconds'. Found 'ok'"),
        (True, "banana", "5", "is no status of a run. Found 'banana'. Allowed: ok, failed"),
        (True, "", "5", None),
        (True, "failed", "", None),
        (False, "failed", "5", "contradicts the value"),
        (False, "timeout", "5", "contradicts the value"),
        (False, "done", "5", None),
        (False, "ok", "", None),
    ],
)
def test_a_status_agrees_with_the_value(
    tmp_path: Path, own: bool, status: str, value: str, words: str | None
) -> None:
    """Tables of others may have a status of their own."""
    path = tmp_path / "runs.csv"
    more = (",identity,space", ",i,s") if own else ("", "")
    path.write_text(
        f"n,seconds,cost,status{more[0]}\n1,4,9,ok{more[1]}\n2,{value},9,{status}{more[1]}\n"
    )
    readers = [lambda: read_runs(path, Space.from_dict({"n": [1, 2]}))]
    if own:
        readers.append(lambda: read_measured(path, "seconds"))
        assert len(read_measured(path, "seconds", ignored=("status",))) == 2
    # What a run cost is known however it ended.
    assert len(read_runs(path, Space.from_dict({"n": [1, 2]}), "cost")) == 2
    for read in readers:
        if words is None:
            read()
        else:
            with pytest.raises(InputError) as caught:
                read()
            where = "row 2 (line 3), column 'status': "
            assert f"{where}{words}" in caught.value.message


def test_a_device_is_no_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/null"), tmp_path / "pipe"):
        with pytest.raises(InputError, match=rf"--out: is no regular file.*'{path}'"):
            table_of(path)
        assert path.exists()


def test_a_table_without_time_limits_has_no_bound_of_the_seconds_of_a_metric(
    tmp_path: Path,
) -> None:
    """The cost, which stands in for a limit, is in machine-seconds here."""
    space = Space.from_dict({"machines": [1, 8], "scale": [1.0, 2.0]})
    path = tmp_path / "runs.csv"
    with closing(RunsTable(path, space, "metric", identity="a program")) as table:
        table.add(PointRun({"machines": 1, "scale": 1.0}, 9.0, 5.0, seconds=5.0))
    # As it was written before.
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line.rpartition(',')[0]}\n" for line in lines))
    ended = {"machines": 8, "scale": 1.0}
    with closing(RunsTable(path, space, "metric", identity="a program")) as table:
        table.add(PointRun(ended, None, 160.0, error="ended", seconds_limit=20.0))
    assert [run.limit for run in read_runs(path, space, "seconds")] == [None, None]
    assert [run.error for run in read_runs(path, space, "seconds")] == [None, "ended"]
