"""Nodes and pods as a benchmark writes them, where kubelets and controllers would."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.extender.control_plane import ControlPlane
from benchmarks.extender.kongming_side import APP

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
_CREATING = 4
"""Requests at a time."""


class Cluster:
    def __init__(self, plane: ControlPlane) -> None:
        self._api = plane.admin

    def set_nodes(self, names: Iterable[str]) -> None:
        """Have these nodes, ready and with room for 110 pods, and no others."""
        there = {node["metadata"]["name"] for node in self._api.get(NODES)["items"]}
        wanted = set(names)
        _each(lambda name: self._api.delete(f"{NODES}/{name}"), sorted(there - wanted))
        _each(self._add_node, sorted(wanted - there))

    def cordon(self, names: Iterable[str]) -> None:
        for name in names:
            self._api.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})

    def create(self, names: Sequence[str], **more: str) -> None:
        """Pods of ``APP``; ``more`` are other annotations, without their prefix."""
        _each(lambda name: self._api.post(PODS, _pod(name, more)), names)

    def pods(self) -> dict[str, dict[str, Any]]:
        return {pod["metadata"]["name"]: pod for pod in self._api.get(PODS)["items"]}

    def delete(self, names: Iterable[str] | None = None) -> None:
        """Delete pods, all of them by default, and wait until they are gone."""
        doomed = sorted(self.pods() if names is None else names)
        _each(lambda name: self._api.delete(f"{PODS}/{name}"), doomed)
        while set(doomed) & set(self.pods()):
            time.sleep(0.05)

    def placed(self, names: Sequence[str], timeout_s: float = 60.0) -> dict[str, str]:
        """The node of each; empty for those that are not bound in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            pods = self.pods()
            nodes = {name: pods[name]["spec"].get("nodeName", "") for name in names}
            if all(nodes.values()) or time.monotonic() > deadline:
                return nodes
            time.sleep(0.05)

    def condition(self, name: str) -> str:
        """Why a pod is not scheduled."""
        conditions = self._api.get(f"{PODS}/{name}")["status"].get("conditions", [])
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    def run(self, name: str, *, since_s: float, ended: bool = False) -> None:
        """What a kubelet writes: it runs for so long, or has run to its end."""
        now = datetime.now(UTC)
        begun = _moment(now - timedelta(seconds=since_s))
        state: dict[str, Any] = {"running": {"startedAt": begun}}
        if ended:
            state = {"terminated": {"exitCode": 0, "startedAt": begun, "finishedAt": _moment(now)}}
        container = {
            **{"name": "main", "image": "job:1", "imageID": "", "ready": not ended},
            **{"restartCount": 0, "state": state},
        }
        status = {"phase": "Succeeded" if ended else "Running", "containerStatuses": [container]}
        self._api.patch(f"{PODS}/{name}/status", {"status": status})

    def _add_node(self, name: str) -> None:
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
        }
        self._api.post(NODES, node)
        # A new node is tainted until a controller has seen it ready.
        self._api.patch(f"{NODES}/{name}", {"spec": {"taints": None}})


class Bindings:
    """``with Bindings(plane) as bindings``: monotonic times at which pods were seen bound."""

    def __init__(self, plane: ControlPlane) -> None:
        self.times: dict[str, float] = {}
        self._done = False
        self._version = plane.admin.get(PODS)["metadata"]["resourceVersion"]
        self._url, self._headers = f"{plane.url}{PODS}", plane.admin.headers
        self._context = ssl.create_default_context(cafile=str(plane.ca))
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Bindings:
        self._response = self._watch()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        # Its thread ends with the next change, or with this process.
        self._done = True

    def wait(self, count: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while len(self.times) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Only {len(self.times)} of {count} pods were bound.")
            time.sleep(0.01)

    def _watch(self) -> Any:
        url = f"{self._url}?watch=1&resourceVersion={self._version}"
        request = Request(url, headers=self._headers)
        return urlopen(request, context=self._context, timeout=300)

    def _read(self) -> None:
        while not self._done:
            with self._response:
                for line in self._response:
                    if self._done:
                        return
                    pod = json.loads(line)["object"]
                    self._version = pod["metadata"]["resourceVersion"]
                    if pod.get("spec", {}).get("nodeName"):
                        self.times.setdefault(pod["metadata"]["name"], time.monotonic())
            # The API server ends a watch whose reader does not keep up with a burst.
            self._response = self._watch()


def _pod(name: str, more: Mapping[str, str]) -> dict[str, Any]:
    annotations = {f"kongming.dev/{key}": value for key, value in {"app": APP, **more}.items()}
    container = {
        "name": "main",
        "image": "job:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def _each(action: Callable[[str], Any], names: Sequence[str]) -> None:
    with ThreadPoolExecutor(_CREATING) as pool:
        list(pool.map(action, names))


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
