"""What is deployed parses, its settings exist, and the programs know what they are started with."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from kongming_agent import agent_config as agent_config
from kongming_server.commands import server_config as server_config
from kongming_server.security.certificates import holder, init_tls
from kongming_server.security.roles import Role

from kongming import settings as declared
from tests.docs import commands
from tests.docs.tables import ROOT
from tests.server.process import python_path

DEPLOY = ROOT / "daemon/deploy"
UNITS = sorted(DEPLOY.glob("systemd/*.service"))
BRIDGE = DEPLOY / "slurm/kongming-slurm.service"
MANIFESTS = sorted(DEPLOY.glob("kubernetes/*.yaml"))
PROGRAMS = ("agent", "server")


def documents(path: Path) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def of_kind(path: Path, *kinds: str) -> dict[str, Any]:
    (document,) = (each for each in documents(path) if each["kind"] in kinds)
    return document


def manifest(program: str) -> Path:
    (path,) = (path for path in MANIFESTS if path.name.startswith(program))
    return path


def unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """Sections, keys and all values of each key."""
    sections: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            assert re.fullmatch(r"[A-Z]\w+", key), line
            section.setdefault(key, []).append(value)
    return sections


def test_there_are_units_and_manifests_of_both_programs() -> None:
    assert [path.stem for path in UNITS] == ["kongming-agent", "kongming-server"]
    assert {"agent-daemonset", "server"} <= {path.stem for path in MANIFESTS}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_its_program_with_options_that_it_knows(path: Path) -> None:
    service = unit(path)["Service"]
    (started,) = service["ExecStart"]
    program, *words = started.split()
    assert Path(program).name == path.stem
    assert commands.unknown([path.stem, *words]) == []
    assert set(unit(path)) == {"Unit", "Service", "Install"}


@pytest.mark.parametrize("path", [*UNITS, BRIDGE], ids=lambda path: path.stem)
def test_a_unit_does_not_decide_who_reads_the_settings_of_others(path: Path) -> None:
    # All three share /etc/kongming: whichever started last would set its mode for the others.
    service = unit(path)["Service"]
    assert not [key for key in service if key.startswith("ConfigurationDirectory")]
    (started,) = service["ExecStart"]
    (settings,) = service["LoadCredential"]
    name, _, source = settings.partition(":")
    assert f"--config %d/{name}" in started
    assert source == f"/etc/kongming/{name}"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_notifies_only_if_its_program_does(path: Path) -> None:
    (kind,) = unit(path)["Service"]["Type"]
    package = ROOT / "daemon" / path.stem.replace("-", "_")
    notifies = any("Notifier()" in file.read_text() for file in package.rglob("*.py"))
    assert (kind == "notify") == notifies


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_accepts_a_unit(path: Path, tmp_path: Path) -> None:
    tool, program = shutil.which("systemd-analyze"), shutil.which("true")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / path.name
    copy.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={program}", path.read_text()))
    done = subprocess.run(
        [tool, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if path.name in line] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_settings_in_a_manifest_are_accepted(program: str, tmp_path: Path) -> None:
    (text,) = of_kind(manifest(program), "ConfigMap")["data"].values()
    if program == "agent":
        declared.parse(agent_config.Settings, tomllib.loads(text))
        return
    file = tmp_path / "server.toml"
    file.write_text(text)
    config = server_config.load(file)
    assert config.security.tls


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_container_starts_its_program_with_what_is_there(program: str) -> None:
    workload = of_kind(manifest(program), "DaemonSet", "Deployment")
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    image, _, digest = container["image"].partition("@sha256:")
    assert image.endswith(f"/kongming-{program}")
    assert re.fullmatch("[0-9a-f]{64}", digest)
    assert commands.unknown([f"kongming-{program}", *container["args"]]) == []
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    file = container["args"][container["args"].index("--config") + 1]
    assert file in mounts
    assert set(mounts.values()) <= {volume["name"] for volume in pod["volumes"]}
    (text,) = of_kind(manifest(program), "ConfigMap")["data"].values()
    for path in re.findall(r'"(/etc/kongming/\S+?)"', text):
        assert any(path.startswith(f"{folder}/") for folder in mounts), path


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_container_may_as_little_as_it_can(program: str) -> None:
    pod = of_kind(manifest(program), "DaemonSet", "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    allowed = container["securityContext"]
    assert allowed["readOnlyRootFilesystem"] is True
    assert allowed["allowPrivilegeEscalation"] is False
    assert allowed["capabilities"] == {"drop": ["ALL"]}
    assert "cpu" not in container["resources"]["limits"]


def test_ports_probes_and_names_of_the_manifests_fit_together() -> None:
    path = manifest("server")
    pod = of_kind(path, "Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    (text,) = of_kind(path, "ConfigMap")["data"].values()
    settings = tomllib.loads(text)["server"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings["listen"].endswith(f":{ports['grpc']}")
    assert settings["http"].endswith(f":{ports['http']}")
    service = of_kind(path, "Service")
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert {port["targetPort"] for port in service["spec"]["ports"]} == set(ports)
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container[name]["httpGet"]
        assert probe["path"] in ("/healthz", "/readyz")
        assert probe["scheme"] == "HTTPS"
    assert pod["spec"]["terminationGracePeriodSeconds"] > settings["grace_s"]
    (agents,) = of_kind(manifest("agent"), "ConfigMap")["data"].values()
    address = tomllib.loads(agents)["server"]["address"]
    names = service["metadata"]
    assert address == f"{names['name']}.{names['namespace']}.svc:{ports['grpc']}"


def test_the_commands_in_the_servers_manifest_exist() -> None:
    head, _, _ = manifest("server").read_text().partition("apiVersion:")
    named = re.findall(r"^#\s+(kongming-server .*)$", head, re.MULTILINE)
    assert len(named) >= 2
    for line in named:
        assert commands.unknown(line.split()) == []
    for secret in re.findall(r"secretName: ([\w-]+)", manifest("server").read_text()):
        assert secret in head
    # A secret would be the same for all agents.
    assert "secretName" not in manifest("agent").read_text()


@pytest.mark.parametrize("program", [*PROGRAMS, "extender"])
def test_the_network_is_open_to_what_is_named(program: str) -> None:
    path = manifest(program)
    policy = of_kind(path, "NetworkPolicy")["spec"]
    pod = of_kind(path, "DaemonSet", "Deployment")["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    (container,) = pod["spec"]["containers"]
    served = {port["containerPort"] for port in container["ports"]}
    opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert opened == served
    assert all("from" in rule for rule in policy["ingress"]) or program == "extender"


def test_each_node_gets_a_certificate_that_opens_its_agents_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, bin, node_root = tmp_path / "tls", tmp_path / "bin", tmp_path / "nodes"
    init_tls(tls)
    bin.mkdir()
    # A cluster of two nodes; "ssh NODE COMMAND" runs it as if / were the node's folder.
    programs = {
        "kubectl": 'echo "node-1 node-2.example"',
        "kongming-server": f'exec {sys.executable} -m kongming_server.commands.server_command "$@"',
        "chown": "",
        "ssh": f'node=$1; root={node_root}/$node; mkdir -p "$root"\n'
        'exec sh -c "$(echo "$2" | sed "s,/etc/kongming,$root,g")"',
    }
    for name, body in programs.items():
        (bin / name).write_text(f"#!/bin/sh\n{body}\n".replace("\\n", "\n"))
        (bin / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", python_path())
    script = DEPLOY / "kubernetes/agent-certificates.sh"

    def give(*nodes: str) -> list[str]:
        command = ["sh", str(script), str(tls), *nodes]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert give() == ["node-1 has a new certificate", "node-2.example has a new certificate"]
    for node in ("node-1", "node-2.example"):
        folder = node_root / node / "agent"
        assert sorted(path.name for path in folder.iterdir()) == ["agent.crt", "agent.key"]
        assert stat.S_IMODE((folder / "agent.key").stat().st_mode) == 0o600
        assert holder((folder / "agent.crt").read_bytes())[:2] == (node, Role.AGENT)
    before = (node_root / "node-1/agent/agent.crt").read_bytes()
    assert give("node-1") == ["node-1 has its certificate"]
    assert (node_root / "node-1/agent/agent.crt").read_bytes() == before
    assert not list(node_root.rglob("ca.*"))


@pytest.mark.parametrize(
    ("kubectl", "error"),
    [("echo refused >&2; exit 1", "refused"), ("exit 0", "kubectl names no node")],
)
def test_no_certificates_where_kubectl_names_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubectl: str, error: str
) -> None:
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\n{kubectl}\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = DEPLOY / "kubernetes/agent-certificates.sh"
    command = ["sh", str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"{error}\n")


def test_every_version_that_is_installed_is_locked_with_its_hash() -> None:
    def versions(name: str) -> dict[str, list[str]]:
        lines = (ROOT / name).read_text().splitlines()
        entries = [line.split() for line in lines if line and not line.startswith("#")]
        return {re.sub("[-_.]+", "-", first.lower()): more for first, *more in entries}

    locked = versions("requirements.lock")
    # Next to those there is what they need at any version, such as setuptools.
    assert set(locked) >= set(versions("constraints.txt")), "run: make hashes"
    for name, hashes in locked.items():
        assert hashes, name
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in hashes), name
    # Where packages come from is for whoever installs them to say.
    assert "://" not in (ROOT / "requirements.lock").read_text()
