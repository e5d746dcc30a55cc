"""Access that ends while it is in use: tokens, certificates, and streams that are open."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from kongming_server.commands.security_commands import token
from kongming_server.configuration.limits import Limits
from kongming_server.configuration.settings import Security
from kongming_server.monitoring.metrics import Metrics
from kongming_server.security import Guard, TokenBook
from kongming_server.security.certificates import holder, init_tls
from kongming_server.security.tokens import CERTIFICATE, issue

from kongming.records.errors import AccessError, InputError, OverloadedError, UnavailableError
from kongming.rpc import client
from kongming.rpc import record_codec as records
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from kongming.rpc.v1 import fleet_pb2, profiles_pb2
from kongming.store import Store, StoredToken
from tests import builders
from tests.server.process import eventually
from tests.server.stand import Stand, call

WATCH = "/kongming.rpc.v1.Fleet/WatchNode"
IMPORT = "/kongming.rpc.v1.Profiles/ImportRuns"
PREDICT = "/kongming.rpc.v1.Predictor/Predict"
HEALTH = "/grpc.health.v1.Health/Watch"
PEER = "ipv4:192.0.2.1:1"


def test_a_stream_ends_with_the_token_that_opened_it() -> None:
    secret = issue()
    rows = [StoredToken(secret.id, "scheduler", secret.digest, created_at=0.0)]

    async def watch(request: Any, context: Any) -> Any:
        # As the refresh of tokens would between two answers.
        if stand.calls[1:]:
            rows[0] = replace(rows[0], revoked_at=1.0)
            stand.tokens.load()
        return fleet_pb2.WatchNodeResponse()

    with Stand(
        Security(authenticate="always"), tokens=lambda: rows, behaviours={"WatchNode": watch}
    ) as stand:
        with stand.channel() as channel:
            assert len(call(channel, WATCH, token=secret.text)) == 1
            with pytest.raises(grpc.RpcError) as ended:
                call(channel, WATCH, token=secret.text)
            assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
        eventually(lambda: stand.sample("kongming_server_streams_open") == 0)


def test_an_import_ends_with_its_token() -> None:
    secret = issue()
    rows = [StoredToken(secret.id, "operator", secret.digest, created_at=0.0)]
    with Stand(Security(authenticate="always"), tokens=lambda: rows) as stand:

        def records() -> Any:
            yield profiles_pb2.ImportRunsRequest().SerializeToString()
            rows[0] = replace(rows[0], expires_at=1.0)
            stand.tokens.load()
            yield profiles_pb2.ImportRunsRequest().SerializeToString()

        with stand.channel() as channel, pytest.raises(grpc.RpcError) as ended:
            channel.stream_unary(IMPORT)(
                records(), timeout=20, metadata=[("authorization", f"Bearer {secret.text}")]
            )
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert not stand.calls


def test_a_stream_that_ends_for_its_age_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    async def watch(request: Any, context: Any) -> Any:
        opened.append(request)
        if len(opened) == 1:
            raise UnavailableError("The connection is old.")
        node = fleet_pb2.Node(facts=records.node_to_message(builders.node()))
        node.state = fleet_pb2.NODE_STATE_READY
        return fleet_pb2.WatchNodeResponse(node=node)

    with Stand(behaviours={"WatchNode": watch}) as stand:
        with RemoteService(Connection(stand.grpc)) as service:
            with pytest.raises(UnavailableError):
                list(service.watch_node("node-1"))
            del opened[:]
            monkeypatch.setattr(client, "AGED_S", 0.0)
            assert len(list(service.watch_node("node-1"))) == 1
        assert len(opened) == 2


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    init_tls(directory)
    return directory


class Wall:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_certificate_ends_on_a_connection_that_is_open(tls: Path) -> None:
    pem = (tls / "client-scheduler.crt").read_bytes()
    wall = Wall()
    wall.now = holder(pem).until - 1.0
    guard = Guard(Security(authenticate="always"), Limits(), metrics=Metrics(), wall=wall)
    ticket = guard.admit(PREDICT, PEER, None, pem)
    guard.check(ticket)
    wall.now += 1.0
    for late in (lambda: guard.check(ticket), lambda: guard.admit(PREDICT, PEER, None, pem)):
        with pytest.raises(AccessError, match="expired") as refused:
            late()
        assert refused.value.reason == "unauthenticated"


def revoke(*arguments: str) -> Any:
    result = CliRunner().invoke(token, ["revoke", *arguments, "--json"], catch_exceptions=False)
    return json.loads(result.stdout)


def test_a_certificate_that_was_revoked_is_refused(tls: Path, store_url: str) -> None:
    stolen, other = ((tls / f"client-{role}.crt").read_bytes() for role in ("agent", "scheduler"))
    with Store.open(store_url) as store:
        book = TokenBook(store.tokens)
        guard = Guard(
            Security(authenticate="always"), Limits(), metrics=Metrics(), tokens=book, wall=Wall()
        )
        report = "/kongming.rpc.v1.Fleet/Report"
        ticket = guard.admit(report, PEER, None, stolen)
        # As openssl prints it.
        digits = holder(stolen).fingerprint.upper()
        shown = ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))
        revoked = revoke("--certificate", shown, "--store", store_url)
        assert (revoked["id"], revoked["role"]) == (holder(stolen).fingerprint, CERTIFICATE)
        assert revoke("--certificate", shown, "--store", store_url) == revoked
        asyncio.run(book.refresh())
        for late in (lambda: guard.check(ticket), lambda: guard.admit(report, PEER, None, stolen)):
            with pytest.raises(AccessError, match="revoked"):
                late()
        guard.leave(guard.admit(PREDICT, PEER, None, other))
        # The entry is no token, whatever is shown.
        for text in ("", holder(stolen).fingerprint):
            with pytest.raises(AccessError):
                guard.admit(report, PEER, f"Bearer {text}")


@pytest.mark.parametrize(
    "arguments", [[], ["abc", "--certificate", "0" * 16], ["--certificate", "xyz"]]
)
def test_what_to_revoke_is_said_once_and_rightly(store_url: str, arguments: list[str]) -> None:
    with pytest.raises(InputError):
        CliRunner().invoke(
            token, ["revoke", *arguments, "--store", store_url], catch_exceptions=False
        )


def test_streams_that_anybody_may_open_are_few_and_take_none_of_others() -> None:
    guard = Guard(
        Security(authenticate="always"), Limits(public_streams=8, streams=10), metrics=Metrics()
    )
    held = [guard.admit(HEALTH, PEER, stream=True) for _ in range(8)]
    with pytest.raises(OverloadedError, match="public_streams"):
        guard.admit(HEALTH, "ipv4:192.0.2.1:9", stream=True)
    held += [guard.admit(HEALTH, f"ipv4:192.0.2.{host}:1", stream=True) for host in range(2, 30)]
    opened = Guard(Security(), Limits(streams=1), metrics=Metrics())
    opened.admit(HEALTH, PEER, stream=True)
    opened.leave(opened.admit(WATCH, PEER, stream=True))
    # Nor may there be many from as many addresses as one caller can have.
    peers = (f"ipv6:[2001:db8:0:{network:x}::1]:1" for network in range(2000))
    held += [guard.admit(HEALTH, next(peers), stream=True) for _ in range(1024 - len(held))]
    with pytest.raises(OverloadedError, match="public_streams"):
        guard.admit(HEALTH, next(peers), stream=True)
    for ticket in held:
        guard.leave(ticket)
    guard.leave(guard.admit(HEALTH, PEER, stream=True))
