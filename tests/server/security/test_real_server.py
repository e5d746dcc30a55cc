"""Access on a real server process: tokens that come and go, TLS, refused addresses, and fuzzing
of everything behind the gate."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kongming_server.commands.security_commands import token
from kongming_server.commands.server_command import run
from kongming_server.security.certificates import init_tls

from tests.docs.tables import ROOT
from tests.server.fleet import FakeAgent
from tests.server.messages import messages
from tests.server.process import ServerProcess, eventually
from tests.server.stand import call, rpcs
from tests.variants import variants

LIST = "/kongming.rpc.v1.Fleet/ListNodes"
UNKNOWN, FORBIDDEN = "| `UNAUTHENTICATED` | 401 |", "| `PERMISSION_DENIED` | 403 |"
START = Callable[..., ServerProcess]


def token_command(*args: str) -> Any:
    result = CliRunner().invoke(token, [*args, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def code_of(channel: grpc.Channel, method: str, **options: Any) -> grpc.StatusCode:
    try:
        call(channel, method, **options)
    except grpc.RpcError as error:
        code = error.code()
        assert isinstance(code, grpc.StatusCode)
        return code
    return grpc.StatusCode.OK


def refusal(server: ServerProcess, channel: grpc.Channel, token: str | None = None) -> str:
    """The codes of a call by gRPC and of one by HTTP, as a table's last cells."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = http.client.HTTPConnection(server.http, timeout=60)
    headers["Content-Type"] = "application/json"
    connection.request("POST", "/v1/rank", body=b"{}", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return f"| `{code_of(channel, LIST, token=token).name}` | {status} |"


def test_a_token_is_heeded_and_revoked_while_the_server_runs(start_server: START) -> None:
    server = start_server(
        settings={"security.authenticate": "always", "security.tokens_period_s": 0.05}
    )
    channel = server.channel()
    assert code_of(channel, LIST) is grpc.StatusCode.UNAUTHENTICATED
    monitor = token_command("add", "--role", "monitor", "--store", server.store_url)["token"]
    created = token_command("add", "--role", "scheduler", "--store", server.store_url)
    secret = created["token"]
    eventually(lambda: code_of(channel, LIST, token=secret) is grpc.StatusCode.OK)
    token_command("revoke", created["id"], "--store", server.store_url)
    eventually(lambda: code_of(channel, LIST, token=secret) is grpc.StatusCode.UNAUTHENTICATED)
    # As docs/security.md has them, for each kind of caller.
    assert refusal(server, channel) == refusal(server, channel, secret) == UNKNOWN
    assert refusal(server, channel, monitor) == FORBIDDEN
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    assert [page.count(row) for row in (UNKNOWN, FORBIDDEN)] == [2, 1]
    assert server.get("/healthz")["alive"] is True
    assert secret not in server.log.read_text()
    assert secret.split("_", 2)[2] not in server.log.read_text()


def test_mutual_tls_from_the_command_line(start_server: START, tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    init_tls(tls)
    server = start_server(
        options=[
            *("--certificate", str(tls / "server.crt"), "--key", str(tls / "server.key")),
            *("--client-ca", str(tls / "ca.crt")),
        ]
    )
    root = (tls / "ca.crt").read_bytes()
    codes = {}
    for role in ("agent", "scheduler"):
        key, chain = ((tls / f"client-{role}.{end}").read_bytes() for end in ("key", "crt"))
        credentials = grpc.ssl_channel_credentials(root, key, chain)
        with grpc.secure_channel(server.grpc, credentials) as channel:
            codes[role] = code_of(channel, LIST)
    assert codes == {
        "agent": grpc.StatusCode.PERMISSION_DENIED,
        "scheduler": grpc.StatusCode.OK,
    }
    with grpc.insecure_channel(server.grpc) as channel:
        assert code_of(channel, LIST, timeout=30) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_an_open_address_is_refused(
    option: str, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--listen", "127.0.0.1:0", option, "0.0.0.0:0", "--store", store_url]) == 2
    message = capsys.readouterr().err
    assert "init-tls" in message
    assert "--insecure" in message


@pytest.mark.parametrize("calls", variants((50, 250)))
def test_nothing_that_is_sent_makes_the_server_fail(server: ServerProcess, calls: int) -> None:
    channel = server.channel()
    agent = FakeAgent(channel)
    agent.register(references=[agent.idle()])
    agent.report(agent.fingerprint())

    @settings(
        max_examples=calls,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(data=st.data(), method=st.sampled_from(sorted(rpcs())))
    def check(data: st.DataObject, method: str) -> None:
        message = data.draw(messages(rpcs()[method].input_type))
        # A watch has no end of its own.
        timeout = 0.3 if "/Watch" in method else 20.0
        code = code_of(channel, method, request=message, timeout=timeout)
        assert code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), (method, message)

    check()
    assert server.get("/readyz")["ready"] is True
    assert "Unexpected error" not in server.log.read_text()
    assert "Traceback" not in server.log.read_text()
