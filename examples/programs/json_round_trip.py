"""Reads a JSON document, changes it and writes it as text again. json_round_trip.py PATH TIMES."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    document = Path(sys.argv[1]).read_text(encoding="ascii")
    for _ in range(int(sys.argv[2])):
        rows = json.loads(document)
        for row in rows:
            row["stock"]["here"] += 1
        document = json.dumps(rows)
    print(f"round trip of {len(rows)} records")


main()
