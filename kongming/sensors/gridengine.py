"""The load sensor of Grid Engine.

Shape: sge_execd(8), "Load sensors": each line of standard input asks for a report, ``quit`` ends
the sensor; a report is ``begin``, lines ``host:name:value`` without blanks, ``end``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kongming.sensors.node_figures import NodeFigures, attribute

__all__ = ["answers", "report"]


def answers(lines: Iterable[str], ask: Callable[[], str]) -> Iterator[str]:
    """``ask()`` for each line until ``quit`` or the end of the input."""
    for line in lines:
        if line.strip() == "quit":
            return
        yield ask()


def report(host: str, figures: NodeFigures | None) -> str:
    """Write a report of a host; an empty one without figures, as when the server is away: execd
    then drops the values of the last report, and a job that asks for them waits."""
    values: dict[str, float] = {}
    if figures is not None:
        known = {"kongming_slowdown": figures.slowdown, "kongming_lost": figures.lost_share}
        values |= {name: value for name, value in known.items() if value is not None}
        for app, (median, upper) in sorted(figures.apps.items()):
            # Jobs compare the value with their limit, which "at least" so much does not keep.
            if upper is not None:
                values[f"kongming_{attribute(app)}"] = median
    lines = (f"{host}:{name}:{value:.4f}" for name, value in values.items())
    return "\n".join(["begin", *lines, "end", ""])
