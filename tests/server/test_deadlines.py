"""One timer for many tasks ends those that are late, and only those."""

from __future__ import annotations

import asyncio

from kongming_server.deadlines import Deadlines


def test_what_is_late_ends_and_what_is_not_goes_on() -> None:
    async def main() -> list[str | BaseException]:
        deadlines = Deadlines(0.05)
        never = asyncio.Event()

        async def wait(event: asyncio.Event) -> str:
            with deadlines:
                await event.wait()
            return "in time"

        there = asyncio.Event()
        there.set()
        cancelled = asyncio.create_task(wait(never))
        first = asyncio.gather(wait(there), wait(never), cancelled, return_exceptions=True)
        await asyncio.sleep(0)
        cancelled.cancel()
        ended = await first
        # The timer begins anew once nobody waited any more.
        return [*ended, *await asyncio.gather(wait(never), wait(there), return_exceptions=True)]

    ended = asyncio.run(main())
    kinds = [one if isinstance(one, str) else type(one).__name__ for one in ended]
    assert kinds == ["in time", "TimeoutError", "CancelledError", "TimeoutError", "in time"]
