"""``kongming observe export``: merge observations, optionally anonymised."""

from __future__ import annotations

from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.extras import require
from kongming.quantities import count


@click.command(
    "export",
    short_help="Merge observations, optionally anonymised.",
    epilog=examples(
        "kongming observe export a.parquet b.parquet --out both.parquet",
        "kongming observe export node.parquet --anonymise --out shared.parquet",
    ),
)
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
)
@click.option(
    "--out",
    required=True,
    metavar="FILE.parquet",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=options.parquet_out,
    help="The file to write.",
)
@click.option("--anonymise", is_flag=True, help="Leave out names, ids, paths, commands and tags.")
@click.option(
    "--salt",
    metavar="TEXT",
    help="With --anonymise: salt of the hashes of ids, so that one machine has the same id "
    "in several exports. Keep it secret (default: random, not stored).",
)
@click.option(
    "--keep-tag", "keep", metavar="KEY", multiple=True, help="With --anonymise: keep this tag."
)
@options.force_option
@options.json_option
def export(
    files: tuple[Path, ...],
    out: Path,
    anonymise: bool,
    salt: str | None,
    keep: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Write the readings of all FILEs to one file.

    With --anonymise host names, paths, commands and tags are left out, and ids are replaced by
    salted hashes; the hardware, kernel and instance type stay, and the names of the programs.
    """
    from kongming.records.errors import InputError

    if not anonymise and (salt is not None or keep):
        raise InputError("is an option of --anonymise.", field="--salt" if salt else "--keep-tag")
    require("kongming observe export", "predict", "pyarrow")
    options.keep_existing(out, force=force)
    from kongming.audit.anonymising import Salt, anonymised
    from kongming.audit.readings import read_observations, write_observations

    observations = read_observations(files)
    if anonymise:
        observations = anonymised(
            observations, Salt() if salt is None else Salt(salt), keep_tags=keep
        )
    write_observations(
        out, observations.table, observations.sessions, anonymised=observations.anonymised
    )
    size = out.stat().st_size
    if as_json:
        output.emit_json(
            {
                "file": str(out),
                "bytes": size,
                "readings": observations.table.num_rows,
                "sessions": len(observations.sessions),
                "machines": len(observations.machines),
                "anonymised": observations.anonymised,
            }
        )
        return
    output.console().print(
        f"{out}: {observations.table.num_rows} readings of "
        f"{count(len(observations.machines), 'machine')}"
        f"{', anonymised' if observations.anonymised else ''} ({output.format_bytes(size)})",
        markup=False,
    )
