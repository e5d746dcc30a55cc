"""Moments in time: texts in ISO 8601, unix seconds and datetimes, made of each other.

A text or a datetime without a zone is UTC. What is written is UTC with a final Z: texts of the same
digits compare as their moments do.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Literal

from kongming.records.errors import InputError

Digits = Literal["seconds", "milliseconds", "microseconds"]


def parse(text: str, field: str = "started_at") -> datetime:
    """The moment of a text in ISO 8601. Raises InputError where it is none."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(
            "is not a time.", field=field, value=text, allowed="ISO 8601, as 2026-01-31T12:00:00Z"
        ) from error


def unix(text: str, field: str = "started_at") -> float:
    """Unix seconds of a text in ISO 8601. Raises InputError where it is none."""
    return parse(text, field).timestamp()


def format(moment: float | datetime, digits: Digits = "milliseconds") -> str:
    """A moment, in unix seconds or as a datetime, as a text in ISO 8601.

    Raises InputError for seconds outside the years 1 to 9999.
    """
    if not isinstance(moment, datetime):
        try:
            moment = datetime.fromtimestamp(moment, UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise InputError("is not a time.", field="time", value=moment) from error
    # The offset of UTC is written Z, and isoformat would write +00:00.
    zoneless = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return f"{zoneless.isoformat(timespec=digits)}Z"


def now(digits: Digits = "milliseconds") -> str:
    """This moment, as a text in ISO 8601."""
    return format(time.time(), digits)


def ago(seconds: float) -> str:
    """The moment so many seconds before this one, as ``now`` writes it."""
    return format(time.time() - seconds)
