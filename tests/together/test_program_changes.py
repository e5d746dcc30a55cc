"""A program changes: a real server notices, has a real agent profile it, trains and promotes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kongming.records.answers import Forecast
from kongming.records.questions import Question
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from tests import builders
from tests.agent.conftest import FAST, Agent, log_of
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent, moment
from tests.server.process import ServerProcess, eventually

RUNS = 15
"""Of one quick campaign on a shared core."""

CALM = 30
"""Runs as predicted: with a small profile, fewer would not distinguish a change from chance."""

SERVER = {
    "fleet.heartbeat_period_s": 0.2,
    "fleet.silent_after_s": 20.0,
    # What the program takes has nothing to do with the fingerprint, which on a busy machine is out
    # of the range that a small profile has seen: others would learn chance from it.
    "training.models": "MEAN",
    "closed_loop.check_period_s": 0.05,
    "closed_loop.retrain_runs": RUNS,
    "closed_loop.retrain_pause_s": 0.0,
}
CAMPAIGN_S = 200.0


class Program:
    """``nap`` in an applications file. It prints the time that it takes, and a part of a second
    more that differs from run to run, so that the test does not depend on how busy the machine
    is. Any few runs in a row have parts from all over the range: none seems to be a change."""

    def __init__(self, folder: Path) -> None:
        self._script = folder / "nap.sh"
        self.apps = folder / "apps.toml"
        self.apps.write_text(
            f'[apps.nap]\ncommand = "sh {self._script}"\n'
            "metric = { pattern = 'took ([0-9.]+)', unit = 's', better = 'lower' }\n"
        )

    def takes(self, seconds: int) -> None:
        count = self._script.with_suffix(".runs")
        self._script.write_text(
            f"echo >> {count}; runs=$(wc -l < {count})\n"
            f"sleep 0.02; echo took {seconds}.$(( runs * 556 % 900 + 100 ))\n"
        )

    def run(self) -> float:
        done = subprocess.run(["sh", str(self._script)], check=True, capture_output=True, text=True)
        return float(done.stdout.split()[1])


class Scheduler:
    """Places the program on the node, runs it, and reports how long it took."""

    def __init__(self, server: ServerProcess, service: RemoteService, program: Program) -> None:
        self._service, self._program = service, program
        self._reports = FakeAgent(server.channel())
        self._reports.facts = service.nodes()[0].facts
        self._jobs = 0

    def run_once(self) -> None:
        self._jobs += 1
        job, node_id = f"job-{self._jobs}", self._reports.facts.id
        self._service.bind(job, app="nap", node=node_id)
        began = moment()
        seconds = self._program.run()
        run = builders.run("nap", seconds, kind="environment", started_at=began, node_id=node_id)
        # Not of the agent's sequence: a scheduler reports what it has placed.
        self._reports.sequence = -1
        answer = self._reports.report_runs([run], assignment_id=job)
        assert list(answer.accepted) == [run.id], answer


def predicted(service: RemoteService) -> float:
    (forecast,) = service.predict([Question("nap", service.nodes()[0].facts.id)])
    assert isinstance(forecast, Forecast), forecast
    assert forecast.solo_s is not None
    return forecast.solo_s


def versions(service: RemoteService) -> dict[int, bool]:
    """Whether it is in service, by version."""
    return {model.version: model.in_service for model in service.models("nap")}


def campaigns(folder: Path, word: str) -> int:
    return sum(word in line for line in log_of(folder))


@pytest.mark.thorough
def test_a_changed_program_is_profiled_by_an_agent_and_promoted_though_the_agent_is_killed(
    start_server: StartServer, agent_process: Agent, tmp_path: Path
) -> None:
    server = start_server(settings=SERVER)
    program = Program(tmp_path)
    program.takes(5)
    slower = FAST.replace("period_s = 0.3", "period_s = 2.0")
    settings = slower.replace("least_gap_s = 0.1", "least_gap_s = 1.0") + (
        # On one CPU: where cores are measured first, a busy machine may be taken for another.
        f"[profile]\napps = '{program.apps}'\nallow = ['nap']\nplacement = 'same-core'\n"
        # It profiles again as soon as it is asked.
        "pause_s = 0.0\n"
    )
    agent = agent_process("--server", server.grpc, settings=settings)
    with RemoteService(Connection(server.grpc)) as service:
        nodes = eventually(lambda: [n for n in service.nodes() if n.last_heartbeat_at])
        node = nodes[0].facts.id
        service.request_profile(node, ["nap"])
        eventually(lambda: campaigns(tmp_path, "ended with status 0"), CAMPAIGN_S)
        eventually(lambda: service.application("nap").runs >= RUNS)
        operation = service.train(["nap"])
        *_, last = service.watch_operation(operation.id)
        assert [model.error for model in last.trained] == [""], last
        assert versions(service) == {1: True}

        scheduler = Scheduler(server, service, program)
        for _ in range(CALM):
            scheduler.run_once()
        calm = service.application("nap").realised
        assert calm is not None
        assert (calm.runs, calm.drifted) == (CALM, False)
        assert campaigns(tmp_path, "profiling nap on request of the server") == 1

        program.takes(14)
        late = 0
        while not service.application("nap").realised.drifted:  # type: ignore[union-attr]
            scheduler.run_once()
            late += 1
            assert late <= 60, service.application("nap")
        reason = service.application("nap").realised.reason  # type: ignore[union-attr]
        # A drawn id breaks ties, so that now and then both sides are found at once.
        assert "slower" in reason or "on both sides" in reason

        # The agent is asked, and killed in the midst of the campaign.
        eventually(lambda: campaigns(tmp_path, "profiling nap on request of the server") == 2)
        runs = service.application("nap").runs
        eventually(lambda: service.application("nap").runs >= runs + 3, CAMPAIGN_S)
        agent.kill()
        agent.wait()
        agent_process("--server", server.grpc, settings=settings)
        eventually(lambda: campaigns(tmp_path, "on request of the server: continued") == 1)
        eventually(lambda: versions(service) == {1: False, 2: True}, CAMPAIGN_S)
        # The server learns of it from the store.
        eventually(lambda: 14.0 < predicted(service) < 16.0)
        # Once is enough.
        assert campaigns(tmp_path, "profiling nap on request of the server") == 3
