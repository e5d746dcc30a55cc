"""The commands of a fleet as a user runs them: of the local store, and of a real server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from kongming.store import Store
from kongming.store.parquet import export_runs
from kongming.store.service_entries import StoredOperation
from tests import builders
from tests.server.process import ServerProcess, eventually
from tests.service_contract.conftest import NODES, PROFILE, expected, facts

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
    assert document["profile"] == PROFILE
    table = ask(*arguments).stdout
    assert table.index("calm") < table.index("busy")
    assert "! The profile of chaser is spoiled: its runs alone differ by" in table


def test_rank_of_a_stranger_says_what_it_rests_on(ask: Kongming) -> None:
    done = ask("rank", "stranger", "--slowdown-limit", "1.2", "--node", "calm", "--node", "busy")
    assert done.returncode == 0, done.stderr
    assert "stranger has no model" in done.stdout
    assert "1 node left out (busy): the application would be slowed by more than" in done.stdout
    near = ask("rank", "chasr", "--node", "calm")
    assert "Did you mean chaser?" in near.stdout
    assert "Known: chaser" in ask("rank", "zx", "--node", "calm").stdout


def test_rank_without_a_usable_node_is_no_answer(ask: Kongming) -> None:
    none = ask("rank", "stranger", "--slowdown-limit", "1", "--node", "busy")
    assert none.returncode == 3, none.stdout
    assert "No node can be ranked, of 1 node." in none.stdout


def test_predict_on_a_node(ask: Kongming) -> None:
    document = answer(ask("predict", "chaser", "--node", "busy", "--json"))
    assert document["slowdown"]["median"] == pytest.approx(expected("busy"), rel=0.05)
    # Eight families and no co-runs calibrate nothing.
    assert document["slowdown"]["calibrated"] is False
    assert document["slowdown"]["calibrated_by"] == ""
    assert document["slowdown"]["calibrated_groups"] == 0
    assert (document["basis"], document["node_id"], document["stale"]) == ("model", "node-2", False)
    assert document["profile"] == PROFILE
    shown = ask("predict", "chaser", "--node", "busy").stdout
    assert "! The profile of chaser is spoiled: its runs alone differ by" in shown
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
    (registered,) = answer(ask("register", "apps.toml", "--json"))["apps"]
    assert (registered["name"], registered["runs"], registered["document"]["command"]) == (
        "adder",
        0,
        "echo 1",
    )
    assert "adder" in ask("register", "apps.toml").stdout


def test_predict_with_neighbours_on_a_named_node(ask: Kongming) -> None:
    arguments = ("predict", "chaser", "--node", "busy", "--with", "chaser")
    document = answer(ask(*arguments, "--json"))
    assert document["node_id"] == "node-2"
    assert [neighbour["app"] for neighbour in document["neighbours"]] == ["chaser"]
    assert document["slowdown"]["median"] > 1.1
    assert document["neighbours"][0]["slowdown"]["median"] > 1.1
    assert "chaser next to chaser" in ask(*arguments).stdout


def test_predict_with_neighbours_of_a_server(
    kongming: Kongming, server_process: ServerProcess
) -> None:
    arguments = ("predict", "chaser", "--with", "chaser", "--server", server_process.grpc)
    document = answer(kongming(*arguments, "--json"))
    assert [neighbour["app"] for neighbour in document["neighbours"]] == ["chaser"]
    assert document["slowdown"]["median"] > 1.1
    assert "chaser next to chaser" in kongming(*arguments).stdout


def test_assignments_from_their_reservation_to_their_end(
    kongming: Kongming, server_process: ServerProcess
) -> None:
    environment = {"KONGMING_SERVER": server_process.grpc}

    def assignments(*arguments: str) -> Any:
        return answer(kongming("assignments", *arguments, "--json", env=environment))

    reserved = assignments("reserve", "job-1", "chaser", "calm", "--ttl", "600")
    assert (reserved["state"], reserved["node_id"]) == ("reserved", "node-1")
    (listed,) = assignments("--node", "calm")["assignments"]
    assert (listed["assignment_id"], listed["app"]) == ("job-1", "chaser")
    shown = kongming("assignments", env=environment).stdout
    for word in ("job-1", "chaser", "calm", "reserved", "min"):
        assert word in shown
    assert assignments("bind", "job-1")["state"] == "bound"
    assert assignments("release", "job-1")["state"] == "released"
    assert assignments()["assignments"] == []
    assert [p["state"] for p in assignments("--ended")["assignments"]] == ["released"]
    again = kongming("assignments", "reserve", "job-1", "chaser", "busy", env=environment)
    assert again.returncode == 2, again.stderr


def test_place_for_a_program_that_is_not_known_is_held_and_said(
    kongming: Kongming, server_process: ServerProcess
) -> None:
    environment = {"KONGMING_SERVER": server_process.grpc}
    reserved = kongming(
        "assignments", "reserve", "job-2", "chasr", "calm", "--json", env=environment
    )
    assert (reserved.returncode, answer(reserved)["state"]) == (0, "reserved")
    assert "no application named 'chasr'. Did you mean chaser?" in reserved.stderr
    kongming("assignments", "release", "job-2", env=environment)
    bound = kongming(
        "assignments", "bind", "job-3", "--app", "chaser", "--node", "calm", env=environment
    )
    assert (bound.returncode, bound.stderr) == (0, "")
    kongming("assignments", "release", "job-3", env=environment)


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


@pytest.mark.parametrize("arguments", [("assignments",), ("watch", "calm")])
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


def test_explain(ask: Kongming) -> None:
    document = answer(ask("explain", "chaser", "--node", "busy", "--json"))
    assert document["prediction"]["app"] == "chaser"
    assert document["contributions"][0]["family"] == "memory"
    shown = ask("explain", "chaser", "--node", "busy", "-n", "2").stdout
    for word in ("chaser on busy", "memory.", "part of the slowdown", "more have smaller parts"):
        assert word in shown
    assert ask("explain", "chaser", "--node", "bussy").returncode == 2


def test_models(ask: Kongming) -> None:
    (model,) = answer(ask("models", "--json"))["models"]
    assert (model["app"], model["placement"], model["version"]) == ("chaser", "cross-core", 1)
    assert model["in_service"] is True
    assert model["variants"]["full"]["model"] == "NNLS"
    assert model["variants"]["full"]["median_error_pct"] > 0.0
    table = ask("models").stdout
    for word in ("chaser", "NNLS", "calm", "in service"):
        assert word in table
    unknown = ask("models", "--app", "chasr")
    assert (unknown.returncode, "chaser" in unknown.stderr) == (2, True)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An application that nobody knows yet, with its runs."""
    path = tmp_path / "moved.parquet"
    with Store.open(f"sqlite:///{tmp_path / 'elsewhere.db'}") as store:
        store.put_node(facts("calm"))
        runs = [builders.run("moved", 2.0 + n, node_id="node-1") for n in range(3)]
        store.add_all(runs=runs)
        store.put_application("moved", runs[0].identity, {"name": "moved", "command": "m"})
        export_runs(store, path)
    return path


