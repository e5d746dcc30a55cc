"""Starting what a unit starts, as systemd would, where systemd does not run.

What is done of systemd.exec(5): a user of its own for DynamicUser=, its StateDirectory= and
CacheDirectory=, LoadCredential= as files of mode 0400 that the manager has read as root,
Environment= and the specifier %d. What is not: sandboxing, limits, and the watchdog.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.docs.test_deploy import unit
from tests.server.process import python_path

USER = 64017
"""Of the range that systemd takes dynamic users from, and nobody's here."""

COMMANDS = {
    "kongming_agent": "agent_command",
    "kongming_extender": "extender_command",
    "kongming_server": "commands.server_command",
    "kongming_slurm": "bridge_commands",
}
"""Modules of the programs, by package."""

_DROP = """
import os, sys
import {module} as program
{more}
os.setgroups([])
os.setresgid({user}, {user}, {user})
os.setresuid({user}, {user}, {user})
sys.exit(program.run(sys.argv[1:]))
"""
"""Modules first: the user may not be able to read where Python is installed."""


def start(path: Path, root: Path, more: str = "") -> subprocess.Popen[str]:
    """Start the service of a unit whose files are below ``root`` instead of /; ``more`` imports
    what the program loads late."""
    service = unit(path)["Service"]
    assert service.get("DynamicUser") == ["yes"]
    for name in ("ConfigurationDirectory", "ExecStartPre"):
        assert name not in service
    credentials = root / "run/credentials" / path.name
    credentials.mkdir(parents=True)
    # A dynamic user's home is /.
    environment = {"HOME": "/", "PATH": os.environ["PATH"], "PYTHONPATH": python_path()}
    for kind, below in (("State", "var/lib"), ("Cache", "var/cache")):
        for name in service.get(f"{kind}Directory", ()):
            folder = root / below / name
            folder.mkdir(parents=True)
            folder.chmod(0o700)
            os.chown(folder, USER, USER)
            environment[f"{kind.upper()}_DIRECTORY"] = str(folder)
    for line in service.get("LoadCredential", ()):
        name, _, source = line.partition(":")
        target = credentials / name
        target.write_bytes((root / source.lstrip("/")).read_bytes())
        target.chmod(0o400)
        os.chown(target, USER, USER)
    credentials.chmod(0o500)
    os.chown(credentials, USER, USER)
    for line in service.get("Environment", ()):
        name, _, value = line.partition("=")
        environment[name] = value.replace("/var/", f"{root}/var/")
    program, *arguments = shlex.split(service["ExecStart"][0])
    package = Path(program).name.replace("-", "_")
    module = f"{package}.{COMMANDS[package]}"
    return subprocess.Popen(
        [
            *(sys.executable, "-c", _DROP.format(module=module, more=more, user=USER)),
            *(argument.replace("%d", str(credentials)) for argument in arguments),
        ],
        env=environment,
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
