"""Profiles applications of the node's own list, and spools what was measured.

In a process of its own: a campaign takes minutes, and needs more memory than an agent may have.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.errors import InputError, StoreError
from kongming_agent.config import Settings
from kongming_agent.spool import Spool

if TYPE_CHECKING:
    from kongming.application import Application
    from kongming.fingerprint import NodeFacts

_log = logging.getLogger(__name__)

_LOCK = "profiling.lock"
_FULL_DISK_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Profiled:
    """What came of a campaign."""

    campaign: str
    runs: int
    failed: int
    signatures: int
    complete: bool
    dropped: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "campaign": self.campaign,
            "runs": self.runs,
            "failed": self.failed,
            "signatures": self.signatures,
            "complete": self.complete,
            "dropped": dict(self.dropped),
        }


def allowed(settings: Settings, names: Sequence[str]) -> dict[str, Application]:
    """The named applications of the node's file, if its own list has them all.

    Raises:
        InputError: there is no applications file, or a name is not in ``profile.allow``.
        ApplicationFileError, UnknownNameError: the file or a name in it is wrong.
    """
    from kongming.profiling.appfile import load, select

    if not settings.profile.apps:
        raise InputError(
            "is not set.", field="profile.apps", hint="Name the applications file of this node."
        )
    for name in names:
        if name not in settings.profile.allow:
            raise InputError(
                "may not be profiled on this node.",
                field="profile.allow",
                found=name,
                allowed=", ".join(settings.profile.allow) or "none",
                hint="Only this node's own list can permit it.",
            )
    return select(load(Path(settings.profile.apps)), names)


@contextmanager
def sole(folder: Path) -> Iterator[None]:
    """One campaign at a time on a node; the agent sees it and does not probe meanwhile.

    Raises:
        InputError: another one is under way.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                "Another campaign is under way on this node.", hint="Wait until it has ended."
            ) from error
        yield
    finally:
        os.close(handle)


def under_way(folder: Path) -> bool:
    """Whether a campaign is under way."""
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def profile_allowed(
    settings: Settings, names: Sequence[str], spool: Spool, stop_when: Callable[[], bool]
) -> Profiled:
    """Carries the campaign out, or what an interrupted one left of it.

    Each record is in the spool before the next is measured, together with the note that its step
    is done: whatever ends it loses no run and makes none twice.

    Raises:
        InputError: as for ``allowed``; or the node has no such placement.
        StoreError: the spool could not be written for two minutes.
        ProbeError: the micro-benchmarks cannot be run.
    """
    from kongming.probes.folders import io_folder
    from kongming.probes.suite import load_suite
    from kongming.profiling.events import Dropped
    from kongming.profiling.identity import identity
    from kongming.profiling.plans import make_plan
    from kongming.profiling.profiler import profile
    from kongming.run import Run, Signature

    apps = allowed(settings, names)
    placement = settings.profile.placement
    io_dir = io_folder(settings.files.io or None)
    node = settings.node.identified(measured(placement))
    suite = load_suite(node, io_dir)
    timed = "quick" if placement == "same-core" else "standard"
    asked = {
        "plan": settings.profile.plan,
        "placement": placement,
        "suite_version": suite.version,
        "node": node.id,
        "apps": {name: identity(app) for name, app in sorted(apps.items())},
    }
    name = "campaign:" + hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    kept = spool.get(name)
    if kept is None:
        kept = {"id": uuid.uuid4().hex, "seed": random.SystemRandom().randrange(2**31)}
        spool.put(name, kept)
    plan = make_plan(
        settings.profile.plan,
        sorted(apps),
        suite.inducers(),
        placement=placement,
        seed=int(kept["seed"]),
        suite=timed,
    )
    runs = failed = signatures = 0
    dropped: dict[str, str] = {}
    events = profile(
        apps,
        plan,
        node=node,
        suite=suite,
        work_dir=io_dir,
        io_dir=io_dir,
        campaign=kept["id"],
        done=spool.steps_done(name),
        stop_when=stop_when,
    )
    with closing(events):
        for event in events:
            if isinstance(event, Run):
                _patiently(partial(spool.add_run, event, campaign=name))
                runs, failed = runs + 1, failed + (not event.ok)
            elif isinstance(event, Signature):
                _patiently(partial(spool.add_signature, event, campaign=name))
                signatures += 1
            elif isinstance(event, Dropped):
                dropped[event.app] = event.reason
    behind = spool.steps_done(name)
    complete = all(step.index in behind or step.app in dropped for step in plan.steps)
    if complete:
        spool.forget_steps(name)
        spool.remove(name)
    return Profiled(kept["id"], runs, failed, signatures, complete, dropped)


def measured(placement: str) -> NodeFacts:
    """This node's facts, with the CPUs that the placement takes checked for a shared core.

    Raises:
        InputError: the placement cannot exist here.
    """
    from kongming.probes.node import node_facts
    from kongming.probes.topology import measure_siblings
    from kongming.profiling.placement import choose

    node = node_facts()
    if placement == "same-core":
        return node
    for _ in range(len(node.cpus)):
        seats = choose(node, placement)
        pair = tuple(sorted((seats.app[0], seats.neighbour)))
        if f"{pair[0]},{pair[1]}" in node.siblings:
            break
        node = replace(node, siblings=measure_siblings(node.id, pair))
    return node


def _patiently(keep: Callable[[], object]) -> None:
    """A run is not dropped for a disk that is full at the moment."""
    deadline = time.monotonic() + _FULL_DISK_PATIENCE_S
    while True:
        try:
            keep()
        except StoreError as error:
            if time.monotonic() >= deadline:
                raise
            _log.warning("%s Trying again.", error)
            time.sleep(1.0)
        else:
            return
