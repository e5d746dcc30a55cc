"""duckdb_join.py ROWS: joins and groups of an analytical database, in memory, on one thread."""

import sys

import duckdb

rows = int(sys.argv[1])
db = duckdb.connect(":memory:", config={"threads": 1})
db.execute(
    f"create table sales as select range as id, hash(range) % 50000 as item, "
    f"hash(range + 7) % 1000 / 10.0 as price, hash(range + 13) % 365 as day from range({rows})"
)
db.execute(
    "create table items as select range as item, hash(range + 3) % 40 as kind, "
    "'item ' || range as name from range(50000)"
)
joined = db.execute(
    "select kind, day // 30 as month, count(*) as n, sum(price) as paid, "
    "count(distinct sales.item) as items, max(name) as last "
    "from sales join items using (item) group by kind, month order by kind, month"
).fetchall()
ranked = db.execute(
    "select count(*) from (select item, rank() over (partition by day order by price desc) as place"
    " from sales) where place <= 10"
).fetchone()
assert ranked is not None
print(f"joined {sum(row[2] for row in joined)} rows, {ranked[0]} among the dearest of their day")
