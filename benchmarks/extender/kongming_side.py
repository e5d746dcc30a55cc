"""A real kongming-server whose nodes are made up, and a real kongming-extender as it is shipped.

All of it is TLS with certificates of ``kongming-server init-tls``, and the extender reads the
settings of daemon/deploy/kubernetes/extender.yaml. What differs from a cluster is where files lie,
ports of loopback, and the token, which is requested from the API server for the shipped service
account as the kubelet does.
"""

from __future__ import annotations

import json
import math
import re
import signal
import ssl
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote
from urllib.request import Request, urlopen

import grpc
import yaml

from benchmarks.extender.control_plane import MANIFESTS, ControlPlane, Program
from benchmarks.extender.kube_client import Client
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from kongming.store import Store
from tests import builders
from tests.ports import free_ports
from tests.server.core import worlds
from tests.server.process import ServerProcess, python_path
from tests.server.test_predicting import Node, put_models

APP = "quiet"
"""Sensitive to ``SURROGATE`` alone, and hardly a neighbour to itself."""
SURROGATE = "compute.int"
SERVER_NAME, EXTENDER_NAME = "kongming-server.kongming.svc", "kongming-extender.kongming.svc"

CHANGING_REASONS = """
import itertools
from kongming_extender import policy
from kongming_extender.extender_command import main
count = itertools.count(147)
policy.reason = lambda refusal, app, limit: f"{app} would take {next(count) / 100:.2f} times here"
main()
"""
"""The extender with a text of its own for each answer, as it once was."""


def service_account_token(api: Client) -> str:
    """One of the shipped account's, as its Pods have it."""
    path = "/api/v1/namespaces/kongming/serviceaccounts/kongming-extender/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.post(path, request)["status"]["token"])


class Fleet:
    """``with Fleet(folder, tls) as fleet``: the server; ``fleet.set(name, slowdown)`` has a node's
    agent report. ``tls`` has its certificates. Slowdowns are of ``APP``, from 1 to 1.7."""

    def __init__(self, folder: Path, tls: Path) -> None:
        self.tls = tls
        url = f"sqlite:///{folder / 'server.db'}"
        put_models(url)
        with Store.open(url) as store:
            store.put_application(APP, builders.identity_of(APP), {})
        settings = {
            "security.certificate": str(self.tls / "server.crt"),
            "security.key": str(self.tls / "server.key"),
            "security.client_ca": str(self.tls / "ca.crt"),
            # Its agents report when a trial has them report.
            "fleet.silent_after_s": 36000.0,
            "fleet.fingerprint_ttl_s": 36000.0,
        }
        self.process = ServerProcess(folder, store_url=url, settings=settings)
        self._nodes: dict[str, Node] = {}
        self._channel: grpc.Channel | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.process.start()
        files = [
            self.tls / name for name in ("ca.crt", "client-operator.key", "client-operator.crt")
        ]
        credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
        self._channel = grpc.secure_channel(self.process.grpc, credentials)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._channel is not None:
            self._channel.close()
        self.process.close()

    def set(self, name: str, slowdown: float) -> None:
        """Have a node's agent report; the first time it registers."""
        logs = {SURROGATE: math.log(slowdown) / worlds.SENSITIVITY[APP][SURROGATE]}
        with self._lock:
            if name in self._nodes:
                self._nodes[name].report(self._nodes[name].taken(logs, age_s=0.5))
                return
            assert self._channel is not None
            self._nodes[name] = Node(self._channel, name)
            self._nodes[name].enter(logs)

    def assignments(self) -> dict[str, str]:
        """States of the assignments, by pod's UID; guesses are left out."""
        return {id_: state for id_, state in self._service_states().items() if "/" not in id_}

    def metric(self, pattern: str) -> float:
        """Sum of the samples of /metrics whose name and labels match."""
        return _sum(self._http("/metrics"), pattern)

    def _service_states(self) -> dict[str, str]:
        with self._service() as service:
            return {held.assignment_id: held.state for held in service.assignments()}

    def _service(self) -> RemoteService:
        return RemoteService(
            Connection(
                self.process.grpc,
                ca=self.tls / "ca.crt",
                cert=self.tls / "client-operator.crt",
                key=self.tls / "client-operator.key",
            )
        )

    def _http(self, path: str) -> str:
        context = ssl.create_default_context(cafile=str(self.tls / "ca.crt"))
        context.load_cert_chain(self.tls / "client-operator.crt", self.tls / "client-operator.key")
        with urlopen(f"https://{self.process.http}{path}", timeout=60, context=context) as answer:
            return str(answer.read().decode())


