"""The manifests against the published schemas, and against the programs that they start."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from kongming_extender import extender_config as settings
from kongming_extender.extender_command import cli

from kongming import settings as declared
from tests.docs import commands
from tests.docs.tables import ROOT

FOLDER = ROOT / "daemon/deploy/kubernetes"
SCHEDULER = FOLDER / "scheduler-configuration.yaml"
SCHEMA = json.loads((Path(__file__).parent / "scheduler-configuration.schema.json").read_text())
VERSIONS = ("1.30", "1.37")
"""Of Kubernetes: an old one that is still met, and the newest whose schemas are at hand."""


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


OBJECTS = [
    pytest.param(document, id=f"{path.stem}-{document['kind']}")
    for path in sorted(FOLDER.glob("*.yaml"))
    if path != SCHEDULER
    for document in documents(path)
]


def of_kind(kind: str) -> dict[str, Any]:
    (document,) = (each for each in documents(FOLDER / "extender.yaml") if each["kind"] == kind)
    return document


def extender() -> dict[str, Any]:
    (document,) = documents(SCHEDULER)
    (extender,) = document["extenders"]
    assert isinstance(extender, dict)
    return extender


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", OBJECTS)
def test_an_object_is_what_the_published_schema_allows(
    document: dict[str, Any], version: str
) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    assert validate.validate(document, version, strict=True) == version


def test_the_schemas_find_an_unknown_value() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    wrong = copy.deepcopy(of_kind("Deployment"))
    wrong["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_schedulers_configuration_is_what_its_types_allow() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is missing")
    (document,) = documents(SCHEDULER)
    check = jsonschema.Draft202012Validator(SCHEMA)
    assert list(check.iter_errors(document)) == []
    for change in ({"httpTimeout": 2}, {"ignoreable": True}, {"weight": 0}):
        wrong = copy.deepcopy(document)
        wrong["extenders"][0] |= change
        assert list(check.iter_errors(wrong)), change


def test_the_scheduler_asks_what_is_served_and_waits_long_enough() -> None:
    configured = extender()
    assert (configured["filterVerb"], configured["prioritizeVerb"]) == ("filter", "prioritize")
    assert "bindVerb" not in configured
    assert configured["ignorable"] is True
    assert configured["nodeCacheCapable"] is True
    (text,) = of_kind("ConfigMap")["data"].values()
    deadline_s = tomllib.loads(text)["server"]["deadline_s"]
    assert float(configured["httpTimeout"].removesuffix("s")) > deadline_s
    service = of_kind("Service")
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    (port,) = service["spec"]["ports"]
    assert configured["urlPrefix"] == f"https://{host}:{port['port']}"
    assert configured["tlsConfig"]["serverName"] == host
    assert {"caFile", "certFile", "keyFile"} < set(configured["tlsConfig"])


def test_permissions_are_to_list_and_watch_pods() -> None:
    role = of_kind("ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    binding = of_kind("ClusterRoleBinding")
    account = of_kind("ServiceAccount")
    (subject,) = binding["subjects"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert subject["name"] == account["metadata"]["name"]
    assert (
        of_kind("Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
        == (account["metadata"]["name"])
    )


def test_the_container_fits_its_settings() -> None:
    pod = of_kind("Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert commands.unknown(["kongming-extender", *container["args"]]) == []
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["spec"]["volumes"]
    }
    ((name, text),) = of_kind("ConfigMap")["data"].items()
    assert f"/etc/kongming/{name}" in mounts
    for path in re.findall(r'"(/etc/kongming/\S+?)"', text):
        assert str(Path(path).parent) in mounts, path
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert tomllib.loads(text)["extender"]["listen"].endswith(f":{ports['https']}")
    assert pod["spec"]["terminationGracePeriodSeconds"] > tomllib.loads(text)["extender"]["grace_s"]
    allowed = container["securityContext"]
    assert allowed["capabilities"] == {"drop": ["ALL"]}
    assert allowed["readOnlyRootFilesystem"] is True
    assert allowed["allowPrivilegeEscalation"] is False
    (opened,) = of_kind("NetworkPolicy")["spec"]["ingress"]
    assert [port["port"] for port in opened["ports"]] == list(ports.values())


def test_the_settings_are_accepted(tmp_path: Path) -> None:
    (text,) = of_kind("ConfigMap")["data"].values()
    file = tmp_path / "extender.toml"
    file.write_text(text)
    config = declared.load(settings.Config, file)
    assert config.security.tls
    assert config.security.client_ca
    assert config.pods.watch


def test_the_commands_of_the_manifest_exist() -> None:
    head, _, _ = (FOLDER / "extender.yaml").read_text().partition("apiVersion:")
    named = re.findall(r"^#\s+(kongming-server .*)$", head, re.MULTILINE)
    assert len(named) == 1
    assert [commands.unknown(line.split()) for line in named] == [[]]
    assert cli.name == "cli"


def test_the_agent_takes_the_name_that_the_scheduler_uses() -> None:
    """What ends in the agent's settings is the node's name, by the init container."""
    objects = documents(FOLDER / "agent-daemonset.yaml")
    (text,) = next(each for each in objects if each["kind"] == "ConfigMap")["data"].values()
    assert tomllib.loads(text)["node"]["name"] == "@NODE@"
    pod = next(each for each in objects if each["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    init = next(each for each in pod["initContainers"] if each["name"] == "settings")
    (variable,) = init["env"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert f"s/@NODE@/${variable['name']}/" in init["command"][-1]
    assert {mount["name"] for mount in init["volumeMounts"]} <= {
        volume["name"] for volume in pod["volumes"]
    }
