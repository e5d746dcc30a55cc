"""Runs that a time is taken from: they have to have ended, and what their logs say is passed on."""

from __future__ import annotations

from collections.abc import Sequence

from kongming.quantities import exact_percent
from kongming.records.errors import InputError
from kongming.spark.application import Application
from kongming.spark.sample_ratio import recorded_ratio, same_share

_NAMED = 3
"""Logs that are named where several say the same."""


def require_finished(applications: Sequence[Application], field: str) -> None:
    """Raise InputError, for ``field``, where the log of an application has no end: what it holds
    takes less time than the run."""
    for application in applications:
        if not application.complete:
            raise InputError(
                "is the log of a run that has not ended, or whose driver was killed.",
                field=field,
                value=application.source or application.id,
                allowed="logs of runs that have ended",
                hint="Leave it out, or give the log once it has the application's end.",
            )


def require_same_application(
    other: Application,
    application: Application,
    field: str,
    *,
    named: bool = False,
    hint: str | None = None,
) -> None:
    """Raise InputError, for ``field``, where the ``other`` run is of an application of another
    name; with ``named`` also where one of the logs has lost the name."""
    known = named or (other.name and application.name)
    if known and other.name != application.name:
        raise InputError(
            "is a run of another application.",
            field=field,
            value=f"{other.name or other.id} ({other.source or other.id})",
            allowed=f"another run of {application.name!r}",
            hint=hint,
        )


def require_same_input(
    applications: Sequence[Application], ratio: float, field: str, *, more: str = ""
) -> None:
    """Raise InputError, for ``field``, where the log of a run has another share of the input in its
    settings than ``ratio``: with less data it takes less time. Logs without it are not judged.
    ``more`` is added to the hint."""
    for application in applications:
        own = recorded_ratio(application)
        if own is not None and not same_share(own, ratio):
            raise InputError(
                f"is of a run on {exact_percent(own)} of the input.",
                field=field,
                value=application.source or application.id,
                allowed=f"runs on {exact_percent(ratio)} of it",
                hint="Leave it out. How the time grows with the input is learned from --sample."
                + more,
            )


def findings_of(applications: Sequence[Application]) -> list[str]:
    """Sentences about what is wrong or unusual in logs, each with those that it is about."""
    sources: dict[str, list[str]] = {}
    for application in applications:
        for finding in application.findings:
            sources.setdefault(finding.message, []).append(application.source or application.id)
    sentences = []
    for message, own in sources.items():
        own = list(dict.fromkeys(own))
        more = f" and {len(own) - _NAMED} more" if len(own) > _NAMED else ""
        sentences.append(f"{', '.join(own[:_NAMED])}{more}: {message}")
    return sentences
