"""How long honest callers wait while an agent with a token reports all that it can.

    python -m benchmarks.hostile.thief [--seconds 10] [--check]

A real server requires a token of everybody. Predictions, rankings and reports of three honest nodes
are timed, each kind for itself, while nothing else happens and while a thief sends fingerprints by
the hundred, large registrations, runs, signatures and assignments of its own node in eight calls at
once, turn by turn so that the machine's own ups and downs hit both. Prints one JSON document: p50
and p99 in milliseconds of each kind and of how many calls, calm and under attack, their ratio, and
how many calls the thief made. Exit status 4 with --check when a p99 is above 1.5 times that of the
calm server. Two CPUs of its own are the least that it needs: the thief takes one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import Any

import grpc

from kongming.rpc.v1 import assignments_pb2, predictor_pb2
from tests import builders
from tests.hostile.fleet import HONEST, Fleet, fingerprint, serving
from tests.server.core import worlds
from tests.server.credentials import Shows, code_of
from tests.server.fleet import FakeAgent
from tests.server.process import eventually
from tests.server.security.test_real_server import token_command

LIMIT = 1.5
TURN_S = 1.0
CALLERS = 8
MANY = 100
"""Fingerprints in one report of the thief."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each kind")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), {}) as fleet:
        document = measured(fleet, arguments.seconds)
    print(json.dumps(document, indent=1))
    worst = max(figures["ratio"] for figures in document["latency"].values())
    return 4 if arguments.check and worst > LIMIT else 0


def measured(fleet: Fleet, seconds: float) -> dict[str, dict[str, dict[str, float]] | int]:
    waits: dict[tuple[str, bool], list[float]] = defaultdict(list)
    processes = multiprocessing.get_context("spawn")
    attacking, ending, count = processes.Event(), processes.Event(), processes.Value("q", 0)
    token = token_command("add", "--role", "agent", "--store", fleet.server.store_url)["token"]
    # In a process of its own, so that making up reports does not add to the honest callers' waits.
    thief = processes.Process(
        target=steal, args=(fleet.server.grpc, token, count, attacking, ending)
    )
    thief.start()
    try:
        for turn in range(2 * max(1, round(seconds / TURN_S))):
            under_attack = bool(turn % 2)
            (attacking.set if under_attack else attacking.clear)()
            for kind, call in calls(fleet).items():
                until = time.monotonic() + TURN_S
                while time.monotonic() < until:
                    begun = time.perf_counter()
                    call()
                    waits[kind, under_attack].append(1e3 * (time.perf_counter() - begun))
    finally:
        ending.set()
        attacking.set()
        thief.join()
    latency = {}
    for kind in calls(fleet):
        calm, attacked = (_percentiles(waits[kind, attack]) for attack in (False, True))
        latency[kind] = {
            "calm_calls": len(waits[kind, False]),
            "attacked_calls": len(waits[kind, True]),
            "calm_p50_ms": calm[0],
            "calm_p99_ms": calm[1],
            "attacked_p50_ms": attacked[0],
            "attacked_p99_ms": attacked[1],
            "ratio": attacked[1] / calm[1],
        }
    return {"latency": latency, "calls_of_the_thief": int(count.value)}


def calls(fleet: Fleet) -> dict[str, Callable[[], object]]:
    questions = [predictor_pb2.PredictQuestion(app="memory", node=node) for node in HONEST]
    predict = predictor_pb2.PredictRequest(questions=questions)
    rank = predictor_pb2.RankNodesRequest(app="memory", nodes=HONEST, seed=1)
    honest = fleet.honest[0]
    return {
        "predict": lambda: fleet.predictor.Predict(predict, timeout=60),
        "rank": lambda: fleet.predictor.RankNodes(rank, timeout=60),
        "report": lambda: honest.report(fingerprint(honest, {})),
    }


def steal(address: str, token: str, count: Any, attacking: Any, ending: Any) -> None:
    """Report from several threads while ``attacking`` is set, until ``ending`` is."""
    with grpc.insecure_channel(address) as channel:
        thief = FakeAgent(grpc.intercept_channel(channel, Shows(token)), "burglar")
        eventually(lambda: code_of(thief.register) is grpc.StatusCode.OK, 60.0)
        threads = [
            threading.Thread(target=attack, args=(thief, number, count, attacking, ending))
            for number in range(CALLERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def attack(thief: FakeAgent, number: int, count: Any, attacking: Any, ending: Any) -> None:
    slow = dict.fromkeys(worlds.NAMES, 6.0)
    node = thief.facts.id
    # Made once: the cost of making them up is not part of the attack.
    many = [thief.request(fingerprint(thief, slow)) for _ in range(MANY)]
    for turn in itertools.count():
        attacking.wait()
        if ending.is_set():
            return
        id_ = f"ghost-{number}-{turn}:{node}"
        met = fingerprint(thief, slow)
        run = builders.run("memory", 9.0, fingerprint=met, node_id=node, kind="environment")
        signature = builders.signature("memory", {}, fingerprint=met, node_id=node)
        bind = assignments_pb2.BindRequest(assignment_id=id_, app="memory", node=node)
        for message in many:
            message.fingerprint.id = uuid.uuid4().hex
        for call in (
            lambda: thief.send(many),
            lambda bind=bind: thief.assignments.Bind(bind, timeout=60),
            lambda: thief.register(references=[fingerprint(thief, {})]),
            lambda run=run, signature=signature, id_=id_: thief.report_runs(
                [run], [signature], assignment_id=id_
            ),
            lambda: thief.heartbeat(passive={f"signal-{n}": 1.0 for n in range(1000)}),
        ):
            with suppress(grpc.RpcError):
                call()
            with count.get_lock():
                count.value += 1


def _percentiles(values: list[float]) -> tuple[float, float]:
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


if __name__ == "__main__":
    sys.exit(main())
