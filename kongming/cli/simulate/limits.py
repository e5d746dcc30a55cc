"""``kongming simulate --limits``: a queue with backfill under several kinds of time limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from kongming.simulate.limits import LimitedJobs

PROCESSORS, SEEDS = 200, 10
"""The machine and the number of traces, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A trace, or the parameters of generated ones; None for what was not given."""

    trace: Path | None
    synthetic: str | None
    jobs: int
    load: float
    zipf: float
    burst: float
    processors: int | None
    seeds: int | None
    seed: int

    def traces(self) -> list[LimitedJobs]:
        """Raises InputError."""
        from kongming.records.errors import InputError
        from kongming.simulate.limits import Generated, read_jobs, read_swf

        capacity = self.processors or PROCESSORS
        if self.trace is None:
            arrivals = self.synthetic or "poisson"
            return [
                Generated(
                    arrivals, self.jobs, self.load, capacity, self.zipf, self.burst, seed=seed
                ).generate()
                for seed in range(self.seed, self.seed + (self.seeds or SEEDS))
            ]
        if self.seeds is not None:
            raise InputError("is an option of generated jobs.", field="--seeds")
        if self.trace.suffix.lower() == ".swf":
            return [read_swf(self.trace, self.processors)]
        return [read_jobs(self.trace, capacity)]


def study(limits: str, queue: Queue, out: Path | None, *, as_json: bool) -> None:
    """Simulate, and print the figures of each kind of limits."""
    from kongming.records.errors import UnknownNameError
    from kongming.simulate.limits import LIMITS, documented

    names = tuple(dict.fromkeys(name.strip() for name in limits.split(",") if name.strip()))
    names = LIMITS if names in ((), ("all",)) else names
    for name in names:
        if name not in LIMITS:
            raise UnknownNameError("kind of limits", name, (*LIMITS, "all"))
    traces = queue.traces()
    with output.progress("simulating", float(len(traces[0]))) as bar:
        figures = documented(
            traces, names, lambda text, arrived: bar.update(float(arrived), text=text)
        )
    document = {"kind": "limits", "trace": _trace(traces)} | figures
    if out is not None:
        from kongming.files.atomic_file import replace_text

        text = json.dumps(document, indent=2, allow_nan=False)
        replace_text(out, f"{text}\n", field="--out")
    if as_json:
        output.emit_json(document)
        return
    _show(document)


def _trace(traces: list[LimitedJobs]) -> dict[str, Any]:
    first = traces[0]
    span = float(first.arrival_s[-1] - first.arrival_s[0])
    return {
        "source": first.source,
        "traces": len(traces),
        "jobs": len(first),
        "skipped": first.skipped,
        "processors": first.capacity,
        "span_s": span,
        "offered_load": first.work_s / (span * first.capacity) if span > 0.0 else None,
    }


def _show(document: Mapping[str, Any]) -> None:
    console, trace = output.console(), document["trace"]
    several = f" and {trace['traces'] - 1} more seeds" if trace["traces"] > 1 else ""
    skipped = f"; {trace['skipped']} jobs could not be used" if trace["skipped"] else ""
    console.print(
        f"{trace['jobs']} jobs ({trace['source']}{several}) on {trace['processors']} processors, "
        f"first come, first served with EASY backfill{skipped}",
        markup=False,
    )
    columns = (
        *("limits", "waiting", "x user", "p95", "wide x user", "used", "useful", "killed"),
        *("by prediction", "lost", "backfilled"),
    )
    rows: list[list[object]] = []
    for name, own in document["limits"].items():
        rows.append(
            [
                name,
                output.format_duration(own["wait_mean_s"]["mean"]),
                _ratio(own.get("wait_over_user")),
                output.format_duration(own["wait_p95_s"]["mean"]),
                _ratio(own.get("wide_wait_over_user")),
                *(
                    None if own[key]["mean"] is None else per_cent(100.0 * own[key]["mean"])
                    for key in (
                        *("utilisation", "useful", "killed_share", "ended_early_share"),
                        *("lost_share", "backfilled_share"),
                    )
                ),
            ]
        )
    minor = ("backfilled", "lost", "p95", "by prediction", "useful", "used", "wide x user")
    console.print(output.table(columns, rows, minor=minor))
    console.print(
        "x user: mean waiting over that with users' limits, with a 95 % interval over seeds; wide "
        "x user: of the tenth of the jobs that takes the most processors. Useful: used, and not "
        "killed. By prediction: killed where the user's limit would not have."
    )
    first = next(iter(document["limits"].values()))
    console.print(
        f"{per_cent(100.0 * first['predicted_share']['mean'], '.0f')} of the jobs had a history "
        "of 19 runs or "
        "more of their application; the others keep their users' limits.",
        markup=False,
    )


def _ratio(interval: Mapping[str, float | None] | None) -> str | None:
    if interval is None or interval["mean"] is None:
        return None
    if interval["low"] is None:
        return f"{interval['mean']:.2f}"
    return f"{interval['mean']:.2f} ({interval['low']:.2f}-{interval['high']:.2f})"
