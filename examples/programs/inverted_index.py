"""Builds a search index over a text in Python, stores it, loads it and queries it.

Usage: inverted_index.py TEXT TIMES
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

WORDS_A_PAGE = 200


def built(words: list[str]) -> dict[str, list[int]]:
    index: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        index.setdefault(word, []).append(place)
    return index


def together(index: dict[str, list[int]], first: str, second: str) -> int:
    """The number of pages on which both words are."""
    first_pages, second_pages = (
        {place // WORDS_A_PAGE for place in index[word]} for word in (first, second)
    )
    return len(first_pages & second_pages)


def main() -> None:
    words = Path(sys.argv[1]).read_text(encoding="ascii").split()
    for _ in range(int(sys.argv[2])):
        index = built(words)
        index = pickle.loads(pickle.dumps(index))
        ranked = sorted(index, key=lambda word: (-len(index[word]), word))
        pairs = [(ranked[k], ranked[k + 1]) for k in range(0, 400, 2)]
        pages = sum(together(index, *pair) for pair in pairs)
        by_length = sorted(words, key=len)
    print(f"{len(ranked)} words, {pages} pages with a pair, the longest word {by_length[-1]}")


main()
