"""``kongming import``: what another machine exported."""

from __future__ import annotations

from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.export import described
from kongming.cli.extras import require


@click.command("import")
@click.argument("file", metavar="FILE.parquet", type=click.Path(path_type=Path))
@options.store_option
@options.json_option
def command(file: Path, store_url: str | None, as_json: bool) -> None:
    """Read a file that 'kongming export' wrote into the store.

    All of it is read or, when something in it is wrong, nothing. What is there already stays as
    it is, so the same file can be read twice.
    """
    require("kongming import", "predict", "pyarrow")
    from kongming.store import Store
    from kongming.store.parquet import import_runs

    with Store.open(store_url) as store:
        counts = import_runs(store, file)
    if as_json:
        output.emit_json({"file": str(file), "new": counts})
        return
    output.console().print(f"{file}: {described(counts)} new", markup=False)
