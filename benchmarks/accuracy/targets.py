"""What the accuracy over pairs should reach, and whether a scored document reaches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kongming.evaluate.trivial import BUBBLE_UP, PAIRMEDIAN, RIVALS

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of each figure (``coverage``: the range) at one placement."""

    excess: float
    excess_upper: float | None
    over_pairmedian: float
    over_bubble_up: float
    quiet: float | None
    heavy: float
    coverage: tuple[float, float]
    width_pct: float
    regret_pct: float = 1.0


LIMITS = {
    "cross-core": Limits(0.40, 0.7, 1.0, 0.8, 1.05, 1.3, (0.87, 0.93), 25.0),
    "same-core": Limits(0.05, None, 0.6, 0.5, None, 1.5, (0.85, 0.95), 40.0),
}


NOTHING_LEFT = 0.9
"""Share of SOLO's squared error that is noise, from which nothing is left that an excess could be a
share of."""


def reached(document: Mapping[str, Any], peers: tuple[str, ...]) -> list[dict[str, Any]]:
    """Each target with its figure; ``reached`` is None where it is not defined."""
    limits = LIMITS.get(document["placement"], LIMITS["cross-core"])
    return list(_targets(document, peers, limits))


def _targets(
    document: Mapping[str, Any], peers: tuple[str, ...], limits: Limits
) -> Iterator[dict[str, Any]]:
    every, truth = document["all"], document["truth"]
    auto, excess = every.get(AUTO, {}), document["excess"].get(AUTO, {})
    share = document["noise"]["share_of_solo"]
    if share is not None and share >= NOTHING_LEFT:
        excess = {}
    yield _target("excess of auto", excess.get("value"), limits.excess)
    if limits.excess_upper is not None:
        upper = excess.get("interval", (None, None))[1]
        yield _target("upper end of its 95 % interval", upper, limits.excess_upper)
    floored = document["floored_geomean_pct"]
    for rival, most in ((PAIRMEDIAN, limits.over_pairmedian), (BUBBLE_UP, limits.over_bubble_up)):
        name = f"floored geometric mean over {rival}'s"
        yield _target(name, _ratio(floored.get(AUTO), floored.get(rival)), most)
    minutes = document["minutes"]
    own = minutes.get(AUTO)
    cheap = [
        model
        for model in (*RIVALS, *peers)
        if model in every and own is not None and (minutes.get(model) or 0.0) <= own
    ]
    for name, figure, sign in (("log error", "mean_abs_log_pct", 1), ("Spearman", "spearman", -1)):
        achieved = auto.get(figure)
        others = {model: every[model][figure] for model in dict.fromkeys(cheap)}
        yield _ahead(f"{name} better than every rival's of no more minutes", achieved, others, sign)
    if limits.quiet is not None:
        quiet = _ratio(auto.get("quiet_pct"), every["SOLO"]["quiet_pct"])
        yield _target("log error over SOLO's where nothing is slowed", quiet, limits.quiet)
    heavy = _ratio(auto.get("heavy_pct"), truth["heavy_pct"])
    yield _target("heavy pairs over what the truth scores", heavy, limits.heavy)
    run = document["coverage"]["run"]
    low, high = limits.coverage
    yield {
        "target": "coverage of single runs by intervals of 90 %",
        "found": run["actual"],
        "range": [low, high],
        "reached": None if run["actual"] is None else low <= run["actual"] <= high,
    }
    yield _target("median width of these intervals, %", run["median_width_pct"], limits.width_pct)
    regret = auto.get("regret_pct")
    lost = None if regret is None else regret - truth["regret_pct"]
    yield _target("regret over what the truth loses, points", lost, limits.regret_pct)
    gain = auto.get("regret_gain", {}).get("interval", (None, None))[0]
    yield _target("random partner's regret less auto's, lower end (negated)", _negated(gain), 0.0)


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def _ratio(value: float | None, reference: float | None) -> float | None:
    return value / reference if value is not None and reference else None


def _target(name: str, achieved: float | None, most: float) -> dict[str, Any]:
    return {
        "target": name,
        "found": achieved,
        "most": most,
        "reached": None if achieved is None else achieved <= most,
    }


def _ahead(
    name: str, achieved: float | None, others: Mapping[str, float | None], sign: int
) -> dict[str, Any]:
    known = {other: value for other, value in others.items() if value is not None}
    ahead = [
        other
        for other, value in known.items()
        if achieved is not None and sign * (value - achieved) <= 0
    ]
    return {
        "target": name,
        "found": achieved,
        "others": known,
        "ahead": ahead,
        "reached": not ahead if achieved is not None and known else None,
    }
