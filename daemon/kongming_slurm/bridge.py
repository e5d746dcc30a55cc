"""Keep the ranking file fresh, and with it node weights, pending jobs, time limits that backfill
has lowered, and the assignments of jobs that have ended."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from kongming_scheduling.log_throttle import LogThrottle

from kongming.backoff import Backoff
from kongming.records.answers import (
    ApplicationReport,
    Assignment,
    Forecast,
    NodeReport,
    RankedNode,
    Ranking,
)
from kongming.records.errors import KongmingError, UnavailableError
from kongming.records.questions import Question, RankQuestion
from kongming_slurm import policy, ranking_file, time_limits
from kongming_slurm.bridge_config import Settings
from kongming_slurm.hooks import job_of_assignment
from kongming_slurm.hostlist import MAX_NODES, expand
from kongming_slurm.ranking_file import NEVER, RankingFile, RunTimes
from kongming_slurm.slurm_commands import PendingJob, Slurm, SlurmNodes
from kongming_slurm.tags import is_name, wants_no_exclusions, wants_no_time
from kongming_slurm.users import user_numbers

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_FIRST_RETRY_S = 1.0
_ORPHAN_AGE_S = 60.0
"""A younger assignment is not taken for an orphan: its job may be just starting."""


class Client(Protocol):
    """The methods of RemoteService that the bridge calls."""

    def rank(self, question: RankQuestion) -> Ranking: ...

    def predict(self, questions: Sequence[Question]) -> tuple[Forecast | KongmingError, ...]: ...

    def nodes(self) -> tuple[NodeReport, ...]: ...

    def applications(self) -> tuple[ApplicationReport, ...]: ...

    def assignments(
        self, node: str | None = None, *, ended: bool = False
    ) -> tuple[Assignment, ...]: ...

    def release(self, assignment_id: str, *, ended_at: float | None = None) -> Assignment: ...

    def close(self) -> None: ...


class Bridge:
    """``step`` does everything once, and returns the seconds until the next step.

    ``connect`` opens a client, again after each failure: so a renewed token counts. Raises
    InputError where the settings name a user that does not exist.
    """

    def __init__(
        self,
        settings: Settings,
        connect: Callable[[], Client],
        slurm: Slurm,
        *,
        now: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self._settings, self._connect, self._slurm = settings, connect, slurm
        self._now = now
        self._client: Client | None = None
        self._throttle = LogThrottle(_log, repeat_after_s=math.inf)
        longest_s = max(settings.rankings.refresh_s, settings.server.longest_retry_s)
        self._backoff = Backoff(_FIRST_RETRY_S, longest_s, rng)
        self._rankings: RankingFile | None = None
        self._general_slowdowns: dict[str, float] = {}
        self._orphans: set[str] = set()
        self._cluster = ""
        self._sets_times = False
        times = settings.times
        self._only_users = user_numbers("times.users", times.users)
        self._skip_users = user_numbers("times.skip_users", times.skip_users)

    @property
    def failing(self) -> bool:
        """Return whether something failed when it was last done."""
        return self._throttle.active

    def run(self, stopping: threading.Event) -> None:
        """Step until ``stopping`` is set."""
        while not stopping.wait(self.step()):
            pass
        self.close()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def step(self) -> float:
        """Do everything once. A failure is logged when it begins, and the rest is done all the
        same, as often as before unless it is Slurm or the server that is away: the file of rankings
        must not grow old because a part beside it fails."""
        settings, begun = self._settings, time.monotonic()
        nodes = self._try("Slurm", self._slurm.nodes)
        ranked = None
        if nodes is not None:
            if settings.times.set:
                self._sets_times = bool(self._try("Slurm's settings", self._may_set_times))
            ranked = self._try("the server", lambda: self._update_rankings(nodes))
            self._drop_stale_rankings()
            if settings.weights.follow:
                self._try("weights", lambda: self._update_weights(nodes))
            if settings.pending.refresh:
                self._try("pending jobs", partial(self._update_pending_jobs, nodes))
            self._try("time limits", self._restore_time_limits)
            if self._client is not None:
                self._try("assignments", self._release_orphans)
        if ranked is not None:
            self._backoff.after_success()
            wait_s = settings.rankings.refresh_s - (time.monotonic() - begun)
            return max(0.1 * settings.rankings.refresh_s, wait_s)
        return self._backoff.after_failure()

    def reset(self) -> None:
        """Restore the state without the bridge: no file, weights of idle nodes where weights
        follow, no exclusions, no --time-min, and limits as users gave them. A job that cannot be
        changed is skipped.

        Raises KongmingError and OSError.
        """
        Path(self._settings.rankings.file).unlink(missing_ok=True)
        self._rankings, self._general_slowdowns = None, {}
        if self._settings.weights.follow:
            self._update_weights(self._slurm.nodes())
        comments = _Comments(self._slurm)
        for job in self._slurm.pending_jobs():
            try:
                if not wants_no_exclusions(comments[job.id]):
                    self._exclude(job, ())
                if job.note.limit_min and job.time_min:
                    self._reset_times(job)
            except UnavailableError:
                raise
            except KongmingError as error:
                _log.warning("%s", error)
        self._restore_time_limits()

    def _reset_times(self, job: PendingJob) -> None:
        lowered = job.limit_min < job.note.limit_min
        if lowered and not wants_no_time(self._slurm.comment(job.array)):
            # It was put back into the queue before its limit was restored.
            self._slurm.set_time_limit(job.id, job.note.limit_min)
        self._slurm.set_time_min(job.id, 0)

    # The file

    def _update_rankings(self, nodes: SlurmNodes) -> bool:
        """Raises KongmingError, and OSError where the file cannot be written."""
        if self._client is None:
            self._client = self._connect()
        try:
            general = _general_slowdowns(self._client.nodes(), nodes.names)
            rankings = self._rank(self._client, nodes)
        except UnavailableError:
            self.close()
            raise
        text, omitted = rankings.text(self._settings.rankings.most_bytes)
        ranking_file.write(Path(self._settings.rankings.file), text)
        self._rankings, self._general_slowdowns = rankings, general
        if omitted:
            names = f"{', '.join(omitted[:5])}{' and others' if len(omitted) > 5 else ''}"
            self._throttle.warn("size", f"size: rankings.most_bytes is too small for {names}")
        else:
            self._recover("size")
        return True

    def _rank(self, client: Client, nodes: SlurmNodes) -> RankingFile:
        settings, times = self._settings.rankings, self._settings.times
        reports = client.applications()
        names = settings.apps or tuple(sorted(app.name for app in reports if app.trained))
        apps: dict[str, tuple[float | None, ...]] = {}
        least: dict[str, tuple[int, ...]] = {}
        ranked: dict[str, tuple[RankedNode, ...]] = {}
        without_model = []
        # Before the first question, so that the file is not taken for fresher than its content.
        asked_at = self._now()
        for name in names:
            if is_name(name):
                question = RankQuestion(
                    name, limit=MAX_NODES, stale_policy="refuse", seed=0, level=times.level
                )
                ranking = client.rank(question)
                if ranking.basis != "model":
                    # That is the general slowdown: no limit is meant for it.
                    without_model.append(name)
                    continue
                rows, most = ranking.nodes, settings.resident_limit
                apps[name] = slowdowns(rows, nodes.names, most)
                least[name] = least_slowdowns(rows, nodes.names, most)
                ranked[name] = rows
        if without_model:
            listed = ", ".join(without_model)
            text = f"models: the server has no model of {listed}: its jobs are left alone"
            self._throttle.warn("models", text)
        else:
            self._recover("models")
        known = {app.name for app in reports if time_limits.has_history(app, times)}
        ranked = {name: rows for name, rows in ranked.items() if rows and name in known}
        return RankingFile(
            written_at=asked_at,
            good_for_s=settings.good_for_s,
            limit=settings.limit,
            nodes=nodes.names,
            up=nodes.up,
            cpus=nodes.cpus,
            memory_mb=nodes.memory_mb,
            threads=nodes.threads,
            partitions=nodes.partitions,
            apps=apps,
            least={name: places for name, places in least.items() if places},
            times=self._run_times(client, ranked, nodes.names),
        )

    def _run_times(
        self, client: Client, ranked: Mapping[str, Sequence[RankedNode]], names: Sequence[str]
    ) -> RunTimes | None:
        """Return how long the ranked applications run on each node; None where this is switched
        off."""
        settings = self._settings.times
        if not (self._sets_times or settings.advise):
            return None
        questions = [
            Question(app, rows[0].node_id, level=settings.level) for app, rows in ranked.items()
        ]
        forecasts = client.predict(questions) if questions else ()
        apps = {}
        for question, forecast in zip(questions, forecasts, strict=True):
            if isinstance(forecast, Forecast):
                rows = ranked[question.app]
                by_name = time_limits.run_seconds(rows, forecast, settings.margin)
                alone = _alone(node.name for node in rows)
                by_name = {name: value for name, value in by_name.items() if name in alone}
                apps[question.app] = _in_order(by_name, names)
        return RunTimes(
            sets=self._sets_times,
            advises=settings.advise,
            share=(1.0 + settings.level) / 2.0,
            only=self._only_users,
            skip=self._skip_users,
            apps=apps,
        )

    def _may_set_times(self) -> bool:
        """Return whether limits are restored at the start of a job, and would not reach into a
        reservation that the user's limit had kept the job clear of. Raises KongmingError."""
        if not self._slurm.restores_limits():
            why = "times: --time-min is not set: PrologSlurmctld, which restores limits, is not set"
            self._throttle.warn("times", why)
            return False
        self._recover("times")
        ahead = self._slurm.has_reservation_ahead()
        if ahead and self._sets_times:
            _log.info("--time-min is not set while a reservation is ahead")
        return not ahead

    def _drop_stale_rankings(self) -> None:
        """Rankings that are too old are used neither here nor in job_submit.lua."""
        rankings = self._rankings
        if rankings is not None and self._now() - rankings.written_at > rankings.good_for_s:
            self._rankings, self._general_slowdowns = None, {}

    # Slurm

    def _update_weights(self, nodes: SlurmNodes) -> bool:
        settings = self._settings.weights
        changes = policy.changed_weights(
            nodes.weights, self._general_slowdowns, span=settings.span, step=settings.step
        )
        for weight, names in changes.items():
            self._slurm.set_weight(names, weight)
        return True

    def _update_pending_jobs(self, nodes: SlurmNodes) -> bool:
        """Raises KongmingError where Slurm is away; a job that cannot be changed is skipped."""
        changes_left = self._settings.pending.most_changes
        comments = _Comments(self._slurm)
        for job in self._slurm.pending_jobs():
            own = _own(job)
            places = None if own is None else self._divided(job, own)
            names = None if own is None else self._exclusions(job, own, places)
            if names is not None and frozenset(names) == job.excluded:
                names = None
            least = self._time_min(job, nodes, places)
            if names is None and least is None:
                continue
            if wants_no_exclusions(comments[job.id]):
                # Its note is of what it needed before its user has changed it: it gets no new
                # --time-min, but what it has of that is to hold on any of its nodes.
                names = None
                least = None
                if job.time_min:
                    least = self._time_min(job, nodes, places, all_nodes=True)
            if least and not job.time_min and wants_no_time(comments[job.id]):
                least = None
            if names is None and least is None:
                continue
            if changes_left == 0:
                break
            changes_left -= 1
            try:
                if names is not None:
                    self._exclude(job, names)
                if least is not None:
                    self._slurm.set_time_min(job.id, least)
            except UnavailableError:
                raise
            except KongmingError as error:
                # Mostly it has just started.
                _log.debug("%s", error)
        return True

    def _divided(self, job: PendingJob, own: Sequence[str]) -> policy.Division | None:
        if self._rankings is None:
            return None
        return policy.divided(self._rankings, job.note, job.partitions, own)

    def _exclusions(
        self, job: PendingJob, own: Sequence[str], places: policy.Division | None
    ) -> tuple[str, ...]:
        """All nodes that the job must not get."""
        slow = () if places is None or self._is_overdue(job) else places.names
        return tuple(dict.fromkeys((*own, *slow)))

    def _is_overdue(self, job: PendingJob) -> bool:
        """Return whether it has waited so long that it may have any node."""
        longest_s = self._settings.pending.longest_s
        return bool(longest_s) and job.waited_s > longest_s

    def _time_min(
        self,
        job: PendingJob,
        nodes: SlurmNodes,
        places: policy.Division | None,
        *,
        all_nodes: bool = False,
    ) -> int | None:
        """The --time-min to set, 0 for none; None to leave the job as it is. With ``all_nodes`` the
        job may get those that are to be excluded, too."""
        if not job.note.limit_min or job.limit_min != job.note.limit_min:
            # Its user has changed the limit since.
            return None
        rankings = self._rankings
        times = None if rankings is None else rankings.times
        seconds = None
        # As in job_submit.lua; the settings may have changed since the job was submitted.
        if times is not None and times.sets and times.is_for(job.user):
            seconds = times.apps.get(job.note.app)
        # Its user has moved it to a partition that would not start it with its limit.
        longest = [nodes.longest_min.get(name, math.inf) for name in job.partitions]
        if rankings is None or seconds is None or min(longest) < job.limit_min:
            return time_limits.changed_time_min(job.time_min, None)
        if places is None:
            return None
        any_node = all_nodes or self._is_overdue(job)
        possible = [*places.excluded, *places.remaining] if any_node else places.remaining
        new = None
        # What is predicted is the time on one node.
        if all(places.usable_cpus[place] >= job.note.total for place in possible):
            new = time_limits.time_min([seconds[place] for place in possible], job.limit_min)
        return time_limits.changed_time_min(job.time_min, new)

    def _restore_time_limits(self) -> bool:
        """Raise limits that backfill has lowered to what users gave. restore-limit.sh does so at
        the start of a job; this is for where it could not."""
        comments = _Comments(self._slurm)
        for job in self._slurm.limited_jobs():
            limit = time_limits.limit_to_restore(job)
            if limit is None or wants_no_time(comments[job.id]):
                continue
            try:
                self._slurm.set_time_limit(job.id, limit)
            except UnavailableError:
                raise
            except KongmingError as error:
                # Mostly it has just ended.
                _log.debug("%s", error)
        return True

    def _exclude(self, job: PendingJob, names: Sequence[str]) -> None:
        self._slurm.exclude(job.id, names or expand(job.note.own))

    def _release_orphans(self) -> bool:
        """Release assignments of this cluster whose job is gone: an epilog may never have run."""
        assert self._client is not None
        self._cluster = self._cluster or self._slurm.cluster()
        jobs = {}
        for assignment in self._client.assignments():
            job = job_of_assignment(assignment.assignment_id, self._cluster)
            begun_at = assignment.bound_at or assignment.reserved_at or 0.0
            if job is not None and self._now() - begun_at > _ORPHAN_AGE_S:
                jobs[assignment.assignment_id] = job
        present = self._slurm.jobs_with_nodes() if jobs else set()
        orphans = {id_ for id_, job in jobs.items() if job not in present}
        # Only the second time: the epilog may be under way.
        for id_ in sorted(orphans & self._orphans):
            self._client.release(id_)
            _log.info("%s is released: its job is gone", id_)
        self._orphans = orphans
        return True

    # Failures

    def _try(self, part: str, do: Callable[[], _Result]) -> _Result | None:
        try:
            result = do()
        except (KongmingError, OSError) as error:
            self._throttle.warn(part, f"{part}: {error}")
            return None
        self._recover(part)
        return result

    def _recover(self, part: str) -> None:
        self._throttle.clear(part, f"{part}: works again")


