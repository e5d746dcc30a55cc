"""The sampling job: ``spark-submit job.py REQUEST.json``; the request names where the report goes.

Everything that touches rows is an expression of Spark's own, so that executors need no Python. The
report is {"error", "hint"} where a key cannot be used.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.spark.sampling.strata import SIGNIFICANT, distinct_edges, frequent, pearson
from kongming.spark.written_values import size_bytes

NUMERIC = ("byte", "short", "integer", "long", "float", "double", "decimal", "date", "timestamp")
CATEGORICAL = ("string", "boolean", "char", "varchar")
LONGEST_CATEGORY = 64.0
"""Mean length of a string above which it is text, in characters."""

QUANTILE_ERROR = 0.001
ATTEMPTS = 5

_PARTITION, _STRATUM, _RANK = "__kongming_partition", "__kongming_stratum", "__kongming_rank"


class RefusedError(Exception):
    """The data cannot be sampled as asked: a message and a way out."""


@dataclass(frozen=True)
class Key:
    """A column and the expression of its bucket, as text."""

    name: str
    kind: str
    bucket: Any
    buckets: int


def sample(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Sample one table, test the sample, and write it if it passed.

    Raises:
        RefusedError: see there.
    """
    from pyspark.sql import functions as sql

    reader = spark.read.format(request["format"])
    if request["format"] == "csv":
        reader = reader.option("header", True).option("inferSchema", True)
    table = reader.load(request["input"])
    for name in (*request["keys"], *filter(None, [request["join_key"]])):
        if name not in table.columns:
            known = ", ".join(table.columns[:20])
            raise RefusedError(f"There is no column {name!r}; there are {known}.")
    partitions = table.rdd.getNumPartitions()
    rows = table.count()
    if not rows:
        raise RefusedError(f"{request['input']} has no rows.")
    keys = [_key(table, name, request["buckets"], rows) for name in request["keys"]]
    # A hash list: plain concatenation would make one of "12", "3" and "1", "23".
    parts = [sql.sha2(key.bucket, 256) for key in keys]
    stratum = sql.sha2(sql.concat(*parts), 256) if parts else sql.lit("")
    table = table.withColumn(_PARTITION, sql.spark_partition_id()).withColumn(_STRATUM, stratum)
    full = {key.name: _counts(table, key.bucket) for key in keys}
    strata = _counts(table, sql.col(_STRATUM))
    for attempt in range(ATTEMPTS):
        seed = request["seed"] + attempt
        drawn = _drawn(table, request, seed).persist()
        tests = [
            _test(key.name, key.kind, full[key.name], _counts(drawn, key.bucket)) for key in keys
        ]
        of_strata = _test("strata", "strata", strata, _counts(drawn, sql.col(_STRATUM)))
        passed = all(test["p"] >= SIGNIFICANT for test in (*tests, of_strata))
        sampled = drawn.count()
        if passed and sampled:
            break
        if attempt < ATTEMPTS - 1:
            drawn.unpersist()
    if passed and sampled:
        (
            drawn.repartitionByRange(partitions, _PARTITION)
            .drop(_PARTITION, _STRATUM, _RANK)
            .write.format(request["format"])
            .option("header", True)
            .mode("errorifexists")
            .save(request["output"])
        )
    return {
        "rows": rows,
        "sampled": sampled,
        "ratio": sampled / rows,
        "partitions": partitions,
        "strata": len(strata),
        "keys": tests,
        "strata_test": of_strata,
        "join_key": request["join_key"],
        "seed": seed,
        "attempts": attempt + 1,
        "passed": bool(passed and sampled),
        "conf": _settings(spark, sampled / rows),
    }


