"""Every table that a person writes is read alike: an error names the file, the row, the column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kongming.explore.model_file import read_model
from kongming.files.csv_rows import read_rows
from kongming.files.line_file import LineFile
from kongming.files.missing_file import did_you_mean
from kongming.records.errors import InputError
from kongming.scale.decide.readings import readings
from kongming.scale.decide.recommendation import read_prices
from kongming.scale.design.candidates import candidates
from kongming.scale.design.planning import read_costs, write_design
from kongming.scale.fit.model_file import read_file

POINTS = candidates([1, 2], [0.1])

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "prices": ("price,type", read_prices),
    "costs": ("cost,machines,scale", lambda path: read_costs(path, POINTS, None)),
    "readings": ("memory.random.8M,node", lambda path: readings([path], "memory")),
}
"""The header, its first column a number, and the reader."""


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("cell", ["fast", "0", "-1", "nan", "inf", "1_0"])
def test_a_cell_that_is_no_number_above_0(tmp_path: Path, name: str, cell: str) -> None:
    header, read = READERS[name]
    path = tmp_path / "table.csv"
    others = header.count(",")
    path.write_text(f"{header}\n5{',1' * others}\n\n{cell}{',2' * others}\n")
    column = header.split(",")[0]
    with pytest.raises(InputError, match=rf"table.csv: row 2 .line 4., column '{column}': is"):
        read(path)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_no_table(tmp_path: Path, name: str) -> None:
    header, read = READERS[name]
    path = tmp_path / "table.csv"
    path.write_text("other,columns\n1,2\n")
    with pytest.raises(InputError, match=r"header .row 0., column '.*': is missing"):
        read(path)
    path.write_text(f"{header}\n{'1,' * 5}\n")
    with pytest.raises(InputError, match=r"row 1 .line 2., column \d: has 6 cells"):
        read(path)


def test_a_missing_table_says_what_is_near_or_which_columns_it_has(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    with pytest.raises(InputError, match=r"no file.*prices\.csv") as caught:
        read_prices(path)
    assert "type" in (caught.value.hint or "")
    assert "price (money per machine and hour)" in (caught.value.hint or "")
    # A folder of the same name is not what was meant.
    (tmp_path / "prices.csv").mkdir()
    (tmp_path / "price.csv").mkdir()
    assert did_you_mean(path) is None
    (tmp_path / "price2.csv").touch()
    assert did_you_mean(path) == f"Did you mean {tmp_path / 'price2.csv'}?"
    (tmp_path / "apps.toml").touch()
    assert did_you_mean(tmp_path / "apps.tml") == f"Did you mean {tmp_path / 'apps.toml'}?"
    assert did_you_mean(tmp_path / "apps.json") is None
    # The ending alone is no likeness.
    (tmp_path / "job.json").touch()
    assert did_you_mean(tmp_path / "none.json") is None


@pytest.mark.parametrize(("name", "second"), [("prices", "5,1"), ("readings", "6,1")])
def test_a_key_that_is_there_twice(tmp_path: Path, name: str, second: str) -> None:
    header, read = READERS[name]
    path = tmp_path / "table.csv"
    path.write_text(f"{header}\n5,1\n{second}\n")
    with pytest.raises(InputError, match=r"row 2 .line 3., column '(type|node)': is there twice"):
        read(path)


def test_good_tables(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\ufefftype,price\nslow, 0.35\nfast,0.5\n", encoding="utf-8")
    assert read_prices(path, ("fast", "slow")) == {"slow": 0.35, "fast": 0.5}
    path.write_text("price\n0.5\n")
    assert read_prices(path, ("slow",)) == {None: 0.5}
    path.write_text("machines,scale,cost\n2,0.1,7\n1,0.1,5\n")
    assert read_costs(path, POINTS, None).tolist() == [5.0, 7.0]
    path.write_text("node,a,b\nn1,1e-9,\nn2,2e-9,3e-9\n")
    assert readings([path]) == {"n1": {"a": 1e-9}, "n2": {"a": 2e-9, "b": 3e-9}}


def test_the_families_of_a_table_are_those_before_a_point(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("node,memory.random.8M,memory.stream,network,other\nn1,1,2,3,4\n")
    assert readings([path], "memory") == {"n1": {"memory.random.8M": 1.0, "memory.stream": 2.0}}
    assert readings([path], "other, network") == {"n1": {"network": 3.0, "other": 4.0}}
    for families in ("memry", "memory,memry"):
        with pytest.raises(InputError, match=r"--by: .*table.csv has no column.*'memry'") as caught:
            readings([path], families)
        assert caught.value.hint == "Did you mean memory?"
        assert caught.value.allowed == "memory, network, other"
    with pytest.raises(InputError, match="--by: names no family"):
        readings([path], ",")


def test_other_separators_only_where_they_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a;b\n1;2\n")
    (row,) = read_rows(path, ("a", "b"), separators=",;\t")
    assert (row.number_in("a"), row.number_in("b")) == (1.0, 2.0)
    with pytest.raises(InputError, match="column 'a': is missing"):
        list(read_rows(path, ("a", "b")))


def test_tables_as_spreadsheets_of_many_countries_write_them(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("type;price\nm5;0,5\n")
    with pytest.raises(InputError) as caught:
        read_prices(path)
    assert "Separate the cells by commas" in (caught.value.hint or "")
    path.write_text('type,price\nm5,"0,5"\n')
    with pytest.raises(InputError) as caught:
        read_prices(path)
    assert (caught.value.hint or "").startswith("Write 0.5: ")


@pytest.mark.parametrize("cell", ["1,000", "2,500,000", "1,234.5"])
def test_separators_of_thousands_are_no_decimal_marks(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(f'type,price\nm5,"{cell}"\n')
    with pytest.raises(InputError, match="is not a number") as caught:
        read_prices(path)
    assert "separate thousands are not read" in (caught.value.hint or "")
    assert "Write" not in (caught.value.hint or "")


def test_a_file_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "job.json"
    with pytest.raises(InputError) as caught:
        write_design(path, {})
    assert f"there is no folder {path.parent}" in caught.value.message
    assert f"mkdir -p '{path.parent}'" in (caught.value.hint or "")
    with pytest.raises(InputError, match="there is no folder"):
        LineFile(path)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    for content in ("letter", '{"format": "of another program"}'):
        path.write_text(content)
        for read in (read_file, read_model):
            with pytest.raises(InputError, match=r"other\.json is not a"):
                read(path)
    path.write_text("{}")
    with pytest.raises(InputError, match=r"other\.json holds no fingerprint"):
        readings([path], "memory")


def test_columns_without_a_name_are_cells_too(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("machines,seconds,,\n1,3,,\n2,2,,note\n")
    assert [row.text("seconds") for row in read_rows(path, ("seconds",))] == ["3", "2"]
    path.write_text("machines,seconds,,\n1,3,\n")
    with pytest.raises(InputError, match="column 4: has 3 cells; the header has 4"):
        list(read_rows(path, ("seconds",)))
