"""Run an application at points of its parameters: on CPUs of this node, or on machines."""

from __future__ import annotations

import functools
import json
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from kongming.campaigns.point_templates import filled
from kongming.explore.runs_table import PointRun
from kongming.profiling.runs.runner import BegunRun, Runner, ServiceRunner
from kongming.records import moments
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError, InputError

if TYPE_CHECKING:
    from kongming.explore.dimensions import Dimension, Value
    from kongming.scale.design.experiments import ExperimentRunner

Point = Mapping[str, "Value | None"]
"""Of all parameters; None where one does not exist."""

MACHINES = ("machines", "scale")
"""Parameters that the runners of ``scale run`` take."""

POLL_S = 0.02
"""Seconds between two looks at runs that go on next to each other."""

OPEN = 4
"""Set-ups that are kept: their inputs take space on the disk."""

GoOn = Callable[[], bool]
"""Whether a further run may begin."""

_Runner = TypeVar("_Runner", bound=Any)


class PointRunner(Protocol):
    """Runs points; used as a context manager, which leaves no process and no file."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def batch(self, points: Sequence[Point], go_on: GoOn = ...) -> Generator[PointRun]:
        """Yield the runs of ``points`` as they end. None begins in the place of one that ended
        before the caller asks for the next; closing the iterator ends those that are under way.
        ``go_on`` is asked before each; the rest of the points is left out once it says no."""


class _RunnerCache(Generic[_Runner]):
    """The runners that were used last, by what they were set up with."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[_Runner, ExitStack]] = OrderedDict()

    def get(self, setting: object, make: Callable[[], _Runner]) -> _Runner:
        key = json.dumps(setting, sort_keys=True)
        if key not in self._open:
            while len(self._open) >= OPEN:
                self._open.popitem(last=False)[1][1].close()
            with ExitStack() as stack:
                runner = stack.enter_context(make())
                self._open[key] = runner, stack.pop_all()
        self._open.move_to_end(key)
        return self._open[key][0]

    def close(self) -> None:
        with ExitStack() as closing:
            for _, stack in self._open.values():
                closing.push(stack)
            self._open.clear()


@dataclass(frozen=True, slots=True)
class _Begun:
    """A run that goes on; ``setup_s`` is what its set-up and ``prepare`` took."""

    point: Point
    run: BegunRun
    setup_s: float


class NodeRunner:
    """Runs points on this node, ``jobs`` next to each other, each on ``cpus`` CPUs of its own.

    Raises:
        InputError: the node has too few CPUs, or several runs of a service are wanted.
    """

    def __init__(
        self, app: Application, folder: Path, *, jobs: int, available: Sequence[int]
    ) -> None:
        if app.kind == "service" and jobs > 1:
            raise InputError(
                "runs of a service cannot go on next to each other.",
                field="--jobs",
                value=jobs,
                allowed="1",
            )
        if jobs * app.cpus > len(available):
            raise InputError(
                f"each run has {app.cpus} CPUs of its own (apps.{app.name}.cpus), and this process "
                f"may use {len(available)}.",
                field="--jobs",
                value=jobs,
                hint="Runs that share CPUs would slow each other down.",
            )
        self._app, self._folder, self._jobs = app, folder, jobs
        self.cpus = [
            tuple(available[slot * app.cpus : (slot + 1) * app.cpus]) for slot in range(jobs)
        ]
        self._caches: list[_RunnerCache[Runner]] = [_RunnerCache() for _ in range(jobs)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as closing:
            for cache in self._caches:
                closing.callback(cache.close)

    def batch(self, points: Sequence[Point], go_on: GoOn = lambda: True) -> Generator[PointRun]:
        """Yield the runs of ``points`` as they end, each with its seconds as its cost, those of its
        set-up included, but not those that it waits until the set-up of another has ended.

        Raises:
            ProbeError: the micro-benchmark binary is missing or failed.
        """
        waiting, going = deque(points), dict[int, _Begun]()
        try:
            while waiting or going:
                for slot in range(self._jobs):
                    if not waiting or slot in going:
                        continue
                    # Not while nothing can begin: it may take time, and others are timed here.
                    if not go_on():
                        waiting.clear()
                    else:
                        started = self._start(waiting.popleft(), slot)
                        if isinstance(started, PointRun):
                            yield started
                        else:
                            going[slot] = started
                for slot, begun in list(going.items()):
                    if begun.run.execution.wait(POLL_S):
                        ended = self._ended(begun)
                        del going[slot]
                        yield ended
        finally:
            for begun in going.values():
                begun.run.execution.close()

    def _start(self, point: Point, slot: int) -> _Begun | PointRun:
        app = filled(self._app, point)
        began, started_at = time.monotonic(), moments.now()
        try:
            if app.kind == "service":
                with ServiceRunner(app, self._folder, evict_node=True, any_metric=True) as service:
                    outcome = service.run(self.cpus[slot])
                return PointRun(
                    point=point,
                    value=outcome.metric,
                    cost=time.monotonic() - began,
                    error=outcome.error,
                    how="service",
                    started_at=started_at,
                    seconds=outcome.wall_s if outcome.ok else None,
                    warnings=outcome.warnings,
                )
            with self._own_cpus(slot):
                runner = self._caches[slot].get(
                    # Set-up sees the environment too.
                    (app.setup, app.cleanup, dict(app.env) if app.setup is not None else None),
                    lambda: Runner(app, self._folder, evict_node=self._jobs == 1, any_metric=True),
                )
            runner.app = app
            run = runner.begin(self.cpus[slot])
            return _Begun(point, run, time.monotonic() - began)
        except ApplicationRunError as error:
            return _failed(point, time.monotonic() - began, started_at, str(error))

    def _ended(self, begun: _Begun) -> PointRun:
        outcome = begun.run.outcome()
        iteration = begun.run.execution.iterations()[-1]
        limit = self._app.timeout_s if iteration.timed_out else None
        return PointRun(
            point=begun.point,
            value=outcome.metric,
            cost=begun.setup_s + outcome.wall_s,
            error=outcome.error,
            limit=limit if self._app.metric is None else None,
            how="process",
            started_at=outcome.started_at,
            seconds=outcome.wall_s if outcome.ok else None,
            seconds_limit=None if self._app.metric is None else limit,
            warnings=outcome.warnings,
        )

    @contextmanager
    def _own_cpus(self, slot: int) -> Iterator[None]:
        """Start processes on the CPUs of a slot meanwhile, where runs of others may go on.

        Set-up and clean-up are not pinned, and would compete with these runs. A process has the
        CPUs of the thread that starts it.
        """
        if self._jobs == 1:
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cpus[slot])
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


