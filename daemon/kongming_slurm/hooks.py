"""Prolog and epilog: tell the node's agent that a job has started, and how long it ran.

A job must never fail or wait because of them: they work within two seconds or not at all, and end
with status 0. Only the standard library is imported, before it is clear that there is something to
tell.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, NoReturn

from kongming_slurm.tags import tag

if TYPE_CHECKING:
    from kongming.rpc.handover import Report
    from kongming_slurm.config import Hooks

Hook = Literal["prolog", "epilog"]

LONGEST_S = 2.0
PREFIX = "slurm"
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")


class _TooLate(Exception):  # it is a deadline, and told to nobody
    pass


def run(hook: Hook, config: Path | None, environment: Mapping[str, str]) -> int:
    """Whatever happens it takes two seconds at the most, and the answer is 0."""

    def late(signum: int, frame: FrameType | None) -> NoReturn:
        raise _TooLate

    try:
        previous = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        try:
            _tell(hook, config, environment)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, previous)
    except _TooLate:
        _say(hook, f"given up after {LONGEST_S:g} s")
    except Exception as error:
        _say(hook, f"{error}")
    return 0


def placement_id(environment: Mapping[str, str]) -> str:
    """The id of a job's placement on this node: cluster, job, how often it was started again,
    and node. Raises KeyError and ValueError where Slurm says none."""
    parts = (
        environment.get("SLURM_CLUSTER_NAME") or "cluster",
        environment["SLURM_JOB_ID"],
        environment.get("SLURM_JOB_RESTART_COUNT") or "0",
        environment["SLURMD_NODENAME"],
    )
    for part in parts:
        if _PLAIN.fullmatch(part) is None:
            raise ValueError(f"{part[:40]!r} is no name")
    return ":".join((PREFIX, *parts))


def of_placement(text: str, cluster: str) -> tuple[str, str] | None:
    """(Job, how often it was started again) of a placement of that cluster; else None."""
    parts = text.split(":")
    if len(parts) != 5 or parts[:2] != [PREFIX, cluster]:
        return None
    return parts[2], parts[3]


def exit_status(environment: Mapping[str, str]) -> int:
    """The job's exit status; negative for the signal that ended it.

    Slurm gives it as wait() does: the low byte is a signal.
    """
    told = int(environment.get("SLURM_JOB_EXIT_CODE") or 0)
    return -(told & 0x7F) if told & 0x7F else told >> 8


def _tell(hook: Hook, config: Path | None, environment: Mapping[str, str]) -> None:
    named = tag(environment.get("SLURM_JOB_COMMENT", ""))
    if named is None:
        return
    from kongming_slurm.config import load

    hooks = load(config).hooks
    id_, node = placement_id(environment), environment["SLURMD_NODENAME"]
    started = Path(hooks.state.replace("%n", node)) / f"{id_}.started"
    if hook == "prolog":
        now = time.time()
        started.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        started.write_text(f"{now:.6f} {time.monotonic():.6f}\n", encoding="ascii")
        _leave(hooks, node, "placement", id_, named.app, now)
        return
    with contextlib.ExitStack() as after:
        after.callback(started.unlink, missing_ok=True)
        at, began = map(float, started.read_text(encoding="ascii").split())
        took = time.monotonic() - began
        _leave(hooks, node, "run", id_, named.app, at, took, exit_status(environment))


def _leave(
    hooks: Hooks,
    node: str,
    kind: Literal["placement", "run"],
    id_: str,
    app: str,
    at: float,
    wall_s: float = 0.0,
    status: int = 0,
) -> None:
    from kongming.rpc import handover

    report: Report = handover.Report(
        kind=kind,
        placement_id=id_,
        app=app,
        at=at,
        wall_s=wall_s,
        exit_status=status,
        scheduler=PREFIX,
    )
    handover.leave(Path(hooks.inbox.replace("%n", node)), report)


def _say(hook: Hook, what: str) -> None:
    # Slurm puts it into the log of slurmd.
    print(f"kongming-slurm {hook}: {what}", file=sys.stderr)  # noqa: T201


def environment() -> dict[str, str]:
    return dict(os.environ)
