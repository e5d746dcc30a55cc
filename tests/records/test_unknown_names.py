"""An unknown name: the nearest known ones, where there are not too many."""

from __future__ import annotations

import difflib

import pytest

from kongming.records.errors import UnknownNameError, nearest_names


def test_the_nearest_name_is_suggested() -> None:
    error = UnknownNameError("node", "nod-1", iter(["node-1", "other"]))
    assert error.suggestions == ("node-1",)
    assert "Did you mean node-1?" in (error.hint or "")


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("predcit", ("predict",)),
        ("trian", ("train",)),
        ("fingreprint", ("fingerprint",)),
        ("Rank", ("rank",)),
        ("TRIAN", ("train",)),
        ("mode", ("model", "models")),
        ("machine", ("machines", "machine_type")),
        ("list", ()),
        ("help", ()),
    ],
)
def test_what_is_far_fetched_is_not_suggested(name: str, suggested: tuple[str, ...]) -> None:
    known = ["audit", "fingerprint", "init", "model", "models", "predict", "rank", "register"]
    known += ["runs", "train", "machines", "machine_type"]
    assert nearest_names(name, known) == suggested


def test_many_or_long_names_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    inner = difflib.get_close_matches

    def noted(word: str, names: list[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
        compared.extend(names)
        return inner(word, names, n, cutoff)

    monkeypatch.setattr(difflib, "get_close_matches", noted)
    error = UnknownNameError("node", "nod-1", {f"node-{n}": n for n in range(10_000)})
    assert not compared
    assert error.hint == "10000 others are known."
    UnknownNameError("node", "x" * 10_000, ["node-1"])
    UnknownNameError("node", "nod-1", ["x" * 10_000])
    assert not compared


def test_names_that_are_not_listed() -> None:
    """'There is none yet' was reported of operations where there were two."""
    assert UnknownNameError("operation", "x", None).hint is None
    assert UnknownNameError("operation", "x", None, hint="List them.").hint == "List them."
    assert UnknownNameError("operation", "x", ()).hint == "There is none yet."
