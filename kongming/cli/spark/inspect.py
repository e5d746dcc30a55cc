"""``kongming spark inspect``: what a run did, and what limits its scaling."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.spark import options as spark_options
from kongming.quantities import count, per_cent

if TYPE_CHECKING:
    from kongming.spark.application import Application
    from kongming.spark.inspection import Inspection, StageView

_MOST_ROWS = 12


@click.command(
    "inspect",
    short_help="Show what a run did, and what limits its scaling.",
    epilog=examples(
        "kongming spark inspect eventlog_v2_app-1",
        "kongming spark inspect logs --app app-1 --plot run.svg",
    ),
)
@spark_options.log_argument
@spark_options.choice_options
@spark_options.plot_option
@click.option("--all", "everything", is_flag=True, help="Show every group and every stage.")
@options.wide_option
@options.json_option
def command(
    log: Path,
    app: str | None,
    attempt: str | None,
    missing: float,
    plot: Path | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Show the groups, stages and slots of a run, and in words what limits how it scales.

    A group is an SQL execution, or a job without one. Several applications in LOG are listed.
    """
    from kongming.spark import inspection, reading

    logs = reading.read_applications(log)
    if app is None and len({each.id for each in logs}) > 1:
        _list(logs, as_json)
        return
    application = reading.read(log, app, attempt, missing, logs=logs)
    inspected = inspection.inspect(application)
    if plot is not None:
        from kongming.spark.timeline import draw

        draw(plot, application)
    if as_json:
        output.emit_json(document(application, inspected))
        return
    _show(application, inspected, None if everything else _MOST_ROWS)


def _list(logs: Any, as_json: bool) -> None:
    rows = [(each.id, each.attempt, each.name, each.source) for each in logs]
    columns = ("id", "attempt", "name", "log")
    if as_json:
        applications = [dict(zip(columns, row, strict=True)) for row in rows]
        output.emit_json({"applications": applications})
        return
    console = output.console()
    console.print(output.table(columns, rows, minor=("log",)))
    files = defaultdict(list)
    for each in logs:
        files[each.id, each.attempt or "1"].append(each.source)
    attempts = Counter(app for app, _ in files)
    several = ", --attempt N where it has several" if max(attempts.values()) > 1 else ""
    console.print(f"Choose one with --app ID{several}.")
    for (app, _), own in files.items():
        if len(own) > 1:
            console.print(
                f"{app} has {len(own)} logs, which --app does not tell apart. Give one of them "
                f"instead: {', '.join(own[:_MOST_ROWS])}{', ...' * (len(own) > _MOST_ROWS)}",
                markup=False,
            )


def document(application: Application, inspected: Inspection) -> dict[str, Any]:
    """Return what --json prints."""
    from kongming.spark.model.driver import measured_s

    slots = inspected.slots
    return {
        "application": {
            "id": application.id,
            "attempt": application.attempt,
            "name": application.name,
            "spark_version": application.spark_version,
            "complete": application.complete,
            "measured_s": measured_s(application),
            "executors": slots.executors,
            "slots": slots.at_once,
        },
        "driver_s": asdict(inspected.driver) | {"total_s": inspected.driver.total_s},
        "slots_s": {
            "total": slots.total_s,
            "busy": slots.busy_s,
            "idle_no_job": slots.idle_no_job_s,
            "idle_few_tasks": slots.idle_few_tasks_s,
            "utilisation": slots.utilisation,
        },
        "limits": [asdict(limit) for limit in inspected.limits],
        "groups": [asdict(group) for group in inspected.groups],
        "stages": [asdict(stage) for stage in inspected.stages],
        "findings": [asdict(finding) for finding in application.findings],
    }


