"""Writes the inputs of the example programs: the same bytes every time, from a seed.

Usage: generate.py text|lines|blob|records|source|tree|folders|log PATH SIZE
    text     SIZE MB of English-like words (compresses as prose does)
    lines    SIZE thousand lines to sort
    blob     SIZE MiB of bytes that do not compress
    records  SIZE thousand JSON records, one array
    source   C with SIZE functions
    tree     SIZE small files in folders of a hundred
    folders  SIZE MiB in files of 4 to 256 KiB, in folders of a hundred
    log      SIZE thousand lines of a web server's log
A file that is there already with the right mark is left alone, so that set-up is quick when it
is repeated.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from pathlib import Path

SEED = 20140519
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def vocabulary(rng: random.Random, words: int) -> list[str]:
    weights = [1.0 / (rank + 2) for rank in range(len(LETTERS))]
    return ["".join(rng.choices(LETTERS, weights, k=rng.randint(2, 10))) for _ in range(words)]


def text(path: Path, size: int, rng: random.Random) -> None:
    words = vocabulary(rng, 20_000)
    cumulative = list(itertools.accumulate(1.0 / (rank + 3) for rank in range(len(words))))
    limit, written = size * 1_000_000, 0
    with path.open("w", encoding="ascii") as file:
        while written < limit:
            line = " ".join(rng.choices(words, cum_weights=cumulative, k=10_000))
            line = line[: limit - written - 1] + "\n"
            written += file.write(line)


def lines(path: Path, size: int, rng: random.Random) -> None:
    words = vocabulary(rng, 5_000)
    with path.open("w", encoding="ascii") as file:
        for _ in range(size):
            picked = rng.choices(words, k=2_000)
            for first, second in zip(picked[::2], picked[1::2], strict=True):
                file.write(f"{first} {second} {rng.getrandbits(40):013d}\n")


def blob(path: Path, size: int, rng: random.Random) -> None:
    with path.open("wb") as file:
        for _ in range(size):
            file.write(rng.randbytes(1 << 20))


def records(path: Path, size: int, rng: random.Random) -> None:
    words = vocabulary(rng, 2_000)
    rows = [
        {
            "id": index,
            "name": rng.choice(words),
            "tags": rng.choices(words, k=4),
            "price": round(rng.uniform(1, 500), 2),
            "stock": {"here": rng.randrange(100), "away": rng.randrange(1000)},
        }
        for index in range(size * 1000)
    ]
    path.write_text(json.dumps(rows), encoding="ascii")


def source(path: Path, size: int, rng: random.Random) -> None:
    """Functions with loops and branches over arrays, so that the optimiser has work to do."""
    with path.open("w", encoding="ascii") as file:
        file.write("#include <stdint.h>\nextern double table[4096];\nextern int64_t seen[4096];\n")
        for index in range(size):
            a, b, c = (rng.randrange(1, 4000) for _ in range(3))
            file.write(
                f"double work_{index}(const double *x, int64_t n, int64_t k) {{\n"
                f"  double sum = {a}.0;\n"
                f"  for (int64_t i = 0; i < n; i++) {{\n"
                f"    if ((i ^ k) % {b + 2} == {b // 2}) sum += x[i] * table[(i * {c}) & 4095];\n"
                f"    else if (seen[(i + {a}) & 4095] > {c}) sum -= x[i] / (sum * sum + {b}.5);\n"
                f"    switch ((i + k) & 7) {{\n"
                f"      case 0: sum *= 1.0{a}; break;\n"
                f"      case 3: seen[i & 4095] += (int64_t)sum; break;\n"
                f"      case 5: table[(i + {b}) & 4095] = sum; break;\n"
                f"      default: sum += {b}.25;\n"
                f"    }}\n"
                f"  }}\n"
                + (f"  sum += work_{index - 1}(x, n / 2, k + 1);\n" if index % 4 else "")
                + "  return sum;\n}\n"
            )


def tree(path: Path, size: int, rng: random.Random) -> None:
    for index in range(size):
        if index % 100 == 0:
            folder = path / f"{index // 100:04d}"
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index % 100:02d}.dat").write_bytes(rng.randbytes(rng.randint(200, 8000)))


def folders(path: Path, size: int, rng: random.Random) -> None:
    limit, written = size << 20, 0
    for index in itertools.count():
        if written >= limit:
            break
        if index % 100 == 0:
            folder = path / f"{index // 100:04d}"
            folder.mkdir(parents=True, exist_ok=True)
        length = min(rng.randint(4 << 10, 256 << 10), limit - written)
        written += (folder / f"{index % 100:02d}.dat").write_bytes(rng.randbytes(length))


def log(path: Path, size: int, rng: random.Random) -> None:
    words = vocabulary(rng, 300)
    endings = ["", "/", ".html", ".png", ".css", ".js", ".json", "?page=2", "?sort=name&page=7"]
    pages = [
        "/" + "/".join(rng.choices(words, k=rng.randint(1, 5))) + rng.choice(endings)
        for _ in range(20_000)
    ]
    cumulative = list(itertools.accumulate(1.0 / (rank + 10) for rank in range(len(pages))))
    visitors = [".".join(str(rng.randint(1, 254)) for _ in range(4)) for _ in range(50_000)]
    methods, statuses = ["GET"] * 9 + ["POST"], [200] * 17 + [304, 404, 500]
    with path.open("w", encoding="ascii") as file:
        for thousand in range(size):
            second = thousand * 86_400 // size
            moment = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
            for page in rng.choices(pages, cum_weights=cumulative, k=1000):
                file.write(
                    f"{rng.choice(visitors)} - - [19/May/2014:{moment} +0000] "
                    f'"{rng.choice(methods)} {page} HTTP/1.1" '
                    f"{rng.choice(statuses)} {rng.randrange(100, 100_000)}\n"
                )


KINDS = {
    "text": text,
    "lines": lines,
    "blob": blob,
    "records": records,
    "source": source,
    "tree": tree,
    "folders": folders,
    "log": log,
}


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or arguments[0] not in KINDS or not arguments[2].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    kind, path, size = arguments[0], Path(arguments[1]), int(arguments[2])
    # Written last: an interrupted set-up is done again.
    mark = path.with_name(path.name + ".made")
    key = f"{kind} {size} {SEED}"
    if path.exists() and mark.exists() and mark.read_text() == key:
        return 0
    mark.unlink(missing_ok=True)
    KINDS[kind](path, size, random.Random(SEED))
    mark.write_text(key)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
