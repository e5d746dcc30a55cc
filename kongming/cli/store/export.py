"""``kongming export``: what was measured, as one Parquet file."""

from __future__ import annotations

from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.extras import require


@click.command(
    "export",
    epilog=examples(
        "kongming export --out measured.parquet", "kongming export --app xz --out xz.parquet"
    ),
)
@click.option(
    "--out",
    required=True,
    metavar="FILE.parquet",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=options.parquet_out,
    help="The file to write.",
)
@click.option("--app", "apps", metavar="NAME", multiple=True, help="Only this one (repeatable).")
@options.force_option
@options.store_option
@options.json_option
def command(
    out: Path, apps: tuple[str, ...], force: bool, store_url: str | None, as_json: bool
) -> None:
    """Write runs, fingerprints, signatures, nodes and references to a Parquet file.

    'kongming import' reads it on another machine. Models are not in it: train them there.
    """
    require("kongming export", "predict", "pyarrow")
    options.keep_existing(out, force=force)
    from kongming.store import Store
    from kongming.store.parquet import export_runs

    with Store.open(store_url, create=False) as store:
        counts = export_runs(store, out, apps or None)
    if as_json:
        output.emit_json({"file": str(out), "bytes": out.stat().st_size, "records": counts})
        return
    size = output.format_bytes(out.stat().st_size)
    output.console().print(f"{out}: {described(counts)} ({size})", markup=False)


def described(counts: dict[str, int]) -> str:
    """``2 nodes, 340 runs``; ``nothing`` for no record at all."""
    parts = [f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in counts.items() if n]
    return ", ".join(parts) or "nothing"
