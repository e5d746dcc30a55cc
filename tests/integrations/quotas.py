"""Nodes that are this machine under CPU quotas, known to a real server by measured fingerprints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kongming import Fingerprint
from kongming.probes.node import node_facts
from kongming.profiling.environments.environment import Environment
from kongming.profiling.environments.limits import Limits, reasons
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from tests.server.fleet import FakeAgent, moment
from tests.server.process import ServerProcess, eventually, python_path

SURROGATES = ("compute.int", "compute.float")
"""What a quota slows down like the programs here, and nothing that needs a file."""


def impossible(folder: Path) -> str | None:
    """Return the reason why there can be no quotas here, or None."""
    return reasons(node_facts(), folder)["quota"]


@contextmanager
def different_nodes(
    folder: Path, quotas: Mapping[str, float | None], slowest: str, times: float
) -> Generator[QuotaNodes]:
    """Started nodes of which ``slowest`` is so many times as slow as "calm"; skips the test where
    they cannot be had."""
    why = impossible(folder)
    if why is not None:
        pytest.skip(why)
    nodes = QuotaNodes(folder, quotas)
    try:
        nodes.start()
        slowdowns = nodes.slowdowns()
        if slowdowns[slowest] < times * slowdowns["calm"]:
            pytest.skip("a quota makes no difference here: others take more than it does")
        yield nodes
    finally:
        nodes.close()


class QuotaNodes:
    """``quotas`` are CPUs by node name, None for no limit. ``server`` knows them after
    ``start()``; ``enter`` puts a process and its children under the quota of a node."""

    def __init__(self, folder: Path, quotas: Mapping[str, float | None]) -> None:
        self.folder = folder
        self._quotas = quotas
        # Each node is measured once, before it is used.
        settings = {"fleet.silent_after_s": 3600.0, "fleet.fingerprint_ttl_s": 3600.0}
        self.server = ServerProcess(folder, settings=settings)
        self._limits = ExitStack()
        self._procs: dict[str, tuple[Path, ...]] = {}

    def start(self) -> None:
        self.server.start()
        idle = self._fingerprint(())
        for name, quota in self._quotas.items():
            environment = Environment(name, "quota", {"cpu_quota": quota or os.cpu_count()})
            groups = self._limits.enter_context(Limits(environment, self.folder))
            self._procs[name] = groups.app_procs if quota else ()
            agent = FakeAgent(self.server.channel(), name)
            agent.facts = replace(idle.node, id=name, name=name)
            reference, live = (
                replace(taken, id=uuid.uuid4().hex, node=agent.facts)
                for taken in (idle, self._fingerprint(self._procs[name]))
            )
            agent.register(references=[replace(reference, started_at=moment(60.0))])
            assert agent.report(live).accepted
        with RemoteService(Connection(self.server.grpc, timeout_s=60.0)) as service:
            eventually(lambda: all(node.general_slowdown for node in service.nodes()))

    def slowdowns(self) -> dict[str, float]:
        with RemoteService(Connection(self.server.grpc, timeout_s=60.0)) as service:
            return {node.facts.name: node.general_slowdown or 0.0 for node in service.nodes()}

    def enter(self, name: str, pid: int) -> None:
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            for procs in self._procs[name]:
                procs.write_text(str(each.pid))

    def name(self, pid: int) -> str:
        """The node under whose quota a process runs; one under none is of the node without."""
        limited = [
            name
            for name, groups in self._procs.items()
            if any(str(pid) in procs.read_text().split() for procs in groups)
        ]
        return limited[0] if limited else next(n for n, groups in self._procs.items() if not groups)

    def close(self) -> None:
        """Only after all that entered has ended."""
        self.server.close()
        self._limits.close()

    def _fingerprint(self, groups: tuple[Path, ...]) -> Fingerprint:
        """Take one by the real command, inside of these control groups."""
        options = [option for name in SURROGATES for option in ("--surrogate", name)]
        shell = "".join(f"echo $$ > '{procs}' && " for procs in groups) + 'exec "$@"'
        shown = subprocess.run(
            [
                *("sh", "-c", shell, "sh", sys.executable, "-m", "kongming.cli.main"),
                *(
                    "fingerprint",
                    "--suite",
                    "standard",
                    *options,
                    "--no-store",
                    "--anyway",
                    "--json",
                ),
                *("--dir", str(self.folder)),
            ],
            env=os.environ | {"PYTHONPATH": python_path()},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return Fingerprint.from_dict(json.loads(shown.stdout))
