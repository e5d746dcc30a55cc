"""Say of a ranking which nodes it left out, and why. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kongming.quantities import count
from kongming.records.answers import OUT_OF_SERVICE

if TYPE_CHECKING:
    from kongming.records.answers import NodeReport, Ranking

_NAMED = 3
"""Nodes that are named for each reason."""

_NO_REFERENCE = "no idle reference, neither its own nor of a like node"
_NO_MODEL = "no compatible model"

REASONS = {
    "suspect": "it reported implausible values (kongming nodes says which)",
    "silent": "its agent reports no more",
    "no_fingerprint": "how loaded it is now was not measured yet (on it: kongming fingerprint, or "
    "an agent)",
    "stale": "its fingerprint is too old",
    "unpredictable": f"{_NO_REFERENCE}, or {_NO_MODEL}",
    "memory": "it has too little free memory",
    "slowdown_limit": "the application would be slowed by more than --slowdown-limit, or may be",
    "resident_slowdown_limit": "a program there would be slowed by more than "
    "--resident-slowdown-limit, or may be",
}
"""In words the reasons for which a node is left out."""


def left_out(ranking: Ranking, candidates: Sequence[NodeReport]) -> Iterator[str]:
    """Yield a line for each reason. Nodes are named where it is certain which they are: an answer
    counts them only, and ``candidates`` say the rest."""
    nodes = _by_reason(ranking, candidates)
    for reason, number in ranking.refused.items():
        named = nodes.get(reason, [])
        text = REASONS.get(reason, reason)
        if reason == "unpredictable" and named:
            without = {report.general_slowdown is None for report in named}
            text = text if len(without) > 1 else _NO_REFERENCE if without == {True} else _NO_MODEL
        names = [report.facts.name or report.facts.id[:12] for report in named]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        which = f" ({', '.join(names[:_NAMED])}{more})" if names else ""
        yield f"{count(number, 'node')} left out{which}: {text}"


def _by_reason(ranking: Ranking, candidates: Sequence[NodeReport]) -> dict[str, list[NodeReport]]:
    """The nodes of each reason, where they are as many as the ranking counts."""
    ranked = {node.node_id for node in ranking.nodes}
    ranked |= {node.node_id for chosen in ranking.sets for node in chosen.nodes}
    absent = [report for report in candidates if report.facts.id not in ranked]
    by_reason: dict[str, list[NodeReport]] = defaultdict(list)
    for report in absent:
        by_reason[_reason(report)].append(report)
    others = by_reason.pop("", [])
    missing = [
        reason for reason, number in ranking.refused.items() if number != len(by_reason[reason])
    ]
    # The one reason that nodes do not show themselves is that of all others, if none is only beyond
    # the limit of the answer.
    if len(missing) == 1 and len(absent) == sum(ranking.refused.values()):
        by_reason[missing[0]] += others
    return {
        reason: nodes
        for reason, nodes in by_reason.items()
        if len(nodes) == ranking.refused.get(reason)
    }


def _reason(report: NodeReport) -> str:
    """Return what a node shows itself, in the order in which a ranking looks at it; else empty."""
    if report.state in OUT_OF_SERVICE:
        return report.state
    if report.last_fingerprint_at is None:
        return "no_fingerprint"
    return "unpredictable" if report.general_slowdown is None else ""
