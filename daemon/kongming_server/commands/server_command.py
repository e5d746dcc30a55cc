"""Entry point of ``kongming-server``: options, signals, and what each error becomes.

Exit status: 0 ended by SIGTERM or Ctrl-C in good order; 1 failed; 2 wrong input or usage;
130 or 143 where a second signal came before it had ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming import __version__
from kongming.help_examples import examples
from kongming.lazy_group import Entry, LazyGroup
from kongming.printable import log_to_stderr
from kongming.processes import entry
from kongming.processes.systemd import Notifier
from kongming.setting_options import setting_options
from kongming.settings import as_file
from kongming_server.commands import server_config as settings
from kongming_server.configuration.settings import Config

if TYPE_CHECKING:
    from kongming.rpc.log_limits import LogLimits

_COMMANDS = {
    "init-tls": Entry(
        "kongming_server.commands.security_commands:init_tls",
        "Make a private authority and certificates in DIRECTORY.",
    ),
    "token": Entry(
        "kongming_server.commands.security_commands:token",
        "Make, list and revoke the tokens by which callers are known.",
    ),
}
"""Commands other than serving."""

_OPTIONS = {
    "listen": "server.listen",
    "http": "server.http",
    "store": "server.store",
    "store_file": "server.store_file",
    "new_store": "server.new_store",
    "log_level": "server.log_level",
    "certificate": "security.certificate",
    "key": "security.key",
    "client_ca": "security.client_ca",
    "insecure": "security.insecure",
    "dask": "training.dask",
}
"""The setting that each option stands for."""

_option = setting_options(Config, _OPTIONS)


@click.group(
    cls=LazyGroup,
    entries=_COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every setting, with its default: kongming-server --settings. KONGMING_STORE names the "
    "store (--store).\n\n"
    + examples("kongming-server --store sqlite:///cluster.db", "kongming-server token list"),
)
@click.version_option(__version__, prog_name="kongming-server", message="%(prog)s %(version)s")
@_option("listen", "HOST:PORT")
@_option("http", "HOST:PORT")
@_option("store", "URL")
@_option("store_file", "FILE")
@_option("new_store", is_flag=True)
@_option("certificate", "FILE")
@_option("key", "FILE")
@_option("client_ca", "FILE")
@_option("insecure", is_flag=True)
@_option("dask", "tls://HOST:PORT")
@_option("log_level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option(
    "--config",
    "path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A TOML file of settings; options win over it.",
)
@click.option("--settings", "show", is_flag=True, help="Print every setting, and end.")
@click.pass_context
def cli(ctx: click.Context, /, path: Path | None, show: bool, **options: Any) -> None:
    """Answer schedulers how long programs will run on each node of a fleet, as it is loaded now.

    Without arguments it listens on loopback and keeps its data in SQLite.
    """
    if show:
        click.echo(as_file(Config), nl=False)
        return
    if ctx.invoked_subcommand is not None:
        return
    given = {_OPTIONS[name]: value for name, value in options.items() if value is not None}
    config = settings.load(path, given)
    _log_to_stderr(config.server.log_level)
    ctx.exit(asyncio.run(serve(config)))


async def serve(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. A second signal ends it at once."""
    # Numerical libraries take a second to load: --help must not wait for them.
    from kongming_server.app import App

    if config.training.dask:
        from kongming_server.training.dask_cluster import hide_memory

        # What speaks to the cluster may be of the same user, and must not read the password here.
        hide_memory()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def end(signum: int) -> None:
        if stop.is_set():
            logging.getLogger(__name__).warning("Ended before everything was in order.")
            os._exit(128 + signum)
        stop.set()
        # Of the system and not of the event loop: after it, threads are waited for as well.
        giving_up = threading.Timer(config.server.grace_s + _STORE_S, _give_up)
        giving_up.daemon = True
        giving_up.start()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, end, signum)
    notifier = Notifier()
    app = App(config, notifier=notifier)
    starting = asyncio.create_task(app.start())
    asking = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, asking), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return 0
    addresses = await starting
    click.echo(f"listening grpc={addresses.grpc} http={addresses.http}")
    sys.stdout.flush()
    notifier.ready()
    await asking
    notifier.stopping()
    await app.stop()
    return 0


_STORE_S = 15.0
"""How long the end may take once calls have ended; what is longer waits for a store that does not
answer. What was not kept by then was not acknowledged; whoever looks after the server would kill it
soon, and not know why."""


def _give_up() -> None:
    logging.getLogger(__name__).error(
        "Ended before everything was in order: the store, or something else, did not answer for "
        "%g s.",
        _STORE_S,
    )
    os._exit(1)


def _log_to_stderr(level: str) -> None:
    from kongming_server.calls.request_ids import RequestIds

    # What other libraries say below a warning is not about this server.
    log_to_stderr(
        logging.WARNING,
        "%(asctime)s %(levelname)s %(request_id)s %(name)s: %(message)s",
        RequestIds(),
        log_limits(),
        force=True,
    )
    for ours in ("kongming", "kongming_server"):
        logging.getLogger(ours).setLevel(level.upper())


def log_limits() -> LogLimits:
    """Return the bound of what others can make the server write to its log."""
    from kongming.rpc.log_limits import LogLimits
    from kongming.store import watching
    from kongming_server.calls import call_errors
    from kongming_server.running import outage
    from kongming_server.security import credentials, flood_watch, sockets

    # The first has a line for each call that fails, while the disk is full that the log is on; the
    # last two have some for each time that a store which is almost full takes something after all.
    modules = (call_errors, sockets, flood_watch, credentials, outage, watching)
    return LogLimits(module.__name__ for module in modules)


def run(args: Sequence[str]) -> int:
    """Run ``kongming-server ARGS`` and return its exit status; errors are printed, not raised."""
    return entry.run(cli, "kongming-server", args)


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