class _Comments:
    """Comments of jobs by id: all are read for the first of them."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._comments: dict[str, list[str]] | None = None

    def __getitem__(self, job: str) -> str:
        if self._comments is None:
            self._comments = self._slurm.comments()
        comments = self._comments.get(job, ())
        if len(comments) != 1:
            # squeue takes no list of tasks.
            comments = [self._slurm.comment(job.partition("_[")[0])]
        return comments[0]


def slowdowns(
    ranked: Sequence[RankedNode], names: Sequence[str], resident_limit: float
) -> tuple[float | None, ...]:
    """Median slowdowns in the order of Slurm's ``names``; None for a node that is not ranked, and
    NEVER where a resident would be slowed down beyond the limit (0 for none). Pure."""
    alone = _alone(node.name for node in ranked)
    by_name: dict[str, float] = {}
    for node in ranked:
        if node.name in alone:
            is_beyond = bool(resident_limit) and node.worst_resident_slowdown > resident_limit
            by_name[node.name] = NEVER if is_beyond else node.slowdown.median
    return _in_order(by_name, names)


def least_slowdowns(
    ranked: Sequence[RankedNode], names: Sequence[str], resident_limit: float
) -> tuple[int, ...]:
    """The places in Slurm's ``names`` where the application is slowed at least as much as
    ``slowdowns`` has it, or where a resident is not known to keep the limit. Pure."""
    alone = _alone(node.name for node in ranked)
    by_name = {
        node.name: float(node.slowdown.at_least or not node.residents_keep(resident_limit))
        for node in ranked
        if node.name in alone
    }
    return tuple(place for place, is_open in enumerate(_in_order(by_name, names)) if is_open)


def _own(job: PendingJob) -> tuple[str, ...] | None:
    """The nodes that its user excludes; None where these cannot be read."""
    try:
        return tuple(expand(job.note.own))
    except KongmingError:
        return None


def _general_slowdowns(reports: Sequence[NodeReport], names: Sequence[str]) -> dict[str, float]:
    """General slowdowns of the nodes in service, by their name in Slurm."""
    # A machine that was installed again is known by its former id, too, which is silent.
    heard = [node for node in reports if node.state not in ("silent", "stored")]
    alone = _alone(node.facts.name for node in heard)
    by_name = {
        node.facts.name: node.general_slowdown
        for node in heard
        if node.state == "ready" and node.general_slowdown is not None and node.facts.name in alone
    }
    values = zip(names, _in_order(by_name, names), strict=True)
    return {name: value for name, value in values if value is not None}


def _alone(names: Iterable[str]) -> set[str]:
    """The names that one node alone has: which of several Slurm means is unknown."""
    return {name for name, nodes in Counter(names).items() if nodes == 1}


def _in_order(by_name: Mapping[str, float], names: Sequence[str]) -> tuple[float | None, ...]:
    """Look up each name in Slurm, else the only host name of which it is the first part."""
    by_short_name: dict[str, list[float]] = {}
    for name, value in by_name.items():
        by_short_name.setdefault(name.partition(".")[0], []).append(value)
    values = []
    for name in names:
        matches = [by_name[name]] if name in by_name else by_short_name.get(name, [])
        values.append(matches[0] if len(matches) == 1 else None)
    return tuple(values)
