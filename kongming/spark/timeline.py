"""A timeline of one run: groups, and below them which stages held how many slots.

matplotlib is imported on use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kongming.arrays import Floats
from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.spark.application import Application
from kongming.spark.model.driver import job_end, measured_s
from kongming.spark.model.executors import executor_slots
from kongming.spark.model.groups import in_order, job_groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOMENTS = 800
_MOST_LANES = 12


def draw(path: Path, application: Application) -> None:
    """Write an SVG or PNG, by the suffix of ``path``.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    themes.write_one(lambda theme: _figure(theme, application), path)


def busy_slots(tasks: np.ndarray, edges: Floats) -> Floats:
    """Mean number of tasks (TASK) that ran between each two of ``edges`` (n + 1,): (n,)."""
    ran = _elapsed(tasks["launch_s"], edges) - _elapsed(tasks["finish_s"], edges)
    busy: Floats = np.maximum(np.diff(ran) / np.diff(edges), 0.0)
    return busy


def _elapsed(moments: Floats, at: Floats) -> Floats:
    """Sum of the seconds that have passed since each of ``moments``, for each of ``at``."""
    ordered = np.sort(moments)
    before = np.searchsorted(ordered, at)
    elapsed: Floats = before * at - np.concatenate([[0.0], np.cumsum(ordered)])[before]
    return elapsed


def _figure(theme: Theme, application: Application) -> Figure:
    figure = themes.new_figure(9.0, 5.0)
    figure.suptitle(
        application.name or application.id, x=0.01, ha="left", fontweight="bold", parse_math=False
    )
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    _draw_groups(upper, theme, application)
    _draw_slots(lower, theme, application)
    lower.set_xlabel("seconds since the start")
    lower.set_xlim(0.0, max(measured_s(application), 1e-3))
    return figure


def _draw_groups(axes: Axes, theme: Theme, application: Application) -> None:
    jobs = in_order(application)
    free: list[float] = []
    for place, group in enumerate(job_groups(jobs)):
        own = [jobs[at] for at in group.jobs]
        begin = min(job.submitted_s for job in own)
        end = max(job_end(job, application) for job in own)
        lane = next((k for k, moment in enumerate(free) if moment <= begin), len(free))
        free[lane : lane + 1] = [end]
        if lane < _MOST_LANES:
            colour = theme.lines[place % 2]
            axes.barh(lane, end - begin, left=begin, height=0.8, color=colour, linewidth=0)
    axes.set_ylim(min(len(free), _MOST_LANES) - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_ylabel("groups of jobs")


def _draw_slots(axes: Axes, theme: Theme, application: Application) -> None:
    end = max(measured_s(application), 1e-3)
    edges = np.linspace(0.0, end, _MOMENTS + 1)
    stages = [stage for stage in application.stages if len(stage.tasks)]
    spent = [float((stage.tasks["finish_s"] - stage.tasks["launch_s"]).sum()) for stage in stages]
    named = set(np.argsort(spent)[::-1][: len(theme.lines)].tolist())
    curves: list[Floats] = []
    labels, colours = [], []
    others = np.zeros(_MOMENTS)
    for place, stage in enumerate(stages):
        curve = busy_slots(stage.tasks, edges)
        if place in named:
            colours.append(theme.lines[len(curves) % len(theme.lines)])
            curves.append(curve)
            labels.append(f"stage {stage.stage}")
        else:
            others += curve
    if len(stages) > len(named):
        curves.append(others)
        labels.append("other stages")
        colours.append(theme.faint)
    if curves:
        axes.stackplot(edges[:-1], curves, labels=labels, colors=colours, linewidth=0)
    moments, slots = _registered(application, end)
    axes.step(moments, slots, where="post", color=theme.ink, linewidth=1.0, label="slots")
    axes.set_ylabel("busy slots")
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.2))


def _registered(application: Application, end: float) -> tuple[list[float], list[int]]:
    """Slots of the executors that were registered, from each moment on."""
    changes = [(0.0, 0)]
    for executor, slots in zip(application.executors, executor_slots(application), strict=True):
        changes.append((executor.added_s, slots))
        changes.append((end if executor.removed_s is None else executor.removed_s, -slots))
    changes.sort()
    moments: list[float] = []
    there: list[int] = []
    for moment, change in changes:
        moments.append(min(moment, end))
        there.append((there[-1] if there else 0) + change)
    return moments, there
