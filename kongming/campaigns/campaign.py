"""What all campaigns have in common: key, seed, budget, the sink of their records, and what of
them is done."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from kongming.records import moments
from kongming.records.errors import InputError
from kongming.records.run import Run, Signature

if TYPE_CHECKING:
    from kongming.profiling.events import Event
    from kongming.profiling.plans.campaign_plan import Step
    from kongming.records.fingerprint import Fingerprint, NodeFacts


class Recorder(Protocol):
    """Keeps records: each is on disk when its method returns."""

    def add_fingerprint(self, fingerprint: Fingerprint, purpose: str = ...) -> object: ...

    def add_run(self, run: Run) -> object: ...

    def add_signature(self, signature: Signature) -> object: ...


class OpenCampaign(Protocol):
    """A campaign that is under way: its document is its settings and its seed."""

    @property
    def id(self) -> str: ...

    @property
    def document(self) -> Mapping[str, Any]: ...


class Sink(Recorder, Protocol):
    """Keeps campaigns as well, so that they can be resumed. A ``Store`` is one."""

    def put_node(self, node: NodeFacts) -> object: ...

    def put_application(self, name: str, identity: str, document: Mapping[str, Any]) -> object: ...

    def open_campaign(self, key: str, document: Mapping[str, Any]) -> OpenCampaign:
        """The unfinished campaign of this key, else a new one with this document."""
        ...

    def campaign_steps_done(self, campaign_id: str) -> AbstractSet[int]:
        """Steps of which there is a run, good or failed, or a signature."""
        ...

    def runs(self, *, campaign: str) -> Sequence[Run]:
        """The runs of a campaign that are known here."""
        ...

    def finish_campaign(self, campaign_id: str) -> None:
        """No step is left: the next campaign of this key is a new one."""
        ...


def key_of(settings: Mapping[str, Any]) -> str:
    """16 hexadecimal digits, equal for equal settings: the same command resumes."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def seed_of(asked: int | None) -> int:
    """The seed that was asked for, or a drawn one."""
    return random.SystemRandom().randrange(2**31) if asked is None else asked


def budget(minutes: float | None) -> Callable[[], bool]:
    """A function that says whether so many minutes are over since it was first called; never for
    None.

    Called before each measurement, it lets the first one through: every command makes progress.

    Raises:
        InputError: no time that can be waited for.
    """
    if minutes is None:
        return lambda: False
    if not 0 < minutes < float("inf"):
        raise InputError("is out of range.", field="budget", found=minutes, allowed="above 0")
    deadline: float | None = None

    def spent() -> bool:
        nonlocal deadline
        now = time.monotonic()
        if deadline is None:
            deadline = now + 60.0 * minutes
        return now > deadline

    return spent


def steps_done(
    steps: Iterable[Step], recorded: AbstractSet[int], runs: Iterable[Run]
) -> frozenset[int]:
    """The steps that are not measured again: those with a record.

    A first solo run that failed is tried again: what its application was left out for may work by
    now. Pure.
    """
    first = {step.index for step in steps if step.kind == "solo" and step.repeat == 0}
    return frozenset(recorded - (first - {run.step for run in runs if run.ok}))


def complete(
    steps: Iterable[Step], recorded: AbstractSet[int], dropped: Collection[str] = ()
) -> bool:
    """Whether every step has a record, but for those of applications that were left out."""
    return all(step.index in recorded or step.app in dropped for step in steps)


def drive(
    events: Generator[Event, None, None],
    recorder: Recorder,
    observe: Callable[[Event], object] = lambda event: None,
) -> list[Run]:
    """Keep what a campaign yields and pass it on to ``observe``; returns its runs.

    Each record is on disk before the next one is measured. Whatever ends it early, Ctrl-C as
    well, closes ``events``, which reaps every child; what came before is kept. A run during which
    another measurement ran on these CPUs gets a warning.
    """
    from kongming.probes.measuring import disturbed_since
    from kongming.profiling.events import Measured

    runs = []
    with closing(events):
        for event in events:
            if isinstance(event, Measured):
                recorder.add_fingerprint(event.fingerprint, purpose=event.purpose)
            elif isinstance(event, Run):
                other = disturbed_since(moments.unix(event.started_at))
                if other is not None:
                    warning = f"{other} measured on CPU {other.cpu} meanwhile."
                    event = replace(event, warnings=(*event.warnings, warning))
                recorder.add_run(event)
                runs.append(event)
            elif isinstance(event, Signature):
                recorder.add_signature(event)
            observe(event)
    return runs
