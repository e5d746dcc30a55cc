"""Programs that are profiled in the tests of training: made-up campaigns, and quick settings."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kongming_server.configuration.settings import Training as Settings

from kongming.learning.model_file import ModelFile
from kongming.records.run import Run
from kongming.store import Store
from tests.models import synthetic

SENSITIVE = {"memory.random.8M": 0.3, "iobench.read.4M": 0.4}

FAST = Settings(models="LM,CART")
"""Models that take no time to fit."""


def campaign(
    app: str = "prog", *, began_at: float | None = None, seed: int = 0, **options: Any
) -> list[Run]:
    """A profile; ``began_at`` (unix seconds) sets when its runs began, each a hundredth of a
    second after the other."""
    runs = synthetic.campaign(app, SENSITIVE, seed=seed, **options)
    if began_at is None:
        return runs
    return [replace(run, started_at=iso(began_at + 0.01 * n)) for n, run in enumerate(runs)]


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def keep(store: Store, runs: list[Run]) -> None:
    store.add_all(runs=runs)


class Engine:
    """What training and the service need of the engine: remembers what it was given."""

    def __init__(self) -> None:
        self.served: dict[tuple[str, str], int] = {}
        self.files: dict[tuple[str, str, int], ModelFile] = {}
        self.signatures: list[Any] = []

    def put_model(self, file: ModelFile, version: int, in_service: bool = True) -> None:
        self.files[file.app, file.placement, version] = file
        if in_service:
            self.served[file.app, file.placement] = version

    def drop_model(self, app: str, placement: str, version: int = 0) -> None:
        for key in list(self.files):
            if key[:2] == (app, placement) and version in (0, key[2]):
                del self.files[key]
        if version in (0, self.served.get((app, placement))):
            self.served.pop((app, placement), None)

    def put_signatures(self, signatures: Any) -> None:
        self.signatures = list(signatures)


async def eventually(what: Callable[[], Awaitable[Any] | Any], timeout_s: float = 60.0) -> Any:
    """The first true value of ``what()``; fails when there is none in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        value = what()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert asyncio.get_running_loop().time() < deadline, "it never came true"
        await asyncio.sleep(0.02)


def log_error(measured: float, predicted: float) -> float:
    return abs(math.log(measured / predicted))
