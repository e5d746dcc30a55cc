"""Times of day in records, as unix seconds."""

from __future__ import annotations

from datetime import UTC, datetime

from kongming.errors import InputError


def unix(started_at: str) -> float:
    """Unix seconds of a UTC time in ISO 8601. Raises InputError where it is none."""
    try:
        moment = datetime.fromisoformat(started_at)
    except ValueError as error:
        raise InputError(
            "is no time.", field="started_at", found=started_at, allowed="UTC in ISO 8601"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
