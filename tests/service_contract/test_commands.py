"""The commands of a fleet as a user runs them: of the local store, and of a real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kongming.rpc.client import RemoteService
from tests.server.process import ServerProcess
from tests.service_contract.conftest import NODES, expected

Kongming = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=["store", "server"])
def ask(request: pytest.FixtureRequest, kongming: Kongming) -> Kongming:
    """The command with ``--store URL`` or ``--server HOST:PORT`` after its arguments."""
    if request.param == "store":
        answering = ("--store", request.getfixturevalue("local_url"))
    else:
        server: ServerProcess = request.getfixturevalue("server_process")
        answering = ("--server", server.grpc)
    return lambda *arguments, **options: kongming(*arguments, *answering, **options)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nodes(ask: Kongming) -> None:
    nodes = answer(ask("nodes", "--json"))["nodes"]
    assert [node["facts"]["name"] for node in nodes] == sorted(NODES)
    table = ask("nodes").stdout
    for word in (*NODES, "slowdown", "memory."):
        assert word in table


def test_rank(ask: Kongming) -> None:
    arguments = ("rank", "chaser", "--node", "busy", "--node", "calm", "-n", "2")
    document = answer(ask(*arguments, "--json"))
    assert [node["name"] for node in document["nodes"]] == ["calm", "busy"]
    assert (document["app"], document["basis"], document["candidates"]) == ("chaser", "model", 2)
    table = ask(*arguments).stdout
    assert table.index("calm") < table.index("busy")


def test_rank_of_a_stranger_says_what_it_rests_on(ask: Kongming) -> None:
    done = ask("rank", "stranger", "--slowdown-limit", "1.2", "--node", "calm", "--node", "busy")
    assert done.returncode == 0, done.stderr
    assert "stranger has no model" in done.stdout
    assert "1 left out" in done.stdout


def test_predict_on_a_node(ask: Kongming) -> None:
    document = answer(ask("predict", "chaser", "--node", "busy", "--json"))
    assert document["slowdown"]["median"] == pytest.approx(expected("busy"), rel=0.05)
    assert (document["basis"], document["node_id"], document["stale"]) == ("model", "node-2", False)
    shown = ask("predict", "chaser", "--node", "busy").stdout
    for word in ("chaser on busy", "runtime", "slowdown", "driven by", "memory", "model NNLS"):
        assert word in shown


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("predict", "chaser", "--node", "bussy"), 2, "Did you mean busy?"),
        (("predict", "chaser", "--node", "wild", "--strict"), 3, "outside"),
        (("predict", "chaser", "--node", "dozing", "--stale", "refuse"), 3, "old"),
        (("predict", "chaser", "--node", "calm", "--now"), 2, "--now: cannot be given"),
        (("predict", "chaser", "--node", "calm", "--model", "NOTHING"), 2, "NOTHING"),
        (("rank", "chaser", "--node", "bussy"), 2, "Did you mean busy?"),
    ],
)
def test_what_cannot_be_done_says_the_way_out(
    ask: Kongming, arguments: tuple[str, ...], status: int, words: str
) -> None:
    done = ask(*arguments)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_register(ask: Kongming, tmp_path: Path) -> None:
    (tmp_path / "apps.toml").write_text('[apps.adder]\ncommand = "echo 1"\n')
    (made,) = answer(ask("register", "apps.toml", "--json"))["apps"]
    assert (made["name"], made["runs"], made["document"]["command"]) == ("adder", 0, "echo 1")
    assert "adder" in ask("register", "apps.toml").stdout


def test_predict_beside_neighbours_of_a_server(
    kongming: Kongming, server_process: ServerProcess
) -> None:
    arguments = ("predict", "chaser", "--with", "chaser", "--server", server_process.grpc)
    document = answer(kongming(*arguments, "--json"))
    assert document["beside"] == ["chaser"]
    assert document["slowdown"]["median"] > 1.1
    assert [neighbour["app"] for neighbour in document["neighbours"]] == ["chaser"]
    assert "chaser beside chaser" in kongming(*arguments).stdout


def test_placements_from_their_reservation_to_their_end(
    kongming: Kongming, server_process: ServerProcess
) -> None:
    environment = {"KONGMING_SERVER": server_process.grpc}

    def placements(*arguments: str) -> Any:
        return answer(kongming("placements", *arguments, "--json", env=environment))

    made = placements("reserve", "job-1", "chaser", "calm", "--ttl", "600")
    assert (made["state"], made["node_id"]) == ("reserved", "node-1")
    (listed,) = placements("--node", "calm")["placements"]
    assert (listed["placement_id"], listed["app"]) == ("job-1", "chaser")
    shown = kongming("placements", env=environment).stdout
    for word in ("job-1", "chaser", "calm", "reserved", "min"):
        assert word in shown
    assert placements("bind", "job-1")["state"] == "bound"
    assert placements("release", "job-1")["state"] == "released"
    assert placements()["placements"] == []
    assert [p["state"] for p in placements("--ended")["placements"]] == ["released"]
    again = kongming("placements", "reserve", "job-1", "chaser", "busy", env=environment)
    assert again.returncode == 2, again.stderr


def test_watch(kongming: Kongming, server_process: ServerProcess, remote: RemoteService) -> None:
    answering = ("--server", server_process.grpc)
    (change,) = answer(kongming("watch", "busy", "--json", *answering))["changes"]
    assert change["facts"]["name"] == "busy"
    shown = kongming("watch", "busy", "--for", "1", *answering)
    assert shown.returncode == 0, shown.stderr
    assert "busy" in shown.stdout
    assert "slowdown" in shown.stdout
    unknown = kongming("watch", "bussy", "--count", "1", *answering)
    assert (unknown.returncode, "busy" in unknown.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [("placements",), ("watch", "calm")])
def test_what_only_a_server_knows_asks_for_one(
    kongming: Kongming, arguments: tuple[str, ...]
) -> None:
    done = kongming(*arguments)
    assert done.returncode == 2
    assert "--server" in done.stderr
    assert "kongming-server" in done.stderr


def test_store_and_server_are_not_both_asked(kongming: Kongming, local_url: str) -> None:
    both = ("nodes", "--store", local_url, "--server", "127.0.0.1:1")
    assert kongming(*both).returncode == 2
    # What was typed goes before what the environment holds.
    done = kongming("nodes", "--store", local_url, env={"KONGMING_SERVER": "127.0.0.1:1"})
    assert done.returncode == 0, done.stderr


def test_server_that_is_away_fails_with_its_address(kongming: Kongming) -> None:
    done = kongming("nodes", "--json", env={"KONGMING_SERVER": "127.0.0.1:1"})
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["kind"] == "UnavailableError"
    assert "127.0.0.1:1" in done.stderr


def test_help_and_questions_of_a_store_load_no_grpc(kongming: Kongming, local_url: str) -> None:
    for arguments in (("--help",), ("rank", "--help"), ("nodes", "--store", local_url)):
        done = kongming(*arguments, env={"PYTHONPROFILEIMPORTTIME": "1"})
        assert done.returncode == 0
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "click" in loaded
        assert not loaded & {"grpc", "google.protobuf"}
        if "--help" in arguments:
            assert not loaded & {"numpy", "sqlalchemy", "rich"}
