"""``kongming-agent``: measures this node and reports to a server, until it is stopped."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import click
import grpc

from kongming import __version__
from kongming import settings as declared
from kongming.help_examples import examples
from kongming.printable import log_to_stderr
from kongming.processes import entry
from kongming.processes.systemd import Notifier
from kongming.quantities import count
from kongming.rpc.channel import Connection, connection_from_settings
from kongming_agent import profiling as profile
from kongming_agent.agent import Agent
from kongming_agent.agent_config import Settings
from kongming_agent.profile_orders import profile_command
from kongming_agent.reporting import metrics
from kongming_agent.reporting.link import Link
from kongming_agent.reporting.metrics import Exporter, View
from kongming_agent.reporting.run_listener import Intake
from kongming_agent.reporting.spool import Spool
from kongming_agent.state_lock import only_agent

_log = logging.getLogger(__name__)

_LAST_WORDS_S = 2.0
_ONCE_S = 10.0
_LARGEST_ANSWER = 1 << 20
"""Bytes of an answer that the agent reads: ids of what runs on one node."""

_PR_SET_PDEATHSIG = 1


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples("kongming-agent --server 127.0.0.1:7400", "kongming-agent --once --json"),
)
@click.version_option(__version__, prog_name="kongming-agent", message="%(prog)s %(version)s")
@click.option("--server", "address", metavar="HOST:PORT", help="Server that receives the reports.")
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file (TOML).",
)
@click.option("--name", metavar="NAME", help="Name of the node for users and schedulers.")
@click.option("--state", metavar="DIR", help="Folder of the spool and the reference.")
@click.option(
    "--metrics", "listen", metavar="HOST:PORT", help='Serve /metrics at this address; "" for none.'
)
@click.option("--ca", metavar="FILE", help="Certificate authority of the server.")
@click.option("--cert", metavar="FILE", help="The agent's own certificate.")
@click.option("--key", metavar="FILE", help="Key of the certificate.")
@click.option("--token-file", metavar="FILE", help="A bearer token of the role agent.")
@click.option("--once", is_flag=True, help="Take one fingerprint of every cache domain, then exit.")
@click.option(
    "--json", "as_json", is_flag=True, help="With --once: print the measurements as JSON."
)
@click.option("--verbose", "-v", is_flag=True, help="Log each probe and its reason.")
@click.pass_context
def cli(
    context: click.Context,
    address: str | None,
    file: Path | None,
    name: str | None,
    state: str | None,
    listen: str | None,
    ca: str | None,
    cert: str | None,
    key: str | None,
    token_file: str | None,
    once: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    """Measure this node and report to a server.

    Undelivered records are kept on disk. Flags override the settings file.
    """
    log_to_stderr(logging.DEBUG if verbose else logging.INFO)
    if context.invoked_subcommand is not None:
        return 0
    if as_json and not once:
        raise click.UsageError("--json prints what --once measures: give both.")
    settings = declared.load(
        Settings,
        file,
        {
            "server.address": address,
            "server.ca": ca,
            "server.cert": cert,
            "server.key": key,
            "server.token_file": token_file,
            "node.name": name,
            "files.state": state,
            "metrics.listen": listen,
        },
    )
    if once:
        return _once(settings, as_json=as_json)
    # An unreadable file is reported at once, not when it is first needed.
    _connection(settings).open().close()
    with only_agent(settings.files.state_path()):
        return _stay(settings, file)


@cli.command(
    "profile",
    short_help="Profile applications of this node's own list.",
    epilog=examples("kongming-agent profile sort --config agent.toml"),
)
@click.argument("apps", metavar="APP...", nargs=-1, required=True)
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file (TOML).",
)
@click.option("--state", metavar="DIR", help="Folder of the spool and the reference.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@click.option("--requested", is_flag=True, hidden=True)
@click.option("--parent", type=int, metavar="PID", hidden=True)
@click.option("--campaign", default="", hidden=True)
def profile_cli(
    apps: Sequence[str],
    file: Path | None,
    state: str | None,
    as_json: bool,
    requested: bool,
    parent: int | None,
    campaign: str,
) -> int:
    """Profile APP... now; the agent delivers the runs. Only names in profile.allow of the settings
    are permitted. Exit status 1 if runs failed.
    """
    from kongming.campaigns.campaign import Budget
    from kongming.campaigns.journal import CampaignBusyError
    from kongming.probes.measuring import BusyError
    from kongming.records.errors import StoreError

    if requested and not _ends_with(parent):
        return profile.LATER
    settings = declared.load(Settings, file, {"files.state": state})
    folder = settings.files.state_path()
    profile.allowed(settings, apps)
    try:
        spool = Spool(folder / "spool.db", settings.files.spool_bytes)
        with closing(spool), profile.sole(folder):
            done = profile.profile_allowed(
                settings, apps, spool, Budget(60.0 * settings.profile.minutes), campaign
            )
    except (BusyError, CampaignBusyError, StoreError) as error:
        if not requested:
            raise
        click.echo(f"{error} {', '.join(apps)}: profiled later.", err=True)
        return profile.LATER
    if as_json:
        click.echo(json.dumps(done.to_dict()))
    else:
        more = "" if done.complete else "; the same command continues where this one stopped"
        click.echo(
            f"{count(done.runs, 'run')} ({done.failed} failed) and "
            f"{count(done.signatures, 'signature')}{more}"
        )
    return 1 if done.failed else 0


def _connection(settings: Settings) -> Connection:
    """Raises InputError for an address or a file that cannot be used."""
    connection = connection_from_settings(settings.server, settings.server.timeout_s)
    return replace(connection, largest_answer_bytes=_LARGEST_ANSWER)


def _channel(settings: Settings) -> Callable[[], grpc.Channel]:
    """Opens channels; a renewed token or certificate is read again each time."""
    return lambda: _connection(settings).open()


def _link(settings: Settings, spool: Spool, agent: Agent, rng: random.Random) -> Link:
    return Link(
        _channel(settings),
        spool,
        agent,
        timeout_s=settings.server.timeout_s,
        longest_retry_s=settings.server.longest_retry_s,
        rng=rng,
        server=settings.server.address,
        least_heartbeat_s=settings.server.least_heartbeat_s,
    )


def _intake(
    settings: Settings, spool: Spool, agent: Agent, link: Link, rng: random.Random
) -> Intake:
    return Intake(
        settings.files.inbox_path(),
        _channel(settings),
        spool,
        node=agent.node.id,
        placement=settings.profile.placement,
        latest=agent.latest,
        on_spooled=link.wake,
        timeout_s=settings.server.timeout_s,
        longest_retry_s=settings.server.longest_retry_s,
        rng=rng,
    )


def _once(settings: Settings, *, as_json: bool) -> int:
    _connection(settings).open().close()
    spool = Spool(settings.files.state_path() / "spool.db", settings.files.spool_bytes)
    rng = random.Random()
    try:
        agent = Agent(settings, spool, rng=rng)
        link = _link(settings, spool, agent, rng)
        taken = agent.once()
        delivered = link.flush(_ONCE_S)
        link.close()
        left = sum(spool.counts().values())
    finally:
        spool.close()
    if as_json:
        prints = [fingerprint.to_dict() for fingerprint in taken]
        click.echo(json.dumps({"delivered": delivered, "spooled": left, "fingerprints": prints}))
    else:
        outcome = (
            "delivered" if delivered else f"kept: {left} records wait for {settings.server.address}"
        )
        click.echo(f"{len(taken)} fingerprints taken and {outcome}")
    return 0 if delivered else 1


def _stay(settings: Settings, file: Path | None) -> int:
    folder = settings.files.state_path()
    notifier = Notifier()
    rng = random.Random()
    spool = Spool(folder / "spool.db", settings.files.spool_bytes)
    try:
        agent = Agent(
            settings,
            spool,
            rng=rng,
            notifier=notifier,
            profile_command=profile_command(file, folder),
        )
        link = _link(settings, spool, agent, rng)
        agent.on_spooled = link.wake
        exporter = Exporter(
            lambda: _view(agent, link, spool),
            listen=settings.metrics.listen,
            textfile=settings.metrics.textfile,
        )
        ending = threading.Event()
        intake = _intake(settings, spool, agent, link, rng)
        work: list[tuple[Callable[..., None], str, tuple[Any, ...]]] = [
            (link.run, "link", (ending,)),
            (intake.run, "intake", (ending,)),
        ]
        if settings.metrics.textfile:
            every_s = settings.metrics.textfile_s
            stuck_s = _stuck_s(settings.probing.signals_s)
            work.append(
                (_write, "textfile", (exporter, ending, every_s, lambda: agent.alive_at, stuck_s))
            )
        # As daemons: one that a server keeps busy must not keep the agent from ending.
        threads = [
            threading.Thread(target=run, name=name, args=args, daemon=True)
            for run, name, args in work
        ]
        needed = threads[:2]
        agent.sound = lambda: all(thread.is_alive() for thread in needed)

        def stop(signum: int, frame: FrameType | None) -> None:
            agent.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        # What a thread logs may be answered by a signal, which is to end the agent in order.
        for thread in threads:
            thread.start()
        _log.info(
            "node %s (%s), suite %s, %s, reports to %s",
            agent.node.name,
            agent.node.id,
            agent.suite.version,
            count(len(agent.domains), "cache domain"),
            settings.server.address,
        )
        try:
            agent.run()
        finally:
            ending.set()
            link.wake()
            exporter.close()
            # What is not delivered now is in the spool: nothing is waited for long.
            deadline = time.monotonic() + _LAST_WORDS_S
            for thread in threads:
                thread.join(timeout=max(0.0, deadline - time.monotonic()))
            link.close()
    finally:
        spool.close()
    return 0


def _write(
    exporter: Exporter,
    ending: threading.Event,
    every_s: float,
    alive_at: Callable[[], float],
    stuck_s: float,
) -> None:
    """Write the file of metrics, but for an agent that is stuck: the file's age tells it."""
    while not ending.wait(every_s):
        if time.monotonic() - alive_at() < stuck_s:
            exporter.write()


