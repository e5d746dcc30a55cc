"""Small Spark applications whose logs show one thing each: ``python workload.py NAME``.

Run by the Python that has PySpark, of Spark 3.5 or 4; settings come from ``PYSPARK_SUBMIT_ARGS``.
``compress FILE...`` packs files with each codec of Spark's own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql


def queries(spark: Any) -> None:
    """SQL with a shuffle that AQE coalesces, a join, and a job of RDDs that skips a stage."""
    table = spark.range(0, 200_000, 1, 6).withColumn("k", sql.col("id") % 50)
    table.groupBy("k").agg(sql.sum("id")).collect()
    table.join(spark.range(50).withColumnRenamed("id", "k"), "k").groupBy("k").count().collect()
    pairs = spark.sparkContext.parallelize(range(600), 6).map(lambda x: (x % 10, x))
    summed = pairs.reduceByKey(lambda a, b: a + b, 4)
    summed.count()
    summed.collect()


def cache(spark: Any) -> None:
    """An RDD that is kept in memory and read again."""
    rows = spark.sparkContext.parallelize(range(200_000), 8).map(str).persist()
    for _ in range(3):
        rows.count()
    rows.unpersist(blocking=True)


def pools(spark: Any) -> None:
    """Jobs of a thread pool in two fair pools."""
    context = spark.sparkContext

    def job(number: int) -> int:
        context.setLocalProperty("spark.scheduler.pool", f"pool-{number % 2}")
        context.setJobGroup(f"group-{number}", f"job {number}")
        return context.parallelize(range(6), 6).map(_short).count()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(job, range(6)))


def streaming(spark: Any) -> None:
    stream = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    query = (
        stream.groupBy((sql.col("value") % 3).alias("k"))
        .count()
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("counts")
        .trigger(processingTime="1 second")
        .start()
    )
    while not query.lastProgress or query.lastProgress["batchId"] < 3:
        time.sleep(0.2)
    query.stop()


def dynamic(spark: Any) -> None:
    """More tasks than slots, until more executors come; then none for a while."""
    spark.sparkContext.parallelize(range(24), 24).foreach(lambda _: time.sleep(0.7))
    time.sleep(6)
    spark.sparkContext.parallelize(range(2), 2).count()


def barrier(spark: Any) -> None:
    spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(lambda rows: rows).count()


def failures(spark: Any) -> None:
    """A task that fails once, and a job that fails."""
    context = spark.sparkContext
    context.parallelize(range(4), 4).foreach(_fail_once)
    try:
        context.parallelize(range(4), 4).foreach(lambda _: 1 / 0)
    except Exception:
        return
    raise AssertionError("a job that divides by zero ended well")


def killed_executor(spark: Any) -> None:
    """The first executor to run the last task dies: what it wrote has to be written again."""
    flag = Path(spark.conf.get("spark.kongming.scratch"), "killed")
    pairs = spark.sparkContext.parallelize(range(800), 8).map(lambda x: (x % 8, x))
    pairs.reduceByKey(lambda a, b: a + b, 8).foreach(lambda row: _die_once(row, str(flag)))


def speculation(spark: Any) -> None:
    """The first attempt of the last task lags, and one that starts later overtakes it."""
    context = spark.sparkContext
    context.parallelize(range(8), 8).foreach(_lag_once)
    # A task that is killed ends when its worker of Python does, two seconds later.
    time.sleep(5)


def killed_driver(spark: Any) -> None:
    """The driver ends in the middle of a job, as by kill -9."""
    context = spark.sparkContext
    context.parallelize(range(4), 4).map(_short).count()

    def end() -> None:
        time.sleep(4)
        context._jvm.java.lang.Runtime.getRuntime().halt(137)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(end)
        try:
            context.parallelize(range(40), 40).foreach(lambda _: time.sleep(0.5))
        except Exception:
            os._exit(0)


def rolling(spark: Any) -> None:
    """Enough tasks for several files of a rolling log."""
    for _ in range(16):
        spark.range(0, 1000, 1, 200).withColumn("k", sql.col("id") % 5).groupBy("k").count().count()


def _short(x: int) -> int:
    time.sleep(0.2)
    return x


def _attempt() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


def _fail_once(x: int) -> None:
    if x == 2 and _attempt() == 0:
        raise ValueError("the first attempt of this task fails")


def _lag_once(x: int) -> None:
    time.sleep(20 if x == 7 and _attempt() == 0 else 0.5)


def _die_once(row: tuple[int, int], flag: str) -> None:
    if row[0] == 3 and not Path(flag).exists():
        Path(flag).touch()
        # The worker's parent is the daemon of the executor's JVM.
        daemon = os.getppid()
        stat = Path(f"/proc/{daemon}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)


def compress(spark: Any, files: list[str]) -> None:
    """Pack files with each codec, as Spark's writer of event logs does."""
    java = spark.sparkContext._jvm
    for file in files:
        content = Path(file).read_bytes()
        for name in ("lz4", "lzf", "snappy", "zstd"):
            packed = java.java.io.FileOutputStream(f"{file}.{name}")
            codec = java.org.apache.spark.io.CompressionCodec.createCodec(
                spark.sparkContext._jsc.sc().conf(), name
            )
            stream = codec.compressedContinuousOutputStream(packed)
            for line in content.splitlines(keepends=True):
                stream.write(line)
                if line.startswith(b'{"Event":"SparkListenerJob'):
                    stream.flush()
            stream.close()


APPLICATIONS = {
    work.__name__: work
    for work in (
        *(queries, cache, pools, streaming, dynamic, barrier, failures),
        *(killed_executor, killed_driver, rolling, speculation),
    )
}


def main(name: str, *files: str) -> None:
    spark = SparkSession.builder.appName(name).getOrCreate()
    if name == "compress":
        compress(spark, list(files))
    else:
        APPLICATIONS[name](spark)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
