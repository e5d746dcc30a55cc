"""lmdb_commit.py DIR TRANSACTIONS: small durable transactions of a memory-mapped B+tree."""

import random
import sys
from pathlib import Path

import lmdb

folder, count = Path(sys.argv[1]), int(sys.argv[2])
path = folder / "store.lmdb"
for old in (path, folder / "store.lmdb-lock"):
    old.unlink(missing_ok=True)
rng = random.Random(9)
with lmdb.open(str(path), map_size=1 << 28, subdir=False) as db:
    for _ in range(count):
        # Each is on the disk before the next begins.
        with db.begin(write=True) as transaction:
            for _entry in range(4):
                transaction.put(rng.randbytes(16), rng.randbytes(200))
    entries = db.stat()["entries"]
print(f"committed {count} transactions, {entries} entries")
