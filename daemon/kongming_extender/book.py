"""What the server is to be told of pods: a state machine from pods to placements. Pure.

    bound, not started   ->  Reserve, keyed by the pod's UID
    running              ->  Bind
    succeeded, failed    ->  Release, and the run
    deleted              ->  Release
    best by far          ->  Reserve a guess, keyed by UID and a number, for seconds: the placement
                             of a UID cannot move, and the scheduler may choose otherwise. It is
                             released once the pod is seen bound, wherever, or expires by itself.

Only pods that name their application are told: the others are in the nodes' fingerprints.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kongming_extender.deciding import Resident
from kongming_extender.pods import Pod

Step = Literal["reserve", "bind", "release"]
_ORDER = {"": 0, "reserve": 1, "bind": 2, "release": 3}


@dataclass(frozen=True, slots=True)
class Due:
    """Something to tell. ``placement_id`` is the pod's UID, or a guess's own."""

    step: Step
    placement_id: str
    pod: Pod


@dataclass(frozen=True, slots=True)
class Guess:
    """A node that is held for a pod until the monotonic time ``until``."""

    placement_id: str
    pod: Pod
    until: float


@dataclass(slots=True)
class _Entry:
    pod: Pod
    wanted: Step
    told: Step | Literal[""] = ""


@dataclass(slots=True)
class Seen:
    """What a change of pods meant: nodes whose company it changes, pods that ran to their end,
    and how many guesses it proved right or wrong."""

    nodes: set[str] = field(default_factory=set)
    finished: list[Pod] = field(default_factory=list)
    right: int = 0
    wrong: int = 0


class Book:
    """All pods that matter, and how far the server has been told of each."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._by_node: dict[str, dict[str, Resident]] = {}
        self._guesses: dict[str, Guess] = {}
        self._unneeded: dict[str, Pod] = {}
        # Another extender, or this one before it was started anew, has other numbers.
        self._count = time.time_ns() // 1_000_000

    def __len__(self) -> int:
        return sum(entry.wanted != "release" for entry in self._entries.values())

    @property
    def limited(self) -> Mapping[str, Mapping[str, Resident]]:
        """Pods with limits, by node and UID."""
        return self._by_node

    def put(self, pod: Pod) -> Seen:
        """A pod as it is now."""
        seen = Seen()
        entry = self._entries.get(pod.uid)
        if not (pod.demand.app and pod.node):
            # It names no application any more: what was told of it stays until it ends.
            if entry is not None and pod.ended:
                self._end(entry, seen)
            return seen
        if entry is None:
            if pod.ended:
                return seen
            entry = self._entries[pod.uid] = _Entry(pod, "reserve")
            seen.nodes.add(pod.node)
        # The server keeps one application and node for each UID.
        demand = replace(pod.demand, app=entry.pod.demand.app)
        entry.pod = replace(pod, demand=demand, node=entry.pod.node)
        self._settle_guess(entry.pod, seen)
        if pod.ended:
            self._end(entry, seen)
        elif entry.wanted != "release":
            self._limit(entry.pod)
            if pod.phase == "Running" and entry.wanted == "reserve":
                entry.wanted = "bind"
        return seen

    def gone(self, uid: str, at: float) -> Seen:
        """A pod is not there any more, since ``at`` (unix seconds) at the latest."""
        seen = Seen()
        entry = self._entries.get(uid)
        if entry is not None and entry.wanted != "release":
            if entry.pod.finished_at is None:
                entry.pod = replace(entry.pod, finished_at=at)
            self._end(entry, seen)
        guess = self._guesses.pop(uid, None)
        if guess is not None:
            self._unneeded[guess.placement_id] = guess.pod
            seen.nodes.add(guess.pod.node)
        return seen

    def listed(self, pods: Iterable[Pod], at: float) -> list[Seen]:
        """All pods that there are: what is known and not among them has gone."""
        found = list(pods)
        there = {pod.uid for pod in found}
        missing = [uid for uid in self._entries if uid not in there]
        return [self.put(pod) for pod in found] + [self.gone(uid, at) for uid in missing]

    # -- guesses -------------------------------------------------------------------------------

    def guess(self, pod: Pod, node: str, until: float) -> Guess | None:
        """Hold ``node`` for a pod that is not bound yet; None where it is held, or bound, already.
        An older guess elsewhere is given up."""
        known = self._guesses.get(pod.uid)
        if pod.uid in self._entries or (known is not None and known.pod.node == node):
            return None
        if known is not None:
            self._unneeded[known.placement_id] = known.pod
        # The server keeps an id for good: one that has expired cannot be used again.
        self._count += 1
        made = Guess(f"{pod.uid}/{self._count}", replace(pod, node=node), until)
        self._guesses[pod.uid] = made
        return made

    def take_back(self, uid: str) -> Guess | None:
        """The guess that is held for a pod which is asked about again: it was not bound."""
        guess = self._guesses.pop(uid, None)
        if guess is not None:
            self._unneeded[guess.placement_id] = guess.pod
        return guess

    def expired(self, now: float) -> list[Guess]:
        """Guesses whose time is over: the server has ended them by itself."""
        over = [guess for guess in self._guesses.values() if guess.until <= now]
        for guess in over:
            del self._guesses[guess.pod.uid]
        return over

    # -- telling -------------------------------------------------------------------------------

    def due(self) -> list[Due]:
        """What the server does not know yet, oldest first; one step for each placement."""
        found = []
        for uid, entry in list(self._entries.items()):
            if _ORDER[entry.told] < _ORDER[entry.wanted]:
                if entry.wanted == "release" and not entry.told:
                    # It came and went without the server's knowing: there is nothing to end.
                    del self._entries[uid]
                else:
                    found.append(Due(entry.wanted, uid, entry.pod))
        found += [Due("release", one, pod) for one, pod in self._unneeded.items()]
        return found

    def told(self, due: Due) -> None:
        """The server knows, or has refused for good."""
        self._unneeded.pop(due.placement_id, None)
        entry = self._entries.get(due.placement_id)
        if entry is None:
            return
        if _ORDER[due.step] > _ORDER[entry.told]:
            entry.told = due.step
        if entry.told == "release":
            del self._entries[due.placement_id]

    def orphans(self, placements: Iterable[tuple[str, str]], nodes: set[str]) -> list[str]:
        """Of the server's placements (id and node name), those of pods that are not there: they
        ended while nobody watched. Only on ``nodes`` of this cluster, and with an id that a pod
        may have."""
        return [
            placement_id
            for placement_id, node in placements
            if node in nodes
            and _is_uid(placement_id.partition("/")[0])
            and placement_id.partition("/")[0] not in self._entries
            and placement_id.partition("/")[0] not in self._guesses
        ]

    # -- inside --------------------------------------------------------------------------------

    def _settle_guess(self, pod: Pod, seen: Seen) -> None:
        guess = self._guesses.pop(pod.uid, None)
        if guess is None:
            return
        self._unneeded[guess.placement_id] = guess.pod
        seen.nodes |= {guess.pod.node, pod.node}
        if guess.pod.node == pod.node:
            seen.right += 1
        else:
            seen.wrong += 1

    def _end(self, entry: _Entry, seen: Seen) -> None:
        if entry.wanted == "release":
            return
        entry.wanted = "release"
        seen.nodes.add(entry.pod.node)
        seen.finished.append(entry.pod)
        theirs = self._by_node.get(entry.pod.node, {})
        theirs.pop(entry.pod.uid, None)
        if not theirs:
            self._by_node.pop(entry.pod.node, None)

    def _limit(self, pod: Pod) -> None:
        theirs = self._by_node.get(pod.node, {})
        if pod.demand.limit:
            theirs[pod.uid] = Resident(pod.uid, pod.demand.app, pod.title, pod.demand.limit)
            self._by_node[pod.node] = theirs
        elif pod.uid in theirs:
            del theirs[pod.uid]


def _is_uid(text: str) -> bool:
    """8-4-4-4-12 hexadecimal digits, as Kubernetes makes them."""
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(
        digit in "0123456789abcdef" for part in parts for digit in part
    )
