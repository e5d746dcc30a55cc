"""A server, an agent, an extender, and Debian's Prometheus which scrapes them: real programs, with
readings that are made up."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import grpc
import yaml

from kongming.rpc.v1 import assignments_pb2, predictor_pb2, predictor_pb2_grpc
from tests import builders, warm_start
from tests.agent.conftest import FAST, ROOT
from tests.kubernetes import clusters
from tests.ports import free_port
from tests.server.credentials import Shows, code_of
from tests.server.fleet import FakeAgent, moment
from tests.server.process import ServerProcess, eventually
from tests.server.security.test_real_server import token_command
from tests.service_contract.conftest import NODES, idle, present

DEPLOY = ROOT / "daemon/deploy"
RULES = DEPLOY / "prometheus/kongming.rules.yml"
APP = "chaser"
KNOWN = ("calm", "busy", "wild")
"""Nodes with a fresh fingerprint; that of ``dozing`` is two hours old."""


@dataclass(frozen=True)
class Prometheus:
    """One that runs, by its HTTP API."""

    address: str

    def api(self, path: str, **parameters: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]

    def up(self) -> int:
        """How many targets it has scraped; 0 while it starts."""
        try:
            return len(self.query("up == 1"))
        except OSError:
            return 0

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample, as things are now."""
        response = self.api("query", query=expression)
        assert response["resultType"] == "vector", expression
        return [(sample["metric"], float(sample["value"][1])) for sample in response["result"]]


