"""Spaces: what is allowed, drawn uniformly, and refused by name."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.explore import ExploreError, Space
from kongming.explore.features import Features
from kongming.records.errors import InputError
from tests.variants import variants

RNG = np.random.default_rng(0)

LINKED = {
    "nodes": [2, 4, 8],
    "mem_gb": {"from": 1, "to": 64, "log": True},
    "codec": {"choices": ["gz", "xz"]},
    "level": {"from": 1, "to": 9, "when": 'codec == "xz"'},
}


SIZES = {"choices": ["small", "mid", "big"], "ordered": True}


def test_points_of_a_space_with_a_condition_and_a_forbidden_region() -> None:
    space = Space.from_dict(LINKED, forbid=["nodes * mem_gb > 256"])
    pool, exhaustive = space.pool(np.random.default_rng(0))
    points = space.decode(pool)
    assert exhaustive
    assert len(points) == space.size == (64 + 64 + 32) * (1 + 9)
    assert len({tuple(sorted(map(str, point.items()))) for point in points}) == len(points)
    for point in points:
        assert point["nodes"] * point["mem_gb"] <= 256
        assert ("level" in point) == (point["codec"] == "xz")
    assert np.array_equal(space.encode(points), pool, equal_nan=True)
    assert isinstance(points[0]["mem_gb"], int)


def test_draws_are_uniform_over_allowed_points() -> None:
    space = Space.from_dict({"a": [1, 2, 3], "b": [1, 2, 3], "c": [True, False]}, ["a + b > 4"])
    counts = Counter(map(tuple, space.draw(12_000, np.random.default_rng(1)).tolist()))
    assert len(counts) == 12
    assert min(counts.values()) > 850
    assert max(counts.values()) < 1150


def test_points_without_a_dimension_are_as_likely_as_those_with_it() -> None:
    def share(when: str, **level: Any) -> float:
        """The part of draws in which the level exists: of 9 points in 10."""
        dimensions = {
            "codec": {"choices": ["gz", "xz"]},
            "level": {"from": 1, "to": 9, "when": when, **level},
        }
        drawn = Space.from_dict(dimensions).draw(8000, np.random.default_rng(1))
        return float(1.0 - np.isnan(drawn[:, 1]).mean())

    for codec in ("gz", "xz"):
        assert share(f"codec == '{codec}'") == pytest.approx(0.9, abs=0.015)
        assert share(f"codec == '{codec}'", log=True) == pytest.approx(0.9, abs=0.015)


def test_log_ranges_are_drawn_in_their_logarithm() -> None:
    space = Space.from_dict(
        {"x": {"from": 1.0, "to": 1024.0, "log": True}, "n": {"from": 1, "to": 1023, "log": True}}
    )
    drawn = space.draw(4000, np.random.default_rng(0))
    assert abs((drawn[:, 0] < 32.0).mean() - 0.5) < 0.04
    assert abs((drawn[:, 1] < 23.0).mean() - 0.5) < 0.05


@pytest.mark.parametrize(
    "forbid",
    variants(
        [
            ["a * b * c * d > 5e6"],
            ["a > 100", "b > 100", "c > 1", "d > 10"],
            ["(a + b) % 100 != 0", "c != d"],
            ["a + b + c + d > 100"],
        ],
        3,
    ),
)
def test_rare_points_of_a_large_product(forbid: list[str]) -> None:
    space = Space.from_dict({name: {"from": 1, "to": 1000} for name in "abcd"}, forbid)
    drawn = space.draw(20, np.random.default_rng(0))
    assert len(drawn) == 20
    assert space.judged(drawn)[1].all()
    pool, _ = space.pool(np.random.default_rng(0))
    assert len(pool) >= 20
    assert space.judged(pool)[1].all()


def test_few_points_of_a_large_product_are_all_listed() -> None:
    """Two in a million; each as likely as its width in logarithm."""
    space = Space.from_dict(
        {"x": {"from": 1, "to": 10_000_000, "log": True}}, ["x % 1000000 != 7 and x > 9"]
    )
    points = [*range(1, 10), *range(1_000_007, 10_000_000, 1_000_000)]
    assert space.size == len(points)
    pool, complete = space.pool(np.random.default_rng(0))
    assert complete
    assert pool[:, 0].tolist() == points
    drawn = space.draw(40_000, np.random.default_rng(0))[:, 0]
    widths = np.log([(x + 0.5) / (x - 0.5) for x in points])
    assert np.mean(drawn == 1.0) == pytest.approx(widths[0] / widths.sum(), abs=0.01)


def test_few_points_of_a_large_product_exist_once_where_dimensions_do_not() -> None:
    ranges = {name: {"from": 1, "to": 200} for name in "abc"}
    spec = ranges | {"c": {"from": 1, "to": 200, "when": "a == 5"}}
    space = Space.from_dict(spec, ["a != b or b > 9"])
    assert space.size == 8 + 200
    # Forbidden everywhere: of all points, not only of those that were tried.
    with pytest.raises(ExploreError, match=r"forbid\[2\]: every point is forbidden"):
        Space.from_dict(ranges, ["a > b", "b >= c", "c >= a"])


def test_much_of_a_large_product_is_not_listed() -> None:
    space = Space.from_dict({name: {"from": 1, "to": 200} for name in "abc"}, ["a + b > c"])
    assert space.size is None
    assert not space.pool(np.random.default_rng(0))[1]


def test_a_table_allows_its_rows_alone(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("threads,codec,seconds\n1,gz,3\n2,gz,2\n1,xz,5\n1,gz,3.1\n")
    space = Space.from_table(file, columns=["threads", "codec"])
    assert space.size == 3
    assert not space.contains({"threads": 2, "codec": "xz"})
    assert space.contains({"threads": 2, "codec": "gz"})
    drawn = space.decode(space.draw(50, np.random.default_rng(0)))
    assert {(point["threads"], point["codec"]) for point in drawn} == {
        (1, "gz"),
        (2, "gz"),
        (1, "xz"),
    }
    again = Space.from_document(space.to_dict())
    assert again.size == 3
    assert Space.from_table([{"a": 1, "b": True}, {"a": 2, "b": False}]).size == 2


def test_toml(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(
        'forbid = ["threads > 4 and not fast"]\nthreads = [1, 2, 8]\nfast = [true, false]\n'
        "[window]\nfrom = 10\nto = 30\nlog = true\n"
    )
    assert Space.from_toml(file).size == (3 + 2) * 21
    file.write_text("threads = [1,")
    with pytest.raises(ExploreError, match=r"space\.toml"):
        Space.from_toml(file)


def test_what_is_forbidden_below_a_header_is_no_parameter(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('[dimensions]\na = [1, 2]\nforbid = ["a > 1"]\n')
    with pytest.raises(ExploreError, match=r"forbid: is no name of a parameter.*above the first"):
        Space.from_toml(file)
    file.write_text('forbid = ["a > 1"]\n[dimensions]\na = [1, 2]\n')
    assert Space.from_toml(file).size == 1


@pytest.mark.parametrize(
    ("spec", "forbid", "words"),
    [
        ({}, [], ["space", "no dimensions"]),
        ({"a": []}, [], ["a:", "no values"]),
        ({"a": [1, 1]}, [], ["a:", "twice"]),
        ({"a": [1, "x"]}, [], ["a:", "mixes"]),
        ({"a": [1.0, float("nan")]}, [], ["a:", "nan"]),
        ({"a": {"from": 3, "to": 1}}, [], ["a:", "empty range"]),
        ({"a": {"from": 0, "to": 1, "log": True}}, [], ["a.from", "logarithm"]),
        ({"a": {"from": 0, "to": float("inf")}}, [], ["a.to", "inf"]),
        ({"a": {"from": 0}}, [], ["a.to", "missing"]),
        ({"a": {"from": 0, "to": 1, "step": 2}}, [], ["a.step", "not known"]),
        ({"a": {"choices": [1, 2], "ordered": "no"}}, [], ["a.ordered", "neither true nor false"]),
        ({"a": {"from": 1, "to": 9, "log": 1}}, [], ["a.log", "neither true nor false"]),
        ({"a": {"choices": [1, 8], "log": True}}, [], ["a.log", "of ranges"]),
        ({"a": 3}, [], ["a:", "not a dimension"]),
        ({"a": [1, 2]}, ["b > 1"], ["forbid[0]", "'b > 1'"]),
        ({"a": [1, 2]}, ["a >"], ["forbid[0]", "'a >'"]),
        ({"a": [1, 2]}, ["__import__('os')"], ["forbid[0]"]),
        ({"a": [1, 2]}, ["a is 2"], ["forbid[0]", "'a is 2'", "=="]),
        ({"a": [True, False]}, ["a is not True"], ["forbid[0]", "'a is not True'"]),
        ({"a": ["x", "y"]}, ["a == 'z'"], ["forbid[0]", "'z'", "x, y"]),
        (
            {"a": ["x", "y"]},
            ["a > 'x'"],
            ["forbid[0]", "compares a by size", "== != in", "ordered"],
        ),
        ({"a": SIZES}, ["a > 'z'"], ["forbid[0]", "'z' is no value of a", "small, mid, big"]),
        ({"a": SIZES}, ["a > 1"], ["forbid[0]", "'1'"]),
        ({"a": SIZES, "b": SIZES}, ["a > b"], ["forbid[0]", "compares a by size"]),
        ({"a": [1, 2], "b": [1, 2]}, ["a > 0", "b > 1"], ["forbid[0]", "every point", "'a > 0'"]),
        ({"a": [1, 2]}, ["a < 2", "a >= 2"], ["forbid[0], forbid[1]", "every point"]),
        ({"a": {"from": 0, "to": 1, "when": "a > 0"}}, [], ["a.when", "itself"]),
        ({"a": [1, 2], "b": {"from": 0, "to": 1, "when": "a > 5"}}, [], ["b.when", "'a > 5'"]),
        ({"a": [1, 2], "b": {"choices": [1, 2], "when": "a > 1"}}, ["a == 2"], ["b.when", "holds"]),
    ],
)
def test_what_is_no_space_is_refused(spec: Any, forbid: list[str], words: list[str]) -> None:
    with pytest.raises(ExploreError) as refused:
        Space.from_dict(spec, forbid)
    for word in words:
        assert word in str(refused.value)
    assert isinstance(refused.value, InputError)
    assert isinstance(refused.value, ValueError)
    assert refused.value.exit_status == 2


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"nodes": 3, "mem_gb": 1, "codec": "gz"}, ["nodes", "3", "2, 4, 8"]),
        ({"nodes": 2, "mem_gb": 65, "codec": "gz"}, ["mem_gb", "65", "1 to 64"]),
        ({"nodes": 2, "mem_gb": 1.5, "codec": "gz"}, ["mem_gb", "1.5"]),
        ({"nodes": 2, "mem_gb": "1", "codec": "gz"}, ["mem_gb", "'1'"]),
        ({"nodes": True, "mem_gb": 1, "codec": "gz"}, ["nodes", "True"]),
        ({"nodes": 2, "mem_gb": float("nan"), "codec": "gz"}, ["mem_gb", "nan"]),
        ({"nodes": 2, "mem_gb": 1}, ["codec", "missing"]),
        ({"nodes": 2, "mem_gb": 1, "codec": "gz", "x": 1}, ["x", "not a dimension"]),
        ({"nodes": 2, "mem_gb": 1, "codec": "xz"}, ["level", "missing"]),
        ({"nodes": 2, "mem_gb": 1, "codec": "gz", "level": 1}, ["level", "condition"]),
        ({"nodes": 8, "mem_gb": 64, "codec": "gz"}, ["forbid[0]", "nodes * mem_gb > 256"]),
    ],
)
def test_points_that_are_refused(point: Any, words: list[str]) -> None:
    space = Space.from_dict(LINKED, forbid=["nodes * mem_gb > 256"])
    with pytest.raises(ExploreError) as refused:
        space.encode([point])
    for word in words:
        assert word in str(refused.value)
    right = {"nodes": 2, "mem_gb": 1, "codec": "gz"}
    with pytest.raises(ExploreError, match=r"^points\[1\]: ") as among_others:
        space.encode([right, point, point])
    for word in words:
        assert word in str(among_others.value)


def test_tables_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("a,b,a\n1,2,3\n")
    with pytest.raises(ExploreError, match="twice"):
        Space.from_table(file)
    file.write_text("a,b\n1,\n")
    with pytest.raises(ExploreError, match=r"row 1, column 'b'"):
        Space.from_table(file)
    with pytest.raises(ExploreError, match="no rows"):
        Space.from_table([])
    with pytest.raises(ExploreError, match="row 2, column 'b'"):
        Space.from_table([{"a": 1, "b": 2}, {"a": 1}])


@pytest.mark.parametrize(
    ("text", "column"), [(",a\n0,5\n1,6\n", 1), ("a, ,\n5,,\n6,x,\n", 2), ("a;;\n5;;\n6;;7\n", 3)]
)
def test_a_column_without_a_name_is_no_dimension(text: str, column: int, tmp_path: Path) -> None:
    """As the index that other programs write first: each row would be a point of its own."""
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(ExploreError, match=f"column {column}: has cells, but no name"):
        Space.from_table(file)
    assert Space.from_table(file, columns=["a"]).names == ("a",)
    for wrong in ("", " "):
        with pytest.raises(ExploreError, match="columns: has no name"):
            Space.from_table(file, columns=["a", wrong])
        with pytest.raises(ExploreError, match=f"table: column '{wrong}': has no name. Found 2"):
            Space.from_table([{"a": 1, wrong: None}, {"a": 2, wrong: 2}])


def test_a_column_without_a_name_and_without_cells_is_none(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("a,,\n5,,\n6, ,\n")
    assert Space.from_table(file).names == ("a",)
    assert Space.from_table([{"a": 1, "": ""}, {"a": 2, "": np.nan}]).names == ("a",)


def test_columns_that_are_no_dimensions_may_be_in_some_rows() -> None:
    space = Space.from_table([{"a": 1}, {"a": 2, "note": "slow"}], columns=["a"])
    assert (space.names, space.size) == (("a",), 2)


def test_a_saved_space_with_a_dimension_that_never_exists_is_still_read() -> None:
    saved = Space.from_dict({"a": [1, 6], "b": {"choices": [1, 2], "when": "a > 5"}}).to_dict()
    saved["dimensions"]["a"] = [1, 2]
    assert Space.from_document(saved).size == 2


HUGE = 10**400


@pytest.mark.parametrize(
    ("dimension", "words"),
    [
        ([1, HUGE], "is no value.*finite numbers"),
        ([1, 2**53 + 1], "is no number that a code can be.*2\\^53"),
        ([1.0, 1e200], "is no number that a code can be"),
        ({"from": 1, "to": HUGE}, "a.to: is not a number.*a finite number"),
        ({"from": -1e308, "to": 1e308}, "is no number that a code can be"),
    ],
)
def test_numbers_that_are_not_their_own_code_are_refused(dimension: Any, words: str) -> None:
    with pytest.raises(ExploreError, match=words):
        Space.from_dict({"a": dimension})


def test_a_value_beyond_all_numbers_is_no_value_of_a_range() -> None:
    with pytest.raises(ExploreError, match="a: is not a value of this dimension"):
        Space.from_dict({"a": {"from": 1, "to": 9}}).encode([{"a": HUGE}])


@pytest.mark.parametrize(
    ("clause", "left"),
    [
        ("size >= 'mid'", ["small"]),
        ("size > 'mid'", ["small", "mid"]),
        ("size < 'mid'", ["mid", "big"]),
        ("'mid' <= size", ["small"]),
        ("'small' < size <= 'mid'", ["small", "big"]),
        ("not size <= 'small'", ["small"]),
        ("(size == 'big') >= 1", ["small", "mid"]),
        ("size < 'small'", ["small", "mid", "big"]),
        ("size in ()", ["small", "mid", "big"]),
        ("(size > 'small') == (n == 1)", ["small", "mid", "big"]),
        ("-" * 250 + "n < 1 and size > 'mid'", ["small", "mid", "big"]),
    ],
)
def test_ordered_choices_compare_by_their_place_in_the_list(clause: str, left: list[str]) -> None:
    space = Space.from_dict({"size": SIZES, "n": [1, 2]}, [clause])
    assert list(dict.fromkeys(p["size"] for p in space.decode(space.pool(RNG)[0]))) == left


def test_ordered_numbers_compare_as_numbers() -> None:
    space = Space.from_dict({"a": {"choices": [4, 1, 2], "ordered": True}}, ["a > 2"])
    assert space.decode(space.pool(RNG)[0]) == [{"a": 1}, {"a": 2}]


def test_comparisons_of_a_parameter_that_does_not_exist_do_not_hold() -> None:
    """As docs/explore.md says; of 10 points, 9 of which have a level."""
    dimensions = {
        "codec": {"choices": ["gz", "none"]},
        "level": {"from": 1, "to": 9, "when": "codec == 'gz'"},
        "size": {**SIZES, "when": "codec == 'gz'"},
    }
    codes = {"level <= 3": 7, "not level > 3": 6, "level != 5": 2, "not level == 5": 1}
    for clause, left in codes.items():
        of_levels = {name: dimensions[name] for name in ("codec", "level")}
        assert Space.from_dict(of_levels, [clause]).size == left
    of_sizes = {name: dimensions[name] for name in ("codec", "size")}
    for clause, left in {"size <= 'mid'": 2, "not size > 'mid'": 1}.items():
        assert Space.from_dict(of_sizes, [clause]).size == left


@pytest.mark.parametrize("forbid", [5, None, {"a": 1}, [5]])
def test_what_is_no_expression_is_refused(forbid: Any) -> None:
    with pytest.raises(ExploreError, match=r"^forbid: is"):
        Space.from_dict({"a": [1, 2]}, forbid)
    with pytest.raises(ExploreError, match=r"^forbid: is"):
        Space.from_table([{"a": 1}, {"a": 2}], forbid=forbid)


def test_one_expression_need_not_be_in_a_list() -> None:
    assert Space.from_table([{"a": 1}, {"a": 2}], forbid="a < 2").size == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "table: is no table"),
        ([1, 2], "row 1: is no row"),
        ([{"a": 1}, 3], "row 2: is no row"),
        ([{"a": 1}, {"a": [1]}], "row 2, column 'a': is no value"),
        ([{"a": 1}, {"a": 2, "b": 5}], "row 2, column 'b': is not a column of the first row"),
        ([{"a": 1.0}, {"a": float("inf")}], "row 2, column 'a': is no value"),
        ([{"a": 1.0}, {"a": float("nan")}], "row 2, column 'a': is empty"),
    ],
)
def test_what_is_no_table_of_points_is_refused(table: Any, words: str) -> None:
    with pytest.raises(ExploreError, match=words):
        Space.from_table(table)


@pytest.mark.parametrize("cell", ["nan", "inf", "-inf", "NaN", "NA", "1_000"])
def test_a_column_of_numbers_has_no_other(tmp_path: Path, cell: str) -> None:
    (tmp_path / "t.csv").write_text(f"a,b\n1,2\n{cell},3\n4,5\n")
    with pytest.raises(ExploreError, match=f"row 2, column 'a': is no finite number.*{cell}"):
        Space.from_table(tmp_path / "t.csv")


def test_rows_that_differ_in_digits_that_no_number_keeps(tmp_path: Path) -> None:
    cells = [10**17 + 1, 10**17 + 2]
    file = tmp_path / "t.csv"
    file.write_text("id\n" + "\n".join(map(str, cells)))
    for table in (file, [{"id": cell} for cell in cells]):
        with pytest.raises(ExploreError, match="row 1, column 'id': has more digits"):
            Space.from_table(table)
        assert Space.from_table(table, choices=["id"]).size == 2


def test_a_table_of_a_spreadsheet_is_separated_by_semicolons(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1;2\n2;3\n")
    assert Space.from_table(tmp_path / "t.csv").names == ("a", "b")


def test_dimensions_that_some_rows_of_a_table_lack(tmp_path: Path) -> None:
    rows = [{"codec": "gz", "level": None}, *({"codec": "xz", "level": n} for n in (1, 2, 9))]
    (tmp_path / "t.csv").write_text("codec,level\ngz,\nxz,1\nxz,2\nxz,9\n")
    for table in (rows, tmp_path / "t.csv"):
        with pytest.raises(ExploreError, match="row 1, column 'level': is empty"):
            Space.from_table(table)
        space = Space.from_table(table, optional=["level"])
        points = space.decode(space.pool(np.random.default_rng(0))[0])
        assert points == [{"codec": "gz"}, *rows[1:]]
        assert space.contains({"codec": "gz"})
        assert not space.contains({"codec": "xz"})
        assert not space.contains({"codec": "gz", "level": 1})
        with pytest.raises(ExploreError, match="codec: is missing"):
            space.encode([{"level": 1}])
        again = Space.from_document(json.loads(json.dumps(space.to_dict())))
        assert again.dimensions == space.dimensions
        assert np.array_equal(again.encode(points), space.encode(points), equal_nan=True)
        assert "level exists" in Features(space.dimensions).names
    with pytest.raises(ExploreError, match="column 'lever': is missing"):
        Space.from_table(rows, optional=["level", "lever"])


def test_an_end_of_a_range_is_named_by_all_of_its_digits() -> None:
    space = Space.from_dict({"n": {"from": 1000001, "to": 1000009}})
    with pytest.raises(ExploreError, match="a whole number from 1000001 to 1000009"):
        space.encode([{"n": 1000000}])
    with pytest.raises(ExploreError, match=r"within 2\^53"):
        Space.from_dict({"n": {"from": 0, "to": 2**60}})


def test_large_numbers_are_values_where_their_codes_are_exact() -> None:
    space = Space.from_dict(
        {
            "bytes": [2**20, 64 * 2**30, 2**60],
            "rate": {"from": 0, "to": 10**18, "type": "real"},
            "seed": {"choices": [2**63, 2**63 + 1]},
        }
    )
    for point in space.decode(space.draw(20, np.random.default_rng(0))):
        assert space.decode(space.encode([point])) == [point]


def test_choices_may_look_like_what_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("limit,n\n1,1\ninf,2\n2,3\n")
    space = Space.from_table(tmp_path / "t.csv", choices=["limit"])
    assert space.dimensions[0].values == ("1", "inf", "2")


def test_a_space_may_have_more_dimensions_than_numpy_has_axes() -> None:
    dimensions: dict[str, Any] = {f"c{place}": [7] for place in range(70)}
    space = Space.from_dict({**dimensions, "n": [1, 2], "m": [3, 4, 5]})
    codes, complete = space.pool(np.random.default_rng(0))
    assert complete
    assert {tuple(point.values())[70:] for point in space.decode(codes)} == {
        (n, m) for n in (1, 2) for m in (3, 4, 5)
    }


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"b": {"type": "boolean", "values": [0, 1]}}, ["b", "no boolean", "false, true"]),
        ({"t": {"choices": ["a", "\udcff"]}}, ["t", "Unicode"]),
    ],
)
def test_what_could_not_be_run_or_saved_is_refused(spec: Any, words: list[str]) -> None:
    with pytest.raises(ExploreError) as refused:
        Space.from_dict(spec)
    for word in words:
        assert word in str(refused.value)


def test_choices_may_be_an_array_and_columns_need_names() -> None:
    assert Space.from_dict({"n": {"choices": np.array([4, 2, 8])}}).size == 3
    with pytest.raises(ExploreError, match="name of a column"):
        Space.from_table([{0: 1, 1: 2}, {0: 2, 1: 3}])  # type: ignore[dict-item]
