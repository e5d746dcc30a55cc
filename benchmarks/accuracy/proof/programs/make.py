"""Inputs of the proof's programs, the same on each machine: make.py KIND PATH SIZE [SIZE]."""

from __future__ import annotations

import random
import sys
import wave
from pathlib import Path

import numpy as np


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Pronounceable words of 2 to 9 letters."""
    consonants, vowels = list("bcdfghjklmnpqrstvwz"), list("aeiou")
    return [
        "".join(
            str(rng.choice(consonants if k % 2 else vowels))
            for k in range(int(rng.integers(2, 10)))
        )
        for _ in range(count)
    ]


def text(path: Path, megabytes: int) -> None:
    """Lines of words whose frequencies fall as in a language."""
    rng = np.random.default_rng(1)
    known = np.array(words(rng, 30_000))
    shares = 1.0 / np.arange(1, len(known) + 1)
    shares /= shares.sum()
    with path.open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            drawn = known[rng.choice(len(known), 120_000, p=shares)].reshape(-1, 12)
            file.write("\n".join(" ".join(line) for line in drawn) + "\n")


def templates(path: Path, classes: int) -> None:
    """C++ of so many instantiated templates."""
    lines = [
        "#include <map>",
        "#include <string>",
        "#include <vector>",
        "template <int N> struct Table {",
        "  std::map<int, std::vector<std::string>> rows;",
        "  long fold(long seed) {",
        "    for (int i = 0; i < N; ++i) rows[(seed * 31 + i) % 97].push_back(std::to_string(i));",
        "    for (auto &row : rows) for (auto &one : row.second) seed = seed * 7 + one.size() + N;",
        "    return seed;",
        "  }",
        "};",
        "long all(long seed) {",
        *(f"  seed = Table<{n}>().fold(seed);" for n in range(1, classes + 1)),
        "  return seed;",
        "}",
    ]
    path.write_text("\n".join(lines) + "\n")


def sound(path: Path, seconds: int) -> None:
    """Chords with noise: 16 bits, two channels, 44.1 kHz."""
    rng = np.random.default_rng(2)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(44_100)
        for _ in range(seconds):
            t = np.arange(44_100) / 44_100
            tones = sum(np.sin(2 * np.pi * f * t) for f in rng.uniform(100, 4000, 5))
            both = np.stack([tones, np.roll(tones, 50)], 1) * 4000 + rng.normal(0, 300, (44_100, 2))
            file.writeframes(both.astype("<i2").tobytes())


def formulas(folder: Path, count: int) -> None:
    """Random 3-SAT with 4.26 clauses for each of 190 variables."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(3)
    for number in range(count):
        clauses = [
            " ".join(str(v * rng.choice((1, -1))) for v in rng.sample(range(1, 191), 3)) + " 0"
            for _ in range(809)
        ]
        text = "\n".join(["p cnf 190 809", *clauses]) + "\n"
        (folder / f"{number:03d}.cnf").write_text(text)


def genome(folder: Path, bases: int, reads: int) -> None:
    """A random genome, and reads of 150 bases with one per cent of errors."""
    rng = np.random.default_rng(4)
    letters = np.frombuffer(b"ACGT", dtype="u1")
    drawn = rng.integers(0, 4, bases, dtype="u1")
    lines = letters[drawn].tobytes().decode()
    with (folder / "genome.fa").open("w") as file:
        file.write(">one\n" + "\n".join(lines[k : k + 80] for k in range(0, bases, 80)) + "\n")
    with (folder / "reads.fq").open("w") as file:
        for number, start in enumerate(rng.integers(0, bases - 150, reads).tolist()):
            read = drawn[start : start + 150].copy()
            wrong = rng.random(150) < 0.01
            read[wrong] = rng.integers(0, 4, int(wrong.sum()), dtype="u1")
            file.write(f"@{number}\n{letters[read].tobytes().decode()}\n+\n{'I' * 150}\n")


def history(path: Path, commits: int) -> None:
    """A stream of commits for git fast-import: 60 files of 400 lines, three change each time."""
    rng = np.random.default_rng(5)
    known = words(rng, 5_000)
    files = {
        f"part{k // 10}/file{k}.txt": [
            " ".join(known[int(w)] for w in rng.integers(0, 5_000, 10)) for _ in range(400)
        ]
        for k in range(60)
    }
    names = list(files)
    with path.open("w") as out:
        for number in range(commits):
            message = f"Change {number}"
            out.write("commit refs/heads/main\n")
            out.write(f"committer A <a@example.com> {1_767_225_600 + number} +0000\n")
            out.write(f"data {len(message)}\n{message}\n")
            changed = names if number == 0 else [names[int(k)] for k in rng.integers(0, 60, 3)]
            for name in dict.fromkeys(changed):
                lines = files[name]
                for place in rng.integers(0, len(lines), 8).tolist():
                    lines[place] = " ".join(known[int(w)] for w in rng.integers(0, 5_000, 10))
                content = "\n".join(lines) + "\n"
                out.write(f"M 100644 inline {name}\ndata {len(content)}\n{content}\n")


def tree(folder: Path, mebibytes: int) -> None:
    """Files of 4 KiB to 1 MiB; a third of their bytes compress, a quarter are twins."""
    rng = np.random.default_rng(6)
    left, number, last = mebibytes << 20, 0, b""
    while left > 0:
        size = int(min(left, 4096 * 2 ** rng.integers(0, 9)))
        if number % 4 != 3 or not last:
            noise = rng.bytes(size - size // 3)
            last = noise + bytes(size // 3)
        path = folder / f"{number % 40:02d}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(last)
        left -= len(last)
        number += 1


if __name__ == "__main__":
    kind, where, *sizes = sys.argv[1:]
    makers = {
        "text": text,
        "templates": templates,
        "sound": sound,
        "formulas": formulas,
        "genome": genome,
        "history": history,
        "tree": tree,
    }
    makers[kind](Path(where), *map(int, sizes))
