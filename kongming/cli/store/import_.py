"""``kongming import``: what another machine exported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.extras import require
from kongming.cli.fleet.serving import Server, changes_server, remote, server_options
from kongming.cli.store.export import described

if TYPE_CHECKING:
    from kongming.records.run import Run, Signature


@click.command(
    "import",
    epilog=examples(
        "kongming import measured.parquet",
        "kongming import measured.parquet --server 127.0.0.1:7400",
    ),
)
@click.argument("file", metavar="FILE.parquet", type=click.Path(path_type=Path))
@server_options
@options.store_option
@options.json_option
def command(file: Path, server: Server, store_url: str | None, as_json: bool) -> None:
    """Read a file that 'kongming export' wrote into the store, or with --server send it there.

    Records that exist already are kept, so the same file can be read twice. A store takes all of
    the file or, if any record is invalid, nothing. A server takes only the runs and signatures,
    with their fingerprints and nodes.
    """
    require("kongming import", "predict", "pyarrow")
    counts = _send(file, server) if changes_server(server) else _keep(file, store_url)
    if as_json:
        output.emit_json({"file": str(file), "new": counts})
        return
    output.console().print(f"{file}: {described(counts)} new", markup=False)


def _keep(file: Path, store_url: str | None) -> dict[str, int]:
    from kongming.store import Store
    from kongming.store.parquet import read_export

    # Read first: a mistyped name must not make a store.
    records = read_export(file)
    with Store.open(store_url) as store:
        return store.add_all(**records)


def _send(file: Path, server: Server) -> dict[str, int]:
    """Applications are made known first, so that what comes can be trained at once."""
    from kongming.store.parquet import read_export

    # Read as a whole first: a file that is damaged at its end shall not be half sent.
    export = read_export(file)
    records = [*export["runs"], *export["signatures"]]
    with remote(server) as service, output.progress("Sending", len(records)) as shown:
        known = {app.name for app in service.applications()}
        for app in export["applications"]:
            if app.name not in known:
                service.register_application(app.name, app.identity, app.document)

        def counted() -> Iterator[Run | Signature]:
            for number, record in enumerate(records, 1):
                yield record
                shown.update(number)

        taken = service.import_runs(counted())
    within = {
        fingerprint.id
        for record in records
        for fingerprint in (
            (record.fingerprint, record.before, record.after)
            if hasattr(record, "before")
            else (record.fingerprint,)
        )
        if fingerprint is not None
    }
    alone = [
        fingerprint for fingerprint, _ in export["fingerprints"] if fingerprint.id not in within
    ]
    left = {
        "unrequested record": len(export["unrequested"]),
        "reference": len(export["references"]),
        "fingerprint": len(alone),
    }
    if any(left.values()):
        output.error_console().print(
            f"Not sent: {described(left)}. A server has those that its agents report.",
            markup=False,
        )
    return {"run": taken.runs, "signature": taken.signatures}
