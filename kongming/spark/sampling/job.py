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

from kongming.spark.sampling.strata import (
    Clusters,
    distinct_edges,
    frequent,
    pearson,
    significance_of_each,
)

NUMERIC = ("byte", "short", "integer", "long", "float", "double", "decimal", "date", "timestamp")
CATEGORICAL = ("string", "boolean", "char", "varchar")
LONGEST_CATEGORY = 64.0
"""Mean length of a string above which it is text, in characters."""

QUANTILE_ERROR = 0.001
ATTEMPTS = 5

LARGEST_WHOLE = 9e18
"""Below it whole numbers fit into 64 bits."""

_PARTITION, _STRATUM, _RANK = "__kongming_partition", "__kongming_stratum", "__kongming_rank"
_PLACE = "__kongming_place"


class RefusedError(Exception):
    """The data cannot be sampled as asked: a message and a way out."""

    def __init__(self, message: str, hint: str = "Choose other keys: --keys.") -> None:
        super().__init__(message)
        self.hint = hint


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

    table = _table(spark, request)
    for name in (*request["keys"], *filter(None, [request["join_key"]])):
        if name not in table.columns:
            known = ", ".join(table.columns[:20])
            raise RefusedError(
                f"There is no column {name!r}; there are {known}.",
                "Choose columns of these: --keys, --join-key.",
            )
    partitions = table.rdd.getNumPartitions()
    rows = table.count()
    if not rows:
        raise RefusedError(f"{request['input']} has no rows.", "Sample a table that has some.")
    keys = [_key(table, name, request["buckets"], rows) for name in request["keys"]]
    # A hash list: plain concatenation would make one of "12", "3" and "1", "23".
    parts = [sql.sha2(key.bucket, 256) for key in keys]
    stratum = sql.sha2(sql.concat(*parts), 256) if parts else sql.lit("")
    table = table.withColumn(_PARTITION, sql.spark_partition_id()).withColumn(_STRATUM, stratum)
    full = {key.name: _counts(table, key.bucket) for key in keys}
    strata = _counts(table, sql.col(_STRATUM))
    # By the hash of a join key each attempt with a seed is the same, and under another seed the
    # tables that are joined would not match.
    join_key = request["join_key"]
    attempts = 1 if join_key else ATTEMPTS
    # Of one key the strata are its buckets.
    least = significance_of_each(len(keys) + 1 if len(keys) > 1 else 1, attempts)
    for attempt in range(attempts):
        seed = request["seed"] + attempt
        drawn = _drawn(table, request, seed).persist()
        tests = [
            _test(key.name, key.kind, full[key.name], drawn, key.bucket, join_key) for key in keys
        ]
        of_strata = _test("strata", "strata", strata, drawn, sql.col(_STRATUM), join_key)
        passed = all(test["p"] >= least for test in (*tests, of_strata))
        sampled = drawn.count()
        if passed and sampled:
            break
        if attempt < attempts - 1:
            drawn.unpersist()
    written, largest = 0, 0
    if passed and sampled:
        (
            _placed(spark, drawn, partitions)
            .drop(_PARTITION, _STRATUM, _RANK, _PLACE)
            .write.format(request["format"])
            .option("header", True)
            .mode("errorifexists")
            .save(request["output"])
        )
        # Of the files only their sizes are read.
        files = spark.read.format("binaryFile").load(request["output"])
        written, largest = files.select(sql.count("length"), sql.max("length")).first()
    return {
        "rows": rows,
        "sampled": sampled,
        "ratio": sampled / rows,
        "partitions": partitions,
        "files": written,
        "strata": len(strata),
        "keys": tests,
        "strata_test": of_strata,
        "significant_below": least,
        "join_key": join_key,
        "seed": seed,
        "attempts": attempt + 1,
        "passed": bool(passed and sampled),
        "conf": _settings(largest),
    }


def _table(spark: Any, request: dict[str, Any]) -> Any:
    from pyspark.sql.utils import AnalysisException

    target = spark._jvm.org.apache.hadoop.fs.Path(request["output"])
    if target.getFileSystem(spark._jsc.hadoopConfiguration()).exists(target):
        raise RefusedError(f"{request['output']} is there already.", "Name another folder: --out.")
    reader = spark.read.format(request["format"])
    if request["format"] == "csv":
        reader = reader.option("header", True).option("inferSchema", True)
    try:
        return reader.load(request["input"])
    except AnalysisException as error:
        raise RefusedError(
            f"{request['input']} cannot be read as {request['format']}: "
            f"{str(error).splitlines()[0]}",
            "Name a table, and its --format.",
        ) from error