def _stuck_s(signals_s: float) -> float:
    """Time in seconds without a sign of life after which an agent is stuck, which gives one each
    ``signals_s``."""
    return max(_STUCK_S, 2.0 * signals_s)


_STUCK_S = 180.0
"""As WatchdogSec of the unit."""


def _view(agent: Agent, link: Link, spool: Spool) -> View:
    values: dict[str, list[metrics.Value]] = {k: list(v) for k, v in agent.view().items()}
    values["spool_records"] = [((kind,), count) for kind, count in spool.counts().items()]
    values["spool_bytes"] = [((), spool.bytes())]
    values["spool_thinned_total"] = [((), spool.thinned)]
    values["delivered_total"] = [((kind,), count) for kind, count in link.delivered.items()]
    values["refused_total"] = [((), link.refused)]
    values["other_node_total"] = [((), link.other_nodes)]
    values["server_connected"] = [((), float(link.connected))]
    values["server_failures_total"] = [((), link.failures)]
    return values


def _ends_with(parent: int | None) -> bool:
    """A requested campaign ends with the agent that started it; return whether that still runs, as
    far as is known: one of before the package was upgraded does not tell its pid (None)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # It may have ended while the interpreter started.
    return parent is None or os.getppid() == parent


def run(arguments: Sequence[str]) -> int:
    """Run ``kongming-agent ARGUMENTS`` and return its exit status; errors are printed."""
    return entry.run(cli, "kongming-agent", arguments, failures=(OSError,))


def main() -> None:
    """The console script."""
    signal.signal(signal.SIGTERM, entry.terminate)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