def test_import_takes_each_run_once(ask: Kongming, exported: Path) -> None:
    first = answer(ask("import", str(exported), "--json"))["new"]
    assert (first["run"], first["signature"]) == (3, 0)
    again = answer(ask("import", str(exported), "--json"))["new"]
    assert (again["run"], again["signature"]) == (0, 0)
    assert "nothing new" in ask("import", str(exported)).stdout
    missing = ask("import", "nowhere.parquet")
    assert (missing.returncode, "nowhere.parquet" in missing.stderr) == (2, True)


def test_train_at_a_server(
    kongming: Kongming, server_process: ServerProcess, exported: Path
) -> None:
    answering = ("--server", server_process.grpc)
    kongming("import", exported, *answering)
    done = kongming("train", "chaser", *answering, "--json")
    operation = answer(done)
    assert (operation["state"], operation["progress"]) == ("done", 1.0)
    assert [(model["app"], model["version"]) for model in operation["trained"]] == [("chaser", 2)]
    assert operation["trained"][0]["profile"]["verdict"] == "good"
    shown = kongming("operations", "follow", operation["id"], *answering)
    assert shown.returncode == 0, shown.stderr
    assert "chaser" in shown.stdout
    # It has ended: nothing changes any more.
    cancelled = kongming("operations", "cancel", operation["id"], *answering)
    assert "done" in cancelled.stdout
    for side in (answering, ("--store", server_process.store_url)):
        command = ("operations", "--ended", *side)
        newest = answer(kongming(*command, "--json"))["operations"][0]
        assert {name: newest[name] for name in operation} == operation
        assert operation["id"] in kongming(*command).stdout
        assert answer(kongming("operations", *side, "--json"))["operations"] == []
    for arguments, status, words in (
        (("train", "chasr", *answering), 2, "chaser"),
        (("train", "chaser", "--jobs", "2", *answering), 2, "training.workers"),
        (("train", "moved", *answering), 3, "moved"),
        (("train", "chaser", "--no-wait"), 2, "--server"),
        (("operations", "follow", "nothing", *answering), 2, "nothing"),
        (("operations", "cancel", "nothing"), 2, "--server"),
        (("operations", *answering, "-n", "1001"), 2, "1000"),
    ):
        failed = kongming(*arguments)
        assert failed.returncode == status, (arguments, failed.stderr)
        assert words in failed.stderr


