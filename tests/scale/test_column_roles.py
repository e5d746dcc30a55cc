"""Each column of a table of runs has a single role."""

from __future__ import annotations

from pathlib import Path

import pytest

from kongming.records.errors import InputError
from kongming.scale.table import Columns, read_context_table, read_table


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (Columns(seconds="machines"), "--time-column: names the same column as --machines-column"),
        (Columns(scale="seconds"), "--scale-column: names the same column as --time-column"),
        (Columns(seconds="scale"), "--time-column: names the same column as --scale-column"),
        (Columns(iterations="scale"), "--iterations-column: .* as --scale-column"),
        (Columns(group="machines"), "--group: names the same column as --machines-column"),
        (Columns(group="job", machine_type="job"), "--type-column: .* as --group"),
    ],
)
def test_a_column_has_a_single_meaning(tmp_path: Path, columns: Columns, options: str) -> None:
    path = write(tmp_path, "machines,scale,seconds,job\n1,1,10,a\n2,1,6,a\n4,1,4,a\n")
    with pytest.raises(InputError, match=options):
        read_table(path, columns)
    with pytest.raises(InputError, match=options):
        read_context_table(path, columns, ("k",))


def test_a_group_for_each_scale(tmp_path: Path) -> None:
    path = write(tmp_path, "machines,scale,seconds\n1,1,10\n2,1,6\n1,2,4\n2,2,3\n")
    assert set(read_table(path, Columns(group="scale")).parts) == {("1", None), ("2", None)}


@pytest.mark.parametrize("cells", [("8", "16", "32"), ("a", "b", "c")])
def test_a_column_that_only_tells_the_machine_count_is_refused(
    tmp_path: Path, cells: tuple[str, str, str]
) -> None:
    """Names say as little as numbers of what another machine count does."""
    rows = [
        f"{m},{cell},{g},{m * g}\n"
        for m, cell in zip((2, 4, 8), cells, strict=True)
        for g in (1, 3)
    ]
    path = write(tmp_path, "machines,kind,g,seconds\n" + "".join(rows))
    for columns, option in (
        (Columns(), "--context"),
        (Columns(machine_type="kind"), "--type-column"),
    ):
        names = ("g", "kind") if columns.machine_type is None else ("g",)
        with pytest.raises(InputError, match=f"{option}: tells the same as the number of machines"):
            read_context_table(path, columns, names)


def test_a_column_that_no_question_can_name_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "machines,a=b,seconds\n1,1,10\n2,2,6\n2,1,4\n")
    with pytest.raises(InputError, match=r"'=' in its name.* Found 'a=b'") as refused:
        read_context_table(path, Columns(), ("a=b",))
    assert refused.value.hint == "Rename the column in the table."


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("machines", "It is the column of machine counts: leave it out of --context."),
        ("k", "It is the column of iterations: leave it out of --context."),
        ("c,d", "Name columns of the table with --context; commas separate them."),
    ],
)
def test_a_column_of_contexts_that_is_refused_has_a_way_out(
    tmp_path: Path, name: str, hint: str
) -> None:
    path = write(tmp_path, 'machines,k,"c,d",seconds\n1,1,1,10\n2,1,2,6\n')
    with pytest.raises(InputError) as refused:
        read_context_table(path, Columns(iterations="k"), name.split(","))
    assert refused.value.hint == hint
