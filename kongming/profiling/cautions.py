"""Warnings of what is not measured of applications as they are: before a campaign, and with it."""

from __future__ import annotations

from collections.abc import Mapping

from kongming.profiling.plans.identity import find_executable, folders_named, inputs_named
from kongming.records.application import SCRATCH, Application


def cautions(apps: Mapping[str, Application]) -> list[str]:
    """Return what to know of a campaign of these applications before it begins."""
    known = [app for _, app in sorted(apps.items())]
    return [text for app in known for text in (*seated_on_one(app), *stays_warm(app))]


def seated_on_one(app: Application) -> tuple[str, ...]:
    """Return a warning for an application of several CPUs, which has one as a neighbour."""
    if app.cpus == 1:
        return ()
    return (
        f"{app.name} uses {app.cpus} CPUs, but as a neighbour it runs on one: what it inflicts is "
        "measured as of one CPU",
    )


def stays_warm(app: Application) -> tuple[str, ...]:
    """Return a warning for an application that is to start with a cold cache, if its inputs will
    not be evicted, as far as its commands tell."""
    if app.cache != "cold":
        return ()
    if folders := folders_named(app):
        return (
            f"{app.name} is to start with a cold cache, but files below {', '.join(folders)} stay "
            "in the page cache: only those of its scratch folder and those that its commands name "
            "are evicted (let its setup copy the others to {dir})",
        )
    program = find_executable(app)
    inputs = [path for path in inputs_named(app) if program is None or path != program]
    if inputs or _reads_scratch(app):
        return ()
    return (
        f"{app.name} is to start with a cold cache, but its commands name no input that is there: "
        "only its scratch folder is evicted (name its files in the command, or let its setup copy "
        "them to {dir})",
    )


def _reads_scratch(app: Application) -> bool:
    """Return whether what is timed names the scratch folder, in which set-up may make inputs."""
    timed = [app.workdir or "", *app.env.values()]
    for command in (app.command, app.load):
        timed += [command] if isinstance(command, str) else command or ()
    untimed = app.setup is not None or app.prepare is not None
    return untimed and any(SCRATCH in text for text in timed)
