"""Warnings of what is not measured of applications as they are: before a campaign, and with it."""

from __future__ import annotations

from collections.abc import Mapping

from kongming.records.application import Application


def cautions(apps: Mapping[str, Application]) -> list[str]:
    """Return what to know of a campaign of these applications before it begins."""
    return [text for _, app in sorted(apps.items()) for text in seated_on_one(app)]


def seated_on_one(app: Application) -> tuple[str, ...]:
    """Return a warning for an application of several CPUs, which has one as a neighbour."""
    if app.cpus == 1:
        return ()
    return (
        f"{app.name} uses {app.cpus} CPUs, but as a neighbour it runs on one: what it inflicts is "
        "measured as of one CPU",
    )
