"""The sampling job in a real Spark: what is in the sample is counted in its files."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import system
from tests.conftest import Kongming

pytestmark = [
    pytest.mark.real,
    pytest.mark.thorough,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        bool({"Java", "PySpark"} & set(system.missing())), reason="needs Java and PySpark"
    ),
]

ROWS = 12_000

FILES = (100, 5_000, 100, 100, 6_600, 100)
"""Rows of each file: partitions of which some have few rows."""

REGIONS = {None: 600, "": 900, "north": 6_000, "south": 4_470, "rare": 18, "rarer": 12}

LONGEST_S = 400
"""A limit only: with other tests on both CPUs Spark takes minutes to start."""

CUT_BYTES = 1 << 20
"""So that a task reads a file, where Spark would put them together."""


def _orders(folder: Path) -> None:
    """Prices of which every third is 7, and a tenth is missing."""
    random = np.random.default_rng(0)
    price = np.where(np.arange(ROWS) % 3 == 0, 7, random.integers(0, 1000, ROWS))
    regions = [region for region, count in REGIONS.items() for _ in range(count)]
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int32()),
            "price": pa.array(price, mask=np.arange(ROWS) % 10 == 1),
            "region": pa.array([regions[k] for k in random.permutation(ROWS)], pa.string()),
            "at": pa.array(random.integers(0, 10**9, ROWS), pa.timestamp("s")),
            "note": [f"note {k}" for k in range(ROWS)],
        }
    )
    folder.mkdir()
    begin = 0
    for number, rows in enumerate(FILES):
        pq.write_table(table.slice(begin, rows), folder / f"part-{number}.parquet")
        begin += rows


def _items(file: Path) -> None:
    """None to four items of each order, and some of no order."""
    with file.open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(["item", "order"])
        for k in range(ROWS):
            writer.writerows([f"i{k}-{j}", float(k)] for j in range(k % 5))
        writer.writerows([f"none-{k}", None] for k in range(3_000))


@pytest.fixture
def sample(kongming: Kongming, kongming_env: dict[str, str], tmp_path: Path) -> Any:
    """``kongming spark sample`` with the least that Spark needs."""
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        kongming_env.pop(name, None)
    kongming_env["SPARK_LOCAL_IP"] = "127.0.0.1"
    kongming_env["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={tmp_path}"
    usual = {
        "spark.master": "local[2]",
        "spark.driver.memory": "640m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.files.maxPartitionBytes": str(CUT_BYTES),
        "spark.sql.files.openCostInBytes": str(CUT_BYTES),
    }

    def run(source: Path, *words: str, settings: dict[str, str] | None = None) -> Any:
        options = [f"--conf {key}={value}" for key, value in (usual | (settings or {})).items()]
        submit = f"{system.PYSPARK / 'bin' / 'spark-submit'} {' '.join(options)}"
        command = ("spark", "sample", str(source), *words, "--json", "--submit", submit)
        return kongming(*command, timeout=LONGEST_S)

    return run


def _regions(table: pa.Table) -> Counter[str | None]:
    return Counter(table["region"].to_pylist())


def test_a_sample_keeps_shares_and_partitions(sample: Any, tmp_path: Path) -> None:
    orders, small, smaller = (tmp_path / name for name in ("orders", "small", "smaller"))
    _orders(orders)
    words = ("--keys", "price,region,at", "--buckets", "4", "--ratio", "0.1")
    done = sample(orders, "--out", str(small), *words)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == ROWS
    assert report["sampled"] == pytest.approx(0.1 * ROWS, rel=0.01)
    # Every region but the largest three and the nulls share a bucket; ties of 7 are of one.
    assert [key["buckets"] for key in report["keys"]] == [5, 5, 4]
    assert all(key["p"] > 0.05 for key in (*report["keys"], report["strata_test"]))
    assert report["strata_test"]["degrees_of_freedom"] > 20
    assert report["significant_below"] == 0.05

    # A file for each partition of the table, with rows of that partition and no other.
    files = sorted(small.glob("part-*.parquet"))
    assert len(files) == report["files"] == report["partitions"] == len(FILES)
    ends = np.cumsum(FILES)
    places = {
        tuple(set(np.searchsorted(ends, pq.read_table(file)["id"], "right"))) for file in files
    }
    assert places == {(number,) for number in range(len(FILES))}
    table = pq.read_table(small)
    assert table.num_rows == report["sampled"]
    assert table.schema.names == ["id", "price", "region", "at", "note"]
    for region, count in _regions(pq.read_table(orders)).items():
        if count > 100:
            assert _regions(table)[region] == pytest.approx(0.1 * count, rel=0.05)
    assert _regions(table)["rare"] + _regions(table)["rarer"] == pytest.approx(3, abs=3)
    prices = table["price"]
    assert prices.null_count == pytest.approx(0.1 * 0.1 * ROWS, rel=0.05)
    assert prices.to_pylist().count(7) == pytest.approx(0.1 * 0.3 * ROWS, rel=0.05)

    # Read with the settings of the answer, each of its files is a task.
    words = ("--join-key", "id", "--ratio", "0.5")
    done = sample(small, "--out", str(smaller), *words, settings=report["conf"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["partitions"] == len(FILES)

    refused = sample(orders, "--out", str(tmp_path / "none"), "--keys", "note")
    assert refused.returncode == 2
    assert "is text" in refused.stderr
    assert not (tmp_path / "none").exists()


def test_samples_of_two_tables_join_to_their_ratio(sample: Any, tmp_path: Path) -> None:
    """Keys that are whole numbers in one table and fractional in the other, as CSV is read."""
    orders, items = tmp_path / "orders", tmp_path / "items.csv"
    _orders(orders)
    _items(items)
    words = ("--ratio", "0.2", "--seed", "4")
    keys = ("--keys", "price,region")
    done = sample(orders, "--out", str(tmp_path / "o"), "--join-key", "id", *keys, *words)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["attempts"] == 1
    # Of three tests, the strata's among them.
    assert report["significant_below"] == pytest.approx(0.05 / 3)
    options = ("--format", "csv", "--join-key", "order")
    done = sample(items, "--out", str(tmp_path / "i"), *options, *words)
    assert done.returncode == 0, done.stderr
    drawn = set(pq.read_table(tmp_path / "o")["id"].to_pylist())
    rows: list[dict[str, str]] = []
    for file in (tmp_path / "i").glob("part-*.csv"):
        with file.open(newline="") as source:
            rows += csv.DictReader(source)
    matched = [row for row in rows if row["order"] and float(row["order"]) in drawn]
    # Each order that is drawn has all of its items: two on average.
    assert len(drawn) == pytest.approx(0.2 * ROWS, rel=0.1)
    assert len(matched) == sum(k % 5 for k in drawn)
    # Items of no order are drawn by themselves.
    alone = [row for row in rows if not row["order"]]
    assert len(alone) == pytest.approx(0.2 * 3_000, rel=0.15)
    assert len(matched) + len(alone) == len(rows)

    again = sample(items, "--out", str(tmp_path / "i"), *options, *words)
    assert again.returncode == 2
    assert "is there already" in again.stderr

    # A region is in with all of its rows or not at all, and as seldom under this seed next time.
    apart = ("--join-key", "region", "--keys", "region", *words)
    failed = sample(orders, "--out", str(tmp_path / "r"), *apart)
    assert failed.returncode == 4
    assert "After 1 attempt the sample differs" in failed.stderr
    assert "with another --seed" in failed.stderr
    assert not (tmp_path / "r").exists()