class MachinesRunner:
    """Runs points that have ``machines`` and ``scale`` one after the other, as ``scale run`` does.

    ``make`` returns the runner of experiments of an application whose other placeholders are
    filled.
    """

    def __init__(self, app: Application, make: Callable[[Application], ExperimentRunner]) -> None:
        self._app, self._make = app, make
        self._cache: _RunnerCache[ExperimentRunner] = _RunnerCache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cache.close()

    def batch(self, points: Sequence[Point], go_on: GoOn = lambda: True) -> Generator[PointRun]:
        """Yield the runs of ``points``, each with its machine-seconds as its cost.

        These are of its own seconds, which leave out set-up and the wait for machines; of a failed
        run, of all that it took here. A run that was ended at its time limit is a failed one where
        a cluster ended it: that does not say why.
        """
        from kongming.scale.design.experiments import Experiment
        from kongming.scale.points import Configuration

        for point in points:
            if not go_on():
                return
            machines, scale = (float(point[name] or 0.0) for name in MACHINES)
            # The runners fill the commands with these two, but not the environment.
            others = {name: point[name] for name in point if name not in MACHINES}
            app = replace(filled(self._app, others), env=filled(self._app, point).env)
            began, started_at = time.monotonic(), moments.now()
            try:
                runner = self._cache.get(app.to_dict(), functools.partial(self._make, app))
                measured = runner.run(Experiment(Configuration(machines, scale)))
            except ApplicationRunError as error:
                yield _failed(point, machines * (time.monotonic() - began), started_at, str(error))
                continue
            took = time.monotonic() - began if measured.seconds is None else measured.seconds
            limit = app.timeout_s if measured.timed_out else None
            yield PointRun(
                point=point,
                value=measured.seconds if app.metric is None else measured.metric,
                cost=machines * took,
                error=measured.error,
                limit=limit if app.metric is None else None,
                how=measured.how,
                started_at=measured.started_at,
                seconds=measured.seconds if measured.error is None else None,
                seconds_limit=None if app.metric is None else limit,
            )


def check_machines(app: Application, dimensions: Sequence[Dimension], kind: str) -> None:
    """Check that the runners of ``scale run`` can run and time an application at the points of a
    space with ``machines`` and ``scale``; ``kind`` is local, slurm or kubernetes.

    Raises:
        InputError: machines are not all whole numbers from 1, scales not all above 0, or one of
            them exists under a condition; or the runs would give seconds in place of the metric.
    """
    for dimension in dimensions:
        if dimension.name not in MACHINES:
            continue
        if dimension.when is not None:
            raise InputError(
                "has to exist at every point: runs are on so many machines.",
                field=f"space: {dimension.name}.when",
                value=dimension.when,
            )
        of_machines = dimension.name == MACHINES[0]
        values = dimension.values or (dimension.low,)
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        integers = (
            numeric and dimension.kind != "real" and all(float(v) % 1.0 == 0.0 for v in values)
        )
        if not numeric or (of_machines and not integers) or min(map(float, values)) <= 0.0:
            raise InputError(
                "cannot be run.",
                field=f"space: {dimension.name}",
                value=dimension.allowed,
                allowed="whole numbers from 1" if of_machines else "numbers above 0",
            )
    if app.metric is None:
        return
    if app.ranked or kind != "local":
        raise InputError(
            "is read from the output of a single command on this node, and here runs have seconds "
            "alone.",
            field=f"apps.{app.name}.metric",
            value=app.metric.pattern,
            hint=(
                "Leave the metric out, or let the command start its own workers, without {rank}."
                if kind == "local"
                else "Leave the metric out: seconds are measured then."
            ),
        )


def _failed(point: Point, cost: float, started_at: str, error: str) -> PointRun:
    return PointRun(point, None, cost, error, None, "", started_at)
