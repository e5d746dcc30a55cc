"""One timer for many messages ends those that are late or too many, and only those."""

from __future__ import annotations

import asyncio

import pytest
from kongming_server.security.incoming_messages import Bound, IncomingMessages


class TooMany(Exception):
    pass


def test_what_is_late_ends_and_what_is_not_goes_on() -> None:
    async def main() -> list[str | BaseException]:
        messages = IncomingMessages(0.05, TooMany)
        never = asyncio.Event()

        async def wait(event: asyncio.Event) -> str:
            with messages.of("one", Bound(9)):
                await event.wait()
            return "in time"

        there = asyncio.Event()
        there.set()
        cancelled = asyncio.create_task(wait(never))
        first = asyncio.gather(wait(there), wait(never), cancelled, return_exceptions=True)
        await asyncio.sleep(0)
        cancelled.cancel()
        ended = await first
        # The timer starts again after a time in which nobody waited.
        return [*ended, *await asyncio.gather(wait(never), wait(there), return_exceptions=True)]

    ended = asyncio.run(main())
    kinds = [outcome if isinstance(outcome, str) else type(outcome).__name__ for outcome in ended]
    assert kinds == ["in time", "TimeoutError", "CancelledError", "TimeoutError", "in time"]


@pytest.mark.parametrize(
    ("bound", "above"),
    [(Bound(2), ["2", "3", "4"]), (Bound(2, newest_stay=True), ["0", "1", "2"])],
)
def test_of_one_caller_there_are_as_many_as_are_allowed(bound: Bound, above: list[str]) -> None:
    async def main() -> list[str]:
        messages = IncomingMessages(3600.0, TooMany)
        never = asyncio.Event()
        ended: list[str] = []

        async def wait(who: str, number: int) -> None:
            try:
                with messages.of(who, None if who == "unbound" else bound):
                    await never.wait()
            except TooMany:
                ended.append(f"{who} {number}")

        tasks = [
            asyncio.create_task(wait(who, number))
            for who, count in (("many", 5), ("few", 2), ("unbound", 5))
            for number in range(count)
        ]
        while len(ended) < 3:
            await asyncio.sleep(0.01)
        # Two more looks end no more of them.
        await asyncio.sleep(0.6)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return ended

    assert asyncio.run(main()) == [f"many {number}" for number in above]
