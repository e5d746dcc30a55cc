"""SQLite on disk: fills two tables, builds an index and answers joins. sqlite_join.py DIR ROWS."""

from __future__ import annotations

import random
import sqlite3
import sys
from pathlib import Path


def main() -> None:
    folder, rows = Path(sys.argv[1]), int(sys.argv[2])
    path = folder / "orders.db"
    for stale in (path, folder / "orders.db-journal"):
        stale.unlink(missing_ok=True)
    rng = random.Random(7)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, region INTEGER)")
    connection.execute(
        "CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer INTEGER, day INTEGER, amount REAL)"
    )
    customers = rows // 20
    connection.executemany(
        "INSERT INTO customer VALUES (?, ?, ?)",
        ((i, f"customer {rng.getrandbits(48):x}", rng.randrange(40)) for i in range(customers)),
    )
    # Commits now and then, as a program does that must not lose much.
    for start in range(0, rows, 50_000):
        connection.executemany(
            "INSERT INTO purchase VALUES (?, ?, ?, ?)",
            (
                (i, rng.randrange(customers), rng.randrange(365), rng.random() * 100)
                for i in range(start, min(start + 50_000, rows))
            ),
        )
        connection.commit()
    connection.execute("CREATE INDEX by_customer ON purchase (customer, day)")
    connection.execute("CREATE INDEX by_region ON customer (region)")
    connection.commit()
    groups = connection.execute(
        "SELECT region, day / 30, count(*), sum(amount) FROM customer"
        " JOIN purchase ON purchase.customer = customer.id GROUP BY 1, 2"
    ).fetchall()
    late = connection.execute(
        "SELECT count(*) FROM customer JOIN purchase ON purchase.customer = customer.id"
        " WHERE region < 10 AND day > 300"
    ).fetchone()[0]
    connection.close()
    path.unlink()
    print(f"joined {sum(group[2] for group in groups)} purchases, {late} of them late")


main()
