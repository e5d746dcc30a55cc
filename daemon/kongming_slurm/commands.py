"""The commands of ``kongming-slurm``, as click has them."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click

from kongming import __version__
from kongming.help_examples import examples
from kongming.printable import log_to_stderr
from kongming.processes import entry
from kongming.settings import as_file, load
from kongming_slurm import hooks
from kongming_slurm.bridge_config import Settings

_FILE = click.Path(dir_okay=False, path_type=Path)
_CONFIG = click.option("--config", "file", type=_FILE, help="Settings, as TOML.")


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples("kongming-slurm bridge --config slurm.toml"),
)
@click.version_option(__version__, prog_name="kongming-slurm", message="%(prog)s %(version)s")
def cli() -> None:
    """KONGMING for Slurm: see docs/slurm.md."""


@cli.command(
    "bridge",
    short_help="Keep the ranking file fresh; runs where slurmctld does.",
    epilog=examples(
        "kongming-slurm bridge --config slurm.toml",
        "kongming-slurm bridge --server 127.0.0.1:7400 --once",
    ),
)
@click.option("--server", "address", metavar="HOST:PORT", help="The server's gRPC address.")
@_CONFIG
@click.option("--ca", metavar="FILE", help="Authority of the server's certificate.")
@click.option("--cert", metavar="FILE", help="The bridge's own certificate.")
@click.option("--key", metavar="FILE", help="Key of that certificate.")
@click.option("--token-file", metavar="FILE", help="A bearer token of the role scheduler.")
@click.option("--once", is_flag=True, help="Do everything once, and end.")
@click.option(
    "--reset",
    is_flag=True,
    help="Remove the file, the weights (where weights.follow is true), the exclusions and "
    "--time-min, and end.",
)
@click.option("--settings", "show", is_flag=True, help="Print a file of all defaults, and end.")
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def bridge_cli(
    address: str | None,
    file: Path | None,
    ca: str | None,
    cert: str | None,
    key: str | None,
    token_file: str | None,
    once: bool,
    reset: bool,
    show: bool,
    verbose: bool,
) -> int:
    """Keep the ranking file fresh until it is ended, and with it the weights of nodes and the
    exclusions of pending jobs.

    Flags win over the file. Status 1 of --once: something failed, and was logged.
    """
    if show:
        click.echo(as_file(Settings), nl=False)
        return 0
    log_to_stderr(logging.DEBUG if verbose else logging.INFO)
    options = {
        "server.address": address,
        "server.ca": ca,
        "server.cert": cert,
        "server.key": key,
        "server.token_file": token_file,
    }
    return _bridge(load(Settings, file, options), once=once, reset=reset)


@cli.command(
    "prolog",
    short_help="Slurm's Prolog: report to the agent that a job has started.",
    epilog=examples("kongming-slurm prolog --config slurm.toml"),
)
@_CONFIG
def prolog_cli(file: Path | None) -> int:
    """Report to this node's agent that a job has started. Reads Slurm's environment; status 0
    always."""
    return hooks.run("prolog", file, hooks.environment())


@cli.command(
    "epilog",
    short_help="Slurm's Epilog: report to the agent how long a job has run.",
    epilog=examples("kongming-slurm epilog --config slurm.toml"),
)
@_CONFIG
def epilog_cli(file: Path | None) -> int:
    """Report to this node's agent how long a job has run. Reads Slurm's environment; status 0
    always."""
    return hooks.run("epilog", file, hooks.environment())


def _bridge(settings: Settings, *, once: bool, reset: bool) -> int:
    from kongming.rpc.channel import Connection, connection_from_settings
    from kongming.rpc.client import RemoteService
    from kongming_slurm.bridge import Bridge
    from kongming_slurm.slurm_commands import Slurm

    server = settings.server

    def connection() -> Connection:
        return connection_from_settings(server, server.timeout_s)

    slurm = Slurm(
        folder=settings.slurm.commands,
        configuration=settings.slurm.configuration,
        timeout_s=settings.slurm.timeout_s,
    )
    # A file that cannot be read is an error at once, not when it is first needed.
    connection().open().close()
    bridge = Bridge(settings, lambda: RemoteService(connection()), slurm)
    try:
        if reset:
            bridge.reset()
            return 0
        if once:
            bridge.step()
            return 1 if bridge.failing else 0
        stopping = threading.Event()

        def stop(signum: int, frame: FrameType | None) -> None:
            stopping.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        bridge.run(stopping)
    finally:
        bridge.close()
    return 0


def run(arguments: Sequence[str]) -> int:
    """Run ``kongming-slurm ARGUMENTS`` and return its exit status; errors are printed."""
    return entry.run(cli, "kongming-slurm", arguments, failures=(OSError,), extra="slurm")
