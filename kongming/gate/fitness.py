"""Judge whether a machine is fit to see an effect, and which of two programs is slower, from what
was measured on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kongming.gate.comparison import Comparison, Verdict, compare_turns
from kongming.gate.disturbance import (
    Reason,
    Times,
    from_fingerprint,
    from_signals,
    over_turns,
    usual,
)
from kongming.gate.noise import (
    CONFIDENCE,
    LEAST_RUNS,
    Goal,
    Noise,
    noise,
    repetitions,
    repetitions_at_most,
    smallest_effect,
)
from kongming.gate.signals import Signals
from kongming.quantities import count, format_percent, format_seconds, per_cent

SCHEMA = 1
MOST = 100
"""Repetitions of each program beyond which an effect is taken to be out of reach."""

CLOCK_LIMIT = 0.05
"""Share by which the processor's clock may vary, or the effect if that is more."""


BY_LUCK = "memory.random."
"""Surrogates whose cost depends on the pages that their process happens to get, by 5 % and more on
a quiet machine: they show neighbours, and say nothing of how well a program repeats."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: the signals over all of it, the quick fingerprint's times at its beginning, and the
    seconds of the command's run after that, and of the baseline's."""

    signals: Signals
    times: Times
    run_s: float | None = None
    baseline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject that was repeated, a surrogate or the command, with the repetitions that its noise
    asks for: of the estimated noise, and those that may be needed (``repetitions_at_most``). Of two
    programs it is the ratio of their times in a turn, and ``typical_s`` is None."""

    name: str
    noise: Noise
    typical_s: float | None
    repetitions: int
    repetitions_at_most: int
    smallest_effect: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "runs": self.noise.runs,
            "median_s": self.typical_s,
            "noise": self.noise.estimate,
            "noise_at_most": self.noise.upper,
            "repetitions": self.repetitions,
            "repetitions_at_most": self.repetitions_at_most,
            "smallest_effect": self.smallest_effect,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """``reasons`` say why it is not fit; there are none where it is. ``comparison`` is that of two
    programs, None where none were measured or the machine is not fit."""

    goal: Goal
    most: int
    subjects: tuple[Subject, ...]
    reasons: tuple[Reason, ...]
    signals: Signals | None = None
    turns: int = 0
    comparison: Comparison | None = None

    @property
    def verdict(self) -> Verdict:
        """Compare two programs; a disturbed comparison has no verdict."""
        return "cannot tell" if self.comparison is None else self.comparison.verdict

    @property
    def fit(self) -> bool:
        return not self.reasons

    @property
    def repetitions(self) -> int | None:
        """The repetitions to make, of the subject that needs the most; None without any."""
        return max((subject.repetitions_at_most for subject in self.subjects), default=None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "fit": self.fit,
            "effect": self.goal.effect,
            "false_positives": self.goal.false_positives,
            "power": self.goal.power,
            "noise_confidence": CONFIDENCE,
            "repetitions": self.repetitions,
            "most_repetitions": self.most,
            "turns": self.turns,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "subjects": [subject.to_dict() for subject in self.subjects],
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
            "signals": None if self.signals is None else self.signals.to_dict(),
        }


def decide(
    turns: Sequence[Turn], overall: Signals, goal: Goal, *, most: int = MOST, command: bool = False
) -> Answer:
    """Judge ``turns``, and the signals over all of them. With ``command`` its runs are what has to
    repeat well, otherwise each surrogate but those of ``BY_LUCK``. Where turns have a run of a
    baseline too, the programs are compared, and what their noise asks for is in that verdict."""
    times: dict[str, list[float]] = {}
    for turn in turns:
        values: Mapping[str, float | None] = {"command": turn.run_s} if command else turn.times
        for name, seconds in values.items():
            if seconds is not None and not name.startswith(BY_LUCK):
                times.setdefault(name, []).append(seconds)
    # A surrogate that failed in some turns says too little of the noise.
    subjects = tuple(
        _subject(name, each, goal, most) for name, each in times.items() if len(each) >= LEAST_RUNS
    )
    like = usual(turn.times for turn in turns)
    seen = [
        (
            turn.signals.since,
            [*from_signals(turn.signals, goal.effect), *from_fingerprint(turn.times, like)],
        )
        for turn in turns
    ]
    reasons = over_turns(seen, from_signals(overall, goal.effect))
    reasons += _clock(turns, goal)
    if not subjects:
        text = f"Nothing could be timed in {LEAST_RUNS} turns, so the noise is not known."
        reasons.append(Reason("noise", text))
    pairs = [(turn.baseline_s, turn.run_s) for turn in turns if turn.baseline_s and turn.run_s]
    if not pairs:
        reasons += [reason for subject in subjects for reason in _noisy(subject, goal, most)]
        return Answer(goal, most, subjects, tuple(reasons), overall, len(turns))
    subject = _pair([after / before for before, after in pairs], goal, most)
    before, after = zip(*pairs, strict=True)
    comparison = None if reasons else compare_turns(before, after, goal)
    return Answer(goal, most, (subject,), tuple(reasons), overall, len(turns), comparison)


def _subject(name: str, times: Sequence[float], goal: Goal, most: int) -> Subject:
    measured = noise(times)
    return Subject(
        name=name,
        noise=measured,
        typical_s=sorted(times)[len(times) // 2],
        repetitions=repetitions(measured.estimate, goal),
        repetitions_at_most=repetitions_at_most(times, goal),
        smallest_effect=smallest_effect(measured.upper, most, goal),
    )


def _pair(ratios: Sequence[float], goal: Goal, most: int) -> Subject:
    measured = noise(ratios)
    return Subject(
        name="command / baseline",
        noise=measured,
        typical_s=None,
        repetitions=repetitions(measured.estimate, goal, samples=1),
        repetitions_at_most=repetitions(measured.upper, goal, samples=1),
        smallest_effect=smallest_effect(measured.upper, most, goal, samples=1),
    )


def _clock(turns: Sequence[Turn], goal: Goal) -> list[Reason]:
    clocks = [(turn.signals.hz, turn.signals.since) for turn in turns if turn.signals.hz]
    if not clocks:
        return []
    (slowest, since), (fastest, _) = min(clocks), max(clocks)
    if not slowest or not fastest or slowest > fastest * (1.0 - max(goal.effect, CLOCK_LIMIT)):
        return []
    text = (
        f"The clock of the processor varied from {slowest / 1e9:.2f} to {fastest / 1e9:.2f} GHz; "
        "the governor 'performance' keeps it."
    )
    return [Reason("clock", text, since)]


def _noisy(subject: Subject, goal: Goal, most: int) -> list[Reason]:
    if subject.repetitions_at_most <= most:
        return []
    typical = "" if subject.typical_s is None else f" ({format_seconds(subject.typical_s)})"
    name = f"{subject.name}{typical}"
    reach = format_percent(subject.smallest_effect)
    if subject.repetitions > most:
        needed = " to ".join(
            map(str, dict.fromkeys((subject.repetitions, subject.repetitions_at_most)))
        )
        text = (
            f"{name} varies by {format_percent(subject.noise.estimate)} from run to run: to see "
            f"{per_cent(100.0 * goal.effect, '.3g')} takes {needed} repetitions of each program, "
            f"more than {most}. With {most}, {reach} can be seen."
        )
    else:
        text = (
            f"{name}: after {count(subject.noise.runs, 'run')} its noise is not known well enough. "
            f"Probably {subject.repetitions} repetitions of each program are enough, but it may "
            f"take {subject.repetitions_at_most}, more than {most}. Measure for longer."
        )
    return [Reason("noise", text)]
