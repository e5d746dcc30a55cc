"""The command: how it starts, refuses and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from kongming_server.app import all_ended
from kongming_server.commands import server_config as config
from kongming_server.commands.security_commands import token

from kongming import settings as declared
from kongming.rpc.v1 import fleet_pb2, profiles_pb2, profiles_pb2_grpc
from tests import warm_start
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess, eventually, python_path


def kongming_server(*args: str | Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": python_path()}
    return warm_start.run("kongming_server.commands.server_command", *args, env=env, timeout=60)


def test_it_serves_where_it_says_and_ends_in_good_order(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a user starts it, with nothing imported before.
    monkeypatch.setenv(warm_start.COLD, "1")
    server = start_server()
    health = health_pb2_grpc.HealthStub(server.channel())
    for service in ("", "kongming.rpc.v1.Predictor", "kongming.rpc.v1.Fleet"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=100)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert server.get("/healthz") == {"alive": True}
    assert server.stop() == 0


def test_reflection_names_every_service(server: ServerProcess) -> None:
    services = ProtoReflectionDescriptorDatabase(server.channel()).get_services()
    assert {f"kongming.rpc.v1.{n}" for n in ("Predictor", "Fleet", "Profiles", "Assignments")} < {
        *services
    }


def test_help_and_settings_need_no_server() -> None:
    helped = kongming_server("--help")
    assert helped.returncode == 0
    assert "--listen" in helped.stdout
    shown = kongming_server("--settings")
    document = tomllib.loads(shown.stdout)
    printed = {f"{section}.{name}" for section, values in document.items() for name in values}
    assert printed == {setting.key for setting in declared.table(config.Config)}


def test_the_printed_settings_are_a_valid_configuration(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(kongming_server("--settings").stdout)
    assert config.load(path) == config.Config()


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("--listen", "nonsense"), "server.listen"),
        (("--listen", "0.0.0.0:0"), "TLS"),
        (("--config", "/nowhere.toml"), "/nowhere.toml"),
        (("--store", "nonsense"), "store"),
        (("--dusk", "x"), "--dusk"),
    ],
)
def test_wrong_input_ends_with_status_2_and_names_it(args: tuple[str, ...], word: str) -> None:
    ended = kongming_server("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *args)
    assert ended.returncode == 2
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_server_that_cannot_listen_says_so_and_makes_no_store(
    server: ServerProcess, tmp_path: Path
) -> None:
    free = "127.0.0.1:0"
    for listen, http, words in (
        (server.grpc, free, "another port with --listen"),
        (free, server.http, "another port with --http"),
        # An address for documentation (RFC 5737), which no machine has.
        ("192.0.2.1:0", free, "an address of this machine with --listen"),
    ):
        store = ("--store", f"sqlite:///{tmp_path / 'other.db'}", "--insecure")
        ended = kongming_server("--listen", listen, "--http", http, *store)
        assert ended.returncode == 1
        assert "Cannot listen on" in ended.stderr
        assert words in ended.stderr
        assert "Traceback" not in ended.stderr
        assert list(tmp_path.glob("other.db*")) == []


def test_http_can_be_left_out(start_server: StartServer) -> None:
    server = start_server(options=["--http", ""])
    assert server.http == ""


def test_a_report_under_way_is_answered_before_the_end(start_server: StartServer) -> None:
    # The second transaction waits for more records: a second where there is one.
    server = start_server(settings={"ingest.gather_s": 5.0})
    agent = FakeAgent(server.channel())
    agent.register()
    agent.report(agent.fingerprint())
    heard = agent.node().last_heartbeat.ToNanoseconds()
    reported = agent.request(agent.fingerprint())
    request = fleet_pb2.ReportRequest(node_id=agent.facts.id, fingerprints=[reported])
    call = agent.fleet.Report.future(request, timeout=100)
    eventually(lambda: agent.node().last_heartbeat.ToNanoseconds() > heard)
    assert server.stop() == 0
    assert list(call.result().accepted) == [reported.fingerprint.id]


def test_a_second_signal_ends_it_at_once(start_server: StartServer) -> None:
    server = start_server(settings={"server.grace_s": 60.0})
    channel = server.channel()
    agent = FakeAgent(channel)
    agent.register()
    profiles = profiles_pb2_grpc.ProfilesStub(channel)  # type: ignore[no-untyped-call]
    sending, ended = threading.Event(), threading.Event()

    def unfinished() -> Iterator[profiles_pb2.ImportRunsRequest]:
        sending.set()
        ended.wait()
        yield from ()

    call = profiles.ImportRuns.future(unfinished(), timeout=60)
    assert sending.wait(20)
    # The server has seen the stream's beginning, and another call after it.
    agent.heartbeat()
    os.kill(server.pid, signal.SIGTERM)
    eventually(lambda: _code(agent.heartbeat) is grpc.StatusCode.UNAVAILABLE)
    assert server.stop() == 128 + signal.SIGTERM
    ended.set()
    call.cancel()


def test_a_store_that_does_not_answer_does_not_keep_it_from_ending(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The store's file is locked for longer than any test takes."""
    settings = {"server.grace_s": 0.1, "server.lock_timeout_s": 3600.0}
    server = start_server(settings=settings, store_url=f"sqlite:///{tmp_path / 'held.db'}")
    agent = FakeAgent(server.channel())
    agent.register()
    with closing(sqlite3.connect(tmp_path / "held.db", isolation_level=None)) as holding:
        holding.execute("BEGIN EXCLUSIVE")
        assert server.stop() == 1
        holding.execute("ROLLBACK")
    assert "Ended before everything was in order: the store" in server.log.read_text()
    # What was acknowledged is there.
    server.start()
    assert agent.node().facts.id == agent.facts.id


def test_both_ports_end_together(start_server: StartServer) -> None:
    server = start_server(settings={"server.grace_s": 60.0})
    agent = FakeAgent(server.channel())
    agent.register()
    host, _, port = server.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as asking:
        asking.sendall(
            b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n"
        )
        assert b"100 Continue" in asking.recv(1024)
        os.kill(server.pid, signal.SIGTERM)
        eventually(lambda: _code(agent.heartbeat) is grpc.StatusCode.UNAVAILABLE)
        # The other port still waits for what was begun there.
        asking.settimeout(0.1)
        with pytest.raises(TimeoutError):
            asking.recv(1)
        assert server.stop() == 128 + signal.SIGTERM


def _code(call: Callable[[], object]) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_a_call_to_no_method_is_unimplemented(server: ServerProcess) -> None:
    call = server.channel().unary_unary(
        "/kongming.rpc.v1.Fleet/Nothing",
        request_serializer=fleet_pb2.ListNodesRequest.SerializeToString,
        response_deserializer=fleet_pb2.ListNodesResponse.FromString,
    )
    with pytest.raises(grpc.RpcError) as refused:
        call(fleet_pb2.ListNodesRequest(), timeout=100)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_the_list_of_token_commands_cuts_no_sentence() -> None:
    listed = [command.get_short_help_str(60) for command in token.commands.values()]
    assert listed
    assert not [text for text in listed if not text.endswith(".") or text.endswith("...")]


def test_what_fails_to_end_lets_the_other_come_to_its_end() -> None:
    ended: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(0.01)
        ended.append("slow")

    async def failing() -> None:
        raise OSError("no more files")

    with pytest.raises(OSError, match="no more files"):
        asyncio.run(all_ended(slow(), failing()))
    assert ended == ["slow"]
