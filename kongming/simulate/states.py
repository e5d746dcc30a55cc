"""Node states: the kind of a node and the classes of the jobs on it, each stored once.

There are few applications, so ten thousand nodes share few states. Everything that depends on the
state alone (the rate of each resident, the state after an arrival or a departure) is computed when
it is first needed and cached.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from kongming.arrays import Floats
from kongming.simulate.fleet import Kind
from kongming.simulate.pairs import together


class States:
    """States by number. A job class is a pair of application and limit.

    ``residents[state]`` are the classes on the node, in ascending order; ``rates[state]`` the solo
    seconds of work that each completes per second: the node's speed over the resident's slowdown
    when co-located with the others.
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
        """State of an idle node of this kind."""
        return self._number(kind, ())

    def added(self, state: int, job_class: int) -> tuple[int, int]:
        """State after a job of this class arrives, and the job's position among the residents."""
        transition = self._added[state].get(job_class)
        if transition is None:
            residents = self.residents[state]
            position = bisect_right(residents, job_class)
            after = (*residents[:position], job_class, *residents[position:])
            transition = self._number(self.kind[state], after), position
            self._added[state][job_class] = transition
        return transition

    def removed(self, state: int, position: int) -> int:
        """State after the resident at ``position`` departs."""
        new_state = self._removed[state].get(position)
        if new_state is None:
            residents = self.residents[state]
            after = (*residents[:position], *residents[position + 1 :])
            new_state = self._removed[state][position] = self._number(self.kind[state], after)
        return new_state

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
        apps = [self.class_app[job_class] for job_class in residents]
        speed = self.kinds[kind].speed
        return tuple(
            speed
            * math.exp(
                -together(self._logs[app][other] for k, other in enumerate(apps) if k != position)
            )
            for position, app in enumerate(apps)
        )
