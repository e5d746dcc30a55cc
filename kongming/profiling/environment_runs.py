"""Measures applications in different environments and yields what it sees; keeps nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from kongming.application import Application
from kongming.errors import ApplicationRunError, InputError
from kongming.fingerprint import NodeFacts
from kongming.probes.suite import Suite
from kongming.profiling.environment_tasks import tasks
from kongming.profiling.environment_visits import Campaign, unmeasured, visit_environment
from kongming.profiling.environments import Environment
from kongming.profiling.events import Dropped, Event
from kongming.profiling.identity import identity
from kongming.profiling.limits import sweep_leftovers
from kongming.profiling.placement import choose
from kongming.profiling.runner import open_runner


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
    and whether it is synthetic are in the run's ``config``: no model may look there. Yields
    Doing, Measured, Dropped and Run events as ``profile`` does; closing it reaps everything and
    removes the groups. Mixes of programs need the applications that they name in ``apps``.

    Args:
        placement: of the seats; in every run, whatever an environment does to it.
        done: steps (see ``tasks``) that an earlier, interrupted campaign has measured.
        needs: bytes of memory that applications need without page cache, where this is known;
            of others it is measured once, before their first run under a memory limit.
        stop_when: asked before each run; true ends the campaign early.

    Raises:
        InputError: a placement that the node does not have, or a mix of unknown programs.
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
            identities={name: identity(app) for name, app in apps.items()},
            behind=len(done),
        )
        for name, app in apps.items():
            choose(node, placement, app.cpus)
            first = next((t for t in plan if t.app == name and t.step not in done), None)
            if first is None:
                continue
            yield state.doing(f"setting up {name}", name)
            try:
                # Never the whole node's page cache: neighbours have theirs in it.
                runner = open_runner(app, work_dir, evict_node=False)
                state.runners[name] = stack.enter_context(runner)
            except ApplicationRunError as error:
                yield unmeasured(state, first, str(error))
                yield Dropped(name, str(error))
        for _, group in groupby(plan, key=lambda task: task.visit):
            left = [t for t in group if t.step not in done]
            while left:
                # Those whose set-up failed, and those dropped meanwhile, count as behind.
                gone = [t for t in left if t.app not in state.runners]
                state.behind += len(gone)
                left = [t for t in left if t.app in state.runners]
                if not left:
                    break
                if stop_when():
                    return
                # Seats and groups differ by application where it uses several CPUs, and a memory
                # limit is each program's own: these are made anew for each.
                alone = left[0].environment.kind == "memory"
                size = apps[left[0].app].cpus
                now = left[:1] if alone else [t for t in left if apps[t.app].cpus == size]
                yield from visit_environment(state, now, stop_when)
                left = [t for t in left if t not in now]


def _check_programs(environments: Sequence[Environment], apps: Mapping[str, Application]) -> None:
    for environment in environments:
        unknown = sorted(set(environment.programs) - set(apps))
        if unknown:
            raise InputError(
                f"{environment.name} has programs that were not given.",
                field="environments",
                found=", ".join(unknown),
                allowed=", ".join(sorted(apps)),
            )
