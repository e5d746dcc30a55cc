"""Share of cases within an error, by model: the paper's Figures 1 and 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kongming.evaluate.cases import Floats
from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.evaluate.trivial import AWAKE, TRIVIAL
from kongming.learning.registry import AUTO, KINDS, STACK
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)))
_TRIVIAL_DASHES = (
    *((0, (6, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2))),
    *((0, (3, 3)), (0, (6, 2, 1, 2, 1, 2)), (0, (10, 3))),
)

MOST_CURVES = 14
"""More could not be distinguished, and their names would leave no room for them."""

LEAST_PCT = 0.1
"""Left end of the axis: errors below are drawn there."""


def error_cdf(
    document: Mapping[str, Any], folder: Path, *, name: str = "error-cdf"
) -> tuple[Path, ...]:
    """Curves over all pairs (or runs) of an evaluation's document, best median first.

    Of more than ``MOST_CURVES`` models those are drawn that people compare: ``auto``, the trivial
    predictors, the paper's models and other predictors; then the best of ours.
    Synthetic environments are drawn only where there are no others.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    block, what, cases = document, "ordered pairs", document.get("pairs", ())
    if document["kind"] == "nodes":
        what = "runs"
        cases = [run for run in document["scored_runs"] if not run["synthetic"]]
        if not cases:
            what, cases = "runs in synthetic environments", document["scored_runs"]
            block = document["synthetic"]
    errors = _errors_by_model(cases)
    floor = block["noise_floor_pct"]["geomean"]
    drawn = _compared(errors)
    title = "median error"
    if len(drawn) < len(errors):
        title += f"\n({len(drawn)} of {len(errors)} models)"
    return themes.write(lambda theme: _draw(theme, drawn, what, floor, title), folder, name)


def _compared(errors: Mapping[str, Floats]) -> dict[str, Floats]:
    """The models to draw, in the order given."""

    def rank(model: str) -> int:
        if model == AUTO or model in (*TRIVIAL, AWAKE):
            return 0
        ours = model == STACK or model in KINDS
        return 1 if not ours or (model in KINDS and KINDS[model].paper) else 2

    # Sorting is stable: within a rank the best come first.
    chosen = set(sorted(errors, key=rank)[:MOST_CURVES])
    return {model: values for model, values in errors.items() if model in chosen}


def _errors_by_model(cases: Sequence[Mapping[str, Any]]) -> dict[str, Floats]:
    """Sorted errors in per cent of each model, those with the least median first."""
    by_model: dict[str, list[float]] = {}
    for case in cases:
        for model, prediction in case["predictions"].items():
            by_model.setdefault(model, []).append(prediction["error_pct"])
    errors = {model: np.sort(np.array(values)) for model, values in by_model.items()}
    return dict(sorted(errors.items(), key=lambda item: float(np.median(item[1]))))


def _draw(
    theme: Theme, errors: Mapping[str, Floats], what: str, floor: float | None, title: str
) -> Figure:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure = themes.new_figure(8.4, 4.6)
    axes = figure.add_subplot()
    worst = max(float(values[-1]) for values in errors.values())
    right = max(1.15 * worst, 10.0)
    styles = _styles(theme, errors)
    for model, values in errors.items():
        n = len(values)
        x = np.concatenate([[LEAST_PCT], np.maximum(values, LEAST_PCT), [right]])
        y = 100.0 * np.concatenate([[0.0], np.arange(1, n + 1) / n, [1.0]])
        label = f"{model}  {per_cent(np.median(values))}"
        axes.plot(x, y, drawstyle="steps-post", label=label, **styles[model])
    if floor is not None and floor > LEAST_PCT:
        axes.axvline(floor, color=theme.faint, linewidth=1.0, zorder=1)
        axes.annotate(
            f"noise floor {per_cent(floor)}",
            (floor, 100.0),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            color=theme.faint,
        )
    if AUTO in errors:
        _name_curve(axes, theme, AUTO, errors[AUTO])
    axes.axhline(50.0, color=theme.grid, linewidth=1.0, zorder=1)
    axes.set_xscale("log")
    axes.set_xlim(LEAST_PCT, right)
    axes.set_ylim(0.0, 100.0)
    axes.xaxis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0), numticks=40))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True)
    axes.set_xlabel("error, |predicted - measured| / measured (%)")
    axes.set_ylabel(f"share of {what} (%)")
    legend = axes.legend(
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        title=title,
        handlelength=2.6,
        labelspacing=0.55,
        alignment="left",
    )
    for text in legend.get_texts():
        if text.get_text().startswith(f"{AUTO} "):
            text.set_fontweight("bold")
    return figure


def _name_curve(axes: Axes, theme: Theme, model: str, values: Floats) -> None:
    """The name next to the curve, left of where it has most of its height behind it; right of it
    where there is no room."""
    from matplotlib.patheffects import withStroke

    x = max(float(np.quantile(values, 0.86)), LEAST_PCT)
    left = x > 3.0 * LEAST_PCT
    text = axes.annotate(
        model,
        (x, 86.0),
        xytext=(-9 if left else 9, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontweight="bold",
        zorder=5,
    )
    text.set_path_effects([withStroke(linewidth=3.0, foreground=theme.page)])


def _styles(theme: Theme, errors: Mapping[str, Floats]) -> dict[str, dict[str, Any]]:
    """``auto`` in ink, the trivial predictors in grey dashes, the others in colour.

    A variant, as LM.GA of LM, has the colour of what it is a variant of, and other dashes.
    """
    styles: dict[str, dict[str, Any]] = {}
    for k, model in enumerate((*TRIVIAL, AWAKE)):
        styles[model] = {
            "color": theme.faint,
            "linestyle": _TRIVIAL_DASHES[k],
            "linewidth": 1.4,
            "zorder": 2,
        }
    styles[AUTO] = {"color": theme.ink, "linestyle": "-", "linewidth": 2.6, "zorder": 4}
    others = sorted(model for model in errors if model not in styles)
    bases = list(dict.fromkeys(model.partition(".")[0] for model in others))
    worn: dict[int, int] = {}
    for model in others:
        colour = bases.index(model.partition(".")[0]) % len(theme.lines)
        dashes = worn.get(colour, 0)
        worn[colour] = dashes + 1
        styles[model] = {
            "color": theme.lines[colour],
            "linestyle": _DASHES[dashes % len(_DASHES)],
            "linewidth": 1.6,
            "zorder": 3,
        }
    return styles
