from __future__ import annotations

from typing import Any

import pytest

from kongming.evaluate.coupling import coupling_section
from kongming.records.fingerprint import COUPLING
from kongming.records.run import Run
from tests import builders


def corun(cost: float | None, coupling: float | None, other: str = "b", **changes: Any) -> Run:
    passive = {} if coupling is None else {COUPLING: coupling}
    return builders.run("a", cost, kind="corun", neighbours=(other,), passive=passive, **changes)


def section(coruns: list[Run], profile: list[Run]) -> Any:
    return coupling_section([], coruns, {"a": profile}, "auto")


def test_repeats_that_move_with_the_coupling_are_explained_by_it() -> None:
    # What pairs differ by is not explained, only what repeats do.
    follows = [corun(2.0 * c**0.5, c) for c in (1.0, 2.0, 4.0)]
    follows += [corun(9.0 * c**0.5, c, "c") for c in (1.0, 3.0)]
    assert section(follows, [])["explained"] == pytest.approx(1.0)
    against = [corun(cost, c) for c, cost in ((1.0, 1.0), (1.0, 2.0), (4.0, 1.0), (4.0, 2.0))]
    assert section(against, [])["explained"] == pytest.approx(0.0)
    assert section([corun(1.0, 2.0), corun(2.0, 2.0)], [])["explained"] is None


def test_only_clearly_unlike_profiles_are_named() -> None:
    pairs = [corun(1.0, 2.0), corun(1.0, 3.0), corun(None, 9.0)]
    for at, named in ((2.0, False), (1.2, True), (None, False)):
        passive = {} if at is None else {COUPLING: at}
        summary = section(pairs, [builders.run("a", 1.0, passive=passive)])
        assert summary["pairs"] == {"median": 2.5, "low": 2.0, "high": 3.0, "n": 2}
        assert (summary["profiles"] is None) is (at is None)
        assert bool(summary["unlike"]) is named


def test_recordings_without_it_say_nothing() -> None:
    assert section([corun(1.0, None)], []) is None
