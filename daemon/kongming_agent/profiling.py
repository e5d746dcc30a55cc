"""Profiling of applications of the node's own list into the spool. It runs in its own process: a
campaign takes minutes, and needs more memory than an agent may use.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.campaigns.journal import CampaignBusyError, Journal, JournalEntry
from kongming.records.errors import InputError, StoreError
from kongming.records.run import Run, Signature
from kongming_agent.agent_config import Settings
from kongming_agent.reporting.spool import DuplicateError, Spool

if TYPE_CHECKING:
    from kongming.profiling.events import Event
    from kongming.records.application import Application
    from kongming.records.fingerprint import Fingerprint, NodeFacts

_log = logging.getLogger(__name__)

_LOCK = "profiling.lock"
_FULL_DISK_PATIENCE_S = 120.0
_BUSY_PATIENCE_S = 60.0

LATER = os.EX_TEMPFAIL
"""Exit status of a requested campaign that could not be measured or written now."""

JOURNALS = "campaigns"
"""Folder in the state folder through which ``kongming profile --journal`` shares campaigns."""


@dataclass(slots=True)
class Profiled:
    """The result of a campaign: the measurements of this command."""

    campaign: str
    runs: int = 0
    failed: int = 0
    signatures: int = 0
    complete: bool = False
    dropped: Mapping[str, str] | None = None

    def count(self, event: Event) -> None:
        if isinstance(event, Run):
            self.runs, self.failed = self.runs + 1, self.failed + (not event.ok)
        elif isinstance(event, Signature):
            self.signatures += 1

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"dropped": dict(self.dropped or {})}


def allowed(settings: Settings, names: Sequence[str]) -> dict[str, Application]:
    """Return the named applications of the node's file, if its own list has them all.

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
                value=name,
                allowed=", ".join(settings.profile.allow) or "none",
                hint="Only this node's own list can permit it.",
            )
    return select(load(Path(settings.profile.apps)), names)


@contextmanager
def sole(folder: Path) -> Iterator[None]:
    """Lock the node for one campaign; the agent sees the lock and does not probe meanwhile.

    Raises:
        CampaignBusyError: another one is running.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CampaignBusyError(
                "Another campaign is running on this node.", hint="Wait until it has ended."
            ) from error
        yield
    finally:
        os.close(handle)


def under_way(folder: Path) -> bool:
    """Return whether a campaign is running."""
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


class SpoolSink:
    """A ``Sink``: runs and signatures go to the spool, from which the agent delivers them, and to
    the journal, which still has them when the spool has not.

    A record is in the spool first. Where only the spool's note of its step is left, the step
    counts as done. ``wanted`` is the id that a server wants the records under, whoever measured
    them; without one they keep the campaign's own.
    """

    def __init__(self, spool: Spool, folder: Path, wanted: str = "") -> None:
        self._spool, self._folder, self._wanted = spool, folder, wanted
        self._name = ""
        self._journal: Journal | None = None

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def put_node(self, node: NodeFacts) -> None:
        """The agent registers the node itself."""

    def put_application(self, name: str, identity: str, document: Mapping[str, Any]) -> None:
        """The server knows applications by their runs."""

    def open_campaign(self, key: str, document: Mapping[str, Any]) -> JournalEntry:
        """Return the unfinished campaign of the journal; records of another program are spooled
        too.
        """
        self.close()
        self._name = f"campaign:{key}"
        self._journal = journal = Journal(self._folder, key, by="agent")
        noted = self._spool.steps_done(self._name)
        entry = journal.entry
        if entry is None or (entry.finished and not noted):
            self._spool.forget_steps(self._name)
            return journal.begin(uuid.uuid4().hex, document)
        for record in journal.records:
            if record.step not in noted:
                self._deliver(record)
        return entry

    def campaign_steps_done(self, campaign_id: str) -> AbstractSet[int]:
        known = self._journal.records if self._journal is not None else []
        return self._spool.steps_done(self._name) | {record.step for record in known}

    def runs(self, *, campaign: str) -> Sequence[Run]:
        known = self._journal.records if self._journal is not None else []
        return [record for record in known if isinstance(record, Run)]

    def signatures(self, *, campaign: str) -> Sequence[Signature]:
        known = self._journal.records if self._journal is not None else []
        return [record for record in known if isinstance(record, Signature)]

    def finish_campaign(self, campaign_id: str) -> None:
        self._spool.forget_steps(self._name)
        if self._journal is not None:
            self._journal.finish()

    def add_fingerprint(self, fingerprint: Fingerprint, purpose: str = "") -> None:
        """A run contains its fingerprints."""

    def add_run(self, run: Run) -> None:
        self._deliver(run)
        self._remember(run)

    def add_signature(self, signature: Signature) -> None:
        self._deliver(signature)
        self._remember(signature)

    def _deliver(self, record: Run | Signature) -> None:
        if self._wanted:
            record = replace(record, campaign=self._wanted)
        if isinstance(record, Run):
            _patiently(partial(self._spool.add_run, record, campaign=self._name))
        else:
            _patiently(partial(self._spool.add_signature, record, campaign=self._name))

    def _remember(self, record: Run | Signature) -> None:
        if self._journal is not None:
            _patiently(partial(self._journal.add, record))


def profile_allowed(
    settings: Settings,
    names: Sequence[str],
    spool: Spool,
    stop_when: Callable[[], bool],
    wanted: str = "",
) -> Profiled:
    """Run the campaign, or the remaining steps of an interrupted one. Each record is in the spool
    before the next is measured, together with the note that its step is done: after any
    interruption no run is lost and none is repeated.

    Raises:
        InputError: as for ``allowed``; or the node has no such placement.
        StoreError: the spool could not be written for two minutes.
        ProbeError: the micro-benchmarks cannot be run.
        BusyError, CampaignBusyError: something else measures on this node, or this campaign.
    """
    from kongming.campaigns.profile_campaign import ProfileCampaign, profile_settings
    from kongming.probes.measuring import measuring

    apps = allowed(settings, names)
    sink = SpoolSink(spool, settings.files.state_path() / JOURNALS, wanted)
    # Before anything else: which CPUs share a core is measured, too.
    with closing(sink), measuring("kongming-agent profile", patience_s=_BUSY_PATIENCE_S):
        measured = profile_settings(
            apps,
            settings.profile.placement,
            settings.files.io or None,
            identified=settings.node.identified,
            plan_name=settings.profile.plan,
        )
        campaign = ProfileCampaign.begin(measured, sink)
        for sentence in campaign.moved:
            _log.warning("%s", sentence)
        done = Profiled(campaign.id)
        campaign.drive(stop_when, done.count)
    done.complete, done.dropped = campaign.complete, campaign.dropped
    return done


def _patiently(keep: Callable[[], object]) -> None:
    """A run is not dropped while the disk is full."""
    deadline = time.monotonic() + _FULL_DISK_PATIENCE_S
    while True:
        try:
            keep()
        except DuplicateError:
            return
        except StoreError as error:
            if time.monotonic() >= deadline:
                raise
            _log.warning("%s Trying again.", error)
            time.sleep(1.0)
        else:
            return
