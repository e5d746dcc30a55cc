"""What callers without a token can do to a real server: over TLS, with 256 files to open."""

from __future__ import annotations

import json
import os
import resource
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPSConnection
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from kongming_server.commands.security_commands import token
from kongming_server.security.certificates import init_tls

from kongming.rpc.channel import Connection
from tests import warm_start
from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess, eventually

HANDLES = 256
IDLE_S = 1.0
MIB = 1 << 20
PREDICT = "/kongming.rpc.v1.Predictor/Predict"


class Fortress:
    """A server over TLS with tokens, and how strangers and callers reach it."""

    def __init__(self, folder: Path) -> None:
        tls = folder / "tls"
        init_tls(tls)
        self.ca = tls / "ca.crt"
        self.server = ServerProcess(
            folder,
            settings={"limits.idle_s": IDLE_S},
            options=["--certificate", str(tls / "server.crt"), "--key", str(tls / "server.key")],
        )
        self.context = ssl.create_default_context(cafile=str(self.ca))

    def start(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # It is inherited, and by no process that runs already.
        resource.setrlimit(resource.RLIMIT_NOFILE, (HANDLES, hard))
        try:
            self.server.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def ports(self) -> list[tuple[str, int]]:
        return [(host, int(port)) for host, _, port in self._addresses()]

    def _addresses(self) -> list[tuple[str, str, str]]:
        return [self.server.grpc.rpartition(":"), self.server.http.rpartition(":")]

    def token(self, role: str) -> str:
        arguments = ["add", "--role", role, "--store", self.server.store_url, "--json"]
        completed = CliRunner().invoke(token, arguments, catch_exceptions=False)
        return str(json.loads(completed.stdout)["token"])

    def registers(self, secret: str, name: str) -> bool:
        connection = Connection(self.server.grpc, ca=self.ca, token=secret)
        try:
            with connection.open() as channel:
                FakeAgent(channel, name).register()
        except grpc.RpcError:
            return False
        return True

    def healthy(self) -> bool:
        connection = HTTPSConnection(self.server.http, context=self.context, timeout=10)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def memory(self, name: str) -> int:
        """``VmRSS`` now, or ``VmHWM`` at its peak, in bytes."""
        lines = Path(f"/proc/{self.server.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))

    def handles(self) -> int:
        return len(list(Path(f"/proc/{self.server.pid}/fd").iterdir()))


@pytest.fixture(scope="module")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    running = Fortress(tmp_path_factory.mktemp("fortress"))
    with pytest.MonkeyPatch.context() as patch:
        # Limits are inherited by what is started, not by what is forked of another process.
        patch.setenv(warm_start.COLD, "1")
        running.start()
    yield running
    running.server.close()


def test_a_message_of_a_stranger_is_not_even_read(fortress: Fortress) -> None:
    # Two bytes each: millions of questions, had they been decoded.
    body = b"\x12\x00" * (8 * MIB - 8)
    credentials = grpc.ssl_channel_credentials(fortress.ca.read_bytes())

    def send(_: int) -> grpc.StatusCode:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.secure_channel(fortress.server.grpc, credentials, options) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(PREDICT)(body, timeout=60)
            code = refused.value.code()
            assert isinstance(code, grpc.StatusCode)
            return code

    assert send(0) is grpc.StatusCode.UNAUTHENTICATED
    before = fortress.memory("VmHWM")
    with ThreadPoolExecutor(4) as callers:
        codes = set(callers.map(send, range(8)))
    assert codes == {grpc.StatusCode.UNAUTHENTICATED}
    assert fortress.memory("VmHWM") - before < 32 * MIB


def _closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


STAGES = {
    "nothing": b"",
    "half a header": b"GET /healthz HTTP/1.1\r\nHost: local",
    "half a body": b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    "HTTP/2, and no settings": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


def test_connections_that_ask_nothing_are_ended(fortress: Fortress) -> None:
    with ExitStack() as open_ones:
        connections = {}
        for host, port in fortress.ports():
            plain = open_ones.enter_context(socket.create_connection((host, port), timeout=10))
            connections[port, "no handshake"] = plain
            for stage, sent in STAGES.items():
                context = ssl.create_default_context(cafile=str(fortress.ca))
                context.set_alpn_protocols(["h2"])
                raw = socket.create_connection((host, port), timeout=10)
                tls = context.wrap_socket(raw, server_hostname="localhost")
                open_ones.callback(tls.close)
                tls.sendall(sent)
                connections[port, stage] = tls
        left = set(connections)

        def all_ended() -> bool:
            left.difference_update([key for key in left if _closed(connections[key])])
            return not left

        eventually(all_ended, timeout_s=60)


def _hold(fortress: Fortress, count: int) -> None:
    """Open so many idle TLS connections to both ports, and look after others meanwhile."""
    secret = fortress.token("agent")
    agent = Connection(fortress.server.grpc, ca=fortress.ca, token=secret)
    context = ssl.create_default_context(cafile=str(fortress.ca))
    context.set_alpn_protocols(["h2", "http/1.1"])
    most_handles = 0
    with ExitStack() as open_ones, agent.open() as channel:
        eventually(lambda: fortress.registers(secret, f"first-of-{count}"))
        old = FakeAgent(channel, f"old-of-{count}")
        old.register()
        ports = fortress.ports()
        for number in range(count):
            raw = socket.create_connection(ports[number % 2], timeout=10)
            open_ones.callback(raw.close)
            try:
                tls = context.wrap_socket(raw, server_hostname="localhost")
            except OSError:
                # Ended by the server at once: there were too many.
                continue
            open_ones.callback(tls.close)
            if number % 100 == 99:
                most_handles = max(most_handles, fortress.handles())
        eventually(lambda: fortress.registers(secret, f"second-of-{count}"), timeout_s=60)
        eventually(fortress.healthy, timeout_s=60)
        old.register()
    # Some are kept for the store and for logs.
    assert most_handles <= HANDLES - 32


def test_idle_connections_shut_nobody_out(fortress: Fortress) -> None:
    _hold(fortress, 300)
    log = fortress.server.log.read_text()
    assert len(log) < MIB // 10
    assert "Traceback" not in log


@pytest.mark.thorough
def test_a_thousand_idle_connections_shut_nobody_out(fortress: Fortress) -> None:
    _hold(fortress, 1000)
    assert fortress.server.log.stat().st_size < MIB


def test_what_speaks_no_protocol_fills_no_log(fortress: Fortress) -> None:
    before = fortress.server.log.stat().st_size
    for number in range(100):
        with socket.create_connection(fortress.ports()[number % 2], timeout=10) as connection:
            connection.sendall(os.urandom(100) + b"\r\n\r\n")
            _closed(connection)
    eventually(fortress.healthy)
    assert fortress.server.log.stat().st_size - before < 32 << 10


def test_two_authorizations_are_none(fortress: Fortress) -> None:
    right = f"Bearer {fortress.token('operator')}"
    credentials = grpc.ssl_channel_credentials(fortress.ca.read_bytes())
    with grpc.secure_channel(fortress.server.grpc, credentials) as channel:
        ask = channel.unary_unary("/kongming.rpc.v1.Fleet/ListNodes")
        eventually(lambda: _code(ask, [right]) is grpc.StatusCode.OK)
        assert _code(ask, ["Bearer another", right]) is grpc.StatusCode.UNAUTHENTICATED
        assert _code(ask, [right, right]) is grpc.StatusCode.UNAUTHENTICATED


def _code(ask: grpc.UnaryUnaryMultiCallable, shown: list[str]) -> grpc.StatusCode:
    try:
        ask(b"", timeout=10, metadata=[("authorization", authorization) for authorization in shown])
    except grpc.RpcError as error:
        code = error.code()
        assert isinstance(code, grpc.StatusCode)
        return code
    return grpc.StatusCode.OK
