"""Warnings of what is not measured of applications as they are: before a campaign, and with it."""

from __future__ import annotations

from collections.abc import Mapping

from kongming.profiling.plans.identity import folders_named
from kongming.records.application import Application


def cautions(apps: Mapping[str, Application]) -> list[str]:
    """Return what to know of a campaign of these applications before it begins."""
    known = [app for _, app in sorted(apps.items())]
    return [text for app in known for text in (*seated_on_one(app), *_warm_folders(app))]


def seated_on_one(app: Application) -> tuple[str, ...]:
    """Return a warning for an application of several CPUs, which has one as a neighbour."""
    if app.cpus == 1:
        return ()
    return (
        f"{app.name} uses {app.cpus} CPUs, but as a neighbour it runs on one: what it inflicts is "
        "measured as of one CPU",
    )


def _warm_folders(app: Application) -> tuple[str, ...]:
    folders = folders_named(app) if app.cache == "cold" else []
    if not folders:
        return ()
    return (
        f"{app.name} is to start with a cold cache, but files below {', '.join(folders)} stay in "
        "the page cache: only those of its scratch folder and those that its commands name are "
        "evicted (let its setup copy the others to {dir})",
    )
