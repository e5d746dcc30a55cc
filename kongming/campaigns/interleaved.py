"""Profiles and pairs in one campaign: measured over the same hours, in one random order.

Signatures that are all taken within minutes are one sample of a host that changes over hours, and
pairs that follow all profiles see another host than these did.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kongming.campaigns.campaign import Budget, drive
from kongming.profiling.events import Between, Doing

if TYPE_CHECKING:
    from kongming.campaigns.pair_campaign import PairCampaign
    from kongming.campaigns.profile_campaign import ProfileCampaign
    from kongming.profiling.events import Event
    from kongming.records.run import Run
    from kongming.store import Store


def turns(first: int, blocks: int, tasks: int, seed: int) -> list[int]:
    """Return whose turn it is, 0 for a block of the profiles and 1 for a task of the pairs: the
    first blocks, then the others and all tasks in random order. Pure."""
    order = [0] * max(blocks - first, 0) + [1] * tasks
    random.Random(seed).shuffle(order)
    return [0] * min(first, blocks) + order


def runs_among(wanted: int, run_s: float, profiles_s: float, budget_s: float | None) -> int:
    """Return over how many runs of pairs the profiles are spread: those that are ``wanted``, or as
    many as fit into a budget next to all profiles, without which nothing can be scored. Pure."""
    if budget_s is None:
        return wanted
    return int(min(wanted, max(0.0, (_SURE * budget_s - profiles_s) / run_s)))


_SURE = 0.9
"""Share of a budget that is planned: programs under load take longer than was estimated."""


def in_time(
    order: Sequence[int],
    steps: Sequence[int],
    seconds_left: Callable[[], float | None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[int]:
    """Yield the turns of ``order``, but those of the pairs only while the profiles, at their pace
    so far, end within the budget: those that never ran here may take far longer than was estimated,
    and nothing can be scored without them. What is left out comes after the profiles. ``steps``:
    those of each turn of the profiles; the first one, of the set-up, has none."""
    budget = seconds_left()
    # Of the whole: a share of what is left would be spent as well in the end.
    reserve = 0.0 if budget is None else (1.0 - _SURE) * budget
    sizes = iter(steps)
    done, left = 0, sum(steps)
    runs = 0
    profiles_s, runs_s = 0.0, 0.0
    for k in order:
        limit = seconds_left()
        if k == 1 and limit is not None and done:
            run_s = runs_s / runs if runs else 0.0
            if left * profiles_s / done + run_s > limit - reserve:
                continue
        began = clock()
        yield k
        took = clock() - began
        if k == 1:
            runs, runs_s = runs + 1, runs_s + took
        elif size := next(sizes, 0):
            done, left, profiles_s = done + size, left - size, profiles_s + took


def interleave(
    sources: Sequence[Generator[Event, None, None]], order: Iterable[int]
) -> Generator[Event, None, None]:
    """Yield the events of several campaigns, each from one ``Between`` to the next in its turn;
    what is left after the order follows, source by source. Closing it closes all of them."""
    with ExitStack() as stack:
        for source in sources:
            stack.enter_context(closing(source))
        ended: set[int] = set()

        def turn(k: int) -> Generator[Event, None, None]:
            for event in sources[k]:
                if isinstance(event, Between):
                    return
                yield replace(event, part=k) if isinstance(event, Doing) else event
            ended.add(k)

        for k in order:
            if k not in ended:
                yield from turn(k)
        for k in range(len(sources)):
            while k not in ended:
                yield from turn(k)


@dataclass
class InterleavedCampaign:
    """The profiles that are lacking, and the pairs, which begin when it is known which applications
    work: ``begin_pairs`` gets the names of those that do. ``tasks``: runs of the pairs, with the
    solo runs of their rounds, over which the profiles are spread; what a precision asks for
    beyond them follows."""

    profiles: ProfileCampaign
    store: Store
    begin_pairs: Callable[[Sequence[str]], PairCampaign]
    names: Sequence[str]
    tasks: int
    pairs: PairCampaign | None = None

    @property
    def steps(self) -> list[int]:
        """Return the profiles' steps: the others depend on which applications work."""
        return [step.index for step in self.profiles.plan.steps]

    @property
    def done(self) -> frozenset[int]:
        return self.profiles.done

    @property
    def moved(self) -> list[str]:
        return self.profiles.moved

    @property
    def earlier(self) -> list[Run]:
        return [run for run in self.profiles.earlier if run.ok or run.step in self.done]

    def drive(self, budget: Budget, observe: Callable[[Event], object]) -> None:
        """Run the remaining steps of both, until the budget is spent."""
        # They may have been cut off after the last of them, and their turns come late.
        self.profiles.finish()
        first, steps = 0, [0]
        for block in self.profiles.plan.blocks():
            lacking = sum(step.index not in self.done for step in block)
            if lacking and block[0].follows:
                steps[-1] += lacking
            elif lacking:
                first += block[0].kind == "solo" and block[0].repeat == 0
                steps.append(lacking)
        # A source begins with its set-up, and ends in the turn after its last ``Between``.
        order = turns(first + 1, len(steps), self.tasks, self.profiles.plan.seed)
        turns_taken = in_time(order, steps, budget.seconds_left)
        events = interleave((self._profiles(budget), self._pairs(budget)), turns_taken)
        drive(events, self.store, self.profiles.seeing(observe))
        if self.pairs is not None:
            self.pairs.finish()

    def _profiles(self, stop_when: Callable[[], bool]) -> Generator[Event, None, None]:
        yield from self.profiles.events(stop_when)
        # At once: pairs that are cut off later do not take what is complete along.
        self.profiles.finish()

    def _pairs(self, stop_when: Callable[[], bool]) -> Generator[Event, None, None]:
        working = [name for name in self.names if name not in self.profiles.dropped]
        if len(working) >= 2:
            self.pairs = self.begin_pairs(working)
            if not self.pairs.finished:
                yield from self.pairs.events(stop_when)
