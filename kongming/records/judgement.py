"""The verdict on a profile with its reasons: codes and figures for programs, and in words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Verdict = Literal["good", "usable", "spoiled"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

NOT_JUDGED = "not-judged"
"""What is shown in the place of a verdict where there is none: the model is of an earlier
version."""

ReasonCode = Literal[
    "no-solo-run",
    "solo-spread",
    "solo-shift",
    "unfelt-loads",
    "measured-together",
    "slowed-by-others",
    "evicted-files",
    "few-solo-runs",
    "failed-runs",
]
"""no-solo-run: no run alone succeeded. solo-spread: how far runs alone differ within a
campaign. solo-shift: how far they differ between campaigns. unfelt-loads: loads on the same core
that must slow the program and did not. measured-together: something else was measured on its CPUs.
slowed-by-others: the negative control read slow. evicted-files: runs read from the device what was
in the page cache otherwise. few-solo-runs, failed-runs: by their number."""


_MOST_RUNS = (1 << 31) - 1
_MOST_REASONS, _MOST_FIGURES, _LONGEST_NAME, _LONGEST_UNIT = 64, 64, 128, 128
"""What the fields of the message hold: each answer of a server has the verdict in it."""

_MOST_LOADS_TEXT = 1 << 18
"""Characters of all loads of a verdict together: those of thousands."""

_LARGEST_FIGURE = 1e15
"""Above it a figure is no number of runs, no share and no ratio, and has no end in words."""

_OF_ANY_SIZE = frozenset({"shortest", "longest"})
"""Figures in the unit of the metric."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a verdict, and the verdict that it alone would give.

    ``code`` is a ``ReasonCode``. The ``figures`` of each, in brackets those that may be missing:

    ================= ========================================================================
    solo-spread       of the campaign in which they differ most: ``ratio`` (longest over shortest,
                      without the outliers of many), ``runs``, ``shortest`` and ``longest`` in the
                      unit of the metric, [``stolen_share``: greatest share of the time taken by
                      the host], [``waiting_share``: greatest share with tasks that waited for a
                      CPU], [``felt``: loads that must be felt and were], [``campaigns``: how many
                      there are, if several]
    solo-shift        ``ratio`` of the medians of ``campaigns``, ``runs`` alone in all of them,
                      ``shortest`` and ``longest`` median in the unit of the metric
    unfelt-loads      ``runs`` under loads that slowed nothing, ``of`` all that must be felt
    measured-together ``runs``
    slowed-by-others  ``runs``, ``of`` all
    evicted-files     ``runs``, ``of`` all
    few-solo-runs     ``runs``
    failed-runs       ``runs``, ``of`` all
    ================= ========================================================================

    ``loads`` names those of unfelt-loads. A code that is not listed is of a newer version.
    """

    code: str
    verdict: Verdict
    figures: Mapping[str, float] = field(default_factory=dict)
    loads: tuple[str, ...] = ()

    def in_words(self, metric_unit: str) -> str:
        """Return a clause without a period; the code itself where it is of a newer version."""
        if self.code not in _IN_WORDS or not set(_NEEDED[self.code]) <= self.figures.keys():
            return self.code
        return _IN_WORDS[self.code](self, metric_unit)

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "verdict": self.verdict,
            "figures": dict(self.figures),
            "loads": list(self.loads),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Reason:
        """Read ``to_dict``. Raises ValueError or KeyError for what is none."""
        code, verdict = document["code"], document["verdict"]
        if code not in _IN_WORDS or verdict not in VERDICTS:
            raise ValueError("reasons")
        figures = {
            _text(name, _LONGEST_NAME): _figure(name, value)
            for name, value in document["figures"].items()
        }
        if not set(_NEEDED[code]) <= figures.keys() or len(figures) > _MOST_FIGURES:
            raise ValueError("figures")
        loads = document["loads"]
        if not isinstance(loads, list) or len(loads) > _MOST_LOADS_TEXT:
            raise ValueError("loads")
        return cls(code, verdict, figures, tuple(_text(load, _MOST_LOADS_TEXT) for load in loads))


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one profile, with at least one reason.

    ``left_out_runs`` is how many runs the controls leave out of training; ``metric_unit``
    the unit of those figures that are of the application's metric.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    left_out_runs: int = 0
    metric_unit: str = "s"

    def __str__(self) -> str:
        clauses = [reason.in_words(self.metric_unit) for reason in self.reasons]
        if self.left_out_runs:
            single = self.left_out_runs == 1
            runs = "1 run is" if single else f"{self.left_out_runs} runs are"
            they = "it was" if single else "they were"
            clauses.append(f"{runs} left out of training, as {they} disturbed")
        return f"{self.verdict}: {'; '.join(clauses)}."

    def advice(self, app: str) -> str | None:
        """Return what to do about it, as the profile of ``app``, in a sentence; None for a good
        one."""
        if self.verdict == "good":
            return None
        if any(reason.code == "no-solo-run" for reason in self.reasons):
            return "See why ('kongming runs --failed'), then profile it again."
        if all(reason.code == "solo-shift" for reason in self.reasons):
            # A further campaign would not make the earlier ones alike.
            return "Its slowdowns hold; compare its predicted times with a run alone of today."
        return measure_again([app])

    def remark(self, app: str) -> str | None:
        """Return the warning that goes with what is predicted from the profile of ``app``; None for
        a good one."""
        if self.verdict == "good":
            return None
        return f"The profile of {app} is {self} {self.advice(app)}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "left_out_runs": self.left_out_runs,
            "metric_unit": self.metric_unit,
        }

    def described(self, app: str) -> dict[str, Any]:
        """Return ``to_dict`` with the words for people: ``text`` and ``advice``."""
        return {**self.to_dict(), "text": str(self), "advice": self.advice(app)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Judgement:
        """Read ``to_dict``. Raises ValueError or KeyError for what is none."""
        verdict, left_out = document["verdict"], document["left_out_runs"]
        listed = document["reasons"]
        if not isinstance(listed, list) or not 0 < len(listed) <= _MOST_REASONS:
            raise ValueError("reasons")
        reasons = tuple(Reason.from_dict(reason) for reason in listed)
        if verdict not in VERDICTS or verdict != max(
            (reason.verdict for reason in reasons), key=VERDICTS.index
        ):
            raise ValueError("verdict")
        if sum(len(load) + 1 for reason in reasons for load in reason.loads) > _MOST_LOADS_TEXT:
            raise ValueError("loads")
        if isinstance(left_out, bool) or not isinstance(left_out, int):
            raise ValueError("left_out_runs")
        if not 0 <= left_out <= _MOST_RUNS:
            raise ValueError("left_out_runs")
        return cls(verdict, reasons, left_out, _text(document["metric_unit"], _LONGEST_UNIT))


def _text(value: object, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError(f"a text of more than {longest} characters, or none")
    return value


def _figure(name: str, value: object) -> float:
    """A count, a share, a ratio or a value of the metric: none of them is below 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(name)
    most = sys.float_info.max if name in _OF_ANY_SIZE else _LARGEST_FIGURE
    if not 0.0 <= value <= most:
        raise ValueError(name)
    return float(value)


