"""Where the server's time for one reported fingerprint goes. Prints one JSON document.

    python -m benchmarks.service.report_cost [--nodes 1000] [--rounds 8]

One report after another of a recorded quick fingerprint, varied, goes through what the server does
with it, without a network: the stages are timed apart, in microseconds of CPU for each, as the
median over rounds of one report of every node.

    decode     the message from its bytes
    check      to a record: every number checked, and against the node's idle reference
    pack       the record to the row that is stored
    write      rows to SQLite, in transactions of --batch; packing is in it as well
    engine     into the engine's columns and history
    refresh    what follows from it: the predictions of every application in service there

What is missing to the share of a core that ``benchmarks.service.load`` sees are gRPC, the tasks of
the event loop and the metrics. ``core_at_10000_nodes`` is the sum at one fingerprint a minute each.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kongming_server.ingest import decode
from kongming_server.nodes.registry import Agent

from benchmarks.service.load import put_models
from benchmarks.service.samples import nodes, recorded, varied
from kongming.engine.engine import Engine
from kongming.engine.load.models import ModelFiles
from kongming.records.fingerprint import Fingerprint
from kongming.rpc.record_codec import fingerprint_to_message
from kongming.rpc.v1 import records_pb2
from kongming.store import Reported, Store, compact

T, R = TypeVar("T"), TypeVar("R")
FLEET, PERIOD_S = 10_000, 60.0
STAGES = ("decode", "check", "pack", "write", "engine", "refresh")


class Stages:
    """CPU seconds of each stage, one value a round."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in STAGES}

    def each(self, name: str, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The action's results, and the time for each of ``items``."""
        begun = time.process_time()
        results = [action(item) for item in items]
        self.seconds[name].append((time.process_time() - begun) / len(items))
        return results

    def microseconds(self) -> dict[str, float]:
        return {
            name: round(1e6 * statistics.median(seconds), 1)
            for name, seconds in self.seconds.items()
        }


def measure(options: argparse.Namespace, url: str) -> dict[str, float]:
    source, like = random.Random(options.seed), recorded()
    agents = [Agent(facts) for facts in nodes(options.nodes, like.node)]
    stages = Stages()
    facts = compact.FactsCache()
    started = time.time() - options.rounds * PERIOD_S
    put_models(url, options.apps, options.seed)
    with Store.open(url) as store:
        engine = engine_of(store, agents, started)

        def check(pair: tuple[records_pb2.Fingerprint, Agent]) -> tuple[Fingerprint, int]:
            message, agent = pair

            def reference(domain: int) -> Mapping[str, float] | None:
                return engine.reference(agent.facts.id, domain)

            return decode.fingerprint_of(message, agent, reference, now=time.time(), skew_s=60.0)

        def write(batch: Sequence[Reported]) -> None:
            store.add_reported(batch)

        def sample(agent: Agent, at: float, source: random.Random) -> bytes:
            message = fingerprint_to_message(varied(like, agent.facts, at, source))
            # As agents send it: their facts are registered.
            message.ClearField("node")
            return message.SerializeToString()

        for number in range(options.rounds):
            at = started + number * PERIOD_S
            received = at + 30.0
            sent = [sample(agent, at, source) for agent in agents]
            messages = stages.each("decode", records_pb2.Fingerprint.FromString, sent)
            checked = stages.each("check", check, list(zip(messages, agents, strict=True)))
            stages.each("pack", lambda pair: compact.pack(pair[0], facts), checked)
            reported = [
                Reported(agent.facts.id, number + 1, fingerprint)
                for agent, (fingerprint, _) in zip(agents, checked, strict=True)
            ]
            batches = [
                reported[first : first + options.batch]
                for first in range(0, len(reported), options.batch)
            ]
            stages.each("write", write, batches)
            stages.seconds["write"][-1] *= len(batches) / len(reported)
            put = functools.partial(put_in, engine, received)
            stages.each("engine", put, checked)
            begun = time.process_time()
            while engine.lagging:
                engine.refresh(received, 1.0)
            stages.seconds["refresh"].append((time.process_time() - begun) / len(checked))
    return stages.microseconds()


def put_in(engine: Engine, now: float, checked: tuple[Fingerprint, int]) -> None:
    fingerprint, domain = checked
    engine.put_fingerprint(fingerprint.node.id, domain, fingerprint, now=now)


def engine_of(store: Store, agents: Sequence[Agent], now: float) -> Engine:
    """One that knows the nodes, their references and the models in service, and no fingerprint."""
    engine, files, idle = Engine(), ModelFiles(store), recorded().times()
    for agent in agents:
        engine.put_node(agent.facts, now)
        engine.put_reference(agent.facts.id, 0, idle)
    for (app, placement), version in files.in_service().items():
        engine.put_model(files.read(app, placement, version), version)
    while engine.lagging:
        engine.refresh(now, 1.0)
    return engine


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--apps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batch", type=int, default=83, help="fingerprints in one transaction")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if min(options.nodes, options.apps, options.rounds, options.batch) < 1:
        parser.error("all of them must be 1 or more")
    with tempfile.TemporaryDirectory(prefix="kongming-report-cost-") as folder:
        microseconds = measure(options, f"sqlite:///{Path(folder) / 'store.db'}")
    # Packing is in writing.
    total = sum(microseconds.values()) - microseconds["pack"]
    document: dict[str, Any] = {
        "schema": 1,
        "benchmark": "service.report_cost",
        "nodes": options.nodes,
        "applications": options.apps,
        "batch": options.batch,
        "microseconds": microseconds,
        "total_microseconds": round(total, 1),
        "core_at_10000_nodes": round(1e-6 * total * FLEET / PERIOD_S, 4),
        "python": sys.version.split()[0],
    }
    print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
