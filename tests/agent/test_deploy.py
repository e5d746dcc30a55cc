"""What is deployed says why it asks for what it asks for, and its settings are valid."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

import pytest
from kongming_agent import agent_config as config

from kongming import settings as declared
from tests.agent.conftest import ROOT

UNIT = ROOT / "daemon/deploy/systemd/kongming-agent.service"
MANIFEST = ROOT / "daemon/deploy/kubernetes/agent-daemonset.yaml"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / UNIT.name
    program = shutil.which("true")
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={program}", UNIT.read_text()))
    done = subprocess.run(
        [tool, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert complaints == []


def test_the_unit_is_notified_watched_and_without_a_quota() -> None:
    text = UNIT.read_text()
    for line in ("Type=notify", "WatchdogSec=", "NoNewPrivileges=yes", "CapabilityBoundingSet=\n"):
        assert line in text
    assert "\nCPUQuota" not in text


def test_every_permission_of_the_manifest_has_a_word_in_its_head() -> None:
    head, _, body = MANIFEST.read_text().partition("apiVersion:")
    for path in re.findall(r"hostPath: \{path: (\S+?)[,}]", body):
        assert f"hostPath {path}" in head, path
    for what in ("hostPID", "hostNetwork", "service account", "CPU limit", "memory limit"):
        assert what in head
    assert "privileged: true" not in body


def test_the_settings_in_the_manifest_are_valid(tmp_path: Path) -> None:
    text = MANIFEST.read_text()
    block = re.search(r"agent\.toml: \|\n((?:    .*\n)+)", text)
    assert block is not None
    lines = [line[4:] for line in block[1].splitlines()]
    settings = declared.parse(config.Settings, tomllib.loads("\n".join(lines)))
    assert settings.server.cert
    assert settings.server.key
    # The liveness probe looks at the file that these settings have written.
    probe = re.search(r"livenessProbe:\n +exec:\n +command: (\[.*\])\n", text)
    assert probe is not None
    assert settings.metrics.textfile in probe[1]
    written = tmp_path / "agent.prom"

    def alive() -> bool:
        command = json.loads(probe[1].replace(settings.metrics.textfile, str(written)))
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert not alive()
    written.touch()
    assert alive()
    os.utime(written, times=(0.0, time.time() - 10.0 * settings.metrics.textfile_s))
    assert not alive()