def _placed(spark: Any, drawn: Any, partitions: int) -> Any:
    """Each row in the partition of its number in the full data.

    Ranges of the number would not do: Spark estimates them from the rows' frequencies, and puts
    small neighbouring partitions together. Hence by hash, of numbers that hash to each partition.
    """
    from pyspark.sql import functions as sql

    # Of 64 numbers for each partition none is without by e to the power of -64.
    numbers = spark.range(64 * partitions).select(
        sql.pmod(sql.hash("id"), sql.lit(partitions)).alias(_PARTITION), sql.col("id")
    )
    places = numbers.groupBy(_PARTITION).agg(sql.min("id").alias(_PLACE))
    return drawn.join(sql.broadcast(places), _PARTITION).repartition(partitions, _PLACE)


def _key(table: Any, name: str, buckets: int, rows: int) -> Key:
    from pyspark.sql import functions as sql

    kind = table.schema[name].dataType.typeName()
    column = sql.col(f"`{name}`")
    if kind.startswith(NUMERIC):
        # Moments without a time zone are no numbers to Spark, those with a zone are.
        moment = kind in ("date", "timestamp_ntz")
        value = (column.cast("timestamp") if moment else column).cast("double")
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
    named = table.where(column.isNotNull()).groupBy(text.alias("v")).count()
    ranked = named.orderBy(sql.desc("count"), "v").limit(buckets + 1)
    counts = {row["v"]: row["count"] for row in ranked.collect()}
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
        # The same keys in each table: independent samples of a tenth join to a hundredth.
        place = sql.pmod(_hash(table, request["join_key"], seed), sql.lit(1_000_000))
        # Nulls match nothing: by their hash all of them would be in the sample, or none.
        return table.where(
            sql.when(
                sql.col(f"`{request['join_key']}`").isNull(), sql.rand(seed) < ratio
            ).otherwise(place < round(ratio * 1_000_000))
        )
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


def _hash(table: Any, name: str, seed: int) -> Any:
    """Hash a join key by its value: 5 of any type of number has one hash, as it is joined."""
    from pyspark.sql import functions as sql

    column, kind = sql.col(f"`{name}`"), table.schema[name].dataType.typeName()
    if kind in ("byte", "short", "integer"):
        column = column.cast("long")
    if kind not in ("float", "double", "decimal"):
        return sql.xxhash64(column, sql.lit(seed))
    value = column.cast("double")
    fits = (sql.abs(value) < LARGEST_WHOLE) & (value == sql.rint(value))
    return sql.when(fits, sql.xxhash64(value.cast("long"), sql.lit(seed))).otherwise(
        sql.xxhash64(value, sql.lit(seed))
    )


def _counts(table: Any, column: Any) -> dict[str, int]:
    rows = table.groupBy(column.alias("v")).count().collect()
    return {str(row["v"]): int(row["count"]) for row in rows}


def _clusters(drawn: Any, join_key: str, column: Any) -> Clusters:
    """The rows of a sample by join key, of which all are in it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    key = sql.col(f"`{join_key}`")
    # Rows without a key are drawn one by one.
    single = _counts(drawn.where(key.isNull()), column)
    squares = {name: float(count) for name, count in single.items()}
    products = dict(squares)
    grouped = drawn.where(key.isNotNull()).groupBy(key.alias("k"), column.alias("v"))
    own = grouped.agg(sql.count("*").cast("double").alias("n"))
    every = own.withColumn("c", sql.sum("n").over(Window.partitionBy("k")))
    sums = every.groupBy("v").agg(
        sql.sum(sql.col("n") * sql.col("n")).alias("squares"),
        sql.sum(sql.col("n") * sql.col("c")).alias("products"),
    )
    for row in sums.collect():
        name = str(row["v"])
        squares[name] = squares.get(name, 0.0) + row["squares"]
        products[name] = products.get(name, 0.0) + row["products"]
    return Clusters(squares, products)


def _test(
    name: str, kind: str, full: dict[str, int], drawn: Any, column: Any, join_key: str | None
) -> dict[str, Any]:
    clusters = _clusters(drawn, join_key, column) if join_key else None
    statistic, freedom, p = pearson(full, _counts(drawn, column), clusters)
    return {
        "name": name,
        "kind": kind,
        "buckets": len(full),
        "chi_square": statistic,
        "degrees_of_freedom": freedom,
        "p": p,
    }


def _settings(largest: int) -> dict[str, str]:
    """Settings under which each file of the sample is read by one task, as its partition of the
    full data was: no file is cut, and opening one costs as much as a task may hold."""
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    return dict.fromkeys(names, str(max(largest, 1)))


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("kongming sample").getOrCreate()
    try:
        report = sample(spark, request)
    except RefusedError as error:
        report = {"error": str(error), "hint": error.hint}
    finally:
        spark.stop()
    Path(request["report"]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
