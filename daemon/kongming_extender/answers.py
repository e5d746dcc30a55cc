"""The last answer to filter for each pod, with the numbers that the scheduler does not get."""

from __future__ import annotations

import math
import statistics
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kongming_scheduling.async_client import ResidentSlowdown
from kongming_scheduling.ranking_cache import NodeScore

from kongming.records import moments
from kongming_extender.pods import SHOWN_CHARACTERS, Pod
from kongming_extender.policy import Refusal, Resident, priorities, reason

MAX_ROWS = 200_000
"""Nodes in all answers that are kept, the oldest are dropped first: 40 pods at 5,000 nodes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``scores`` are by name of each node of the question, None where nothing is known of it.
    ``residents`` are the pods for whose sake nodes are refused, and their slowdowns. ``unchecked``
    are nodes that pass although pods there might be slowed beyond their limits. ``judged`` is
    whether ``pod``'s own slowdown is predicted; ``failure`` is why nothing is known of any node."""

    pod: Pod
    scores: Mapping[str, NodeScore | None]
    refused: Mapping[str, Refusal]
    residents: Mapping[str, tuple[Resident, ResidentSlowdown]]
    judged: bool
    failure: str = ""
    unchecked: Sequence[str] = ()
    answered_at: float = field(default_factory=time.time)

    def document(self, steep: float) -> dict[str, Any]:
        """Return a document for JSON: known nodes first, by slowdown. ``steep`` is that of
        ``priorities``, by which the score follows from the answer."""
        demand = self.pod.demand
        passing = [name for name in self.scores if name not in self.refused]
        known = {name: score for name, score in self.scores.items() if score is not None}
        priority = dict(zip(passing, priorities(passing, known, steep), strict=True))
        rows = sorted(
            self.scores.items(),
            key=lambda row: math.inf if row[1] is None else row[1].slowdown,
        )
        return {
            "schema": 1,
            "pod": self.pod.full_name,
            "uid": self.pod.uid,
            "app": demand.app,
            "limit": demand.limit or None,
            "judged": self.judged,
            "failure": self.failure,
            "answered_at": moments.format(self.answered_at),
            "nodes": [
                self._row(name, score) | {"score": priority.get(name)} for name, score in rows
            ],
        }

    def summary(self) -> str:
        """One line for a log."""
        demand = self.pod.demand
        kinds = list(self.refused.values())
        parts = [
            f"{kinds.count(kind)} {meaning}"
            for kind, meaning in (
                ("limit", "too slow for it"),
                ("resident", "for the limits of pods there"),
                ("unknown", "of which too little is known"),
            )
            if kind in kinds
        ]
        limit = f", limit {demand.limit:g}" if demand.limit else ""
        slowdowns = [score.slowdown for score in self.scores.values() if score is not None]
        numbers = ""
        if self.judged and slowdowns:
            numbers = (
                f" Slowdowns: {min(slowdowns):.2f} to {max(slowdowns):.2f}, median "
                f"{statistics.median(slowdowns):.2f}."
            )
        failure = f" {self.failure}." if self.failure else ""
        return (
            f"Pod {self.pod.full_name} ({demand.app[:SHOWN_CHARACTERS]}{limit}): "
            f"{len(kinds)} of {len(self.scores)} nodes are refused: {', '.join(parts)}."
            f"{numbers}{failure}"
        )

    def _row(self, name: str, score: NodeScore | None) -> dict[str, Any]:
        refusal = self.refused.get(name)
        demand = self.pod.demand
        row: dict[str, Any] = {
            "node": name,
            "slowdown": None if score is None or not self.judged else score.slowdown,
            "at_least": score is not None and self.judged and score.at_least,
            "extrapolating": score is not None and score.extrapolating,
            "refused": refusal,
            "reason": refusal and reason(refusal, demand.app, demand.limit),
        }
        if name in self.residents:
            resident, slowdown = self.residents[name]
            row["resident"] = {
                "pod": resident.full_name,
                "app": resident.app,
                "slowdown": slowdown.median,
                "at_least": slowdown.at_least,
                "limit": resident.limit,
            }
        return row


class LastAnswers:
    """Answers by pod; never more than ``MAX_ROWS`` nodes in all, and always the newest answer."""

    def __init__(self) -> None:
        self._by_uid: OrderedDict[str, Answer] = OrderedDict()
        self._rows = 0

    def put(self, answer: Answer) -> None:
        self._drop(answer.pod.uid)
        self._by_uid[answer.pod.uid] = answer
        self._rows += len(answer.scores)
        while self._rows > MAX_ROWS and len(self._by_uid) > 1:
            self._drop(next(iter(self._by_uid)))

    def get(self, pod: str) -> Answer | None:
        """The newest answer for a pod by ``NAMESPACE/NAME``, or by its UID."""
        if pod in self._by_uid:
            return self._by_uid[pod]
        newest_first = reversed(self._by_uid.values())
        return next((answer for answer in newest_first if answer.pod.full_name == pod), None)

    def _drop(self, uid: str) -> None:
        answer = self._by_uid.pop(uid, None)
        if answer is not None:
            self._rows -= len(answer.scores)
