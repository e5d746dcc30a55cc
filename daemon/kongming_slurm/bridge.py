"""Keeps the file of rankings fresh, and with it the weights, the jobs that wait, and the placements
of jobs that are gone."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from kongming.errors import KongmingError, UnavailableError
from kongming.rpc.answers import ApplicationReport, NodeReport, RankedNode, Ranking, Reservation
from kongming.rpc.questions import RankQuestion
from kongming_slurm import choosing, rankings
from kongming_slurm.config import Settings
from kongming_slurm.hooks import of_placement
from kongming_slurm.hostlist import MOST_NODES, expanded
from kongming_slurm.rankings import NEVER, Rankings
from kongming_slurm.slurm import Nodes, Slurm, Waiting
from kongming_slurm.tags import is_name

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")

_FIRST_RETRY_S = 1.0
_AGE_OF_ORPHAN_S = 60.0
"""A placement is not taken for left behind before it is so old: its job may be just starting."""


class Asked(Protocol):
    """What the bridge needs of a server: the client's methods of these names."""

    def rank(self, question: RankQuestion) -> Ranking: ...

    def nodes(self) -> tuple[NodeReport, ...]: ...

    def applications(self) -> tuple[ApplicationReport, ...]: ...

    def placements(
        self, node: str | None = None, *, ended: bool = False
    ) -> tuple[Reservation, ...]: ...

    def release(self, placement_id: str, *, ended_at: float | None = None) -> Reservation: ...

    def close(self) -> None: ...


