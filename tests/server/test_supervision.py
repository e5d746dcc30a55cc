"""Work of the server that fails is begun again, and readiness says so meanwhile."""

from __future__ import annotations

import asyncio

from kongming_server.supervision import Supervisor


def test_what_fails_is_said_and_begun_again() -> None:
    async def test() -> None:
        supervisor = Supervisor(again_s=0.01)
        tries = 0
        seen: list[str | None] = []
        well = asyncio.Event()

        async def work() -> None:
            nonlocal tries
            tries += 1
            seen.append(supervisor.failing)
            if tries < 3:
                raise OverflowError
            while supervisor.failing is not None:
                await asyncio.sleep(0.001)
            well.set()
            await asyncio.Event().wait()

        task = supervisor.keep("Writing reports", work)
        async with asyncio.timeout(30):
            await well.wait()
        assert seen == [None, *2 * ["Writing reports failed: OverflowError"]]
        assert supervisor.failing is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(test())
