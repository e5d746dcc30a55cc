"""One campaign: what it is found again by, and its records kept and shown as they come."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kongming.cli.campaign_view import CampaignView
    from kongming.profiling.events import Event
    from kongming.run import Run
    from kongming.store import Store


def key_of(settings: Mapping[str, Any]) -> str:
    """16 hexadecimal digits, equal for equal settings: the same command resumes."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def seed_of(asked: int | None) -> int:
    """The seed that was asked for, or a drawn one."""
    return random.SystemRandom().randrange(2**31) if asked is None else asked


def budget(minutes: float | None) -> Callable[[], bool]:
    """Tells whether so many minutes are over since it was first asked; never for None.

    Asked before each measurement, it lets the first one through: every command makes progress.

    Raises:
        InputError: no time that can be waited for.
    """
    from kongming.errors import InputError

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


def carry_out(store: Store, events: Generator[Event, None, None], view: CampaignView) -> list[Run]:
    """Keep and show what a campaign yields; returns its runs.

    Each record is on disk before the next one is measured. Whatever ends it early, Ctrl-C as
    well, closes ``events``, which reaps every child; what came before is kept.
    """
    from kongming.profiling.events import Measured
    from kongming.run import Run, Signature

    runs = []
    with view, closing(events):
        for event in events:
            if isinstance(event, Measured):
                store.add_fingerprint(event.fingerprint, purpose=event.purpose)
            elif isinstance(event, Run):
                store.add_run(event)
                runs.append(event)
            elif isinstance(event, Signature):
                store.add_signature(event)
            view.see(event)
    return runs
