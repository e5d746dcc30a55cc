"""A real etcd, kube-apiserver and kube-scheduler on loopback, each a process of its own.

There is no controller manager and no kubelet. Nodes are objects that the benchmark creates: nobody
watches their leases, so that they stay ready. Pods that are bound stay pending until the benchmark
writes their status, as a kubelet would.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml
from kongming_server.security.certificates import init_tls

from benchmarks.extender.kube_client import ApiError, Client
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "daemon/deploy/kubernetes"
_FIRST_AS_SHIPPED = 25
"""From this minor version on Kubernetes calls everything as the manifests do."""
_OLDER_NAMES = {
    "kubescheduler.config.k8s.io/v1": "kubescheduler.config.k8s.io/v1beta1",
    "policy/v1": "policy/v1beta1",
}
"""What 1.20 calls versions that came later. The fields that are set have the same names and
meanings in both."""

_START_S = 120.0
_ADMIN, _SCHEDULER = "admin", "system:kube-scheduler"


class Program:
    """A process that ends with this one; what it writes is in ``log``."""

    def __init__(self, name: str, command: Sequence[str], log: Path, **env: str) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            # Not by preexec_fn: a copy of this process would run gRPC's handlers of a fork.
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=log.parent,
                env=os.environ | env,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Raises RuntimeError where it ends, or is not ready in time."""
        deadline = time.monotonic() + _START_S
        while not ready():
            status = self._process.poll()
            if status is not None or time.monotonic() > deadline:
                end = self.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} did not start (status {status}):\n{end}")
            time.sleep(0.1)

    def send(self, signum: int) -> None:
        self._process.send_signal(signum)

    def end(self, signum: int = signal.SIGTERM) -> None:
        """End it, and wait until it has ended; by force after 20 s."""
        if self._process.poll() is None:
            self._process.send_signal(signum)
            try:
                self._process.wait(20.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


class ControlPlane:
    """``with ControlPlane(programs, folder) as plane``: an API server with etcd, RBAC enforced.

    ``programs`` is the folder of the three programs. ``plane.admin`` may do everything.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._as_shipped = _minor_version(programs / "kube-apiserver") >= _FIRST_AS_SHIPPED
        self._running: dict[str, Program] = {}
        self._tls = folder / "api-tls"
        self._tokens = {name: secrets.token_hex(16) for name in (_ADMIN, _SCHEDULER)}
        etcd_client, etcd_peer, api = free_ports(3)
        self._etcd = f"http://127.0.0.1:{etcd_client}"
        self._etcd_peer = f"http://127.0.0.1:{etcd_peer}"
        self._port = api
        self.url = f"https://127.0.0.1:{api}"
        self.ca = self._tls / "ca.crt"
        self.audit = folder / "audit.log"

    def __enter__(self) -> Self:
        init_tls(self._tls)
        self._write_settings()
        try:
            self._start_etcd()
            self.start_api()
            self.admin = Client(self.url, self.ca, self._tokens[_ADMIN])
            self._wait_for_defaults()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for name in ("scheduler", "api", "etcd"):
            self.end(name)

    def end(self, name: str, signum: int = signal.SIGTERM) -> None:
        """End ``scheduler``, ``api`` or ``etcd``, if it runs."""
        program = self._running.pop(name, None)
        if program is not None:
            program.end(signum)

    def named(self, version: str) -> str:
        """What this Kubernetes calls an ``apiVersion`` of the manifests."""
        return version if self._as_shipped else _OLDER_NAMES.get(version, version)

    def start_api(self) -> None:
        options: dict[str, object] = {
            "etcd-servers": self._etcd,
            "bind-address": "127.0.0.1",
            "secure-port": self._port,
            "tls-cert-file": self._tls / "server.crt",
            "tls-private-key-file": self._tls / "server.key",
            "token-auth-file": self.folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self._tls / "server.crt",
            "service-account-signing-key-file": self._tls / "server.key",
            "service-cluster-ip-range": "10.96.0.0/16",
            "endpoint-reconciler-type": "none",
            "audit-log-path": self.audit,
            "audit-policy-file": self.folder / "audit-policy.yaml",
            "cert-dir": self.folder / "unused",
        }
        if not self._as_shipped:
            # The default from 1.21 on: Pods have tokens like the one that is requested here.
            options["feature-gates"] = "BoundServiceAccountTokenVolume=true"
        program = self._start("api", "kube-apiserver", options)
        program.wait_for(lambda: _answers(f"{self.url}/readyz", self.ca, self._tokens[_ADMIN]))

    def start_scheduler(self, configuration: Mapping[str, Any]) -> str:
        """Start it with a configuration; returns the address of its metrics."""
        file = self.folder / "scheduler-configuration.yaml"
        port, health = free_ports(2)
        insecure = {}
        if not self._as_shipped:
            # Else it listens on a fixed port of all addresses, without TLS, as later ones do not.
            address = f"127.0.0.1:{health}"
            insecure = {"healthzBindAddress": address, "metricsBindAddress": address}
        file.write_text(yaml.safe_dump({**configuration, **insecure}))
        kubeconfig = self.scheduler_kubeconfig
        options = {
            "config": file,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "authorization-always-allow-paths": "/healthz,/metrics",
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "cert-dir": self.folder / "scheduler-certificates",
            "v": 2,
        }
        self.end("scheduler")
        program = self._start("scheduler", "kube-scheduler", options)
        url = f"https://127.0.0.1:{port}"
        program.wait_for(lambda: _answers(f"{url}/healthz", None, ""))
        return url

    @property
    def scheduler_kubeconfig(self) -> Path:
        return self.folder / f"{_SCHEDULER.rpartition(':')[2]}.conf"

    def kubectl(self, *arguments: str) -> str:
        """What ``kubectl ARGUMENTS`` printed, run in ``folder``; raises RuntimeError with what it
        wrote to stderr."""
        command = [self._programs / "kubectl", "--kubeconfig", self.folder / f"{_ADMIN}.conf"]
        done = subprocess.run(
            [*command, *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{done.stdout}{done.stderr}".strip())
        return done.stdout

    def compact(self) -> None:
        """Have etcd forget all that was before now: a watch from there is refused (410)."""
        etcd = Client(self._etcd, None, "")
        status = etcd.post("/v3/maintenance/status", {})
        request = {"revision": status["header"]["revision"], "physical": True}
        etcd.post("/v3/kv/compaction", request)

    def forbidden(self, user: str = "") -> list[str]:
        """What the API server refused with 403, ``user verb resource``; of all users or of one."""
        refused = set()
        for line in self.audit.read_text().splitlines():
            event = json.loads(line)
            name = event["user"].get("username", "")
            if event.get("responseStatus", {}).get("code") == 403 and user in ("", name):
                target = event.get("objectRef", {})
                refused.add(f"{name} {event['verb']} {target.get('resource', event['requestURI'])}")
        return sorted(refused)

    def _start(self, name: str, program: str, options: Mapping[str, object]) -> Program:
        command = [
            self._programs / program,
            *(f"--{key}={value}" for key, value in options.items()),
        ]
        started = Program(program, [str(part) for part in command], self.folder / f"{program}.log")
        self._running[name] = started
        return started

    def _start_etcd(self) -> None:
        options = {
            "data-dir": self.folder / "etcd",
            "listen-client-urls": self._etcd,
            "advertise-client-urls": self._etcd,
            "listen-peer-urls": self._etcd_peer,
            "initial-advertise-peer-urls": self._etcd_peer,
            "initial-cluster": f"default={self._etcd_peer}",
            # All of it is thrown away: nothing need survive a loss of power.
            "unsafe-no-fsync": "true",
        }
        program = self._start("etcd", "etcd", options)
        program.wait_for(lambda: _answers(f"{self._etcd}/health", None, ""))

    def _write_settings(self) -> None:
        groups = {_ADMIN: ',"system:masters"'}
        rows = [
            f"{token},{name},{name}{groups.get(name, '')}\n" for name, token in self._tokens.items()
        ]
        (self.folder / "tokens.csv").write_text("".join(rows))
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
        (self.folder / "audit-policy.yaml").write_text(yaml.safe_dump(policy))
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        for name, token in self._tokens.items():
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
            file = self.folder / f"{name.rpartition(':')[2]}.conf"
            file.write_text(yaml.safe_dump(config))

    def _wait_for_defaults(self) -> None:
        """What the controller manager would make, as far as pods need it."""
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(ApiError):
                self.admin.get("/api/v1/namespaces/default")
                self.admin.get("/apis/scheduling.k8s.io/v1/priorityclasses/system-cluster-critical")
                break
            if time.monotonic() > deadline:
                raise RuntimeError("The API server has no namespace 'default'.")
            time.sleep(0.2)
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default"},
            "automountServiceAccountToken": False,
        }
        self.admin.post("/api/v1/namespaces/default/serviceaccounts", account)


def _minor_version(program: Path) -> int:
    """35 of ``Kubernetes v1.35.6``, which is what it prints as its version."""
    output = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True
    ).stdout
    return int(output.split()[1].split(".")[1])


def _answers(url: str, ca: Path | None, token: str) -> bool:
    try:
        Client(url, ca, token).get("")
    except ApiError:
        return False
    return True