def _show(application: Application, inspected: Inspection, most: int | None) -> None:
    console = output.console()
    slots = inspected.slots
    version = f", Spark {application.spark_version}" if application.spark_version else ""
    console.print(
        f"{application.name or application.id} ({application.id}){version}: "
        f"{_time(inspected.measured_s)}"
        f"{'' if application.complete else ' until the log ends'}, "
        f"up to {count(slots.executors, 'executor')} with "
        f"{count(slots.at_once, 'slot')}, {per_cent(100 * slots.utilisation, '.0f')} busy",
        markup=False,
    )
    console.print(
        output.table(
            ("share", "what limits it"),
            [
                (per_cent(100 * limit.share, ".0f") if limit.share else None, limit.message)
                for limit in inspected.limits
            ],
            right=("share",),
        )
    )
    _show_groups(inspected, most)
    _show_stages(inspected, most)
    _show_parts(inspected)
    output.print_warnings([finding.message for finding in application.findings], "note")


def _show_groups(inspected: Inspection, most: int | None) -> None:
    groups = sorted(inspected.groups, key=lambda each: each.start_s - each.end_s)[:most]
    longest = set(map(id, groups))
    shown = [each for each in inspected.groups if id(each) in longest]
    seconds = _time
    output.console().print(
        output.table(
            ("execution", "jobs", "what", "start", "took", "gap before", "slot time", "stages"),
            [
                (
                    each.execution,
                    _numbers(each.jobs),
                    each.description,
                    seconds(each.start_s),
                    seconds(each.end_s - each.start_s),
                    seconds(each.gap_s),
                    seconds(each.busy_s),
                    each.stages,
                )
                for each in shown
            ],
            title=_title("Groups", len(shown), len(inspected.groups)),
            right=("start", "took", "gap before", "slot time", "stages"),
            minor=("stages", "what", "start", "jobs"),
        )
    )


def _show_stages(inspected: Inspection, most: int | None) -> None:
    stages = sorted(inspected.stages, key=lambda each: -each.busy_s)[:most]
    longest = set(map(id, stages))
    shown = [each for each in inspected.stages if id(each) in longest]
    output.console().print(
        output.table(
            _STAGE_COLUMNS,
            [_stage_row(each) for each in shown],
            title=_title("Stages", len(shown), len(inspected.stages)),
            right=[column for column in _STAGE_COLUMNS if column not in ("what",)],
            minor=("shuffle written", "input", "what", "shuffle read", "slot time", "failed"),
        )
    )


_STAGE_COLUMNS = (
    *("stage", "what", "tasks", "failed", "took", "median", "longest", "skew", "slot time"),
    *("input", "shuffle read", "shuffle written", "spill"),
)


def _stage_row(stage: StageView) -> tuple[object, ...]:
    seconds = _time
    return (
        f"{stage.stage}.{stage.attempt}" if stage.attempt else stage.stage,
        stage.name,
        stage.tasks,
        stage.failed or None,
        None if stage.span_s is None else seconds(stage.span_s),
        seconds(stage.median_s),
        seconds(stage.longest_s),
        f"{stage.skew:.1f}",
        seconds(stage.busy_s),
        *(output.format_bytes(size) if size else None for size in stage.sizes.values()),
    )


def _show_parts(inspected: Inspection) -> None:
    total = sum(stage.busy_s for stage in inspected.stages)
    spent = {
        part: sum(stage.parts_s[part] for stage in inspected.stages)
        for part in inspected.stages[0].parts_s
    }
    output.console().print(
        output.table(
            ("part of tasks", "time", "share"),
            [
                (
                    part.replace("_", " "),
                    _time(part_s),
                    per_cent(100 * part_s / total if total else 0),
                )
                for part, part_s in spent.items()
            ],
            right=("time", "share"),
        )
    )


def _numbers(jobs: tuple[int, ...]) -> str:
    return str(jobs[0]) if len(jobs) == 1 else f"{jobs[0]}..{jobs[-1]}"


def _title(what: str, shown: int, total: int) -> str:
    return what if shown == total else f"{what}: the longest {shown} of {total}; --all shows all"


def _time(seconds: float) -> str | None:
    """None, a dash in a table, for less than the millisecond that logs count."""
    return output.format_seconds(seconds) if seconds >= 5e-4 else None