def _key(table: Any, name: str, buckets: int, rows: int) -> Key:
    from pyspark.sql import functions as sql

    kind = table.schema[name].dataType.typeName()
    column = sql.col(f"`{name}`")
    if kind.startswith(NUMERIC):
        value = column.cast("timestamp").cast("double") if kind == "date" else column.cast("double")
        quantiles = [k / buckets for k in range(1, buckets)]
        # Greenwald and Khanna (SIGMOD 2001).
        bounds = table.select(value.alias("v")).stat.approxQuantile("v", quantiles, QUANTILE_ERROR)
        edges = distinct_edges(bounds)
        # The number of edges below: ties are in one bucket, NaN above all of them.
        place = sum((sql.when(value > edge, 1).otherwise(0) for edge in edges), sql.lit(0))
        bucket = sql.when(column.isNull(), "null").otherwise(
            sql.concat(sql.lit("b"), place.cast("string"))
        )
        return Key(name, "numeric", bucket, len(edges) + 1)
    if not kind.startswith(CATEGORICAL):
        raise RefusedError(
            f"Column {name!r} is of type {kind}: a key is a number, a date or a category."
        )
    text = column.cast("string")
    length, distinct = table.select(
        sql.avg(sql.length(text)), sql.approx_count_distinct(text)
    ).first()
    if (length or 0.0) > LONGEST_CATEGORY or (distinct > 1000 and distinct > 0.5 * rows):
        raise RefusedError(
            f"Column {name!r} is text ({length:.0f} characters, {distinct} different values in "
            f"{rows} rows): it has no groups to keep."
        )
    ranked = table.groupBy(text.alias("v")).count().orderBy(sql.desc("count"), "v")
    counts = {row["v"]: row["count"] for row in ranked.limit(buckets + 1).collect() if row["v"]}
    own = frequent(counts, buckets)
    bucket = (
        sql.when(column.isNull(), "null")
        .when(text.isin(own), sql.concat(sql.lit("c"), text))
        .otherwise("other")
    )
    return Key(name, "categorical", bucket, len(own) + 1)


def _drawn(table: Any, request: dict[str, Any], seed: int) -> Any:
    """The rows of the sample."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    ratio = request["ratio"]
    if request["join_key"]:
        # The same keys in each table: independent samples of a tenth join to a hundredth. The seed
        # of the first attempt stays, or tables that were tried again would not match.
        place = sql.pmod(
            sql.xxhash64(sql.col(f"`{request['join_key']}`"), sql.lit(request["seed"])),
            sql.lit(1_000_000),
        )
        return table.where(place < round(ratio * 1_000_000))
    if not request["keys"]:
        return table.sample(fraction=ratio, seed=seed)
    # As many of each stratum as is its due; what is left of a row is drawn by lot for each stratum.
    own = Window.partitionBy(_STRATUM)
    lot = sql.pmod(sql.xxhash64(sql.col(_STRATUM), sql.lit(seed)), sql.lit(1_000_000)) / 1_000_000.0
    ranked = table.withColumn(_RANK, sql.row_number().over(own.orderBy(sql.rand(seed))) - 1 + lot)
    return (
        ranked.withColumn("__kongming_due", ratio * sql.count("*").over(own))
        .where(sql.col(_RANK) < sql.col("__kongming_due"))
        .drop("__kongming_due")
    )


def _counts(table: Any, column: Any) -> dict[str, int]:
    rows = table.groupBy(column.alias("v")).count().collect()
    return {str(row["v"]): int(row["count"]) for row in rows}


def _test(name: str, kind: str, full: dict[str, int], drawn: dict[str, int]) -> dict[str, Any]:
    statistic, freedom, p = pearson(full, drawn)
    return {
        "name": name,
        "kind": kind,
        "buckets": len(full),
        "chi_square": statistic,
        "degrees_of_freedom": freedom,
        "p": p,
    }


def _settings(spark: Any, ratio: float) -> dict[str, str]:
    """Settings under which files of the sample are cut into as many tasks as those of all data."""
    names = {
        "spark.sql.files.maxPartitionBytes": 128 << 20,
        "spark.sql.files.openCostInBytes": 4 << 20,
    }
    settings = {}
    for name, default in names.items():
        size = size_bytes(str(spark.conf.get(name, str(default))), "b") or default
        settings[name] = str(max(round(size * ratio), 1))
    return settings


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("kongming sample").getOrCreate()
    try:
        report = sample(spark, request)
    except RefusedError as error:
        report = {"error": str(error), "hint": "Choose other keys: --keys."}
    finally:
        spark.stop()
    Path(request["report"]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
