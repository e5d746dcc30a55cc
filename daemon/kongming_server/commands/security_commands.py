"""``kongming-server init-tls`` and ``kongming-server token``: access, set up from the terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click

from kongming.help_examples import examples
from kongming.processes.entry import json_text
from kongming.records import moments
from kongming.records.errors import InputError, UnknownNameError
from kongming.store import Store, StoredToken
from kongming.store.urls import shown_url
from kongming_server.commands.server_config import load
from kongming_server.configuration.settings import Server as ServerSettings
from kongming_server.security.roles import Role
from kongming_server.security.tokens import CERTIFICATE, FINGERPRINT_DIGITS, duration_s, issue

__all__ = ["init_tls", "token"]


def _json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--json", "as_json", is_flag=True, help="Print exactly one JSON document on stdout."
    )(function)


def _store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    config = click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The server's configuration: tokens are kept in its store.",
    )
    store = click.option("--store", "store_url", metavar="URL", help="The server's store.")
    file = click.option(
        "--store-file",
        "store_file",
        metavar="FILE",
        help="A file with the store's URL, where that holds a password.",
    )

    @config
    @store
    @file
    @wraps(function)
    def with_store(
        config_path: Path | None, store_url: str | None, store_file: str | None, **others: Any
    ) -> Any:
        settings = load(config_path, {"server.store": store_url, "server.store_file": store_file})
        return function(server=settings.server, **others)

    return with_store


@click.command(
    "init-tls",
    epilog=examples(
        "kongming-server init-tls tls --name server.example",
        "kongming-server init-tls tls --agent node-7",
    ),
)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", "names", multiple=True, help="A host name or address of the server.")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NODE",
    help="Name of a node whose agent gets a certificate of its own, by the authority that is "
    "there.",
)
@click.option("--days", default=365, show_default=True, help="How long the certificates count.")
@click.option("--renew", is_flag=True, help="Keep the authority that is there.")
@_json_option
def init_tls(
    directory: Path,
    names: tuple[str, ...],
    agents: tuple[str, ...],
    days: int,
    renew: bool,
    as_json: bool,
) -> None:
    """Make a private authority and certificates in DIRECTORY, to try TLS out.

    The server's certificate is good for localhost and each --name; there is a client certificate
    for each role, and one for each --agent. Keys are readable by you alone. Keep ca.key away from
    the server.
    """
    from kongming_server.security import certificates

    written = certificates.init_tls(directory, names, days=days, renew=renew, agents=agents)
    if as_json:
        _print_json(
            {
                "directory": str(written.directory),
                "files": [path.name for path in written.files],
                "names": list(written.names),
                "until": written.until,
            }
        )
        return
    for path in written.files:
        click.echo(path)
    if not any(path.stem == "server" for path in written.files):
        return
    click.echo(
        f"Good for {', '.join(written.names)} until {written.until}. Next:\n"
        f"  kongming-server --certificate {directory}/server.crt --key {directory}/server.key "
        f"--client-ca {directory}/ca.crt\n"
        f"  kongming nodes --server HOST:PORT --ca {directory}/ca.crt "
        f"--cert {directory}/client-operator.crt --key {directory}/client-operator.key\n"
        "With tokens instead of client certificates, leave out --client-ca.",
        err=True,
    )


@click.group(
    "token",
    epilog=examples("kongming-server token add --role monitor --out monitor.token"),
)
def token() -> None:
    """Make, list and revoke the tokens by which callers are known."""


@token.command(
    "add",
    epilog=examples(
        "kongming-server token add --role scheduler --expires 30d --out scheduler.token",
        "kongming-server token add --role agent --node 'rack-7-*' --out agent.token",
    ),
)
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True)
@click.option("--expires", metavar="DURATION", help="As 12h, 30d or 52w; else it never does.")
@click.option("--name", default="", help="Whom or what it is for; it is shown in lists and logs.")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME",
    help="With --role agent: the name of a node that it is for, as 'n1' or 'rack-7-*'; repeat it "
    "for more. Without any it is for whichever node it registers first.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the token to a new file that you alone can read, instead of stdout.",
)
@_store_options
@_json_option
def add(
    role: str,
    expires: str | None,
    name: str,
    nodes: tuple[str, ...],
    out: Path | None,
    server: ServerSettings,
    as_json: bool,
) -> None:
    """Make a token and show it, this once: only its hash is kept."""
    now = time.time()
    if len(name) > 200 or not name.isprintable():
        raise InputError(
            "is not allowed.", field="name", value=name, allowed="up to 200 printable characters"
        )
    _check_nodes(nodes, role)
    token = issue()
    stored = StoredToken(
        id=token.id,
        role=role,
        secret_hash=token.digest,
        created_at=now,
        expires_at=None if expires is None else now + duration_s(expires),
        subject=name,
        nodes=tuple(dict.fromkeys(nodes)),
    )
    # The file first: a token that nobody could be given is not to be kept either.
    if out is not None:
        _write_secret(out, token.text)
    try:
        with _store(server) as store:
            store.add_token(stored)
    except BaseException:
        if out is not None:
            with suppress(OSError):
                out.unlink()
        raise
    if as_json:
        shown = {"token": token.text} if out is None else {"file": str(out)}
        _print_json(_document(stored, now) | shown)
        return
    click.echo(f"Token {token.id}: {role}, {_validity(stored, now)}.", err=True)
    click.echo(token.text if out is None else out)


@token.command("list", epilog=examples("kongming-server token list --json"))
@_store_options
@_json_option
def list_(server: ServerSettings, as_json: bool) -> None:
    """List the tokens: never their secrets."""
    now = time.time()
    with _known_store(server) as store:
        tokens = store.tokens()
    if as_json:
        _print_json({"tokens": [_document(token, now) for token in tokens]})
        return
    if not tokens:
        where = shown_url(server.store_url())
        click.echo(f"There is no token in {where}. Make one: kongming-server token add", err=True)
    for token in tokens:
        nodes = f"for {', '.join(token.nodes)}" if token.nodes else ""
        parts = (token.id, token.role.ljust(9), _validity(token, now), token.subject, nodes)
        click.echo("  ".join(filter(None, parts)))


@token.command(
    "revoke", epilog=examples("kongming-server token revoke 3f9a1c --store sqlite:///cluster.db")
)
@click.argument("token_id", metavar="ID", required=False)
@click.option(
    "--certificate",
    metavar="FINGERPRINT",
    help="Refuse a client certificate from now on: the first 16 digits, or all, of its SHA-256.",
)
@_store_options
@_json_option
def revoke(
    token_id: str | None,
    certificate: str | None,
    server: ServerSettings,
    as_json: bool,
) -> None:
    """Revoke a token or a certificate.

    ID is what 'token list' shows. It is refused from the next time that a server reads its tokens
    (security.tokens_period_s, 1 s by default).

    A certificate's fingerprint: openssl x509 -in FILE -noout -fingerprint -sha256
    """
    now = time.time()
    if (token_id is None) == (certificate is None):
        raise InputError(
            "is missing: say what to revoke.",
            field="ID",
            allowed="an ID, or --certificate",
        )
    if certificate is not None:
        with _known_store(server) as store:
            refused = _refuse_certificate(store, certificate, now)
        if as_json:
            _print_json(_document(refused, now))
            return
        click.echo(f"Certificate {refused.id} is revoked.")
        return
    assert token_id is not None
    with _known_store(server) as store:
        revoked = store.revoke_token(token_id, now)
        known = {token.id: token for token in store.tokens()}
    if token_id not in known:
        # The whole token may have been pasted: it must not end in a message.
        raise UnknownNameError("token", token_id if len(token_id) <= 12 else "?", known)
    if as_json:
        _print_json(_document(known[token_id], now))
        return
    click.echo(f"Token {token_id} {'is revoked' if revoked else 'was revoked before'}.")


@token.command("release", epilog=examples("kongming-server token release node-7"))
@click.argument("node", metavar="NODE", required=False, default="")
@click.option("--of", "token_id", metavar="ID", help="Release all nodes of the token ID instead.")
@_store_options
@_json_option
def release(node: str, token_id: str | None, server: ServerSettings, as_json: bool) -> None:
    """Let another agent speak for a node.

    NODE is an id or a name; the next agent that speaks for it keeps it. Nodes of a token that was
    revoked or has expired wait for this.
    """
    if bool(node) == (token_id is not None):
        raise InputError("is missing.", field="node", allowed="a node, or --of with a token's id")
    if token_id is not None:
        _release_all(token_id, server, as_json)
        return
    with _known_store(server) as store:
        known = {each.node_id: each for each in store.agents()}
        names = {each.id: each.name for each in store.nodes(node_ids=set(known))}
        matches = [id_ for id_ in known if node in (id_, names.get(id_))]
        if not matches:
            raise UnknownNameError("node", node, [*known, *names.values()])
        if len(matches) > 1:
            raise InputError(
                "is the name of several nodes.",
                field="node",
                value=node,
                allowed=f"an id: {', '.join(sorted(matches)[:5])}",
            )
        agent = known[matches[0]]
        holder = str(agent.document.get("bound_to", ""))
        store.put_agent(agent.node_id, {**agent.document, "bound_to": ""}, agent.seen_at)
    if as_json:
        _print_json({"node": agent.node_id, "released_from": holder or None})
        return
    click.echo(f"Node {agent.node_id} {f'is released from {holder}' if holder else 'was free'}.")


def _release_all(token_id: str, server: ServerSettings, as_json: bool) -> None:
    holder = f"token {token_id}"
    with _known_store(server) as store:
        held = [agent for agent in store.agents() if agent.document.get("bound_to") == holder]
        for agent in held:
            store.put_agent(agent.node_id, {**agent.document, "bound_to": ""}, agent.seen_at)
    ids = [agent.node_id for agent in held]
    if as_json:
        _print_json({"nodes": ids, "released_from": holder})
        return
    click.echo(f"{len(ids)} nodes are released from {holder}.")


def _check_nodes(nodes: tuple[str, ...], role: str) -> None:
    if nodes and role != Role.AGENT:
        raise InputError("is of the role agent alone.", field="node", value=nodes[0])
    for name in nodes:
        if not name or len(name) > 256 or not name.isprintable():
            raise InputError(
                "is no name of a node.",
                field="node",
                value=name,
                allowed="up to 256 printable characters",
            )


def _refuse_certificate(store: Store, fingerprint: str, now: float) -> StoredToken:
    digits = fingerprint.replace(":", "").strip().lower()
    if len(digits) not in (FINGERPRINT_DIGITS, 64) or not set(digits) <= set("0123456789abcdef"):
        raise InputError(
            "is not a fingerprint.",
            field="certificate",
            value=fingerprint,
            allowed=f"{FINGERPRINT_DIGITS} or 64 hexadecimal digits",
        )
    # Among the tokens, so that all servers of the store read it; no text has this as its hash.
    entry = StoredToken(
        id=digits[:FINGERPRINT_DIGITS],
        role=CERTIFICATE,
        secret_hash="",
        created_at=now,
        revoked_at=now,
    )
    known = store.token(entry.id)
    if known is not None:
        return known
    store.add_token(entry)
    return entry


def _store(server: ServerSettings) -> Store:
    return Store.open(server.store_url())


def _known_store(server: ServerSettings) -> Store:
    """The store as it is: after a mistyped name none is made. Raises InputError."""
    return Store.open(server.store_url(), create=False)


def _write_secret(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise InputError(
            f"{path} exists already.", field="out", hint="Remove it, or name another file."
        ) from error
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(text + "\n")


def _document(token: StoredToken, now: float) -> dict[str, Any]:
    """All but the hash."""
    return {
        "id": token.id,
        "role": token.role,
        "name": token.subject,
        "nodes": list(token.nodes),
        "state": _state(token, now),
        "created_at": _iso(token.created_at),
        "expires_at": _iso(token.expires_at),
        "revoked_at": _iso(token.revoked_at),
    }


def _state(token: StoredToken, now: float) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and now >= token.expires_at else "valid"


def _validity(token: StoredToken, now: float) -> str:
    state = _state(token, now)
    if state == "revoked":
        return f"revoked {_iso(token.revoked_at)}"
    end = _iso(token.expires_at)
    if state == "expired":
        return f"expired {end}"
    return "valid without an end" if end is None else f"valid until {end}"


def _iso(moment: float | None) -> str | None:
    """None also for what lies beyond the year 9999, as the end of a token of an earlier version
    may: all tokens are listed, whatever one of them has."""
    if moment is None:
        return None
    with suppress(InputError):
        return moments.format(moment, "seconds")
    return None


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json_text(document))
