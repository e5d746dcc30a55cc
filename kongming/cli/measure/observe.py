"""``kongming observe``: alternate fingerprints and runs for minutes or days, into one file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.measure.observe_export import export
from kongming.quantities import count
from kongming.records.fingerprint import PLACEMENTS


class _Observe(click.Command):
    """A command that passes ``kongming observe export FILE...`` on to another command."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args[:1] == ["export"]:
            return export.make_context(f"{info_name} export", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def _tags(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    tags = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r} is not key=value.", ctx, param)
        tags[key.strip()] = text.strip()
    return tags


@click.command(
    "observe",
    cls=_Observe,
    short_help="Alternate fingerprints and program runs over hours.",
    epilog=examples(
        "kongming observe apps.toml --for 24h --out node.parquet --tag zone=a",
        "kongming observe export node.parquet --anonymise --out shared.parquet",
    ),
)
@click.argument("file", metavar="APPS.toml", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--for",
    "for_s",
    type=DURATION,
    metavar="TIME",
    default="30m",
    show_default=True,
    help="Total time without interruptions: 90s, 30m, 24h, 7d.",
)
@click.option(
    "--out",
    required=True,
    metavar="FILE.parquet",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=options.parquet_out,
    help="Output file; FILE.parquet.part exists until the time is over.",
)
@click.option("--app", "names", metavar="NAME", multiple=True, help="Only this one (repeatable).")
@click.option(
    "--suite",
    "suite_name",
    type=click.Choice(["quick", "standard"]),
    default="standard",
    show_default=True,
    help="Suite of the fingerprint before each run: half a second, or two seconds.",
)
@click.option(
    "--every",
    "every_s",
    type=DURATION,
    metavar="TIME",
    help="Interval between the starts of rounds.",
)
@click.option("--pause", "pause_s", type=DURATION, metavar="TIME", help="Wait after each run.")
@click.option(
    "--tag",
    "tags",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_tags,
    help="Additional description of this machine (repeatable).",
)
@click.option("--resume", is_flag=True, help="Continue FILE.parquet, even if it is complete.")
@click.option("--anonymise", is_flag=True, help="Leave out names, ids, paths, commands and tags.")
@click.option(
    "--salt",
    metavar="TEXT",
    help="With --anonymise: salt of the hashes of ids. Give the same for all recordings of a "
    "machine, or each makes another machine of it. Keep it secret (default: random, not stored).",
)
@click.option(
    "--no-metadata",
    is_flag=True,
    help="Do not query a cloud's metadata service for the instance type.",
)
@click.option("--cpu", type=int, default=None, help="The (first) CPU to observe (default: lowest).")
@click.option(
    "--placement",
    type=click.Choice(PLACEMENTS),
    default=None,
    help="Use the CPUs that 'kongming profile' uses; no neighbour is started.",
)
@options.order_option
@options.scratch_option
@options.json_option
def command(
    file: Path,
    for_s: float,
    out: Path,
    names: Sequence[str],
    suite_name: str,
    every_s: float | None,
    pause_s: float | None,
    tags: dict[str, str],
    resume: bool,
    anonymise: bool,
    salt: str | None,
    no_metadata: bool,
    cpu: int | None,
    placement: str | None,
    seed: int | None,
    directory: Path | None,
    as_json: bool,
) -> int:
    """Observe this machine: run the applications of APPS.toml in turn, each right after a
    fingerprint, without induced load, in rounds of random order.

    Each run is written to disk at once. Ctrl-C stops within a second and writes the runs so far to
    FILE.parquet; the same command continues where it stopped. 'kongming audit report' and 'kongming
    evaluate --instances' read files of any number of machines. 'kongming observe export FILE...'
    writes an anonymised copy.
    """
    from kongming.campaigns.observation import ObservationSettings, observe
    from kongming.records.errors import InputError

    if salt is not None and not anonymise:
        raise InputError("is an option of --anonymise.", field="--salt")
    settings = ObservationSettings(
        file=file,
        for_s=for_s,
        out=out,
        names=tuple(names),
        suite_name=suite_name,
        every_s=every_s or 0.0,
        pause_s=pause_s or 0.0,
        tags=tags,
        resume=resume,
        anonymise=anonymise,
        salt=salt,
        metadata=not no_metadata,
        cpu=cpu,
        placement=placement,
        seed=seed,
        directory=directory,
        command=("kongming", *sys.argv[1:]),
    )
    shown = _Shown(for_s)
    done = observe(settings, shown)
    if anonymise and salt is None:
        shown.note(
            "note: anonymised with a random salt: in another recording this machine has another "
            "id, and counts as another machine. To avoid that, give all of them the same --salt."
        )
    if as_json:
        output.emit_json(done.to_dict())
    else:
        console = output.console()
        size = output.format_bytes(done.bytes)
        console.print(
            f"{out}: {count(done.runs, 'run')} ({done.failed} failed), in all "
            f"{done.readings} readings of {output.format_duration(done.observed_s)} ({size})",
            markup=False,
        )
        if done.disturbed:
            console.print(
                f"Something else measured on these CPUs during {count(done.disturbed, 'step')}, "
                "which have the signal 'disturbed' in the file.",
                markup=False,
            )
    return 1 if done.failed or done.dropped else 0


class _Shown:
    """Notes and progress on stderr."""

    def __init__(self, for_s: float) -> None:
        self._for_s = for_s

    def note(self, text: str) -> None:
        output.error_console().print(text, markup=False)

    def warn(self, text: str) -> None:
        output.error_console().print(text, style="red", markup=False)

    def progress(self) -> AbstractContextManager[output.Progress]:
        return output.progress("observing", self._for_s)
