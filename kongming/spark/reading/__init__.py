"""Reading an event log: ``read_applications`` lists what a path holds, ``read`` reads one of them.

Events are chosen by their first bytes and only those are parsed, field by field as typed; memory
grows with the tasks, not with the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from kongming.records.errors import InputError, UnknownNameError
from kongming.spark.application import Application
from kongming.spark.reading import events, findings
from kongming.spark.reading.assembling import assemble
from kongming.spark.reading.collecting import Collector
from kongming.spark.reading.lines import Lines
from kongming.spark.reading.sources import LoggedApplication, chunks, read_applications

__all__ = ["MISSING", "LoggedApplication", "read", "read_all", "read_applications"]

MISSING = 0.2
"""The share of task ends that may be missing, by default."""


def read(
    path: str | os.PathLike[str],
    app: str | None = None,
    attempt: str | None = None,
    missing: float = MISSING,
    *,
    logs: Sequence[LoggedApplication] | None = None,
) -> Application:
    """Read the log of one attempt of an application; ``path`` may hold several, of which ``app``
    and ``attempt`` choose. Up to the share ``missing`` of the tasks' ends are filled in where their
    events were dropped. ``logs`` is what ``read_applications`` returned, where it was asked before.

    Raises:
        InputError: there is no event log, or there are several and none was chosen, or one has
            several applications in it.
        UnknownNameError: the one that was chosen is not there.
        CannotAnswerError: more task ends are missing.
    """
    log = _chosen(read_applications(path) if logs is None else logs, app, attempt)
    details = dict(log.details)
    collected = _collected(log, details)
    steps = collected.steps
    if steps:
        # That it was a step is known some lines later only; of the first reading nothing is needed.
        del collected
        collected = _collected(log, details, steps)
        collected.counts[findings.CLOCK] += len(steps)
    return assemble(collected, log.id, log.attempt, log.source, missing, details)


def _collected(
    log: LoggedApplication, details: dict[str, str], steps: Collection[int] = ()
) -> Collector:
    """Take all lines of a log. Sets in ``details`` which files are damaged, and which empty."""
    collected = Collector(steps)
    counts = dict(log.counts)
    damaged, empty = [], []
    for part in log.parts:
        lines = Lines(chunks(part))
        collected.read(lines)
        if collected.others:
            raise _several(log, [collected.start, *collected.others])
        if lines.damage is not None:
            damaged.append(f"{part.name} {lines.damage}")
        elif not lines.any and not part.name.endswith(".inprogress"):
            # One that is written still may be empty.
            empty.append(part.name)
        counts[findings.LONG_LINES] = counts.get(findings.LONG_LINES, 0) + lines.too_long
    counts[findings.EMPTY_FILES] = len(empty)
    details[findings.EMPTY_FILES] = ", ".join(empty[:3])
    counts[findings.DAMAGED_FILES] = len(damaged)
    details[findings.DAMAGED_FILES] = "; ".join(damaged[:3])
    collected.counts.update(counts)
    return collected


def _several(
    log: LoggedApplication, starts: Sequence[events.ApplicationStart | None]
) -> InputError:
    names = [
        f"{start.app_id or start.app_name}"
        + (f" (attempt {start.app_attempt_id})" if start.app_attempt_id else "")
        for start in starts
        if start is not None
    ]
    return InputError(
        f"{log.source} holds the events of several applications or attempts in one log.",
        field="LOG",
        value=", ".join(dict.fromkeys(names)),
        allowed="one application in a file, or in the files of a rolling log",
        hint="Cut it before each line of SparkListenerLogStart, and give one of the parts.",
    )


def read_all(paths: Sequence[str | os.PathLike[str]]) -> list[Application]:
    """Read the logs of all applications below the paths, each run once. Raises as ``read``."""
    runs: dict[tuple[object, ...], Application] = {}
    for path in paths:
        logs = read_applications(path)
        for log in logs:
            application = read(path, log.id, log.attempt or "1", logs=logs)
            runs.setdefault(application.run, application)
    return list(runs.values())


def _chosen(
    logs: Sequence[LoggedApplication], app: str | None, attempt: str | None
) -> LoggedApplication:
    ids = list(dict.fromkeys(log.id for log in logs))
    if app is None and len(ids) > 1:
        raise InputError(
            f"holds {len(ids)} applications: {', '.join(ids[:6])}{', ...' * (len(ids) > 6)}.",
            field="LOG",
            hint="Choose one with --app ID.",
        )
    if app is not None and app not in ids:
        raise UnknownNameError("application", app, ids)
    logs = [log for log in logs if app in (None, log.id)]
    attempts = [log.attempt or "1" for log in logs]
    if attempt is not None and attempt not in attempts:
        raise UnknownNameError("attempt", attempt, attempts)
    logs = [log for log in logs if attempt in (None, log.attempt or "1")]
    if len(logs) > 1 and attempt is None and len(set(attempts)) == len(attempts):
        raise InputError(
            f"{logs[0].id} has {len(logs)} attempts: {', '.join(attempts)}.",
            field="LOG",
            hint="Choose one with --attempt N.",
        )
    if len(logs) > 1:
        raise InputError(
            f"{logs[0].id} has {len(logs)} logs: {', '.join(log.source for log in logs[:3])}.",
            field="LOG",
            hint="Give one of these files.",
        )
    return logs[0]
