"""The extender's HTTP side: who may call, deadlines, invalid requests, and the command itself."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import pytest
from kongming_extender import extender_config as settings
from kongming_extender.extender_command import run
from kongming_extender.tls import check_caller
from kongming_server.security.certificates import init_tls

from kongming import settings as declared
from kongming.records.errors import AccessError, InputError, KongmingError
from tests.kubernetes import clusters
from tests.kubernetes.extenders import Extender, config
from tests.kubernetes.test_scheduler import Fleet
from tests.server.process import python_path
from tests.server.stand import Behaviour, Stand

NAMES = ["node-1", "node-2"]
NO_SERVER = "127.0.0.1:1"


def test_invalid_requests_are_refused_with_a_reason() -> None:
    async def scenario() -> None:
        async with Extender(config(NO_SERVER, extender={"body_bytes": 2000})) as extender:
            status, answer = await extender.post("/filter", b"{")
            assert status == 400
            assert "not JSON" in answer["Error"]
            assert (await extender.post("/prioritize", b'{"Pod":null}'))[0] == 400
            assert (await extender.get("/filter"))[0] == 405
            assert (await extender.get("/bind"))[0] == 404
            url = f"http://{extender.address}/filter"
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, data=b"x" * 5000) as answered,
            ):
                assert answered.status == 413
            status, text = await extender.get("/metrics")
            assert status == 200
            refused = 'kongming_extender_requests_total{outcome="refused",verb="filter"} 1.0'
            assert refused in text

    asyncio.run(scenario())


def test_a_request_that_does_not_end_is_ended() -> None:
    async def scenario() -> None:
        async with Extender(config(NO_SERVER), idle_s=0.3) as extender:
            host, _, port = extender.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            answer = await asyncio.wait_for(reader.read(), timeout=60)
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"Connection: close" in answer
            writer.close()
            # A scheduler's connection stays between two pods.
            assert (await extender.filter(clusters.pod(), NAMES))[0] == NAMES

    asyncio.run(scenario())


def test_a_server_that_hangs_delays_a_response_no_longer_than_the_deadline() -> None:
    hanging, ended = 0, 0

    async def hang(request: Any, context: Any) -> Any:
        nonlocal hanging, ended
        hanging += 1
        await asyncio.sleep(600)
        ended += 1

    async def scenario(address: str) -> None:
        pod = clusters.pod(app="etl", limit=1.1)
        patient = config(address, server={"deadline_s": 0.3, "pause_s": 0.0})
        async with Extender(patient) as extender:
            assert await extender.filter(pod, NAMES) == (NAMES, {})
            # It was asked, and no answer of its own was waited for.
            assert hanging > 0
            assert ended == 0
        hasty = config(address, server={"deadline_s": 0.3, "pause_s": 60.0})
        async with Extender(hasty) as extender:
            # It did not answer when the nodes were listed, and is not asked again yet.
            for _ in range(100):
                assert await extender.priorities(pod, NAMES) == dict.fromkeys(NAMES, 0)
            assert extender.sample("failed_open_total", reason="server") == 100
            # On a busy machine the list may have been asked for again before the first question.
            assert 1 <= extender.sample("server_errors_total", call="ListNodes") < 10

    with Stand(behaviours={"ListNodes": hang, "RankNodes": hang}) as stand:
        asyncio.run(scenario(stand.grpc))


def test_an_unexpected_error_lets_all_nodes_pass(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Extender(config(NO_SERVER)) as extender:
            monkeypatch.setattr(
                "kongming_extender.handlers.demand_of",
                lambda pod: 1 / 0,  # a fault of our own
            )
            assert await extender.filter(clusters.pod(), NAMES) == (NAMES, {})
            assert set((await extender.priorities(clusters.pod(), NAMES)).values()) == {0}
            assert extender.sample("failed_open_total", reason="fault") == 2

    asyncio.run(scenario())
    assert "ZeroDivisionError" in caplog.text


def test_only_a_caller_with_the_schedulers_certificate_is_allowed(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    init_tls(tls, ["localhost"])
    files = {"certificate": str(tls / "server.crt"), "key": str(tls / "server.key")}

    def shows(role: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
        context.check_hostname = False
        if role is not None:
            context.load_cert_chain(tls / f"client-{role}.crt", tls / f"client-{role}.key")
        return context

    async def scenario(names: str, statuses: dict[str | None, int]) -> None:
        security = files | {"client_ca": str(tls / "ca.crt"), "client_names": names}
        async with Extender(config(NO_SERVER, security=security)) as extender:
            body = clusters.args(clusters.pod(), NAMES)
            for role, status in statuses.items():
                answer = await extender.post("/filter", body, ssl=shows(role))
                assert (role, answer[0]) == (role, status)
                url = f"https://{extender.address}/filter"
                async with (
                    aiohttp.ClientSession() as session,
                    session.post(url, data=body, ssl=shows(role)) as again,
                ):
                    # Who is refused may have another certificate for the next connection.
                    closes = again.headers.get("Connection") == "close"
                    assert (role, closes) == (role, status != 200)
                # Answers name pods and nodes: they are for the same callers.
                explained = await extender.get("/explain?pod=a/b", ssl=shows(role))
                assert (role, explained[0]) == (role, 404 if status == 200 else status)
            # The kubelet has none.
            assert (await extender.get("/healthz", ssl=shows(None)))[0] == 200

    asyncio.run(scenario("", {None: 401, "scheduler": 200, "operator": 200, "agent": 403}))
    asyncio.run(scenario("somebody, else", {None: 401, "scheduler": 403}))
    asyncio.run(scenario("somebody, kongming-agent", {"agent": 200, "operator": 403}))


def test_a_certificate_that_ends_while_its_connection_is_open_is_refused() -> None:
    security = settings.Security(certificate="c", key="k", client_ca="a")
    shown = {
        "notAfter": "Nov 28 12:00:00 2026 GMT",
        "subject": ((("organizationalUnitName", "scheduler"),),),
    }
    end = ssl.cert_time_to_seconds(shown["notAfter"])
    check_caller(security, shown, end - 1)
    with pytest.raises(AccessError, match="has ended") as refused:
        check_caller(security, shown, end)
    assert refused.value.reason == "unauthenticated"


def test_beyond_loopback_callers_must_show_a_certificate() -> None:
    exposed = {"extender.listen": "0.0.0.0:7404", "security.certificate": "a", "security.key": "b"}
    with pytest.raises(InputError) as refused:
        declared.load(settings.Config, options=exposed)
    assert refused.value.field == "security.client_ca"
    declared.load(settings.Config, options=exposed | {"security.client_ca": "c"})
    declared.load(settings.Config, options=exposed | {"security.insecure": True})


def test_the_last_ranking_counts_while_the_server_hangs() -> None:
    """Else a server that is slow for a moment would send pods to nodes beyond their limits."""
    fleet = Fleet({"node-1": 1.0, "node-2": 1.5})
    hangs = False

    def slow(answer: Behaviour) -> Behaviour:
        async def respond(request: Any, context: Any) -> Any:
            return await (asyncio.sleep(600) if hangs else answer(request, context))

        return respond

    async def scenario(address: str) -> None:
        nonlocal hangs
        pod = clusters.pod(app="etl", limit=1.2)
        # Without a pause it is asked each time.
        patient = config(address, server={"deadline_s": 0.2, "pause_s": 0.0})
        async with Extender(patient) as extender:
            assert (await extender.filter(pod, NAMES))[0] == ["node-1"]
            hangs = True
            for _ in range(3):
                assert (await extender.filter(pod, NAMES))[0] == ["node-1"]
            assert extender.sample("failed_open_total", reason="late") == 0

            async def away() -> bool:
                return '"server":"away"' in (await extender.get("/readyz"))[1]

            await extender.eventually(away)
            # It is away until it answers, not for the pause alone.
            assert await away()

    behaviours = {"ListNodes": slow(fleet.list_nodes), "RankNodes": slow(fleet.rank_nodes)}
    with Stand(behaviours=behaviours) as stand:
        asyncio.run(scenario(stand.grpc))


def test_what_users_write_in_annotations_is_cut_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with Extender(config(NO_SERVER)) as extender:
            for number in range(20):
                pod = clusters.pod(app="etl", limit=f"{number} {'x' * 3000}")
                assert await extender.filter(pod, NAMES) == (NAMES, {})

    asyncio.run(scenario())
    lines = [line for line in caplog.messages if "Annotations are ignored" in line]
    assert len(lines) == 1
    assert "kongming.dev/limit is '0 xxx" in lines[0]
    assert len(lines[0]) < 300


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[extender]\nlisten = '0.0.0.0:7404'", "extender.listen"),
        ("[extender]\nlisten = 'nowhere'", "extender.listen"),
        ("[server]\ndeadline_s = 0", "server.deadline_s"),
        ("[server]\ndeadline = 1", "deadline"),
        ("[security]\ncertificate = 'a'", "security.key"),
        ("[security]\nclient_ca = 'a'", "security.client_ca"),
        ("[ranking]\noldest_s = 1.0", "ranking.oldest_s"),
        ("[pods]\nwatch = 'yes'", "pods.watch"),
        ("[rank]\n", "rank"),
        ("pods = 1", "pods"),
        ("[", "TOML"),
    ],
)
def test_an_invalid_setting_is_named(tmp_path: Path, text: str, field: str) -> None:
    file = tmp_path / "extender.toml"
    file.write_text(text)
    with pytest.raises((InputError, KongmingError), match=field):
        declared.load(settings.Config, file)
    assert run(["--config", str(file)]) == 2


def test_the_printed_settings_are_the_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--settings"]) == 0
    file = tmp_path / "extender.toml"
    file.write_text(capsys.readouterr().out)
    assert declared.load(settings.Config, file) == settings.Config()
    assert run(["--ca", "/nowhere"]) == 2


def test_the_command_serves_among_idle_strangers_and_ends_without_numerical_libraries() -> None:
    handles = 128
    program = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({handles}, {handles}))\n"
        "import sys, threading\n"
        "from kongming_extender.extender_command import run\n"
        "status = run(sys.argv[1:])\n"
        "heavy = {'numpy', 'sqlalchemy', 'kongming.store', 'kongming.learning'}\n"
        "heavy |= {'kongming_server'}\n"
        "print(status, sorted(heavy & set(sys.modules)))\n"
    )
    options = ["--listen", "127.0.0.1:0", "--server", NO_SERVER, "--no-pods"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *options],
        env=os.environ | {"PYTHONPATH": python_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().rstrip().removeprefix("listening http=")
        host, _, port = address.rpartition(":")
        with ExitStack() as open_ones:
            for _ in range(handles + 32):
                connection = socket.create_connection((host, int(port)), timeout=60)
                open_ones.callback(connection.close)
            with urlopen(f"http://{address}/healthz", timeout=30) as answer:
                assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=100)
    assert out == "0 []\n"
    # Of its own server alone, which is not there.
    assert log.count("\n") < 10
