"""Figures of a model: its tree, the surface of its predictions, and its error as runs were added.

matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kongming.arrays import Floats
from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.explore import DecisionTreeProfiler
from kongming.explore.dimensions import Dimension, Value
from kongming.explore.features import Features
from kongming.explore.model_file import ExploreModel
from kongming.explore.profiler import FEWEST_RUNS
from kongming.explore.regions import regions
from kongming.explore.runs import deviations_of_repeats, places_of_points
from kongming.explore.runs_table import text_of
from kongming.explore.tree_figure import tree_figure
from kongming.quantities import per_cent
from kongming.records.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = 48
"""Cells of a surface along a range."""

CURVE = 8
"""Points of the curve of errors."""

FEWEST = 4
"""Runs that the first point of the curve is fitted to, and that the last one is judged by."""

WIDEST = 66
"""Characters of a line of a title that is not wider than the figure below it."""

TITLE_LINE = 0.2
"""Inches that a line of a title takes."""


class Drawn(NamedTuple):
    """The files that were written, and why a figure was not."""

    written: tuple[Path, ...]
    left_out: tuple[str, ...]


def draw(model: ExploreModel, folder: Path, over: Sequence[str] | None = None) -> Drawn:
    """Write tree, surface and error-curve, each for light and dark pages, as SVG and PNG.

    ``over`` names the two parameters of the surface; None: those that matter most.

    Raises:
        InputError: there is no such parameter, or not two of them, before anything is written; or
            the folder or a file cannot be written.
        StoreError: the disk is full.
        UntrainedError: fewer than two points were measured.
        MissingExtraError: matplotlib is not installed.
    """
    names = model.profiler.space.names
    # First of all: without a model there is none, and no parameter matters.
    tree = regions(model)
    chosen = list(over) if over is not None else _most_important(model)
    for name in chosen:
        if name not in names:
            raise UnknownNameError("parameter", name, names)
    if over is not None and (len(chosen) != 2 or len(set(chosen)) != 2):
        raise InputError("is not two parameters.", field="--over", value=",".join(chosen))
    written = themes.write(lambda theme: tree_figure(theme, tree, model.target), folder, "tree")
    left_out = []
    if len(chosen) == 2:
        surface = _Surface(model, chosen)
        written += themes.write(surface.figure, folder, "surface")
    else:
        left_out.append(f"No surface: it has two parameters, the space has {len(names)}.")
    curve = error_curve(model)
    if curve:
        floor = error_floor(model)
        written += themes.write(lambda theme: _curve(theme, curve, floor), folder, "error")
    else:
        values = model.runs()[1]
        left_out.append(
            f"No error against runs: it needs {FEWEST} values of {FEWEST_RUNS} points and {FEWEST} "
            f"later runs, one of them with a value other than 0; of {len(values)} runs "
            f"{int(np.isfinite(values).sum())} have a value."
        )
    return Drawn(written, tuple(left_out))


def _most_important(model: ExploreModel) -> list[str]:
    shares: dict[str, float] = model.report()["importances"]
    return sorted(shares, key=lambda name: -shares[name])[:2]


def error_curve(model: ExploreModel) -> list[tuple[int, float]]:
    """Compute the median relative error, in per cent, of models fitted to the first k runs, over
    the runs that came after them; empty where runs are too few. Values of 0 are left out."""
    codes, values, limits = model.runs()
    profiler = model.profiler
    points = profiler.space.decode(codes)
    last = len(values) - FEWEST
    if last < FEWEST:
        return []
    curve = []
    for k in np.unique(np.linspace(FEWEST, last, CURVE).astype(int)):
        judged = [
            row for row in range(k, len(values)) if np.isfinite(values[row]) and values[row] != 0.0
        ]
        if np.isfinite(values[:k]).sum() < FEWEST or not judged:
            continue
        partial = DecisionTreeProfiler(
            profiler.space,
            budget=len(values),
            model=profiler.model_name,
            random_state=profiler.random_state,
        )
        for row in range(k):
            known, ended = np.isfinite(values[row]), np.isfinite(limits[row])
            partial.tell(
                points[row],
                float(values[row]) if known else None,
                at_least=float(limits[row]) if ended else None,
            )
        if len(partial.observations.repeatable) < FEWEST_RUNS:
            # Repeats next to each other: no model knows more than their mean.
            continue
        missed = partial.predict([points[row] for row in judged]).median - values[judged]
        curve.append((int(k), 100.0 * float(np.median(np.abs(missed / values[judged])))))
    return curve


def error_floor(model: ExploreModel) -> float | None:
    """Compute the median relative error, in per cent, that noise leaves to who knows the mean of
    every point, from runs that repeat a point; None where there are none."""
    codes, values, _ = model.runs()
    deviations = deviations_of_repeats(places_of_points(codes), values)
    repeated = np.isfinite(deviations) & (values != 0.0)
    if not repeated.any():
        return None
    return 100.0 * float(np.median(np.abs(deviations[repeated] / values[repeated])))


def _curve(theme: Theme, curve: Sequence[tuple[int, float]], floor: float | None) -> Figure:
    figure = themes.new_figure(6.0, 3.8)
    axes = figure.add_subplot()
    runs, errors = zip(*curve, strict=True)
    axes.plot(runs, errors, color=theme.lines[0], marker="o", markersize=4, label="model")
    if floor is not None:
        axes.axhline(
            floor,
            color=theme.faint,
            linewidth=1.0,
            linestyle=(0, (4, 3)),
            label=f"noise floor: {per_cent(floor, '.2g')}, of repeated runs",
        )
        axes.legend()
    axes.set_ylim(bottom=0.0)
    axes.grid(axis="y")
    axes.set_xlabel("runs that the model was fitted to")
    axes.set_ylabel("median error of later runs (%)")
    themes.title(axes, "Error as runs were added")
    return figure


class _Surface:
    """Predictions over two parameters, with the others typical of the runs in which both exist
    (see ``_typical``). Cells that are forbidden, or in which one of the two does not exist, are
    empty; ``reason`` says why all of them are, None if not."""

    def __init__(self, model: ExploreModel, names: Sequence[str]) -> None:
        space = model.profiler.space
        codes, values, limits = model.runs()
        self.target, self.values, self.limits = model.target, values, limits
        self.places = [space.names.index(name) for name in names]
        self.dimensions = [space.dimensions[place] for place in self.places]
        self.runs = codes[:, self.places]
        self.axes = [_cells(dimension) for dimension in self.dimensions]
        across, up = np.meshgrid(*self.axes)
        both = ~np.isnan(self.runs).any(axis=1)
        common = _typical(space.dimensions, codes[both] if both.any() else codes)
        grid = np.tile(common, (across.size, 1))
        grid[:, self.places[0]], grid[:, self.places[1]] = across.ravel(), up.ravel()
        grid, allowed = space.judged(grid)
        exist = ~np.isnan(grid[:, self.places]).any(axis=1)
        self.reason = None
        if not exist.any():
            self.reason = f"{' and '.join(names)} do not exist together at these values"
        elif not (allowed & exist).any():
            self.reason = "no point with these values is allowed"
        allowed &= exist
        predicted = np.full(across.size, np.nan)
        if allowed.any():
            predicted[allowed] = model.profiler.predict_codes(grid[allowed]).median
        self.predicted = predicted.reshape(across.shape)
        columns = Features(space.dimensions)(grid)
        self.leaves = model.profiler.tree_.apply(columns).reshape(across.shape)
        typical = space.decode(space.judged(common[None])[0])[0]
        self.others = [
            f"{name} {_short(value)}" for name, value in typical.items() if name not in names
        ]

    def figure(self, theme: Theme) -> Figure:
        """Draw it on a page of a theme."""
        from matplotlib.colors import LinearSegmentedColormap

        title = _title("Predictions, runs and cuts", self.others)
        figure = themes.new_figure(7.0, 5.0 + TITLE_LINE * len(title))
        axes = figure.add_subplot()
        ramp = LinearSegmentedColormap.from_list("ramp", theme.ramp)
        positions = [_positions(*pair) for pair in zip(self.dimensions, self.axes, strict=True)]
        if self.reason is None:
            picture = axes.pcolormesh(
                *positions, np.ma.masked_invalid(self.predicted), cmap=ramp, shading="nearest"
            )
            bar = figure.colorbar(picture, ax=axes)
            bar.set_label(self.target)
            bar.outline.set_visible(False)
        else:
            axes.text(0.5, 0.5, self.reason, ha="center", va="center", transform=axes.transAxes)
        if min(self.leaves.shape) > 1:
            for leaf in np.unique(self.leaves):
                within = (self.leaves == leaf).astype(float)
                if 0.0 < within.mean() < 1.0:
                    axes.contour(*positions, within, levels=[0.5], colors=theme.ink, linewidths=0.7)
        runs = [_positions(d, self.runs[:, k]) for k, d in enumerate(self.dimensions)]
        known, ended = np.isfinite(self.values), np.isfinite(self.limits)
        for chosen, marker, label in (
            (known, "o", "run"),
            (ended, "^", "run ended at its time limit"),
            (~(known | ended), "x", "failed run"),
        ):
            if chosen.any():
                axes.scatter(
                    *(runs[0][chosen], runs[1][chosen]),
                    s=18,
                    marker=marker,
                    color=theme.lines[1],
                    label=label,
                )
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.12), ncols=3)
        for axis, dimension, values in (
            (axes.xaxis, self.dimensions[0], self.axes[0]),
            (axes.yaxis, self.dimensions[1], self.axes[1]),
        ):
            axis.set_label_text(dimension.name)
            _ticks(axis, dimension, values)
        themes.title(axes, "\n".join(title))
        return figure


def _title(what: str, others: Sequence[str]) -> list[str]:
    """Return the lines of a title: what a surface is of, and the other parameters, no wider than
    the figure."""
    if not others:
        return [what]
    *before, last = others
    parts = [*(f"{other}," for other in before), f"{last})"]
    return [what, *themes.lines([f"({parts[0]}", *parts[1:]], WIDEST)]


def _short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else text_of(value)


def _cells(dimension: Dimension) -> Floats:
    if dimension.count is not None and dimension.count <= 2 * STEPS:
        return np.sort(dimension.grid())
    spread = np.geomspace if dimension.log else np.linspace
    ends = (dimension.low, dimension.high) if not dimension.values else None
    if ends is None:
        grid = np.sort(dimension.grid())
        return np.asarray(grid[np.unique(np.linspace(0, len(grid) - 1, STEPS).astype(int))])
    cells = spread(*ends, STEPS)
    return np.unique(np.rint(cells)) if dimension.kind == "integer" else cells


def _positions(dimension: Dimension, codes: Floats) -> Floats:
    """Return where codes are drawn: ranges of powers on a logarithm."""
    return np.log(codes) if dimension.log else codes


def _typical(dimensions: Sequence[Dimension], codes: Floats) -> Floats:
    """The median code of each dimension, of choices without an order the most frequent, among the
    points where it exists; NaN where it exists nowhere."""
    typical = []
    for dimension, column in zip(dimensions, codes.T, strict=True):
        values, counts = np.unique(column[np.isfinite(column)], return_counts=True)
        if not len(values):
            typical.append(np.nan)
        elif dimension.kind in ("choice", "boolean"):
            typical.append(values[np.argmax(counts)])
        else:
            # That of a run: no mean of two, which lists and whole numbers may not have.
            typical.append(values[np.searchsorted(2 * np.cumsum(counts), counts.sum())])
    return np.array(typical)


def _ticks(axis: Any, dimension: Dimension, values: Floats) -> None:
    """Name the values of a list, and some of a range of powers."""
    if dimension.kind not in ("integer", "real"):
        shown = values if len(values) <= 12 else values[:: len(values) // 8]
        labels = [text_of(dimension.decode(float(value))) for value in shown]
        axis.set_ticks(_positions(dimension, shown), labels=labels)
    elif dimension.log:
        shown = np.geomspace(values[0], values[-1], 5)
        axis.set_ticks(np.log(shown), labels=[f"{value:.3g}" for value in shown])
