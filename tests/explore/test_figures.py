"""The surface of a model's predictions, where parameters exist under conditions."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.evaluate.figures import theme as themes
from kongming.explore import DecisionTreeProfiler, Space
from kongming.explore.figures import _Surface, draw, error_floor
from kongming.explore.fitting import fit_runs
from kongming.explore.model_file import ExploreModel
from kongming.explore.regions import regions
from kongming.explore.runs_table import PointRun
from kongming.records.errors import StoreError, UnknownNameError, UntrainedError

CODECS = Space.from_dict(
    {
        "codec": {"choices": ["gz", "zst"]},
        "level": {"from": 1, "to": 9, "when": "codec != 'zst'"},
        "n": [1, 2, 4, 8],
    }
)


def model_of(space: Space, points: list[dict[str, Any]]) -> ExploreModel:
    runs = [
        PointRun(point, sum(float(v) for v in point.values() if not isinstance(v, str)) + 1.0)
        for point in points
    ]
    return fit_runs(space, runs, "seconds", "runs.csv", model="lines")


def codecs() -> ExploreModel:
    """Most runs are of the codec that has no level."""
    points: list[dict[str, Any]] = [{"codec": "zst", "n": n} for n in (1, 2, 4, 8)] * 4
    points += [{"codec": "gz", "n": n, "level": level} for n in (1, 8) for level in (1, 5, 9)]
    return model_of(CODECS, points)


def test_other_parameters_are_as_in_runs_in_which_both_exist() -> None:
    surface = _Surface(codecs(), ["level", "n"])
    assert surface.others == ["codec gz"]
    assert surface.reason is None
    assert np.isfinite(surface.predicted).all()
    assert np.all(np.diff(surface.predicted, axis=1) > 0.1)


def test_other_parameters_are_at_the_middle_of_the_runs() -> None:
    """Each value of a range occurs once: the most frequent is the least, a corner of the space."""
    space = Space.from_dict(
        {
            **{name: {"from": 0.0, "to": 1.0} for name in "abc"},
            "n": {"from": 1, "to": 10**6},
            "threads": [1, 2, 4, 8],
            "codec": {"choices": ["gz", "xz", "zst"]},
        }
    )
    points = [
        {
            **{
                name: (at * step % 25 + 0.5) / 25
                for name, step in zip("abc", (7, 11, 1), strict=True)
            },
            "n": 1 + at * at,
            "threads": (1, 2, 4, 8)[at % 4],
            "codec": "zst" if at % 5 < 3 else "gz",
        }
        for at in range(25)
    ]
    surface = _Surface(model_of(space, points), ["a", "b"])
    assert surface.others == ["c 0.5", "n 145", "threads 2", "codec zst"]


def test_a_title_is_no_wider_than_its_surface(tmp_path: Path) -> None:
    names = [f"spark_executor_memory_overhead_{at}" for at in range(6)]
    space = Space.from_dict({name: {"from": 0.0, "to": 1.0} for name in names})
    points = [
        {name: (at * step % 11 + 1) / 13 for name, step in zip(names, range(1, 7), strict=True)}
        for at in range(11)
    ]
    surface = _Surface(model_of(space, points), names[:2])
    assert surface.others == [f"{name} 0.4615" for name in names[2:]]
    for name in ("long", "short"):
        themes.write(surface.figure, tmp_path, name)
        surface.others = []
    assert abs(_width(tmp_path / "long-light.png") - _width(tmp_path / "short-light.png")) < 20


def _width(picture: Path) -> int:
    """Pixels, of the header of a PNG."""
    return int.from_bytes(picture.read_bytes()[16:20], "big")


def test_cells_without_one_of_the_two_are_empty() -> None:
    surface = _Surface(codecs(), ["codec", "level"])
    assert np.isnan(surface.predicted).all(axis=0).tolist() == [False, True]


@pytest.mark.thorough
def test_a_surface_without_cells_says_why(tmp_path: Path) -> None:
    space = Space.from_dict(
        {
            "codec": {"choices": ["gz", "xz"]},
            "level": {"from": 1, "to": 3, "when": "codec == 'gz'"},
            "window": {"from": 1, "to": 3, "when": "codec == 'xz'"},
        }
    )
    points: list[dict[str, Any]] = [{"codec": "gz", "level": at} for at in (1, 2, 3)]
    points += [{"codec": "xz", "window": at} for at in (1, 2, 3)]
    model = model_of(space, points)
    surface = _Surface(model, ["level", "window"])
    assert surface.reason == "level and window do not exist together at these values"
    written = draw(model, tmp_path, ("level", "window")).written
    assert "surface-light.svg" in {path.name for path in written}


@pytest.mark.thorough
def test_the_noise_floor_next_to_the_curve(tmp_path: Path) -> None:
    space = Space.from_dict({"n": list(range(1, 9))})
    runs = [
        PointRun({"n": n}, 100.0 * n * (1.0 + off)) for off in (-0.02, 0.02) for n in range(1, 9)
    ]
    model = fit_runs(space, runs, "seconds", "runs.csv", model="lines")
    # Each is 2 % from the mean of two, sqrt(2) times as much from that of many.
    assert error_floor(model) == pytest.approx(100.0 * 0.02 * 2**0.5, rel=0.03)
    draw(model, tmp_path)
    pages = [page.read_text() for page in tmp_path.glob("error*.svg")]
    assert pages
    assert all("noise floor" in page for page in pages)


def test_no_noise_floor_without_repeats() -> None:
    assert (
        error_floor(model_of(Space.from_dict({"n": [1, 2, 4]}), [{"n": 1}, {"n": 2}, {"n": 4}]))
        is None
    )


def test_a_region_tells_of_its_own_runs() -> None:
    """In whatever order the rows of a table come."""
    space = Space.from_dict({"a": list(range(1, 13)), "b": [1, 2, 3, 4]})
    points = [{"a": a, "b": b} for a in range(1, 13) for b in (1, 2, 3, 4)]
    shuffled = [points[at] for at in np.random.default_rng(0).permutation(len(points))]
    runs = [PointRun(p, (10.0 if p["a"] <= 6 else 1000.0) + p["b"]) for p in shuffled]
    root, *parts = regions(fit_runs(space, runs, "seconds", "runs.csv", model="lines"))
    assert (root.runs, root.cut) == (48, "a <= 6.5")
    below, above = (part for part in parts if part.depth == 1)
    assert (below.runs, below.mean, above.runs, above.mean) == (24, 12.5, 24, 1002.5)


def test_a_figure_stays_where_its_successor_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = tmp_path / "surface-light.svg"
    figure.write_text("before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=f"{figure} cannot be written: No space left on device"):
        themes.write(_Surface(codecs(), ["level", "n"]).figure, tmp_path, "surface")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_wrong_parameters_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="'zz'"):
        draw(codecs(), tmp_path / "figures", ("n", "zz"))
    assert not list(tmp_path.iterdir())


def test_nothing_is_drawn_where_all_runs_failed(tmp_path: Path) -> None:
    model = ExploreModel(DecisionTreeProfiler(CODECS), "seconds", "")
    model.profiler.tell({"codec": "zst", "n": 1}, None)
    with pytest.raises(UntrainedError, match="Runs: 1; points with a value"):
        draw(model, tmp_path)
