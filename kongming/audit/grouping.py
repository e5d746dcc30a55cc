"""What a recording is counted as: its machine, its instance type, its kernel, one of its tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kongming.audit.readings import Session, machine_of
from kongming.errors import InputError

__all__ = ["check_key", "label", "type_of"]

KEYS = "type, machine, kernel or tag:KEY"


def check_key(by: str) -> str:
    """``by`` itself.

    Raises:
        InputError: it is none of ``KEYS``.
    """
    if by in ("type", "machine", "kernel") or (by.startswith("tag:") and len(by) > 4):
        return by
    raise InputError("is no grouping.", field="--by", found=by, allowed=KEYS)


def label(session: Session, by: str) -> str:
    """Which group of ``by`` a recording belongs to; "(none)" where it does not say."""
    if by == "machine":
        return str(session["machine"])
    if by == "type":
        return type_of(session)
    tags: Mapping[str, Any] = session.get("tags") or {}
    found = machine_of(session)["kernel"] if by == "kernel" else tags.get(by[4:])
    return str(found) if found else "(none)"


def type_of(session: Session) -> str:
    """The cloud's name of the type; else the tag ``type``; else the CPU model."""
    tags: Mapping[str, Any] = session.get("tags") or {}
    facts = machine_of(session)
    return str(facts["type"] or tags.get("type") or facts["cpu_model"] or "(unknown type)")
