"""Three honest nodes and a thief, each with a token, next to what is killed: none of them is.

The honest report the same load again and again, each report until it is acknowledged, as an agent
does from its spool. The thief tries all that tests/hostile knows. In the end the answers about the
honest nodes are compared with those of a server that was never killed, and never met the thief.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc

from kongming.records.errors import KongmingError
from kongming.store import Store
from tests import builders
from tests.hostile.fleet import HONEST, SETTINGS, UNHURRIED, Answers, Fleet, fill, serving
from tests.hostile.test_thief import MOVES, waits_for_a_restart
from tests.server.process import ServerProcess
from tests.server.security.test_real_server import token_command

LIMIT = 0.02
"""The most that a learned figure may differ by."""

REFRESHED_S = 20.0
"""Rankings know a report once they are refreshed; by then they are, on any machine."""

T = TypeVar("T")


def prepared(folder: Path, store_url: str, port: int) -> ServerProcess:
    """The settings and the store of a server that others start, and the way to it."""
    server = ServerProcess(folder, store_url=store_url, settings=SETTINGS | UNHURRIED)
    server.grpc = f"127.0.0.1:{port}"
    fill(store_url)
    return server


def token_file(folder: Path, store_url: str) -> Path:
    """An agent's token."""
    path = folder / "agent.token"
    token_command("add", "--role", "agent", "--store", store_url, "--out", str(path))
    return path


class Crowd:
    """``server`` is one that others start and kill; it is there when this begins and ends."""

    def __init__(self, server: ServerProcess) -> None:
        self.moves: Counter[str] = Counter()
        self.acknowledged: list[tuple[str, str]] = []
        self._store_url = server.store_url
        grpc.channel_ready_future(server.channel()).result(timeout=100)
        self._fleet = Fleet(server)
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._report, args=(n,)) for n in range(3)]
        self._threads.append(threading.Thread(target=self._steal))
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """The server runs for good by now: what is under way gets through."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _report(self, number: int) -> None:
        agent = self._fleet.honest[number]
        while not self._ending.wait(0.2):
            live = self._fleet.live(number, agent)
            _until_taken(lambda live=live: agent.report(live))
            run = builders.run("sort", 1.0, node_id=agent.facts.id)
            taken = _until_taken(lambda run=run: agent.report_runs([run]))
            self.acknowledged += [(agent.facts.id, id_) for id_ in taken.accepted]

    def _steal(self) -> None:
        chance, facts = random.Random(1), self._fleet.thief.facts
        moves = [move for move in MOVES if move is not waits_for_a_restart]
        while not self._ending.wait(0.05):
            move = chance.choice(moves)
            self.moves[move.__name__] += 1
            # Whether it succeeded is checked at the end: a kill ends it anywhere.
            with suppress(grpc.RpcError, AssertionError, KongmingError):
                move(self._fleet)
            self._fleet.thief.facts = facts

    def faults(self, folder: Path) -> dict[str, Any]:
        """What was lost or doubled, and which answers about the honest nodes are wrong."""
        with Store.open(self._store_url) as store:
            stored = Counter(
                (run.node_id, run.id)
                for node_id in HONEST
                for run in store.runs(app="sort", node_id=node_id, fingerprints=False)
            )
        folder.mkdir()
        with serving(folder) as calm:
            deadline = time.monotonic() + REFRESHED_S
            while (false := differences(_final_answers(self._fleet), _final_answers(calm))) and (
                time.monotonic() < deadline
            ):
                time.sleep(0.5)
        return {
            "honest_runs": len(self.acknowledged),
            "honest_lost": sorted(set(self.acknowledged) - set(stored)),
            "honest_doubled": sorted(key for key, count in stored.items() if count > 1),
            "false": false,
        }


def _final_answers(fleet: Fleet) -> Answers:
    """The answers after one more report of each honest node."""
    assert fleet.ingest()
    return fleet.answers()


def _until_taken(call: Callable[[], T]) -> T:
    while True:
        with suppress(grpc.RpcError):
            return call()
        time.sleep(0.05)


def differences(actual: Answers, expected: Answers) -> dict[str, tuple[Any, Any]]:
    """Where answers differ: medians and all that is listed in any digit, bounds by ``LIMIT``."""
    return {
        key: (actual.get(key), expected.get(key))
        for key in sorted(actual.keys() | expected.keys())
        if not _alike(actual.get(key), expected.get(key))
    }


def _alike(actual: Any, expected: Any) -> bool:
    if actual == expected:
        return True
    if actual is None or expected is None or len(actual) != 5 or not isinstance(actual[1], float):
        return False
    (*lower, _, _), (*others, _, _) = (actual, expected)
    return (actual[0], *actual[3:]) == (expected[0], *expected[3:]) and all(
        abs(a - b) <= LIMIT * abs(b) for a, b in zip(lower, others, strict=True)
    )
