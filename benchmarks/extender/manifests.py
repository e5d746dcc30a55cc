"""The shipped manifests, applied to a real API server by the commands that their comments give."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from benchmarks.extender.control_plane import MANIFESTS, ControlPlane
from benchmarks.extender.kongming_side import service_account_token
from benchmarks.extender.kube_client import ApiError, Client

FILES = ("server.yaml", "extender.yaml", "agent-daemonset.yaml")


def apply_all(plane: ControlPlane) -> dict[str, Any]:
    """Run the commands, apply every object, and see whether Pods of the templates are admitted.
    Certificates have to be in the folder."""
    result: dict[str, Any] = {"commands": [], "objects": {}, "failed": {}}
    for name in FILES:
        for command in _commands(name):
            plane.kubectl(*command)
            result["commands"].append(shlex.join(command[:4]))
        for document in _documents(name):
            _apply(plane, document, result)
    return result


def admitted(plane: ControlPlane) -> dict[str, str]:
    """How the API server answers a Pod of each template; it is not stored."""
    # A controller would have made it with the namespace.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    plane.admin.post("/api/v1/namespaces/kongming/serviceaccounts", account)
    answers = {}
    for name in FILES:
        for document in _documents(name):
            template = document.get("spec", {}).get("template")
            if template is None:
                continue
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            pod["metadata"] = template["metadata"] | {"name": document["metadata"]["name"]}
            namespace = document["metadata"]["namespace"]
            answers[f"{document['kind']} {document['metadata']['name']}"] = _answer(
                plane.admin, "POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod
            )
    return answers


def permissions(plane: ControlPlane) -> dict[str, str]:
    """What the extender's account may do, tried with a token of its own."""
    client = Client(plane.url, plane.ca, service_account_token(plane.admin))
    pods = "/api/v1/namespaces/default/pods"
    paths = {
        "list pods": "/api/v1/pods?limit=1",
        "watch pods": "/api/v1/pods?watch=1&timeoutSeconds=1&labelSelector=none",
        "get a pod": f"{pods}/any",
        "list nodes": "/api/v1/nodes",
        "list secrets": "/api/v1/namespaces/kongming/secrets",
    }
    answers = {name: _answer(client, "GET", path) for name, path in paths.items()}
    return answers | {"bind a pod": _answer(client, "POST", f"{pods}/any/binding", {})}


def _commands(name: str) -> Iterator[list[str]]:
    """Arguments of each kubectl in the comments at the head."""
    head, _, _ = (MANIFESTS / name).read_text().partition("apiVersion:")
    for line in re.findall(r"^#\s+kubectl (.*)$", head, re.MULTILINE):
        yield shlex.split(line)


def _documents(name: str) -> Iterator[dict[str, Any]]:
    for document in yaml.safe_load_all((MANIFESTS / name).read_text()):
        if document:
            yield document


def _apply(plane: ControlPlane, document: dict[str, Any], result: dict[str, Any]) -> None:
    version = document["apiVersion"]
    kind = f"{version} {document['kind']}"
    applied = {**document, "apiVersion": plane.named(version)}
    file = plane.folder / "object.yaml"
    file.write_text(yaml.safe_dump(applied))
    name = document["metadata"]["name"]
    try:
        plane.kubectl("apply", "--validate=true", "-f", str(file))
    except RuntimeError as error:
        result["failed"][f"{kind} {name}"] = str(error)
    else:
        note = "" if applied["apiVersion"] == version else f" as {applied['apiVersion']}"
        result["objects"].setdefault(f"{kind}{note}", []).append(name)


def _answer(client: Client, method: str, path: str, document: dict[str, Any] | None = None) -> str:
    try:
        client.post(path, document or {}) if method == "POST" else client.get(path)
    except ApiError as error:
        return str(error)[:300] if error.code not in (403, 404) else str(error.code)
    return "allowed"
