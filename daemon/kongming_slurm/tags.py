"""What a job says of its application, and what job_submit.lua notes of a job. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_NAME = 64
_NAME = re.compile(rf"[A-Za-z0-9_.+-]{{1,{LONGEST_NAME}}}")
_NUMBER = re.compile(r"[0-9]{1,24}(?:\.[0-9]{0,22})?")
_TAG = re.compile(r"(?:^|(?<=[ \t\n\v\f\r]))kongming:([^ \t\n\v\f\r]+)")


@dataclass(frozen=True, slots=True)
class Tag:
    """``kongming:app=NAME,limit=1.2`` of a comment; ``limit`` None is the bridge's default."""

    app: str
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """What job_submit.lua wrote into a job's admin comment when it chose.

    ``nodes`` is how many nodes the job needs at least, ``cpus`` and ``memory_mb`` what it needs of
    each, ``total`` how many CPUs it needs together, and ``own`` the nodes that its user excluded.
    """

    app: str
    limit: float
    nodes: int = 1
    cpus: int = 1
    memory_mb: int = 0
    total: int = 1
    own: str = ""


def is_name(text: str) -> bool:
    """Whether it can be an application or a node in the file of rankings."""
    return _NAME.fullmatch(text) is not None


def number(text: str) -> float | None:
    """A number above or equal to 0 as job_submit.lua reads it, or None."""
    if len(text) > 24 or _NUMBER.fullmatch(text) is None:
        return None
    return float(text)


def tag(comment: str) -> Tag | None:
    """The tag of a comment; None where there is none, or none that is understood in whole."""
    found = _TAG.search(comment)
    if found is None:
        return None
    app, limit = "", None
    for part in found[1].split(","):
        key, equals, value = part.partition("=")
        if not part:
            continue
        if key == "app" and equals and is_name(value):
            app = value
        elif key == "limit" and (told := number(value)) is not None and told >= 1.0:
            limit = told
        else:
            return None
    return Tag(app, limit) if app else None


def note(admin_comment: str) -> Note | None:
    """What job_submit.lua noted; None where it noted nothing, or somebody changed it."""
    # An administrator's own words may stand before it.
    for found in reversed(_TAG.findall(admin_comment)):
        told, _, own = found.partition(",own=")
        values: dict[str, str] = {}
        for part in told.split(","):
            key, _, value = part.partition("=")
            values[key] = value
        if not {"app", "limit", "nodes", "cpus", "memory", "total"} <= values.keys():
            continue
        numbers = {key: number(value) for key, value in values.items() if key != "app"}
        if not is_name(values["app"]) or None in numbers.values():
            continue
        whole = {key: int(value or 0.0) for key, value in numbers.items()}
        return Note(
            app=values["app"],
            limit=numbers["limit"] or 1.0,
            nodes=max(1, whole["nodes"]),
            cpus=whole["cpus"],
            memory_mb=whole["memory"],
            total=whole["total"],
            own=own,
        )
    return None
