"""Pods, nodes and the scheduler's requests as Go writes them: compact, in the order of the
fields of the published types, null for a pointer that is nil."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from kongming_extender.pods import Pod, pod_of


def uid() -> str:
    return str(uuid.uuid4())


def pod(
    name: str = "job",
    *,
    app: str = "",
    limit: object = None,
    unknown: str = "",
    node: str = "",
    phase: str = "Pending",
    started: str | None = None,
    finished: str | None = None,
    exit_code: int = 0,
    version: str = "1",
    **more: Any,
) -> dict[str, Any]:
    """A Pod. ``more`` goes into its metadata."""
    annotations = {}
    if app:
        annotations["kongming.dev/app"] = app
    if limit is not None:
        annotations["kongming.dev/limit"] = str(limit)
    if unknown:
        annotations["kongming.dev/unknown"] = unknown
    state: dict[str, Any] = {}
    if finished:
        state = {
            "terminated": {"exitCode": exit_code, "startedAt": started, "finishedAt": finished}
        }
    elif started:
        state = {"running": {"startedAt": started}}
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid(),
        "resourceVersion": version,
        "annotations": annotations,
    }
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "job:1"}]}
    if node:
        spec["nodeName"] = node
    status: dict[str, Any] = {"phase": phase}
    if state:
        status["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": state}]
    return {"metadata": metadata | more, "spec": spec, "status": status}


def decoded(document: Mapping[str, Any]) -> Pod:
    pod = pod_of(document)
    assert pod is not None
    return pod


def node(name: str, images: int = 2) -> dict[str, Any]:
    """A Node, of about the size of a real one with so many images."""
    return {
        "metadata": {
            "name": name,
            "uid": uid(),
            "resourceVersion": "7",
            "labels": {"kubernetes.io/hostname": name, "note": 'a "quoted" },{"metadata":'},
            "annotations": {"last": json.dumps([{"metadata": {"name": "inner"}}] * 2)},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "images": [
                {"names": [f"registry.example/app-{n}@sha256:{n:064x}"], "sizeBytes": 10**8 + n}
                for n in range(images)
            ],
        },
    }


def compact(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def args(
    pod: Mapping[str, Any], names: Iterable[str], *, complete: bool = False, images: int = 2
) -> bytes:
    """ExtenderArgs with names, or with complete nodes."""
    if complete:
        nodes = {"metadata": {}, "items": [node(name, images) for name in names]}
        return compact({"Pod": pod, "Nodes": nodes, "NodeNames": None})
    return compact({"Pod": pod, "Nodes": None, "NodeNames": list(names)})
