"""TLS from end to end, with what ``kongming-server init-tls`` makes: commands and the agent."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm_start
from tests.agent.conftest import FAST, Agent, log_of
from tests.conftest import Kongming
from tests.server.process import ServerProcess, eventually

SERVER = {"fleet.heartbeat_period_s": 0.2, "security.tokens_period_s": 0.1}


def administer(*arguments: object) -> subprocess.CompletedProcess[str]:
    """``kongming-server COMMAND``."""
    done = warm_start.run("kongming_server.commands.server_command", *arguments, timeout=60)
    done.check_returncode()
    return done


@pytest.fixture
def tls(tmp_path: Path, own_folders: None) -> Path:
    """The server's authority and certificates; those of a stranger in ``stranger``."""
    administer("init-tls", tmp_path / "tls")
    administer("init-tls", tmp_path / "tls/stranger")
    return tmp_path / "tls"


Serve = Callable[..., ServerProcess]


@pytest.fixture
def serve(start_server: Callable[..., ServerProcess], tls: Path) -> Serve:
    """A server with TLS: ``serve(mutual=True)``."""

    def start(*, mutual: bool = False) -> ServerProcess:
        options = ["--certificate", tls / "server.crt", "--key", tls / "server.key"]
        if mutual:
            options += ["--client-ca", tls / "ca.crt"]
        return start_server(settings=SERVER, options=[str(option) for option in options])

    return start


def shown(tls: Path, name: str) -> tuple[str, ...]:
    """The options of a client certificate."""
    return ("--cert", str(tls / f"{name}.crt"), "--key", str(tls / f"{name}.key"))


def token(server: ServerProcess, file: Path, role: str, expires: str = "1h") -> tuple[str, ...]:
    """The option of a new token of this role."""
    arguments = ("--role", role, "--expires", expires, "--out", file, "--store", server.store_url)
    administer("token", "add", *arguments)
    return ("--token-file", str(file))


def refused(done: subprocess.CompletedProcess[str], *words: str) -> bool:
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    return True


def test_commands_with_client_certificates(serve: Serve, tls: Path, kongming: Kongming) -> None:
    server = serve(mutual=True)
    ask = ("nodes", "--server", server.grpc, "--timeout", "5")
    ca = ("--ca", str(tls / "ca.crt"))
    done = kongming(*ask, *ca, *shown(tls, "client-scheduler"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"nodes": []}

    assert refused(kongming(*ask), "--ca FILE")
    assert refused(kongming(*ask, *ca), "--cert FILE --key FILE")
    stranger = shown(tls / "stranger", "client-operator")
    assert refused(kongming(*ask, *ca, *stranger), "--cert FILE --key FILE", "accepts")
    other = ("--ca", str(tls / "stranger/ca.crt"))
    assert refused(
        kongming(*ask, *other, *shown(tls, "client-scheduler")),
        "CERTIFICATE_VERIFY_FAILED",
        "another authority",
        "--ca FILE",
    )
    mixed = (*shown(tls, "client-scheduler")[:2], *stranger[2:])
    assert refused(kongming(*ask, *ca, *mixed), "--cert and --key belong together")
    # What the role does not allow is named, and who may.
    train = kongming("train", "--server", server.grpc, *ca, *shown(tls, "client-scheduler"))
    assert refused(train, "scheduler", "operator")


def test_commands_with_tokens(serve: Serve, tls: Path, kongming: Kongming, tmp_path: Path) -> None:
    server = serve()
    ask = ("nodes", "--server", server.grpc, "--timeout", "5", "--ca", str(tls / "ca.crt"))
    good = token(server, tmp_path / "good", "scheduler")
    brief = token(server, tmp_path / "brief", "scheduler", expires="1s")
    eventually(lambda: kongming(*ask, *good).returncode == 0)
    assert refused(kongming(*ask), "--token-file", "--cert and --key")
    time.sleep(1.1)
    assert refused(kongming(*ask, *brief), "has expired", "kongming-server token add")
    (tmp_path / "false").write_text("kongming_nothing")
    assert refused(kongming(*ask, "--token-file", str(tmp_path / "false")), "token")
    missing = kongming(*ask, "--token-file", str(tmp_path / "nowhere"))
    assert (missing.returncode, "--token-file" in missing.stderr) == (2, True)
    # A token is not sent where others could read it.
    far = kongming("nodes", "--server", "192.0.2.1:7400", *good)
    assert (far.returncode, "--ca" in far.stderr) == (2, True)


def test_agent_with_a_certificate(
    serve: Serve, tls: Path, kongming: Kongming, agent_process: Agent, tmp_path: Path
) -> None:
    server = serve(mutual=True)
    ca = ("--ca", str(tls / "ca.crt"))
    ask = ("nodes", "--server", server.grpc, *ca, *shown(tls, "client-scheduler"), "--json")
    seen = _nodes(kongming, ask)

    other = ("--ca", str(tls / "stranger/ca.crt"))
    for wrong, words in (
        (ca, "--cert FILE --key FILE"),
        ((*other, *shown(tls, "client-agent")), "another authority"),
        ((*ca, *shown(tls / "stranger", "client-agent")), "--cert FILE --key FILE"),
    ):
        # It spools, and says what is wrong.
        process = agent_process("--server", server.grpc, *wrong, settings=FAST)
        eventually(lambda words=words: any(words in line for line in log_of(tmp_path)))
        process.terminate()
        assert process.wait(timeout=100) == 0
        (tmp_path / "agent.log").unlink()
    assert next(seen) == []
    agent_process("--server", server.grpc, *ca, *shown(tls, "client-agent"), settings=FAST)
    (node,) = eventually(lambda: [n for n in next(seen) if n["last_fingerprint_at"]])
    # Its readings come through; an idle reference takes longer than this test.
    assert node["state"] in ("ready", "unreferenced")


def test_agent_whose_token_is_renewed(
    serve: Serve, tls: Path, kongming: Kongming, agent_process: Agent, tmp_path: Path
) -> None:
    server = serve()
    ca = ("--ca", str(tls / "ca.crt"))
    operator = token(server, tmp_path / "operator", "operator")
    seen = _nodes(kongming, ("nodes", "--server", server.grpc, *ca, *operator, "--json"))
    brief = token(server, tmp_path / "agent.token", "agent", expires="1s")
    time.sleep(1.1)
    agent_process("--server", server.grpc, *ca, *brief, settings=FAST)
    eventually(lambda: any("has expired" in line for line in log_of(tmp_path)))
    assert any("kongming-server token add" in line for line in log_of(tmp_path))
    assert next(seen) == []
    # The file is read anew for each connection.
    token(server, tmp_path / "new.token", "agent")
    (tmp_path / "new.token").replace(tmp_path / "agent.token")
    eventually(lambda: [n for n in next(seen) if n["last_fingerprint_at"]])


def _nodes(kongming: Kongming, ask: tuple[str, ...]) -> Iterator[Any]:
    while True:
        done = kongming(*ask)
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)["nodes"]
