"""leveldb_fill.py DIR ENTRIES: random writes, compaction, and reads of a log-structured tree."""

import random
import sys
from pathlib import Path

import plyvel

folder, count = Path(sys.argv[1]), int(sys.argv[2])
rng = random.Random(11)
with plyvel.DB(str(folder / "store"), create_if_missing=True, write_buffer_size=2 << 20) as db:
    for begin in range(0, count, 500):
        with db.write_batch() as batch:
            for _ in range(min(500, count - begin)):
                batch.put(b"%012d" % rng.randrange(count), rng.randbytes(60) + bytes(60))
    db.compact_range()
    present = sum(db.get(b"%012d" % rng.randrange(count)) is not None for _ in range(count // 10))
    entries = sum(1 for _ in db.iterator(include_value=False))
print(f"filled {count} entries, {entries} keys, {present} of {count // 10} present")
