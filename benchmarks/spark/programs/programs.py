"""The programs of the recordings: ``spark-submit programs.py NAME DATA``.

tpch: queries of TPC-H over the Parquet files in DATA, one after the other. sort: a table of random
keys. cached: a table that is kept in memory and read again and again. threads: queries of a thread
pool. windows: window functions and a join. words: RDDs of Python functions, in rounds. Results are
discarded.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

REVENUE = "sum(l_extendedprice * (1 - l_discount)) as revenue"

QUERIES = {
    "q1": """select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
        sum(l_extendedprice * (1 - l_discount)),
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
        avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*) from lineitem
        where l_shipdate <= date '1998-09-02' group by l_returnflag, l_linestatus
        order by l_returnflag, l_linestatus""",
    "q3": f"""select l_orderkey, {REVENUE}, o_orderdate, o_shippriority
        from customer, orders, lineitem where c_mktsegment = 'BUILDING' and c_custkey = o_custkey
        and l_orderkey = o_orderkey and o_orderdate < date '1995-03-15'
        and l_shipdate > date '1995-03-15' group by l_orderkey, o_orderdate, o_shippriority
        order by revenue desc, o_orderdate limit 10""",
    "q4": """select o_orderpriority, count(*) from orders where o_orderdate >= date '1993-07-01'
        and o_orderdate < date '1993-10-01' and exists (select * from lineitem
        where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
        group by o_orderpriority order by o_orderpriority""",
    "q5": f"""select n_name, {REVENUE} from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
        and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
        and r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
        and o_orderdate < date '1995-01-01' group by n_name order by revenue desc""",
    "q6": """select sum(l_extendedprice * l_discount) from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
        and l_discount between 0.05 and 0.07 and l_quantity < 24""",
    "q9": """select nation, o_year, sum(amount) from (select n_name as nation,
        year(o_orderdate) as o_year,
        l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
        from part, supplier, lineitem, partsupp, orders, nation where s_suppkey = l_suppkey
        and ps_suppkey = l_suppkey and ps_partkey = l_partkey and p_partkey = l_partkey
        and o_orderkey = l_orderkey and s_nationkey = n_nationkey and p_name like '%green%')
        group by nation, o_year order by nation, o_year desc""",
    "q10": f"""select c_custkey, c_name, {REVENUE}, c_acctbal, n_name, c_address, c_phone
        from customer, orders, lineitem, nation where c_custkey = o_custkey
        and l_orderkey = o_orderkey and o_orderdate >= date '1993-10-01'
        and o_orderdate < date '1994-01-01' and l_returnflag = 'R' and c_nationkey = n_nationkey
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address
        order by revenue desc limit 20""",
    "q12": """select l_shipmode, sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 1
        else 0 end) from orders, lineitem where o_orderkey = l_orderkey
        and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
        and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01'
        and l_receiptdate < date '1995-01-01' group by l_shipmode order by l_shipmode""",
    "q14": """select 100.00 * sum(case when p_type like 'PROMO%'
        then l_extendedprice * (1 - l_discount) else 0 end)
        / sum(l_extendedprice * (1 - l_discount)) from lineitem, part where l_partkey = p_partkey
        and l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01'""",
    "q18": """select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
        from customer, orders, lineitem where o_orderkey in (select l_orderkey from lineitem
        group by l_orderkey having sum(l_quantity) > 300) and c_custkey = o_custkey
        and o_orderkey = l_orderkey
        group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        order by o_totalprice desc, o_orderdate limit 100""",
}

TABLES = (
    *("customer", "lineitem", "nation", "orders"),
    *("part", "partsupp", "region", "supplier"),
)

ROWS = 2_000_000
COLUMNS = 8
READINGS = 6


def tpch(spark: Any, data: Path) -> None:
    for name in TABLES:
        spark.read.parquet(str(data / f"{name}.parquet")).createOrReplaceTempView(name)
    for name, query in QUERIES.items():
        spark.sparkContext.setJobDescription(name)
        _discard(spark.sql(query))


def sort(spark: Any, data: Path) -> None:
    table = spark.range(0, 2 * ROWS, 1, 32).selectExpr("xxhash64(id) as k", "id", "rand(1) as x")
    _discard(table.sort("k"))


def cached(spark: Any, data: Path) -> None:
    """About 400 MiB: it fits into four executors of 512 MiB heap and not into three."""
    from pyspark import StorageLevel

    # Half of the columns are costly to compute again.
    columns = [f"rand({k}) as x{k}" for k in range(COLUMNS // 2)]
    columns += [
        f"ascii(sha2(concat(id, 'salt{k}'), 256)) * rand({k}) as x{k}"
        for k in range(COLUMNS // 2, COLUMNS)
    ]
    table = spark.range(0, 3 * ROWS, 1, 32).selectExpr(*columns)
    table.persist(StorageLevel.MEMORY_ONLY)
    table.count()
    for k in range(READINGS):
        total = " + ".join(f"x{(k + each) % COLUMNS} * {each + 1}" for each in range(COLUMNS))
        table.selectExpr(f"sum({total})", f"stddev(x{k})").collect()


def threads(spark: Any, data: Path) -> None:
    def job(number: int) -> None:
        table = spark.range(0, ROWS, 1, 6 + 2 * (number % 3)).selectExpr(
            f"xxhash64(id + {number}) % 1000 as k", "id"
        )
        _discard(table.groupBy("k").count())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(job, range(16)))


def windows(spark: Any, data: Path) -> None:
    table = spark.range(0, ROWS // 2, 1, 24).selectExpr("xxhash64(id) % 5000 as k", "rand(2) as x")
    ranked = table.selectExpr("k", "x", "row_number() over (partition by k order by x) as place")
    names = spark.range(0, 5000, 1, 4).selectExpr("id as k", "concat('name', id) as name")
    _discard(ranked.where("place <= 20").join(names, "k").groupBy("name").avg("x"))
    _discard(table.selectExpr("k", "sum(x) over (partition by k) as total").where("total > 100"))


def words(spark: Any, data: Path) -> None:
    def of(seed: int) -> Any:
        for place in range(40_000):
            yield f"word{(seed * 7919 + place * place) % 9973}", 1

    for turn in range(4):
        seeds = spark.sparkContext.parallelize(range(turn * 100, turn * 100 + 24), 24)
        counts = seeds.flatMap(of).reduceByKey(lambda first, second: first + second, 12)
        counts.sortBy(lambda pair: -pair[1], numPartitions=6).take(10)


def _discard(table: Any) -> None:
    table.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    name = sys.argv[1]
    session = SparkSession.builder.appName(name).getOrCreate()
    programs = (tpch, sort, cached, threads, windows, words)
    {each.__name__: each for each in programs}[name](session, Path(sys.argv[2]))
    session.stop()
