"""What nodes look like: the kind of a node and the classes of the jobs on it, each met once.

Applications are few, so ten thousand nodes are in few states. Everything that depends on a state
alone (how fast each resident is, where a job comes in, what is left when one goes) is worked out
when the state is first seen and looked up from then on.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from kongming.dataset import Floats
from kongming.simulate.fleet import Kind


class States:
    """States by number. A job's class is a pair of application and limit.

    ``residents[state]`` are the classes on the node, in ascending order, and ``rates[state]`` how
    many solo seconds each does in a second: the node's speed over its slowdown beside the others.
    """

    def __init__(self, kinds: Sequence[Kind], logs: Floats, class_app: Sequence[int]) -> None:
        self.kinds = tuple(kinds)
        self.class_app = list(class_app)
        self._logs = logs.tolist()
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self.kind: list[int] = []
        self.residents: list[tuple[int, ...]] = []
        self.rates: list[tuple[float, ...]] = []
        self.count: list[int] = []
        self.free: list[int] = []
        self._added: list[dict[int, tuple[int, int]]] = []
        self._removed: list[dict[int, int]] = []

    def __len__(self) -> int:
        return len(self.kind)

    def empty(self, kind: int) -> int:
        """The state of an idle node of this kind."""
        return self._number(kind, ())

    def added(self, state: int, job_class: int) -> tuple[int, int]:
        """The state once a job of this class is there too, and its place among the residents."""
        found = self._added[state].get(job_class)
        if found is None:
            residents = self.residents[state]
            place = bisect_right(residents, job_class)
            then = (*residents[:place], job_class, *residents[place:])
            found = self._added[state][job_class] = (self._number(self.kind[state], then), place)
        return found

    def removed(self, state: int, place: int) -> int:
        """The state once the resident at ``place`` has gone."""
        found = self._removed[state].get(place)
        if found is None:
            residents = self.residents[state]
            then = (*residents[:place], *residents[place + 1 :])
            found = self._removed[state][place] = self._number(self.kind[state], then)
        return found

    def _number(self, kind: int, residents: tuple[int, ...]) -> int:
        key = (kind, residents)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.kind)
            self.kind.append(kind)
            self.residents.append(residents)
            self.rates.append(self._rates(kind, residents))
            self.count.append(len(residents))
            self.free.append(self.kinds[kind].slots - len(residents))
            self._added.append({})
            self._removed.append({})
        return number

    def _rates(self, kind: int, residents: tuple[int, ...]) -> tuple[float, ...]:
        apps = [self.class_app[one] for one in residents]
        speed = self.kinds[kind].speed
        return tuple(
            speed
            * math.exp(
                -math.fsum(self._logs[app][other] for k, other in enumerate(apps) if k != place)
            )
            for place, app in enumerate(apps)
        )