@dataclass(frozen=True)
class Stack:
    """All that runs. ``tokens`` are files by role."""

    server: ServerProcess
    prometheus: Prometheus
    tokens: Mapping[str, Path]

    def text(self, path: str, role: str) -> str:
        """What the server's HTTP gives at a path."""
        secret = self.tokens[role].read_text().strip()
        request = Request(
            f"http://{self.server.http}{path}", headers={"Authorization": f"Bearer {secret}"}
        )
        with urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def anonymous(self, path: str) -> tuple[int, str]:
        """The status, and the body, of an HTTP request without a token."""
        connection = http.client.HTTPConnection(self.server.http, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def running(trained: Path, folder: Path, settings: Mapping[str, Any]) -> Iterator[Stack]:
    """The stack over a copy of a store with a trained application, which was asked about."""
    with ExitStack() as undo:
        shutil.copy(trained, folder / "server.db")
        server = ServerProcess(
            folder,
            settings={"security.authenticate": "always", "training.models": "NNLS"} | settings,
        )
        undo.callback(server.close)
        tokens = {}
        for role in ("agent", "monitor", "operator", "scheduler"):
            issued = token_command("add", "--role", role, "--store", server.store_url)
            tokens[role] = folder / f"{role}.token"
            tokens[role].write_text(issued["token"])
            tokens[role].chmod(0o600)
        server.start()
        channel = grpc.intercept_channel(
            server.channel(), Shows(tokens["operator"].read_text().strip())
        )
        _report(channel)
        agent = _agent(folder, server, tokens["agent"], undo)
        extender = _extender(folder, server, tokens["scheduler"], undo)
        targets = {
            "kongming-server": server.http,
            "kongming-agent": agent,
            "kongming-extender": extender,
        }
        prometheus = Prometheus(_prometheus(folder, targets, tokens["monitor"], undo))
        traffic = _traffic(server, channel, extender)
        # Rates are of counters that were seen before they rose.
        eventually(lambda: prometheus.up() == len(targets))
        eventually(lambda: traffic() or time.sleep(0.3) or _evaluated(prometheus))
        yield Stack(server, prometheus, tokens)


def _report(channel: grpc.Channel) -> None:
    """All nodes register and report; one program ends on one of them, twice."""
    for name, (node_id, _, _) in NODES.items():
        agent = FakeAgent(channel, node_id, name=name)
        agent.register(references=[idle(name)])
        if name == "wild":
            # Read twice: before, it was a little better.
            before = {surrogate: 0.9 * s for surrogate, s in present(name).times().items()}
            earlier = builders.fingerprint(
                before, node=agent.facts, started_at=moment(120.0), elapsed_s=0.0
            )
            agent.report(earlier)
        assert agent.report(present(name)).accepted == [f"now-of-{name}"]
        if name == "busy":
            for number in range(2):
                bind = assignments_pb2.BindRequest(
                    assignment_id=f"job-{number}", app=APP, node=node_id
                )
                agent.assignments.Bind(bind, timeout=60)
                run = builders.run(
                    APP, 3.5, kind="environment", node_id=node_id, started_at=moment(3.5)
                )
                agent.report_runs([run], assignment_id=f"job-{number}")
            agent.assignments.Bind(
                assignments_pb2.BindRequest(assignment_id="stays", app=APP, node=node_id),
                timeout=60,
            )


def _agent(folder: Path, server: ServerProcess, token: Path, undo: ExitStack) -> str:
    fake = folder / "kongming-microbench"
    made_up = ROOT / "tests/probes/fake_microbench.py"
    fake.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{made_up}" "$@"\n')
    fake.chmod(0o755)
    config = folder / "agent.toml"
    config.write_text(FAST.replace("period_s = 0.3", "period_s = 2.0"))
    address = f"127.0.0.1:{free_port()}"
    _start(
        folder,
        undo,
        "kongming_agent.agent_command",
        *("--config", config, "--server", server.grpc, "--token-file", token),
        *("--metrics", address, "--name", "real", "--state", folder / "agent"),
        env={"KONGMING_MICROBENCH": str(fake), "KONGMING_DIR": str(folder / "io")},
    )
    return address


def _extender(folder: Path, server: ServerProcess, token: Path, undo: ExitStack) -> str:
    address = f"127.0.0.1:{free_port()}"
    _start(
        folder,
        undo,
        "kongming_extender.extender_command",
        *("--listen", address, "--server", server.grpc, "--token-file", token, "--no-pods"),
    )
    return address


def _prometheus(folder: Path, targets: Mapping[str, str], token: Path, undo: ExitStack) -> str:
    """Start it with the configuration that is shipped, but for names of hosts and its pace."""
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    config["rule_files"] = [str(RULES)]
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
        if "authorization" in job:
            job["authorization"]["credentials_file"] = str(token)
            job["scheme"] = "http"
            del job["tls_config"]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    undo.callback(_end, process)
    return address


def _traffic(server: ServerProcess, channel: grpc.Channel, extender: str) -> Callable[[], None]:
    """A call for what every panel shows: predictions, refusals, and pods for nodes that are known
    and not."""
    stub = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
    question = predictor_pb2.PredictQuestion(app=APP, node="busy")
    stranger = predictor_pb2_grpc.PredictorStub(server.channel())  # type: ignore[no-untyped-call]
    node_lists = itertools.cycle([list(NODES), ["nobody-knows-it"]])

    def call() -> None:
        request = predictor_pb2.PredictRequest(questions=[question])
        stub.Predict(request, timeout=60)
        refused = code_of(lambda: stranger.Predict(request, timeout=60))
        assert refused is grpc.StatusCode.UNAUTHENTICATED
        body = clusters.args(clusters.pod(app=APP), next(node_lists), complete=False)
        post = Request(f"http://{extender}/filter", body, {"Content-Type": "application/json"})
        with urlopen(post, timeout=60) as answer:
            answer.read()

    return call


def _evaluated(prometheus: Prometheus) -> bool:
    """Whether rules were evaluated after there was enough to take rates of."""
    wanted = (
        "cpu_usage_avg_5m",
        "kongming:rpc_errors:ratio_rate5m",
        "kongming_server_model_drifted",
    )
    rising = "rate(kongming_extender_failed_open_total[5s]) > 0"
    return all(prometheus.query(expression) for expression in (*wanted, rising))


def _start(
    folder: Path,
    undo: ExitStack,
    module: str,
    *arguments: object,
    env: Mapping[str, str] | None = None,
) -> None:
    path = os.pathsep.join([str(ROOT / "daemon"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    with (folder / f"{module}.log").open("w") as log:
        process = warm_start.start(
            module,
            *arguments,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(folder)} | dict(env or {}),
            stdout=log,
            stderr=log,
        )
    undo.callback(_end, process)


def _end(process: Any) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def expressions(panels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every query of a dashboard, with its variables filled in as for all values."""
    for panel in panels:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "10s")
            for name in ("node", "agent", "app"):
                expression = expression.replace(f"${name}", ".+")
            yield expression
