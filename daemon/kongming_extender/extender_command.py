"""Entry point of ``kongming-extender``: options, signals, exit statuses.

Exit status: 0 ended by SIGTERM or Ctrl-C in good order; 1 failed; 2 wrong input or usage;
130 or 143 where a second signal came before it had ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kongming import __version__, settings
from kongming.help_examples import examples
from kongming.printable import log_to_stderr
from kongming.processes import entry, standard_streams
from kongming.rpc.log_limits import LogLimits
from kongming.setting_options import setting_options
from kongming_extender.extender_config import Config

_OPTIONS = {
    "listen": "extender.listen",
    "log_level": "extender.log_level",
    "certificate": "security.certificate",
    "key": "security.key",
    "client_ca": "security.client_ca",
    "insecure": "security.insecure",
    "server": "server.address",
    "ca": "server.ca",
    "token_file": "server.token_file",
    "api": "pods.api",
}
"""The setting that each option stands for."""

_option = setting_options(Config, _OPTIONS)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every setting, with its default: kongming-extender --settings.\n\n"
    + examples("kongming-extender --server 127.0.0.1:7400 --api http://127.0.0.1:8001"),
)
@click.version_option(__version__, prog_name="kongming-extender", message="%(prog)s %(version)s")
@_option("listen", "HOST:PORT")
@_option("certificate", "FILE")
@_option("key", "FILE")
@_option("client_ca", "FILE")
@_option("insecure", is_flag=True)
@_option("server", "HOST:PORT")
@_option("ca", "FILE")
@_option("token_file", "FILE")
@_option("api", "URL")
@click.option("--no-pods", "no_pods", is_flag=True, help="Watch no pods: pods.watch = false.")
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
def cli(
    ctx: click.Context, /, path: Path | None, show: bool, no_pods: bool, **options: Any
) -> None:
    """Filter and prioritize nodes for kube-scheduler by the slowdown that a server predicts.

    Binding is left to Kubernetes. Where nothing is known, all nodes pass.
    """
    if show:
        click.echo(settings.as_file(Config), nl=False)
        return
    values = {_OPTIONS[name]: value for name, value in options.items() if value is not None}
    if no_pods:
        values["pods.watch"] = False
    config = settings.load(Config, path, values)
    _log_to_stderr(config.extender.log_level)
    ctx.exit(asyncio.run(serve(config)))


async def serve(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. A second signal ends it at once."""
    from kongming_extender.app import App

    loop = asyncio.get_running_loop()
    ending = asyncio.Event()

    def end(signum: int) -> None:
        if ending.is_set():
            os._exit(128 + signum)
        ending.set()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, end, signum)
    app = App(config)
    try:
        address = await app.start()
        click.echo(f"listening http={address}")
        sys.stdout.flush()
        await ending.wait()
    finally:
        await app.stop()
    return 0


def _log_to_stderr(level: str) -> None:
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    log_to_stderr(logging.WARNING, form, LogLimits(), force=True)
    for package in ("kongming", "kongming_extender", "kongming_scheduling"):
        logging.getLogger(package).setLevel(level.upper())


def run(args: Sequence[str]) -> int:
    """Run ``kongming-extender ARGS`` and return its exit status; errors are printed, not raised."""
    return entry.run(cli, "kongming-extender", args, extra="extender")


def main() -> None:
    """The console script."""
    standard_streams.prepare()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
