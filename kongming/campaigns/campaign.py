"""Common parts of campaigns: key, seed, budget, the sink of records, and the steps that are
done."""

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
from kongming.records.run import DISTURBED, Run, Signature

if TYPE_CHECKING:
    from kongming.profiling.events import Event
    from kongming.profiling.plans.steps import Step
    from kongming.records.fingerprint import Fingerprint, NodeFacts


class Recorder(Protocol):
    """A destination of records: each is on disk when its method returns."""

    def add_fingerprint(self, fingerprint: Fingerprint, purpose: str = ...) -> object: ...

    def add_run(self, run: Run) -> object: ...

    def add_signature(self, signature: Signature) -> object: ...


class OpenCampaign(Protocol):
    """An unfinished campaign: its document is its settings and its seed."""

    @property
    def id(self) -> str: ...

    @property
    def document(self) -> Mapping[str, Any]: ...


class Sink(Recorder, Protocol):
    """A sink that also keeps campaigns, so that they can be resumed. A ``Store`` is one."""

    def put_node(self, node: NodeFacts) -> object: ...

    def put_application(self, name: str, identity: str, document: Mapping[str, Any]) -> object: ...

    def open_campaign(self, key: str, document: Mapping[str, Any]) -> OpenCampaign:
        """Return the unfinished campaign of this key, or a new one with this document."""
        ...

    def campaign_steps_done(self, campaign_id: str) -> AbstractSet[int]:
        """Return the steps that have a run, successful or failed, or a signature."""
        ...

    def runs(self, *, campaign: str) -> Sequence[Run]:
        """Return the runs of a campaign that this sink knows."""
        ...

    def signatures(self, *, campaign: str) -> Sequence[Signature]:
        """Return the signatures of a campaign that this sink knows."""
        ...

    def finish_campaign(self, campaign_id: str) -> None:
        """Mark the campaign as complete: the next one of this key is a new one."""
        ...


def key_of(settings: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits, equal for equal settings: the same command resumes."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def seed_of(seed: int | None) -> int:
    """Return the given seed, or a random one."""
    return random.SystemRandom().randrange(2**31) if seed is None else seed


class Budget:
    """The time that a command may measure: a call is true when ``seconds`` have passed since the
    first call.

    None is no limit. Called before each measurement, it lets the first one through, so that every
    command makes progress.

    Raises:
        InputError: ``seconds`` is not a positive finite number.
    """

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not 0 < seconds < float("inf"):
            raise InputError("is out of range.", field="budget", value=seconds, allowed="above 0")
        self._seconds = seconds
        self._deadline: float | None = None

    def __call__(self) -> bool:
        if self._seconds is None:
            return False
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        return now > self._deadline

    def seconds_left(self) -> float | None:
        """Return what is left of it; None without a limit."""
        if self._deadline is None:
            return self._seconds
        return max(self._deadline - time.monotonic(), 0.0)


def steps_done(
    steps: Iterable[Step], recorded: AbstractSet[int], runs: Iterable[Run]
) -> frozenset[int]:
    """Return the steps that are not measured again: those with a record. A failed first solo run is
    repeated, since the cause may be gone. Pure.
    """
    first = {step.index for step in steps if step.kind == "solo" and step.repeat == 0}
    return frozenset(recorded - (first - {run.step for run in runs if run.ok}))


def complete(
    steps: Iterable[Step], recorded: AbstractSet[int], dropped: Collection[str] = ()
) -> bool:
    """Return whether every step has a record, except for applications that were left out."""
    return all(step.index in recorded or step.app in dropped for step in steps)


def drive(
    events: Generator[Event, None, None],
    recorder: Recorder,
    observe: Callable[[Event], object] = lambda event: None,
) -> list[Run]:
    """Keep the records of a campaign and pass its events to ``observe``; return its runs.

    Each record is on disk before the next one is measured. Any early end, including Ctrl-C, closes
    ``events``, which reaps every child; earlier records are kept. A run during which another
    measurement ran on these CPUs gets a warning.
    """
    from kongming.profiling.events import Measured

    runs = []
    with closing(events):
        for event in events:
            if isinstance(event, Measured):
                recorder.add_fingerprint(event.fingerprint, purpose=event.purpose)
            elif isinstance(event, Run):
                if (warning := _disturbed(event.started_at)) is not None:
                    event = replace(
                        event,
                        warnings=(*event.warnings, warning),
                        passive={**event.passive, DISTURBED: 1.0},
                    )
                recorder.add_run(event)
                runs.append(event)
            elif isinstance(event, Signature):
                taken = event.fingerprint
                if (warning := _disturbed(taken.started_at)) is not None:
                    taken = replace(taken, warnings=(*taken.warnings, warning))
                    event = replace(event, fingerprint=taken)
                recorder.add_signature(event)
            observe(event)
    return runs


def _disturbed(started_at: str) -> str | None:
    """Return the warning of what was measured since then while somebody else measured on these
    CPUs; None if none did."""
    from kongming.probes.measuring import disturbed_since

    other = disturbed_since(moments.unix(started_at))
    return None if other is None else f"{other} measured on CPU {other.cpu} meanwhile."
