"""Bad tables get an error that names the row and the column."""

from __future__ import annotations

from pathlib import Path

import pytest

from kongming.records.errors import InputError
from kongming.scale.fit.fitting import Settings, fit_table
from kongming.scale.fit.terms import read_terms
from kongming.scale.table import Columns, read_context_table, read_table

GOOD = "machines,scale,seconds\n1,0.1,10\n2,0.1,6\n4,0.1,4\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("machines,scale\n1,0.1\n", r"column 'seconds'.*machines, scale"),
        ("scale,seconds\n1,0.1\n", r"row 0.*column 'machines'"),
        ("machines,scale,seconds\n1,0.1,10\n2,0.1,0\n", r"row 2 \(line 3\), column 'seconds'.*'0'"),
        ("machines,scale,seconds\n1,0.1,10\n2,0.1,-4\n", r"row 2 .*column 'seconds'"),
        ("machines,scale,seconds\n1,0.1,10\n2,big,4\n", r"row 2 .*column 'scale'.*'big'"),
        ("machines,scale,seconds\n1,0.1,10\n2,0.1,nan\n", r"row 2 .*column 'seconds'.*'nan'"),
        ("machines,scale,seconds\n1,0.1,10\n2,0.1,inf\n", r"row 2 .*column 'seconds'.*'inf'"),
        ("machines,scale,seconds\n1,0.1,10\n2,0.1,\n", r"row 2 .*column 'seconds': is empty"),
        ("machines,scale,seconds\n1,0.1,10\n0,0.1,2\n", r"row 2 .*column 'machines'"),
        ("machines,scale,seconds\n1,0.1,10\n\n2,-1,2\n", r"row 2 \(line 4\), column 'scale'"),
        ("machines,scale,seconds\n1,0.1,10,7\n", r"row 1 \(line 2\), column 4"),
        ("machines,scale,seconds\n1,0.1,10\n", r"row 1 .*column 'machines'.*one point"),
        ("machines,scale,seconds\n1,0.1,10\n1,0.1,11\n", r"row 1 .*column 'machines'"),
        ("machines,scale,seconds\n2,0.1,9\n2,0.2,11\n", r"rows 1 to 2, column 'machines'.*one mac"),
        ("machines,scale,seconds\n", r"row 1, column 'seconds'"),
        ("machines,machines,seconds\n1,1,1\n", r"row 0\), column 'machines': is there twice"),
        ("", "is empty"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_table(write(tmp_path, text))


def test_a_named_scale_column_has_to_be_there(tmp_path: Path) -> None:
    path = write(tmp_path, "machines,seconds\n1,10\n2,6\n")
    assert not read_table(path).has_scale
    (runs,) = read_table(path).parts.values()
    assert runs.points.scale.tolist() == [1.0, 1.0]
    with pytest.raises(InputError, match=r"column 'share'.*--scale-column"):
        read_table(path, Columns(scale="share"))


def test_other_names_separators_groups_and_repeats(tmp_path: Path) -> None:
    path = write(tmp_path, "job;n;t;note\na;1;10;x\na;2;6;\nb;1;3;\nb;4;1;\na;2;7;\n")
    table = read_table(path, Columns(machines="n", seconds="t", group="job"))
    assert set(table.parts) == {("a", None), ("b", None)}
    runs = table.parts["a", None]
    assert runs.count == 2
    assert runs.repeats.tolist() == [1.0, 2.0]
    assert runs.typical[1] == pytest.approx((6 * 7) ** 0.5)


def test_the_group_that_is_too_small_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "job,machines,seconds\na,1,10\na,2,6\nb,4,1\n")
    with pytest.raises(InputError, match=r"row 3 .* of b"):
        read_table(path, Columns(group="job"))


@pytest.mark.parametrize(
    ("identities", "programs"),
    [
        (["a", "a", "a"], 1),
        # The table was begun before scripts were a part of it.
        (["a", "a+1", "a+1"], 1),
        (["a", "a+1", "a+2"], 2),
        (["a", "b+1", "b"], 2),
        (["", "a+1", "a"], 1),
    ],
)
def test_programs_differ_by_scripts_where_those_are_known(
    tmp_path: Path, identities: list[str], programs: int
) -> None:
    rows = [f"{n},{10 / n},{name}\n" for n, name in zip((1, 2, 4), identities, strict=True)]
    path = write(tmp_path, "machines,seconds,identity\n" + "".join(rows))
    (known,) = read_table(path).identities.values()
    assert len(known) == programs


@pytest.mark.parametrize("word", ["failed", "FAILED", "timeout", "Error", "oom", "killed"])
def test_failed_runs_with_a_time_are_left_out_and_counted(tmp_path: Path, word: str) -> None:
    text = f"machines,seconds,status\n1,10,{word}\n1,100,ok\n2,1,{word}\n2,52,\n4,27,Ok\n"
    table = read_table(write(tmp_path, text))
    (runs,) = table.parts.values()
    assert runs.seconds.tolist() == [100.0, 52.0, 27.0]
    (model,) = fit_table(table, Settings(read_terms("default", items=None)))
    assert "2 failed runs left out (column status)" in model.report["warnings"]
    with_size = text.replace("machines", "size,machines").replace("\n1,", "\n5,1,")
    with_size = with_size.replace("\n2,", "\n5,2,").replace("\n4,", "\n7,4,")
    (contexts,) = read_context_table(write(tmp_path, with_size), Columns(), ["size"])
    assert (len(contexts.runs), contexts.failed) == (3, 2)


def test_an_unknown_status_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "size,machines,seconds,status\n1,1,10,ok\n2,2,5,perhaps\n")
    message = r"row 2 \(line 3\), column 'status': is no known status\..*'perhaps'.*ok, .*timeout"
    with pytest.raises(InputError, match=message):
        read_table(path)
    with pytest.raises(InputError, match=message):
        read_context_table(path, Columns(), ["size"])


def test_a_column_of_groups_may_be_named_status(tmp_path: Path) -> None:
    path = write(tmp_path, "machines,seconds,status\n1,10,hot\n2,5,hot\n")
    assert set(read_table(path, Columns(group="status")).parts) == {("hot", None)}


def test_a_table_of_failed_runs_alone_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="All 2 runs failed"):
        read_table(write(tmp_path, "machines,seconds,status\n1,,failed\n2,5,oom\n"))
