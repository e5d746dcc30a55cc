"""Tune the cyclic garbage collector: run it rarely, and between calls instead of during one.

A fleet of 10,000 nodes is millions of objects that live as long as the server does. Left alone,
the collector goes through all of them every so many calls, which holds each of those calls up for
tenths of a second and takes an eighth of what the server takes in all. Nearly everything that a
call makes is freed by its count of references, so that little is missed.
"""

from __future__ import annotations

import gc

COLLECTING_S = 600.0
"""How often ``collect`` is to be called."""

_YOUNG, _MIDDLE, _NEVER = 10_000, 5, 1_000_000
"""What is made is looked at twice, up to 10,000 and 50,000 objects at once: some ms. With a million
of them the largest report was held up for 80 ms."""


def tune() -> None:
    """Let the collector look at young objects alone, and never at the modules."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)


async def collect() -> None:
    """Look at all that was made since ``tune``."""
    gc.collect()
