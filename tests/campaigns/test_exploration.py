"""A campaign of ``kongming explore run`` that was interrupted runs what it would have run."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kongming.campaigns.exploration import Exploration
from kongming.campaigns.point_runners import GoOn, Point
from kongming.explore import DecisionTreeProfiler, Space
from kongming.explore.policies import POLICIES
from kongming.explore.runs_table import PointRun, RunsTable

SPACE = Space.from_dict(
    {
        "x": {"from": 0.0, "to": 1.0},
        "n": {"from": 1, "to": 64, "log": True},
        "codec": {"choices": ["gz", "xz", "zst"]},
        "level": {"from": 1, "to": 9, "when": "codec != 'zst'"},
    },
    forbid=["n > 32 and codec == 'xz'"],
)


class Answers:
    """A runner of a program whose time is known; ``backwards``: the last of a batch ends first, as
    parallel runs may."""

    def __init__(self, *, backwards: bool = False) -> None:
        self.order = -1 if backwards else 1

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def batch(self, points: Sequence[Point], go_on: GoOn = lambda: True) -> Generator[PointRun]:
        for point in points[:: self.order]:
            if not go_on():
                return
            x, n = float(point["x"] or 0), int(point["n"] or 0)
            took = 1.0 + 64.0 / n + 5.0 * (x > 0.5) + (point["codec"] == "xz") * (1 + x)
            failed = x > 0.9 and n > 16
            yield PointRun(point, None if failed else took, took, "killed" if failed else None)


def campaign(path: Path, runner: Answers | None = None, **changes: Any) -> list[Point]:
    """Drive a campaign to its end, and return the points of its table, in their order."""
    settings: dict[str, Any] = {"budget": 14, "batch": 4, "random_state": 3, **changes}
    with closing(RunsTable(path, SPACE, "seconds", identity="a program")) as table:
        exploration = Exploration(DecisionTreeProfiler(SPACE, **settings), table)
        exploration.drive(runner or Answers(), lambda: None)
        assert exploration.resumed + len(exploration.measured) == len(table.runs)
        return [run.parameters for run in table.runs]


def cut(path: Path, rows: int) -> Path:
    """Leave what a campaign that was killed after so many runs leaves."""
    shorter = path.with_name(f"cut-{rows}.csv")
    shorter.write_text("".join(path.read_text().splitlines(keepends=True)[: rows + 1]))
    return shorter


def in_batches(points: Sequence[Point], batch: int) -> list[list[str]]:
    return [
        sorted(map(str, points[start : start + batch])) for start in range(0, len(points), batch)
    ]


@pytest.mark.parametrize("rows", [3, 4, 8, 13])
@pytest.mark.parametrize("policy", [name for name in sorted(POLICIES) if name != "auto"])
def test_after_an_interruption_it_goes_on_as_without(
    tmp_path: Path, policy: str, rows: int
) -> None:
    points = campaign(tmp_path / "runs.csv", policy=policy)
    assert len(points) == 14
    assert campaign(cut(tmp_path / "runs.csv", rows), policy=policy) == points


@pytest.mark.parametrize("rows", [pytest.param(4, marks=pytest.mark.thorough), 6])
def test_so_does_auto(tmp_path: Path, rows: int) -> None:
    points = campaign(tmp_path / "runs.csv", policy="auto")
    assert campaign(cut(tmp_path / "runs.csv", rows), policy="auto") == points


def test_so_does_one_with_a_budget_of_costs(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"policy": "dta", "budget": 500.0, "budget_in": "cost"}
    settings |= {"cost": "told", "weights": (1.0, 1.0, 1.0)}
    points = campaign(tmp_path / "runs.csv", **settings)
    assert len(points) > 8
    assert campaign(cut(tmp_path / "runs.csv", 6), **settings) == points


def test_so_does_one_of_which_the_rest_of_the_budget_shortens_batches(tmp_path: Path) -> None:
    """After such a batch the next ones begin at no multiple of its size."""
    settings: dict[str, Any] = {"policy": "uni", "budget": 300.0, "budget_in": "cost", "cost": "n"}
    points = campaign(tmp_path / "runs.csv", **settings)
    for rows in range(len(points) - 8, len(points)):
        assert campaign(cut(tmp_path / "runs.csv", rows), **settings) == points, rows


def test_so_do_parallel_runs(tmp_path: Path) -> None:
    """In whatever order those of a batch end."""
    points = campaign(tmp_path / "runs.csv", policy="dta")
    assert campaign(tmp_path / "b.csv", Answers(backwards=True), policy="dta") != points
    again = campaign(cut(tmp_path / "b.csv", 5), Answers(backwards=True), policy="dta")
    assert in_batches(again, 4) == in_batches(points, 4)


@pytest.mark.parametrize("changes", [{"budget": 20}, {"batch": 3}, {"random_state": 4}])
def test_other_settings_and_runs_of_others_count(tmp_path: Path, changes: dict[str, Any]) -> None:
    points = campaign(tmp_path / "runs.csv", policy="uni")
    again = campaign(cut(tmp_path / "runs.csv", 7), policy="uni", **changes)
    assert again[:7] == points[:7]
    assert len({str(point) for point in again}) == len(again) == changes.get("budget", 14)


def test_a_tree_that_grows_online_goes_on(tmp_path: Path) -> None:
    """Its steps are no part of a table."""
    settings: dict[str, Any] = {"policy": "dta", "rebuild": False}
    points = campaign(tmp_path / "runs.csv", **settings)
    again = campaign(cut(tmp_path / "runs.csv", 7), **settings)
    assert again[:8] == points[:8]
    assert len({str(point) for point in again}) == len(again) == 14
