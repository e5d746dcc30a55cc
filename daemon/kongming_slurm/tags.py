"""The tag of a job's comment, and the note that job_submit.lua makes of a job. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_NAME = 64
_NAME = re.compile(rf"[A-Za-z0-9_.+-]{{1,{LONGEST_NAME}}}")
_NUMBER = re.compile(r"[0-9]{1,24}(?:\.[0-9]{0,22})?")
_TAG = re.compile(r"(?:^|(?<=[ \t\n\v\f\r]))kongming:([^ \t\n\v\f\r]+)")
_NO_TIME, _NO_EXCLUSIONS = "no-time", "no-exclusions"


@dataclass(frozen=True, slots=True)
class Tag:
    """``kongming:app=NAME,limit=1.2`` of a comment; ``limit`` None is the bridge's default."""

    app: str
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Note that job_submit.lua wrote into a job's admin comment when it excluded nodes.

    ``nodes`` is how many nodes the job needs at least, ``cpus`` and ``memory_mb`` what it needs of
    each, ``total`` how many CPUs it needs together, and ``own`` the nodes that its user excluded.
    ``limit_min`` is its user's time limit in minutes; 0 where its times must not be changed.

    What bounds the CPUs that it can use of a node: each task takes ``task_cpus``, and each CPU
    ``memory_per_cpu_mb``; there are no more than ``node_tasks`` tasks and ``node_cpus`` CPUs on a
    node (0 for no limit).
    """

    app: str
    limit: float
    nodes: int = 1
    cpus: int = 1
    memory_mb: int = 0
    total: int = 1
    own: str = ""
    limit_min: int = 0
    task_cpus: int = 1
    node_tasks: int = 0
    node_cpus: int = 0
    memory_per_cpu_mb: int = 0


def is_name(text: str) -> bool:
    """Return whether it can be an application or a node in the ranking file."""
    return _NAME.fullmatch(text) is not None


def number(text: str) -> float | None:
    """A number of 0 or more as job_submit.lua reads it, or None."""
    if len(text) > 24 or _NUMBER.fullmatch(text) is None:
        return None
    return float(text)


def wants_no_time(comment: str) -> bool:
    """Return whether a comment has the word ``kongming:no-time``: the job's times are its user's
    alone."""
    return _NO_TIME in _TAG.findall(comment)


def wants_no_exclusions(comment: str) -> bool:
    """Return whether a comment has the word ``kongming:no-exclusions``: the nodes that the job
    excludes are its user's alone."""
    return _NO_EXCLUSIONS in _TAG.findall(comment)


def tag(comment: str) -> Tag | None:
    """The tag of a comment; None where there is none, or any part of it is not valid."""
    words = (_NO_TIME, _NO_EXCLUSIONS)
    text = next((text for text in _TAG.findall(comment) if text not in words), None)
    if text is None:
        return None
    app, limit = "", None
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not part:
            continue
        if key == "app" and equals and is_name(value):
            app = value
        elif key == "limit" and (ratio := number(value)) is not None and ratio >= 1.0:
            limit = ratio
        else:
            return None
    return Tag(app, limit) if app else None


def note(admin_comment: str) -> Note | None:
    """The note of job_submit.lua; None where there is none, or it is not valid."""
    # An administrator's own words may be before it.
    for match in reversed(_TAG.findall(admin_comment)):
        text, _, own = match.partition(",own=")
        values: dict[str, str] = {}
        for part in text.split(","):
            key, _, value = part.partition("=")
            values[key] = value
        if not {"app", "limit", "nodes", "cpus", "memory", "total"} <= values.keys():
            continue
        numbers = {key: number(value) for key, value in values.items() if key != "app"}
        if not is_name(values["app"]) or None in numbers.values():
            continue
        integers = {key: int(value or 0.0) for key, value in numbers.items()}
        return Note(
            app=values["app"],
            limit=numbers["limit"] or 1.0,
            nodes=max(1, integers["nodes"]),
            cpus=integers["cpus"],
            memory_mb=integers["memory"],
            total=integers["total"],
            own=own,
            limit_min=integers.get("time", 0),
            task_cpus=max(1, integers.get("task-cpus", 1)),
            node_tasks=integers.get("node-tasks", 0),
            node_cpus=integers.get("node-cpus", 0),
            memory_per_cpu_mb=integers.get("memory-per-cpu", 0),
        )
    return None
