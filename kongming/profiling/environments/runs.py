"""Measure applications in different environments and yield the results; stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from kongming.probes.suite import Suite
from kongming.profiling.environments.environment import Environment
from kongming.profiling.environments.limits import sweep_leftovers
from kongming.profiling.environments.tasks import tasks
from kongming.profiling.environments.visits import Campaign, visit_environment
from kongming.profiling.events import Dropped, Event
from kongming.profiling.plans.identity import identities_of
from kongming.profiling.plans.placement import choose
from kongming.profiling.runs.runner import open_runner
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError, InputError
from kongming.records.fingerprint import NodeFacts


def measure_environments(
    apps: Mapping[str, Application],
    environments: Sequence[Environment],
    *,
    node: NodeFacts,
    suite: Suite,
    work_dir: Path,
    io_dir: Path,
    placement: str = "cross-core",
    repeats: int = 2,
    seed: int = 0,
    campaign: str = "",
    done: frozenset[int] = frozenset(),
    needs: Mapping[str, int] | None = None,
    stop_when: Callable[[], bool] = lambda: False,
) -> Generator[Event, None, None]:
    """Time each application once in each environment, ``repeats`` times (paper, Table IV).

    Right before and right after each run, and inside the environment, a quick fingerprint is
    taken; the one before is the run's ``fingerprint``. The environment's name, kind, parameters
    and whether it is synthetic are in the run's ``config``, which models must not use. Yields
    Doing, Measured, Dropped and Run events as ``profile`` does; closing it reaps everything and
    removes the groups. Mixes of programs need the applications that they name in ``apps``.

    Args:
        placement: relation of the CPUs, for every run, regardless of the environment.
        done: steps (see ``tasks``) that an earlier, interrupted campaign has measured.
        needs: bytes of memory that applications need without page cache, where known; for
            others it is measured once, before their first run under a memory limit.
        stop_when: called before each run; true ends the campaign early.

    Raises:
        InputError: the node does not have the placement, or a mix has unknown programs.
    """
    plan = tasks(tuple(apps), environments, repeats=repeats, seed=seed)
    _check_programs(environments, apps)
    sweep_leftovers()
    with ExitStack() as stack:
        state = Campaign(
            apps=apps,
            node=node,
            suite=suite,
            placement=placement,
            work_dir=work_dir,
            io_dir=io_dir,
            campaign=campaign,
            steps=len(plan),
            stack=stack,
            needs=dict(needs or {}),
            identities=identities_of(apps),
            completed=len(done),
        )
        for name, app in apps.items():
            choose(node, placement, app.cpus)
            if all(t.app != name or t.step in done for t in plan):
                continue
            yield state.doing(f"setting up {name}", name)
            try:
                runner = open_runner(app, work_dir)
                state.runners[name] = stack.enter_context(runner)
            except ApplicationRunError as error:
                # No step was begun, so the same command tries it again.
                yield Dropped(name, str(error))
        for _, group in groupby(plan, key=lambda task: task.visit):
            remaining = [t for t in group if t.step not in done]
            while remaining:
                # Tasks of dropped applications count as completed.
                dropped = [t for t in remaining if t.app not in state.runners]
                state.completed += len(dropped)
                remaining = [t for t in remaining if t.app in state.runners]
                if not remaining:
                    break
                if stop_when():
                    return
                # CPUs and groups depend on the application's number of CPUs, and a memory limit
                # on the program: they are created again for each.
                alone = remaining[0].environment.kind == "memory"
                cpus = apps[remaining[0].app].cpus
                visit = (
                    remaining[:1] if alone else [t for t in remaining if apps[t.app].cpus == cpus]
                )
                yield from visit_environment(state, visit, stop_when)
                remaining = [t for t in remaining if t not in visit]


def _check_programs(environments: Sequence[Environment], apps: Mapping[str, Application]) -> None:
    for environment in environments:
        unknown = sorted(set(environment.programs) - set(apps))
        if unknown:
            raise InputError(
                f"{environment.name} has programs that were not given.",
                field="environments",
                value=", ".join(unknown),
                allowed=", ".join(sorted(apps)),
            )
