"""Judge whether a benchmark of pytest-benchmark can be compared with its baseline. Pure.

Both are what ``pytest --kongming`` keeps in ``extra_info``: the document of ``gate.watching``, and
``effect``, ``rounds``, ``blocks_s`` (the medians of blocks of rounds, or of takes), ``block`` (the
rounds of one) and ``takes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kongming.gate.comparison import compare
from kongming.gate.noise import LEAST_RUNS, Goal, blocks, blocks_needed
from kongming.gate.watching import incomparable
from kongming.integrations.pytest_takes import LEAST_TAKES, takes_s
from kongming.quantities import per_cent
from kongming.records.errors import MALFORMED, InputError

UNWATCHED = "It was not watched, or failed."


def rounds_kept(data: Sequence[float], takes: Sequence[int], goal: Goal) -> dict[str, Any]:
    """Return what is kept of the rounds of a benchmark, empty if nothing was timed; of several
    takes, those that were made."""
    if not data:
        return {}
    seconds = takes_s(data, takes) if len(takes) > 1 else blocks(data)
    size = takes[0] if len(takes) > 1 else max(1, len(data) // len(seconds))
    document = {
        "effect": goal.effect,
        "rounds": len(data),
        "takes": max(1, len(takes)),
        "block": size,
        "blocks_s": seconds,
    }
    return document | {"rounds_needed": needed(document, goal)}


def needed(document: Mapping[str, Any], goal: Goal) -> int | None:
    """Rounds that the goal needs, by the noise of these; None where that cannot be known."""
    seconds = document["blocks_s"]
    if len(seconds) < LEAST_RUNS or min(seconds) <= 0.0:
        return None
    least = LEAST_TAKES if document["takes"] > 1 else 0
    return int(document["block"] * max(blocks_needed(seconds, goal), least))


def withheld(document: Mapping[str, Any], then: object, goal: Goal) -> list[str]:
    """Return why a benchmark is not compared with its baseline: sentences, none where it is.

    What was slower than the baseline by more than the effect beyond chance needs no more rounds.
    """
    if "before" not in document:
        return [str(reason["reason"]) for reason in document["disturbed"]]
    reasons = incomparable(document, then)
    if reasons or not isinstance(then, Mapping):
        return reasons
    try:
        few = [too_few(document, goal), too_few(then, goal, "The baseline: ")]
        if not any(few) or _clearly_slower(document, then, goal):
            return []
    except (*MALFORMED, InputError):
        return ["What KONGMING kept with the baseline cannot be read."]
    return [text for text in few if text]


def too_few(document: Mapping[str, Any], goal: Goal, whose: str = "") -> str | None:
    """A sentence where there were fewer rounds than the effect needs."""
    if "rounds" not in document:
        return None
    if "blocks_s" not in document:
        return f"{whose}it was measured by an older version: measure it again."
    rounds, enough = document["rounds"], needed(document, goal)
    if enough is None:
        return f"{whose}cannot tell: {rounds} rounds say nothing of the noise."
    if rounds >= enough:
        return None
    effect = per_cent(100.0 * goal.effect, "g")
    return (
        f"{whose}cannot tell: {enough - rounds} more rounds to see {effect} "
        f"({rounds} are too few, {enough} are needed)."
    )


def _clearly_slower(document: Mapping[str, Any], then: Mapping[str, Any], goal: Goal) -> bool:
    before, after = then.get("blocks_s", ()), document["blocks_s"]
    if min(len(before), len(after)) < LEAST_RUNS:
        return False
    return compare(before, after, replace(goal, false_positives=0.01)).lower > 1.0 + goal.effect