def measure_again(apps: Iterable[str]) -> str:
    """Return what to do about disturbed profiles of these applications: a sentence, a command."""
    chosen = " ".join(f"--app {app}" for app in apps)
    return (
        "See what else runs on this machine, and measure again at a quieter time, or at another "
        f"--placement: kongming profile APPS.toml {chosen} --again"
    )


def _no_solo_run(reason: Reason, unit: str) -> str:
    return "no run alone succeeded"


def _solo_spread(reason: Reason, unit: str) -> str:
    figures = reason.figures
    if reason.verdict == "good":
        felt = int(figures.get("felt", 0))
        and_felt = f", and {felt} loads that must be felt were" if felt else ""
        runs = f"{figures['runs']:.0f} runs alone{_of_campaigns(figures)}"
        return f"{runs} are within {figures['ratio']:.2f} times{and_felt}"
    extent = f"{figures['shortest']:.3g} to {figures['longest']:.3g} {unit}"
    if "stolen_share" in figures:
        taken = f"{100 * figures['stolen_share']:.0f} %"
        cause = f", while the host took up to {taken} of the CPU time"
    elif "waiting_share" in figures:
        waited = f"{100 * figures['waiting_share']:.0f} %"
        cause = f", while tasks waited for a CPU up to {waited} of the time"
    else:
        cause = ""
    runs = "its runs alone"
    if "campaigns" in figures:
        runs = f"{figures['runs']:.0f} runs alone{_of_campaigns(figures)}"
    return f"{runs} differ by {figures['ratio']:.2f} times ({extent}){cause}"


def _of_campaigns(figures: Mapping[str, float]) -> str:
    if "campaigns" not in figures:
        return ""
    return f" of the campaign, of {figures['campaigns']:.0f}, in which they differ most"


def _solo_shift(reason: Reason, unit: str) -> str:
    figures = reason.figures
    return (
        f"its {figures['runs']:.0f} runs alone are of {figures['campaigns']:.0f} campaigns whose "
        f"medians differ by {figures['ratio']:.2f} times ({figures['shortest']:.3g} to "
        f"{figures['longest']:.3g} {unit}), so that the time alone may be that of none of them"
    )


def _unfelt_loads(reason: Reason, unit: str) -> str:
    names = reason.loads
    named = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"{_of(reason)} loads on the same core that must be felt slowed nothing"
        f"{f' ({named})' if names else ''}"
    )


def _measured_together(reason: Reason, unit: str) -> str:
    runs = round(reason.figures["runs"])
    return f"something else was measured on its CPUs during {runs} run{'' if runs == 1 else 's'}"


def _slowed_by_others(reason: Reason, unit: str) -> str:
    return f"somebody else slowed the processor during {_of(reason)} runs"


def _evicted_files(reason: Reason, unit: str) -> str:
    return f"its files had left the page cache before {_of(reason)} runs"


def _few_solo_runs(reason: Reason, unit: str) -> str:
    runs = int(reason.figures["runs"])
    return f"it ran alone only {({1: 'once', 2: 'twice'}).get(runs, f'{runs} times')}"


def _failed_runs(reason: Reason, unit: str) -> str:
    return f"{_of(reason)} runs failed"


def _of(reason: Reason) -> str:
    return f"{reason.figures['runs']:.0f} of {reason.figures['of']:.0f}"


_IN_WORDS: Mapping[str, Callable[[Reason, str], str]] = {
    "no-solo-run": _no_solo_run,
    "solo-spread": _solo_spread,
    "solo-shift": _solo_shift,
    "unfelt-loads": _unfelt_loads,
    "measured-together": _measured_together,
    "slowed-by-others": _slowed_by_others,
    "evicted-files": _evicted_files,
    "few-solo-runs": _few_solo_runs,
    "failed-runs": _failed_runs,
}

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "no-solo-run": (),
    "solo-spread": ("ratio", "runs", "shortest", "longest"),
    "solo-shift": ("ratio", "campaigns", "runs", "shortest", "longest"),
    "unfelt-loads": ("runs", "of"),
    "measured-together": ("runs",),
    "slowed-by-others": ("runs", "of"),
    "evicted-files": ("runs", "of"),
    "few-solo-runs": ("runs",),
    "failed-runs": ("runs", "of"),
}
"""Figures without which a reason cannot be put in words."""
