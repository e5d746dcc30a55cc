"""Assignments that the server has to be sent: a state machine of pods. Pure.

    bound, not started   ->  Reserve, keyed by the pod's UID
    running              ->  Bind
    succeeded, failed    ->  Release, and the run
    deleted              ->  Release
    best by far          ->  Reserve a guess, keyed by UID and a number, for seconds: the assignment
                             of a UID cannot move, and the scheduler may choose otherwise. It is
                             released once the pod is seen bound, wherever, or expires by itself.

Only pods that name their application become assignments: the others are in the nodes' fingerprints.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kongming_extender.pods import Pod
from kongming_extender.policy import Resident

Action = Literal["reserve", "bind", "release"]
_ORDER = {"": 0, "reserve": 1, "bind": 2, "release": 3}


@dataclass(frozen=True, slots=True)
class Update:
    """A call for the server. ``assignment_id`` is the pod's UID, or a guess's own."""

    action: Action
    assignment_id: str
    pod: Pod


@dataclass(frozen=True, slots=True)
class Guess:
    """A node that is held for a pod until the monotonic time ``until``."""

    assignment_id: str
    pod: Pod
    until: float


@dataclass(slots=True)
class _Entry:
    pod: Pod
    target: Action
    acknowledged: Action | Literal[""] = ""
    sent: bool = False


@dataclass(slots=True)
class Changes:
    """Changes by an event of pods: nodes that get other assignments, pods that ran to their end,
    and how many guesses proved right or wrong."""

    nodes: set[str] = field(default_factory=set)
    finished: list[Pod] = field(default_factory=list)
    right_guesses: int = 0
    wrong_guesses: int = 0


class PodState:
    """All pods that name their application, and how far the server has acknowledged each."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._unnamed: dict[str, Pod] = {}
        """Pods on nodes that name no application, as far as is known without an assignment."""
        self._residents_by_node: dict[str, dict[str, Resident]] = {}
        self._guesses: dict[str, Guess] = {}
        self._obsolete_guesses: dict[str, Pod] = {}
        # Another extender, or this one before it was restarted, has other numbers.
        self._count = time.time_ns() // 1_000_000

    def __len__(self) -> int:
        return sum(entry.target != "release" for entry in self._entries.values())

    @property
    def residents_with_limits(self) -> Mapping[str, Mapping[str, Resident]]:
        """Pods with limits, by node and UID."""
        return self._residents_by_node

    def put(self, pod: Pod) -> Changes:
        """Take in a pod as it is now."""
        changes = Changes()
        entry = self._entries.get(pod.uid)
        if not (pod.demand.app and pod.node):
            # It names no application any more: its assignment stays until it ends.
            if entry is not None and pod.ended:
                self._end(entry, changes)
            if entry is None and pod.node and not pod.ended:
                self._unnamed[pod.uid] = pod
            else:
                self._unnamed.pop(pod.uid, None)
            return changes
        self._unnamed.pop(pod.uid, None)
        if entry is None:
            if pod.ended:
                return changes
            entry = self._entries[pod.uid] = _Entry(pod, "reserve")
            changes.nodes.add(pod.node)
        # The server has one application and node for each UID.
        demand = replace(pod.demand, app=entry.pod.demand.app)
        entry.pod = replace(pod, demand=demand, node=entry.pod.node)
        self._settle_guess(entry.pod, changes)
        if pod.ended:
            self._end(entry, changes)
        elif entry.target != "release":
            self._put_resident(entry.pod)
            if pod.phase == "Running" and entry.target == "reserve":
                entry.target = "bind"
        return changes

    def delete(self, uid: str, at: float) -> Changes:
        """Take in that a pod is gone, since ``at`` (unix seconds) at the latest."""
        changes = Changes()
        self._unnamed.pop(uid, None)
        entry = self._entries.get(uid)
        if entry is not None and entry.target != "release":
            if entry.pod.finished_at is None:
                entry.pod = replace(entry.pod, finished_at=at)
            self._end(entry, changes)
        guess = self.withdraw_guess(uid)
        if guess is not None:
            changes.nodes.add(guess.pod.node)
        return changes

    def replace_all(self, pods: Iterable[Pod], at: float) -> list[Changes]:
        """Take in all pods that there are: those known and not among them are gone."""
        listed = {pod.uid: pod for pod in pods}
        missing = [uid for uid in (*self._entries, *self._unnamed) if uid not in listed]
        return [
            *(self.put(pod) for pod in listed.values()),
            *(self.delete(uid, at) for uid in missing),
        ]

    # -- guesses -------------------------------------------------------------------------------

    def guess(self, pod: Pod, node: str, until: float) -> Guess | None:
        """Hold ``node`` for a pod that is not bound yet; None where it is held, or bound, already.
        An older guess elsewhere is withdrawn."""
        known = self._guesses.get(pod.uid)
        if pod.uid in self._entries or (known is not None and known.pod.node == node):
            return None
        self.withdraw_guess(pod.uid)
        # The server never forgets an id: that of an expired assignment cannot be used again.
        self._count += 1
        guess = Guess(f"{pod.uid}/{self._count}", replace(pod, node=node), until)
        self._guesses[pod.uid] = guess
        return guess

    def withdraw_guess(self, uid: str) -> Guess | None:
        """Give up the guess that is held for a pod, if any."""
        guess = self._guesses.pop(uid, None)
        if guess is not None:
            self._obsolete_guesses[guess.assignment_id] = guess.pod
        return guess

    def expire_guesses(self, now: float) -> list[Guess]:
        """Forget guesses whose time is over: the server has ended them by itself."""
        expired = [guess for guess in self._guesses.values() if guess.until <= now]
        for guess in expired:
            del self._guesses[guess.pod.uid]
        return expired

    # -- updates of the server -----------------------------------------------------------------

    def pending(self) -> list[Update]:
        """Return what the server has not acknowledged, oldest first; one update for each
        assignment."""
        updates = []
        for uid, entry in list(self._entries.items()):
            if _ORDER[entry.acknowledged] < _ORDER[entry.target]:
                if entry.target == "release" and not (entry.acknowledged or entry.sent):
                    # It came and went without the server's knowing: there is nothing to end.
                    del self._entries[uid]
                else:
                    updates.append(Update(entry.target, uid, entry.pod))
        updates += [Update("release", id_, pod) for id_, pod in self._obsolete_guesses.items()]
        return updates

    def note_sent(self, update: Update) -> None:
        """Take in that the server may know of it from now on, whether it answers or not."""
        entry = self._entries.get(update.assignment_id)
        if entry is not None:
            entry.sent = True

    def acknowledge(self, update: Update) -> None:
        """Take in that the server has done it, or refused it for good."""
        self._obsolete_guesses.pop(update.assignment_id, None)
        entry = self._entries.get(update.assignment_id)
        if entry is None:
            return
        if _ORDER[update.action] > _ORDER[entry.acknowledged]:
            entry.acknowledged = update.action
        if entry.acknowledged == "release":
            del self._entries[update.assignment_id]

    def orphans(self, assignments: Iterable[tuple[str, str]], nodes: set[str]) -> list[str]:
        """Select the server's assignments (id and node name) whose pod ended while pods were not
        watched. Only on ``nodes`` of this cluster, and with an id that a pod may have.

        A pod that named its application before this extender began keeps its assignment, which
        ends with it."""
        orphans = []
        for assignment_id, node in assignments:
            uid = assignment_id.partition("/")[0]
            if node not in nodes or not _is_uid(uid):
                continue
            if uid == assignment_id and (pod := self._unnamed.pop(uid, None)) is not None:
                self._entries[uid] = _Entry(pod, "bind", "bind", sent=True)
            if uid not in self._entries and uid not in self._guesses:
                orphans.append(assignment_id)
        return orphans

    # -- inside --------------------------------------------------------------------------------

    def _settle_guess(self, pod: Pod, changes: Changes) -> None:
        guess = self.withdraw_guess(pod.uid)
        if guess is None:
            return
        changes.nodes |= {guess.pod.node, pod.node}
        if guess.pod.node == pod.node:
            changes.right_guesses += 1
        else:
            changes.wrong_guesses += 1

    def _end(self, entry: _Entry, changes: Changes) -> None:
        if entry.target == "release":
            return
        entry.target = "release"
        changes.nodes.add(entry.pod.node)
        if entry.pod.demand.app:
            changes.finished.append(entry.pod)
        residents = self._residents_by_node.get(entry.pod.node, {})
        residents.pop(entry.pod.uid, None)
        if not residents:
            self._residents_by_node.pop(entry.pod.node, None)

    def _put_resident(self, pod: Pod) -> None:
        residents = self._residents_by_node.get(pod.node, {})
        if pod.demand.limit:
            residents[pod.uid] = Resident(pod.uid, pod.demand.app, pod.full_name, pod.demand.limit)
            self._residents_by_node[pod.node] = residents
        elif pod.uid in residents:
            del residents[pod.uid]


def is_guess(assignment_id: str) -> bool:
    """Return whether it is the id of a guess, of whichever extender."""
    return "/" in assignment_id


def _is_uid(text: str) -> bool:
    """8-4-4-4-12 hexadecimal digits, as in Kubernetes."""
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(
        digit in "0123456789abcdef" for part in parts for digit in part
    )