@pytest.fixture
def asked_store(request: pytest.FixtureRequest, ask: Kongming) -> Iterator[Store]:
    """The store behind the service to which ``ask`` connects."""
    if request.node.callspec.params["ask"] == "store":
        url = request.getfixturevalue("local_url")
    else:
        url = request.getfixturevalue("server_process").store_url
    with Store.open(url) as store:
        yield store


def test_operations(ask: Kongming, asked_store: Store) -> None:
    now = time.time()
    running = StoredOperation(
        "run", "train", "running", 0.25, "1 of 4", "elsewhere/1/a", now, now,
        document={"apps": ["chaser"], "cause": "it drifted"},
    )  # fmt: skip
    trained = {"app": "chaser", "placement": "cross-core", "version": 2, "promoted": True}
    done = StoredOperation(
        *("end", "train", "done", 1.0, "1 new in service", "elsewhere/1/a"),
        *(now - 60.0, now - 50.0, now - 40.0),
        {"told_at": now, "trained": [{**trained, "reason": "It is no worse.", "error": ""}]},
    )
    for row in (running, done):
        asked_store.put_operation(row)

    def ids(*options: str) -> list[str]:
        operations = answer(ask("operations", "--json", *options))["operations"]
        return [operation["id"] for operation in operations if operation["id"] in ("run", "end")]

    try:
        assert ids() == ["run"]
        assert ids("--ended") == ["run", "end"]
        (first,) = answer(ask("operations", "-n", "1", "--json"))["operations"]
        assert (first["state"], first["progress"], first["message"]) == ("running", 0.25, "1 of 4")
        assert (first["ended_at"], first["trained"]) == (None, [])
        assert (first["apps"], first["cause"]) == (["chaser"], "it drifted")
        assert first["created_at"].endswith("Z")
        every = answer(ask("operations", "--ended", "--json"))["operations"]
        ended = next(operation for operation in every if operation["id"] == "end")
        (stored,) = done.document["trained"]
        assert ended["trained"] == [stored | {"profile": None}]
        assert ended["ended_at"].endswith("Z")
        table = ask("operations", "--ended").stdout
        for word in ("run", "25 %", "chaser", "done"):
            assert word in table
    finally:
        # Other tests look for what is new.
        asked_store.put_operation(replace(running, state="cancelled", created_at=1.0))
        asked_store.put_operation(replace(done, created_at=1.0))
    assert ids() == []


WAITING = """
import pathlib
from kongming.cli.main import main
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
watch = RemoteService.watch_operation
def begun(*args):
    pathlib.Path("waiting").touch()
    return watch(*args)
RemoteService.watch_operation = begun
main()
"""


@contextmanager
def training_held(server: ServerProcess) -> Iterator[None]:
    """Every training stays queued: the process of an earlier one is suspended. A training takes a
    moment, and would otherwise end before a slow command does."""

    def stop() -> bool:
        """Stop the process that trains, if there is one."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(server.pid).children():
                if "kongming_server.training.process" in child.cmdline():
                    child.suspend()
                    return True
        return False

    with RemoteService(Connection(server.grpc)) as service:

        def ended(operation_id: str) -> bool:
            return service.operation(operation_id).state not in ("queued", "running")

        def held(operation_id: str) -> bool:
            eventually(lambda: stop() or ended(operation_id))
            # Its last message may have been on its way.
            time.sleep(0.2)
            return not ended(operation_id)

        first = service.train(("chaser",)).id
        while not held(first):
            first = service.train(("chaser",)).id
        try:
            yield
        finally:
            assert service.cancel_operation(first).state == "cancelled"


def test_training_that_is_no_longer_waited_for_can_be_cancelled(
    kongming: Kongming,
    kongming_env: dict[str, str],
    server_process: ServerProcess,
    tmp_path: Path,
) -> None:
    answering = ("--server", server_process.grpc)
    with training_held(server_process), Store.open(server_process.store_url) as store:
        before = {row.id for row in store.operations()}
        process = subprocess.Popen(
            [sys.executable, "-c", WAITING, "train", "chaser", *answering],
            cwd=tmp_path,
            env=kongming_env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            eventually(lambda: (tmp_path / "waiting").exists() or process.poll() is not None)
            new = [row.id for row in store.operations() if row.id not in before]
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=100)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 130, stderr
        assert f"kongming operations follow {new[0]}" in stderr
        cancelled = kongming("operations", "cancel", new[0], *answering)
        assert cancelled.returncode == 0, cancelled.stderr
        assert "cancelled" in cancelled.stdout
        ended = kongming("operations", "follow", new[0], *answering)
        assert ended.returncode == 1
        began = answer(kongming("train", "chaser", "--no-wait", "--json", *answering))
        assert began["state"] in ("queued", "running")
        kongming("operations", "cancel", began["id"], *answering)


def test_a_model_that_has_no_earlier_version_is_not_rolled_back(ask: Kongming) -> None:
    refused = ask("models", "rollback", "chasr")
    assert refused.returncode == 2, refused.stderr