class Extender:
    """The shipped extender, on one port for all its starts. ``authority`` is the folder of the
    certificates that it and the scheduler show to each other."""

    def __init__(self, authority: Path, plane: ControlPlane, fleet: Fleet) -> None:
        self.folder = folder = authority.parent
        self.authority = authority
        (self.port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{self.port}"
        self.log = folder / "extender.log"
        self._api = plane.admin
        self._named = plane.named
        self._token = folder / "token"
        self._mount(fleet)
        settings = self._shipped_settings(fleet.process.grpc)
        pods = {"api": plane.url, "token_file": str(self._token), "ca": str(plane.ca)}
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in pods.items())
        self._config = folder / "extender.toml"
        self._config.write_text(f"{settings}\n[pods]\n{lines}")
        self._program: Program | None = None

    def start(self, *, changing_reasons: bool = False) -> None:
        """Request a token and start it, once the manifests are applied."""
        self._token.touch(mode=0o600)
        self._token.write_text(service_account_token(self._api))
        program = (
            ["-c", CHANGING_REASONS]
            if changing_reasons
            else ["-m", "kongming_extender.extender_command"]
        )
        command = [sys.executable, *program, "--config", str(self._config)]
        self._program = Program("extender", command, self.log, PYTHONPATH=python_path())
        self._program.wait_for(self.is_ready)

    def end(self, signum: int = signal.SIGTERM) -> None:
        if self._program is not None:
            self._program.end(signum)
            self._program = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def is_ready(self) -> bool:
        try:
            return bool(json.loads(self._get("/readyz"))["ready"])
        except OSError:
            return False

    def watch_state(self) -> str:
        return str(json.loads(self._get("/readyz"))["watch"])

    def sample(self, name: str, **labels: str) -> float:
        """Sum of a metric over the labels that are not named."""
        wanted = "".join(f'(?=[^}}]*{key}="{value}")' for key, value in labels.items())
        return _sum(self._get("/metrics"), rf"kongming_extender_{name}(\{{{wanted}[^}}]*\}})?")

    def explain(self, pod: str) -> Mapping[str, Any]:
        document = json.loads(self._get(f"/explain?pod={quote(pod)}"))
        assert isinstance(document, dict)
        return document

    def scheduler_configuration(
        self, kubeconfig: Path, *, extender: bool = True, **changes: Any
    ) -> dict[str, Any]:
        """The shipped one with this machine's files and port; ``changes`` of its top level, None to
        leave a field out."""
        text = (MANIFESTS / "scheduler-configuration.yaml").read_text()
        text = text.replace("/etc/kubernetes/scheduler.conf", str(kubeconfig))
        text = text.replace("/etc/kubernetes/kongming", str(self.authority))
        text = text.replace(f"https://{EXTENDER_NAME}:7404", self.url)
        document: dict[str, Any] = yaml.safe_load(text)
        document |= {"apiVersion": self._named(document["apiVersion"]), **changes}
        if not extender:
            del document["extenders"]
        return {name: value for name, value in document.items() if value is not None}

    def _shipped_settings(self, server: str) -> str:
        text = next(
            document["data"]["extender.toml"]
            for document in yaml.safe_load_all((MANIFESTS / "extender.yaml").read_text())
            if document and document["kind"] == "ConfigMap"
        )
        text = text.replace("/etc/kongming", str(self.folder / "etc"))
        text = text.replace(f"{SERVER_NAME}:7400", server)
        return str(text.replace("0.0.0.0:7404", f"127.0.0.1:{self.port}"))

    def _mount(self, fleet: Fleet) -> None:
        """Files where the Deployment mounts its secrets and config maps."""
        client = "client-scheduler"
        files = {
            "tls/tls.crt": self.authority / "server.crt",
            "tls/tls.key": self.authority / "server.key",
            "client/ca.pem": self.authority / "ca.crt",
            "authority/ca.pem": fleet.tls / "ca.crt",
            "server-client/tls.crt": fleet.tls / f"{client}.crt",
            "server-client/tls.key": fleet.tls / f"{client}.key",
        }
        for name, source in files.items():
            target = self.folder / "etc" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())

    def _signal(self, signum: int) -> None:
        assert self._program is not None
        self._program.send(signum)

    def _get(self, path: str) -> str:
        context = ssl.create_default_context(cafile=str(self.authority / "ca.crt"))
        stem = self.authority / "client-scheduler"
        context.load_cert_chain(f"{stem}.crt", f"{stem}.key")
        with urlopen(Request(self.url + path), timeout=30, context=context) as answer:
            return str(answer.read().decode())


def _sum(text: str, pattern: str) -> float:
    samples: Iterable[str] = re.findall(rf"^{pattern} (\S+)$", text, re.MULTILINE)
    values = [value[-1] if isinstance(value, tuple) else value for value in samples]
    return sum(float(value) for value in values)
