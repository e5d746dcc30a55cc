"""What is nearly right: valid inputs with a few changes, which get further than random ones."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

NUMBERS = (0, -1, 1, 2**31, 2**63, 2**64, 10**400, 0.5, 1e-320, 1e308, -0.0)

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.sampled_from(["", "\0", "\ud800", "nan", "1e999", "../../etc/passwd", "x" * 5000]),
)

VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
"""Whatever JSON and Python's reader of it can say, and a little more."""


@st.composite
def contents(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds with parts of it changed, cut out, doubled or put in."""
    content = bytearray(draw(st.sampled_from(seeds)))
    chance = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(0, 6))):
        at = chance.randrange(len(content) + 1)
        length = min(len(content) - at, chance.choice((1, 2, 4, 16, 64)))
        new = draw(
            st.sampled_from(
                [b"", b"\0", b"\xff" * 4, b'"', b"[", b"{", b"\n", b",", b"-1", b"1e999", b"9" * 30]
            )
            | st.binary(max_size=8)
        )
        if chance.random() < 0.2:
            new = bytes(content[at : at + length]) * 2
        content[at : at + (length if chance.random() < 0.7 else 0)] = new
    return bytes(content)


def texts(seeds: Sequence[str]) -> st.SearchStrategy[str]:
    """The same of texts."""
    return contents([seed.encode() for seed in seeds]).map(lambda raw: raw.decode(errors="replace"))


@st.composite
def documents(draw: st.DrawFn, seeds: Sequence[Any]) -> Any:
    """One of the seeds with other values in some places, and some places gone."""
    document = copy.deepcopy(draw(st.sampled_from(seeds)))
    chance = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 4))):
        holder, key = _place(document, chance)
        if holder is None:
            return draw(VALUES)
        if chance.random() < 0.3:
            del holder[key]
        else:
            holder[key] = draw(VALUES)
    return document


def _place(document: Any, chance: random.Random) -> tuple[Any, Any]:
    """Where something stands in it: what holds it, and under which key; None for all of it."""
    holder, key = None, None
    here = document
    while isinstance(here, dict | list) and here and (holder is None or chance.random() < 0.8):
        keys = list(here) if isinstance(here, dict) else range(len(here))
        holder, key = here, chance.choice(keys)
        here = here[key]
    return holder, key