class Bridge:
    """``step`` does everything once, and says after how many seconds to come again.

    ``connect`` opens a client, anew after each failure: so a renewed token counts.
    """

    def __init__(
        self,
        settings: Settings,
        connect: Callable[[], Asked],
        slurm: Slurm,
        *,
        now: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self._settings, self._connect, self._slurm = settings, connect, slurm
        self._now, self._rng = now, rng or random.Random()
        self._service: Asked | None = None
        self._told: dict[str, str] = {}
        self._failures = 0
        self._known: Rankings | None = None
        self._general: dict[str, float] = {}
        self._orphans: set[str] = set()
        self._cluster = ""

    @property
    def in_trouble(self) -> bool:
        """Whether something failed when it was last done."""
        return bool(self._told)

    def run(self, stopping: threading.Event) -> None:
        """Until ``stopping`` is set."""
        while not stopping.wait(self.step()):
            pass
        self.close()

    def close(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            service.close()

    def step(self) -> float:
        """Trouble is told once, in a line, and the rest is done all the same."""
        settings, began = self._settings, time.monotonic()
        nodes = self._try("Slurm", self._slurm.nodes)
        fine = nodes is not None
        if nodes is not None:
            fine &= self._try("the server", lambda: self._ask(nodes)) is not None
            self._forget_the_stale()
            if settings.weights.follow:
                fine &= self._try("weights", lambda: self._weigh(nodes)) is not None
            if settings.pending.refresh:
                fine &= self._try("pending jobs", self._refresh) is not None
            if self._service is not None:
                fine &= self._try("placements", self._tidy) is not None
        if fine:
            self._failures = 0
            wait_s = settings.rankings.refresh_s - (time.monotonic() - began)
            return max(0.1 * settings.rankings.refresh_s, wait_s)
        longest_s = max(settings.rankings.refresh_s, settings.server.longest_retry_s)
        bound_s = min(_FIRST_RETRY_S * 2.0 ** min(self._failures, 30), longest_s)
        self._failures += 1
        return self._rng.uniform(0.5 * bound_s, bound_s)

    def reset(self) -> None:
        """Everything as it was without the bridge: no file, weights of idle nodes, no exclusions.

        Raises KongmingError and OSError.
        """
        Path(self._settings.rankings.file).unlink(missing_ok=True)
        self._known, self._general = None, {}
        self._weigh(self._slurm.nodes())
        for job in self._slurm.waiting():
            self._keep_from(job, ())

    # The file

    def _ask(self, nodes: Nodes) -> bool:
        """Raises KongmingError, and OSError where the file cannot be written."""
        if self._service is None:
            self._service = self._connect()
        try:
            general = _by_slurm_name(self._service.nodes(), nodes.names)
            made = self._rank(self._service, nodes)
        except UnavailableError:
            self.close()
            raise
        text, left = made.text(self._settings.rankings.most_bytes)
        rankings.write(Path(self._settings.rankings.file), text)
        self._known, self._general = made, general
        more = f"{', '.join(left[:5])}{' and others' if len(left) > 5 else ''}"
        self._tell("size", f"left out, for rankings.most_bytes: {more}" if left else None)
        return True

    def _rank(self, service: Asked, nodes: Nodes) -> Rankings:
        wanted = self._settings.rankings
        names = wanted.apps or tuple(
            sorted(each.name for each in service.applications() if each.trained)
        )
        apps = {}
        # Asked for first, so that the file is not taken for fresher than what it says.
        asked_at = self._now()
        for name in names:
            if is_name(name):
                question = RankQuestion(name, limit=MOST_NODES, stale_policy="refuse", seed=0)
                found = service.rank(question)
                apps[name] = slowdowns(found.nodes, nodes.names, wanted.resident_limit)
        return Rankings(
            written_at=asked_at,
            good_for_s=wanted.good_for_s,
            limit=wanted.limit,
            nodes=nodes.names,
            up=nodes.up,
            cpus=nodes.cpus,
            memory_mb=nodes.memory_mb,
            partitions=nodes.partitions,
            apps=apps,
        )

    def _forget_the_stale(self) -> None:
        """What was asked too long ago is not gone by: neither here nor in job_submit.lua."""
        known = self._known
        if known is not None and self._now() - known.written_at > known.good_for_s:
            self._known, self._general = None, {}

    # Slurm

    def _weigh(self, nodes: Nodes) -> bool:
        weights = self._settings.weights
        changes = choosing.changed_weights(
            nodes.weights, self._general, span=weights.span, step=weights.step
        )
        for weight, names in changes.items():
            self._slurm.set_weight(names, weight)
        return True

    def _refresh(self) -> bool:
        """Raises KongmingError where Slurm is away; a job that cannot be changed is passed over."""
        left = self._settings.pending.most_changes
        for job in self._slurm.waiting():
            wanted = self._wanted(job)
            if wanted is None or frozenset(wanted) == job.excluded:
                continue
            if left == 0:
                break
            left -= 1
            try:
                self._keep_from(job, wanted)
            except UnavailableError:
                raise
            except KongmingError as error:
                # It has just started, mostly.
                _log.debug("%s", error)
        return True

    def _wanted(self, job: Waiting) -> tuple[str, ...] | None:
        """All that the job is to be kept from; None to leave it as it is."""
        try:
            own = tuple(expanded(job.note.own))
        except KongmingError:
            return None
        longest_s = self._settings.pending.longest_s
        if self._known is None or (longest_s and job.waited_s > longest_s):
            return own
        chosen = choosing.kept_from(self._known, job.note, job.partitions, own)
        return own if chosen is None else tuple(dict.fromkeys((*own, *chosen)))

    def _keep_from(self, job: Waiting, names: Sequence[str]) -> None:
        self._slurm.exclude(job.id, names or expanded(job.note.own))

    def _tidy(self) -> bool:
        """Ends placements of this cluster whose job is gone: an epilog may never have run."""
        assert self._service is not None
        self._cluster = self._cluster or self._slurm.cluster()
        mine = {}
        for held in self._service.placements():
            job = of_placement(held.placement_id, self._cluster)
            since = held.bound_at or held.reserved_at or 0.0
            if job is not None and self._now() - since > _AGE_OF_ORPHAN_S:
                mine[held.placement_id] = job
        present = self._slurm.present() if mine else set()
        gone = {id_ for id_, job in mine.items() if job not in present}
        # Seen twice: the epilog may be under way.
        for id_ in sorted(gone & self._orphans):
            self._service.release(id_)
            _log.info("%s is released: its job is gone", id_)
        self._orphans = gone
        return True

    # Trouble

    def _try(self, what: str, do: Callable[[], _Found]) -> _Found | None:
        try:
            found = do()
        except (KongmingError, OSError) as error:
            self._tell(what, f"{error}")
            return None
        self._tell(what, None)
        return found

    def _tell(self, what: str, trouble: str | None) -> None:
        before = self._told.get(what)
        if trouble is None:
            if before is not None:
                _log.info("%s: all is well again", what)
            self._told.pop(what, None)
        elif before is None:
            _log.warning("%s: %s", what, trouble)
            self._told[what] = trouble


def slowdowns(
    ranked: Sequence[RankedNode], names: Sequence[str], resident_limit: float
) -> tuple[float | None, ...]:
    """Median slowdowns in the order of Slurm's ``names``; None for a node that is not ranked, and
    NEVER where a resident would be slowed down beyond the limit (0 for none). Pure."""
    found: dict[str, float] = {}
    for node in ranked:
        over = resident_limit and node.worst_resident_slowdown > resident_limit
        found[node.name] = NEVER if over else node.slowdown.median
    return _of_each(found, names)


def _by_slurm_name(reports: Sequence[NodeReport], names: Sequence[str]) -> dict[str, float]:
    """General slowdowns of the nodes in service, by their name in Slurm."""
    told = {
        node.facts.name: node.general_slowdown
        for node in reports
        if node.state == "ready" and node.general_slowdown is not None
    }
    values = zip(names, _of_each(told, names), strict=True)
    return {name: value for name, value in values if value is not None}


def _of_each(told: Mapping[str, float], names: Sequence[str]) -> tuple[float | None, ...]:
    """By the name in Slurm, else by a host name of which it is the first part, if just one is."""
    short: dict[str, list[float]] = {}
    for name, value in told.items():
        short.setdefault(name.partition(".")[0], []).append(value)
    found = []
    for name in names:
        known = [told[name]] if name in told else short.get(name, [])
        found.append(known[0] if len(known) == 1 else None)
    return tuple(found)
