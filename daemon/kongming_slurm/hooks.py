"""Prolog and epilog: report to the node's agent that a job has started, and how long it ran.

A job must never fail or wait because of them: they work within two seconds or not at all, and end
with status 0. How a job has ended can only be read after its epilog: a process that the epilog
leaves behind does so. Only the standard library is imported, before it is clear that there is
something to report.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, NoReturn

from kongming_slurm.tags import tag

if TYPE_CHECKING:
    from kongming.rpc.handover import Report
    from kongming_slurm.bridge_config import Hooks
    from kongming_slurm.bridge_config import Slurm as SlurmSettings

Hook = Literal["prolog", "epilog"]

LONGEST_S = 2.0
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Before each time that Slurm is asked how a job has ended."""
_LONGEST_END_S = 40.0
"""For all these times together, with the answers."""
_LEAST_GAP_S, _LEAST_GAP = 5.0, 0.05
"""Seconds, and share of its time, up to which a job may have stood still: Slurm counts full
seconds, and the epilog begins when the last process of the job has ended."""
_LONGEST_ERROR = 300
PREFIX = "slurm"
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")


class _DeadlineExceeded(Exception):  # raised by the timer, caught here
    pass


def run(hook: Hook, config: Path | None, environment: Mapping[str, str]) -> int:
    """Run a hook within two seconds, and return 0 whatever happens."""

    def late(signum: int, frame: FrameType | None) -> NoReturn:
        raise _DeadlineExceeded

    try:
        previous = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        try:
            _report(hook, config, environment)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, previous)
    except _DeadlineExceeded:
        _log(hook, f"given up after {LONGEST_S:g} s")
    except Exception as error:
        _log(hook, f"{error}")
    return 0


def assignment_id(environment: Mapping[str, str]) -> str:
    """The id of a job's assignment on this node: cluster, job, count of restarts, and node.

    Raises KeyError and ValueError where Slurm's environment has none."""
    parts = (
        environment.get("SLURM_CLUSTER_NAME") or "cluster",
        environment["SLURM_JOB_ID"],
        environment.get("SLURM_JOB_RESTART_COUNT") or "0",
        environment["SLURMD_NODENAME"],
    )
    for part in parts:
        if _PLAIN.fullmatch(part) is None:
            raise ValueError(f"{part[:40]!r} is not a name")
    return ":".join((PREFIX, *parts))


def job_of_assignment(assignment_id: str, cluster: str) -> tuple[str, str] | None:
    """(Job, count of restarts) of an assignment of that cluster; else None."""
    parts = assignment_id.split(":")
    if len(parts) != 5 or parts[:2] != [PREFIX, cluster]:
        return None
    return parts[2], parts[3]


def exit_status(environment: Mapping[str, str]) -> int:
    """The job's exit status; negative for the signal that ended it.

    Slurm gives it as wait() does: the low byte is a signal.
    """
    code = int(environment.get("SLURM_JOB_EXIT_CODE") or 0)
    return -(code & 0x7F) if code & 0x7F else code >> 8


def _report(hook: Hook, config: Path | None, environment: Mapping[str, str]) -> None:
    job_tag = tag(environment.get("SLURM_JOB_COMMENT", ""))
    if job_tag is None:
        return
    from kongming.settings import load
    from kongming_slurm.bridge_config import Settings

    settings = load(Settings, config)
    hooks = settings.hooks
    id_, node = assignment_id(environment), environment["SLURMD_NODENAME"]
    started = Path(hooks.state.replace("%n", node)) / f"{id_}.started"
    if hook == "prolog":
        now = time.time()
        started.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        started.write_text(f"{now:.6f} {time.monotonic():.6f}\n", encoding="ascii")
        _write_report(hooks, node, "assignment", id_, job_tag.app, now)
        return
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(started.unlink, missing_ok=True)
        at, begun = map(float, started.read_text(encoding="ascii").split())
        took_s, status = time.monotonic() - begun, exit_status(environment)

        def write(error: str = "") -> None:
            _write_report(hooks, node, "run", id_, job_tag.app, at, took_s, status, error)

        error = _error_of_nodes(environment)
        if status or error:
            write(error)
        else:
            job = environment["SLURM_JOB_ID"]
            _detach(lambda: write(_error_of_end(settings.slurm, job, took_s)))


def _error_of_nodes(environment: Mapping[str, str]) -> str:
    """Return why a job that is not of this node alone says nothing of it; empty for one that is.

    It takes as long as on the slowest of its nodes, and each of them reports it.
    """
    # Slurm sets it to 0 for jobs that are not heterogeneous, or not at all.
    if (environment.get("SLURM_HET_JOB_ID") or "0") != "0":
        return "It ran as a part of a heterogeneous job: that takes as long as the slowest part."
    from kongming_slurm.hostlist import expand

    count = int(environment.get("SLURM_JOB_NUM_NODES") or 0)
    count = count or len(expand(environment.get("SLURM_JOB_NODELIST", "")))
    return f"It ran on {count} nodes: that takes as long as on the slowest." if count > 1 else ""


def _error_of_end(settings: SlurmSettings, job: str, took_s: float) -> str:
    """Return why a job whose exit status is 0 did not run to its end, or not all of the time that
    passed on the node; empty where it did.

    Slurm gives 0, too, for what was cancelled, preempted, put back into the queue or ended at its
    time limit. Until the epilog has ended it tells of no job more than that it is completing.
    """
    from kongming.records.errors import KongmingError
    from kongming_slurm.slurm_commands import Slurm

    deadline = time.monotonic() + _LONGEST_END_S
    why = "it is completing"
    for pause_s in _PAUSES_S:
        time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
        left_s = deadline - time.monotonic()
        if left_s <= 0.0:
            break
        slurm = Slurm(
            folder=settings.commands,
            configuration=settings.configuration,
            timeout_s=min(settings.timeout_s, left_s),
        )
        try:
            state, ran_s = slurm.state(job)
        except KongmingError as error:
            why = f"{error}"
            continue
        if state == "COMPLETING":
            continue
        if state != "COMPLETED":
            return f"It did not run to its end: Slurm calls it {state}."
        if ran_s is not None and took_s - ran_s > max(_LEAST_GAP_S, _LEAST_GAP * took_s):
            return f"It ran for {ran_s} of {took_s:.0f} s: it was suspended, or slow to end."
        return ""
    return f"Slurm did not say how it ended: {why}"[:_LONGEST_ERROR]


def _detach(work: Callable[[], None]) -> None:
    """Do it in a process of its own, which neither slurmd nor the job waits for."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        # slurmd kills the process group of an epilog that has ended.
        os.setsid()
        if os.fork():
            return
        # slurmd reads the output of an epilog to its end.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        work()
    finally:
        os._exit(0)


def _write_report(
    hooks: Hooks,
    node: str,
    kind: Literal["assignment", "run"],
    id_: str,
    app: str,
    at: float,
    wall_s: float = 0.0,
    status: int = 0,
    error: str = "",
) -> None:
    from kongming.rpc import handover

    report: Report = handover.Report(
        kind=kind,
        assignment_id=id_,
        app=app,
        at=at,
        wall_s=wall_s,
        exit_status=status,
        scheduler=PREFIX,
        error=error,
    )
    handover.leave(Path(hooks.inbox.replace("%n", node)), report)


def _log(hook: Hook, message: str) -> None:
    # Slurm puts stderr into the log of slurmd.
    print(f"kongming-slurm {hook}: {message}", file=sys.stderr)  # noqa: T201


def environment() -> dict[str, str]:
    return dict(os.environ)
