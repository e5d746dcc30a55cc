"""Observation files: what is written is read again, and what is no such file is refused."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.audit.readings import (
    METADATA_KEY,
    SCHEMA,
    Observations,
    machine_of,
    read_observations,
    table_of,
    write_observations,
)
from kongming.records.errors import IncompatibleError, InputError, StoreError
from tests.audit.sessions import later, reading, session


def _write(path: Path, rows: list[dict[str, Any]], **sessions: dict[str, Any]) -> Path:
    write_observations(path, table_of(rows), sessions or {"s1": session()})
    return path


def _change(path: Path, **metadata: object) -> None:
    table = parquet.read_table(path, partitioning=None)
    document = json.loads(table.schema.metadata[METADATA_KEY]) | metadata
    text = json.dumps(document).encode()
    parquet.write_table(table.replace_schema_metadata({METADATA_KEY: text}), path)


def test_what_is_written_is_read_again_in_order_of_time(tmp_path: Path) -> None:
    rows = [
        reading("chase.8M", 2e-9 + k * 1e-10, at=later(k), position=k, round=k // 3)
        for k in range(9)
    ]
    rows.append(reading("chase.8M", None, at=later(20), position=20, round=6))
    random.Random(1).shuffle(rows)
    observations = read_observations([_write(tmp_path / "a.parquet", rows)])
    assert observations.table.schema.equals(SCHEMA)
    assert observations.table["position"].to_pylist() == [*range(9), 20]
    assert observations.select("surrogate").num_rows == 9
    failed = observations.select("surrogate", failed=True).to_pylist()[-1]
    assert (failed["value"], failed["reason"]) == (None, "it failed")
    assert observations.sessions["s1"]["facts"]["kernel"] == "6.1.0"
    assert observations.machines == ("m1",)
    assert not observations.anonymised
    assert list(tmp_path.iterdir()) == [tmp_path / "a.parquet"]


@given(
    values=st.lists(st.floats(min_value=1e-12, max_value=1e9) | st.none(), min_size=1, max_size=30)
)
def test_values_survive_a_round_trip(values: list[float | None]) -> None:
    rows = [reading("x", v, at=later(k), position=k) for k, v in enumerate(values)]
    assert table_of(rows)["value"].to_pylist() == values


def test_files_of_several_machines_are_put_together(tmp_path: Path) -> None:
    first = [reading("a", 1.0, at=later(2 * k), position=k) for k in range(3)]
    second = [
        reading("b", 2.0, at=later(2 * k + 1), position=k, session="s2", machine="m2")
        for k in range(3)
    ]
    first_file = _write(tmp_path / "1.parquet", first)
    second_file = _write(tmp_path / "2.parquet", second, s2=session("m2"))
    observations = read_observations([second_file, first_file])
    assert observations.table["name"].to_pylist() == ["a", "b"] * 3
    assert observations.machines == ("m1", "m2")
    both = tmp_path / "both.parquet"
    write_observations(both, observations.table, observations.sessions)
    assert read_observations([both]).table.equals(observations.table)


def test_a_session_given_twice_is_refused(tmp_path: Path) -> None:
    first_file = _write(tmp_path / "1.parquet", [reading("a", 1.0)])
    second_file = _write(tmp_path / "2.parquet", [reading("a", 1.0)])
    with pytest.raises(InputError, match=r"2\.parquet holds the session s1.*1\.parquet"):
        read_observations([first_file, second_file])


def test_what_is_no_observation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file to read"):
        read_observations([])
    with pytest.raises(InputError, match=r"There is no file .*none\.parquet"):
        read_observations([tmp_path / "none.parquet"])
    text = tmp_path / "text.parquet"
    text.write_text("not Parquet", encoding="utf-8")
    with pytest.raises(InputError, match="is not a Parquet file"):
        read_observations([text])
    other = tmp_path / "other.parquet"
    parquet.write_table(pyarrow.table({"a": [1]}), other)
    with pytest.raises(InputError, match="is not an observation of kongming"):
        read_observations([other])


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": None},
        {"facts": "x"},
        {"facts": {"hardware": 3}},
        {"facts": {"cgroup": [1]}},
        {"instance": [1]},
        {"tags": ["a"]},
        {"programs": ["sort"]},
        {"programs": {"sort": 3}},
        {"surrogates": {"chase": 3}},
        *(
            {"surrogates": {"chase": {"sizes": sizes}}}
            for sizes in (
                *(None, [1], "1", 3, {"data": "1M"}, {"data": 1.5}, {"data": True}),
                *({"data": 0}, {"data": 10**400}, {"data": [1]}),
            )
        ),
    ],
)
def test_a_session_of_another_form_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    path = _write(tmp_path / "a.parquet", [reading("chase", 1.0)])
    _change(path, sessions={"s1": session(**changes)})
    with pytest.raises(InputError, match="is not an observation of kongming"):
        read_observations([path])


def test_only_finite_values_are_successful_readings() -> None:
    values = (1.0, None, math.nan, math.inf)
    table = table_of([reading("chase", value, ok=True) for value in values])
    observations = Observations(table, {"s1": session()})
    assert observations.select("surrogate")["value"].to_pylist() == [1.0]
    assert len(observations.select("surrogate", failed=True)) == 4


@pytest.mark.parametrize("text", [b"sort-one", b"gone-wrong"])
def test_text_that_is_no_unicode_is_refused(tmp_path: Path, text: bytes) -> None:
    rows = [reading(name="sort-one", ok=False, value=None, reason="gone-wrong")]
    path = _write(tmp_path / "a.parquet", rows)
    parquet.write_table(parquet.read_table(path, partitioning=None), path, compression="none")
    packed = path.read_bytes()
    assert text in packed
    path.write_bytes(packed.replace(text, b"\xff" + text[1:]))
    with pytest.raises(InputError, match="damaged"):
        read_observations([path])


def test_a_newer_format_and_a_missing_column_are_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet", [reading("a", 1.0)])
    table = parquet.read_table(path, partitioning=None)
    _change(path, format=2)
    with pytest.raises(IncompatibleError, match=r"a\.parquet has format 2"):
        read_observations([path])
    parquet.write_table(table.drop_columns(["round"]), path)
    with pytest.raises(InputError, match=r"^round: .*a\.parquet lacks this column"):
        read_observations([path])
    _write(path, [reading("a", 1.0)])
    _change(path, sessions={})
    with pytest.raises(InputError, match="session that it does not describe"):
        read_observations([path])


def test_rows_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"kind: .*Found 'guess'"):
        table_of([reading("a", 1.0, kind="guess")])
    with pytest.raises(InputError, match="at: "):
        table_of([reading("a", 1.0, at=None)])
    with pytest.raises(InputError, match="not valid"):
        table_of([reading("a", 1.0, position="first")])
    with pytest.raises(InputError, match="session"):
        write_observations(tmp_path / "a.parquet", table_of([reading("a", 1.0)]), {})


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        _write(tmp_path / "missing" / "a.parquet", [reading("a", 1.0)])
    assert not list(tmp_path.iterdir())


def test_what_a_machine_is() -> None:
    instance = {"provider": "ec2", "type": "c5.large", "id": "i-1", "zone": "z"}
    machine = machine_of(session(instance=instance))
    assert (machine["cpu_model"], machine["microcode"], machine["type"]) == (
        "V 1000",
        "0x1",
        "c5.large",
    )
    assert machine_of({"machine": "m"})["cpu_model"] is None
