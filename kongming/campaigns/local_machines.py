"""Machines on one node: a control group with a share of a CPU each, else a worker process each."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

from kongming.campaigns.other_machines import GROUP, PROCESS
from kongming.profiling.runs.outcome import judge
from kongming.profiling.runs.runner import Runner
from kongming.profiling.seat_groups import CpuGroups, group_names
from kongming.records import moments
from kongming.records.application import Application, Command
from kongming.records.errors import ApplicationRunError, InputError
from kongming.scale.design.experiments import Experiment, Measured, fill_template

PERIOD_US = 20_000
"""Period of the CPU quota: short, so that a machine is slow instead of stopped for long."""

PROCS = "KONGMING_MACHINE_PROCS"
"""Environment variable: the files by which a worker enters its machine, separated by colons."""


class MachineGroups(CpuGroups):
    """A group of ``share`` CPUs for each of ``count`` machines, and one of all of them together.
    ``machine(i)`` and ``together`` are cgroup.procs files.
    """

    def __init__(self, count: int, share: float, root: Path = Path("/")) -> None:
        super().__init__(root)
        self._count, self._share = count, share

    @property
    def together(self) -> Path:
        return self._groups[-1] / "cgroup.procs"

    def machine(self, rank: int) -> Path:
        return self._groups[rank] / "cgroup.procs"

    def _make(self, parent: Path, version: int) -> None:
        names = group_names(*(f"machine{i}" for i in range(self._count)), "machines")
        shares = [self._share] * self._count + [self._share * self._count]
        for name, share in zip(names, shares, strict=True):
            quota = max(round(share * PERIOD_US), 1000)
            self._add(
                parent / name,
                {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": f"{quota}"}
                if version == 1
                else {"cpu.max": f"{quota} {PERIOD_US}"},
            )


class LocalRunner:
    """Runs experiments on this node.

    A command with {rank} is started once for each machine, in that machine's group; any other once,
    in the group of all machines together; its workers may enter one machine each by the files that
    ``KONGMING_MACHINE_PROCS`` names. Set-up runs once for each distinct command of its template;
    its files are kept until the end.

    Raises:
        InputError: the application is a service.
    """

    def __init__(
        self, app: Application, folder: Path, *, share: float = 0.125, root: Path = Path("/")
    ) -> None:
        refuse_service(app)
        self._app, self._folder, self._share, self._root = app, folder, share, root
        self._stack = ExitStack()
        self._open: dict[str, Runner] = {}
        self.reason: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, experiment: Experiment) -> Measured:
        """Run one experiment. Raises ProbeError if the micro-benchmark binary is missing."""
        started_at = moments.now()
        try:
            runner = self._runner(experiment)
        except ApplicationRunError as error:
            return Measured(None, PROCESS, started_at, str(error))
        with MachineGroups(experiment.machines, self._share, self._root) as groups:
            self.reason = groups.reason
            how = f"{GROUP} {self._share:g}" if groups.active else PROCESS
            if self._app.ranked:
                return self._ranks(runner, experiment, groups, how, started_at)
            env = dict(self._app.env)
            if groups.active:
                procs = [str(groups.machine(i)) for i in range(experiment.machines)]
                env[PROCS] = ":".join(procs)
            runner.app = replace(
                self._app,
                command=filled(self._app.command, experiment),
                prepare=None
                if self._app.prepare is None
                else filled(self._app.prepare, experiment),
                env=env,
            )
            outcome = runner.run((), cgroup_procs=(groups.together,) if groups.active else ())
            seconds = outcome.wall_s if outcome.ok else None
            metric = None if self._app.metric is None else outcome.metric
            return Measured(seconds, how, started_at, outcome.error, metric, outcome.timed_out)

    def _ranks(
        self,
        runner: Runner,
        experiment: Experiment,
        groups: MachineGroups,
        how: str,
        started_at: str,
    ) -> Measured:
        """Measure from the first start to the last end, over all machines."""
        prepare = self._app.prepare
        runner.app = replace(
            self._app, prepare=None if prepare is None else filled(prepare, experiment)
        )
        try:
            runner.prepare()
        except ApplicationRunError as error:
            return Measured(None, how, started_at, str(error))
        commands = [
            filled(self._app.command, experiment, rank) for rank in range(experiment.machines)
        ]
        # Each machine may have inputs of its own.
        runner.make_cold(commands)
        with ExitStack() as running:
            started = [
                running.enter_context(
                    runner.execute(
                        command,
                        cgroup_procs=(groups.machine(rank),) if groups.active else (),
                        timeout_s=self._app.timeout_s,
                    )
                )
                for rank, command in enumerate(commands)
            ]
            checked = replace(self._app, metric=None)
            ended = [
                judge(checked, process.result(), process.output, started_at=started_at)
                for process in started
            ]
        failures = [outcome for outcome in ended if outcome.error is not None]
        if failures:
            # Where a machine failed, others may have waited for it until the limit.
            worst = min(failures, key=lambda outcome: outcome.timed_out)
            return Measured(None, how, started_at, worst.error, timed_out=worst.timed_out)
        first = min(outcome.start_ns for outcome in ended)
        return Measured((max(each.end_ns for each in ended) - first) / 1e9, how, started_at)

    def _runner(self, experiment: Experiment) -> Runner:
        setup = self._app.setup
        own = None if setup is None else filled(setup, experiment)
        key = json.dumps(own)
        if key not in self._open:
            cleanup = self._app.cleanup
            app = replace(
                self._app,
                setup=own,
                cleanup=None if cleanup is None else filled(cleanup, experiment),
            )
            self._open[key] = self._stack.enter_context(Runner(app, self._folder, evict_node=True))
        return self._open[key]


def refuse_service(app: Application) -> None:
    """Raise InputError if the application never ends: an experiment is timed to its end."""
    if app.kind != "batch":
        raise InputError("is a service, which never ends.", field="--app", value=app.name)


def filled(command: Command, experiment: Experiment, rank: int | None = None) -> Command:
    """Return a command template with its values filled in."""
    if isinstance(command, str):
        return fill_template(command, experiment, rank)
    return tuple(fill_template(part, experiment, rank) for part in command)
