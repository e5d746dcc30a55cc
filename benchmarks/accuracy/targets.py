"""What the accuracy over pairs should reach, and whether a scored document reaches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

PAPER = ("LM", "CART", "SVM", "GBM")
"""The paper's single models: those without a genetic search."""


def reached(document: Mapping[str, Any], peers: tuple[str, ...]) -> list[dict[str, Any]]:
    """Each target with what was found; ``reached`` is None where it cannot be told."""
    return list(_targets(document, peers))


def _targets(document: Mapping[str, Any], peers: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    geomean, every = document["geomean_pct"], document["all"]
    skill = (document["skill"].get("auto") or {}).get("value")
    yield _target("skill of auto", skill, 0.25)
    auto = geomean.get("auto")
    if document["placement"] == "same-core":
        mean = geomean.get("MEAN")
        yield _target("geometric mean over MEAN's", auto and mean and auto / mean, 0.20)
    heavy = every.get("auto", {}).get("heavy_pct")
    papers = [every[m]["heavy_pct"] for m in PAPER if every.get(m, {}).get("heavy_pct")]
    yield _target("heavy pairs, %, half of the best paper model's", heavy, _half(papers))
    regret = every.get("auto", {}).get("regret_pct")
    yield _target("regret, %, over a perfect predictor's", regret, 2.0)
    others = {m: every[m]["regret_pct"] for m in ("MEAN", *peers) if m in every}
    others["any partner"] = document["random_regret_pct"]
    yield _below("regret below every other's", regret, others)
    rivals = {m: geomean[m] for m in (*PAPER, *peers) if geomean.get(m) is not None}
    yield _below("geometric mean below every other's", auto, rivals)
    runs = max(profile["runs"] for profile in document["profiles"].values())
    yield _target("application runs of a profile, signatures' aside", runs, 40)


def _half(values: list[float]) -> float | None:
    return min(values) / 2.0 if values else None


def _target(name: str, found: float | None, most: float | None) -> dict[str, Any]:
    known = found is not None and most is not None
    return {
        "target": name,
        "found": found,
        "most": most,
        "reached": found <= most if known else None,  # type: ignore[operator]
    }


def _below(name: str, found: float | None, others: Mapping[str, float | None]) -> dict[str, Any]:
    known = {other: value for other, value in others.items() if value is not None}
    ahead = [other for other, value in known.items() if found is not None and value < found]
    return {
        "target": name,
        "found": found,
        "others": known,
        "ahead": ahead,
        "reached": not ahead if found is not None and known else None,
    }
