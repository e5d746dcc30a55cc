"""What the engine's answers cost with a large fleet in memory. Prints one JSON document.

A made-up fleet: nodes of 35 surrogates under random load, applications with models and
signatures, residents on every node. Half of the models are linear, half a stack of a linear one
and a kernel of 40 support vectors, which is what validation mostly chooses; ``--model FILE`` takes
a trained document in their place. Nothing but the engine runs: no network, no store.

    rank        top 10 of all nodes, another application and seed each time, the matrix fresh
    rank_after_placement   the same right after a placement was made somewhere
    rank_unknown           of an application that nobody profiled
    rank_set_8, rank_set_64    the best set of so many nodes for a job, with its runtime
    predict_cached / predict   one application on one node: asked before / for the first time
    refresh     one fingerprint for a share of the nodes: seconds of CPU for each fingerprint, and
                the share of a core at one fingerprint a minute from every node
    build_s     everything put in and worked out from nothing
    memory_mib  resident set, what the interpreter had before included

Targets: rank p99 under 4 ms, refresh under a quarter of a core, memory under 512 MiB. Run it on
an idle machine. Exit status 0; 4 with --check when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from kongming_server.running import garbage_collection as garbage

from kongming.engine.engine import Engine
from kongming.learning.model_file import ModelFile, read, seal
from kongming.records import moments
from kongming.records.fingerprint import FAMILIES, Fingerprint, NodeFacts, Reading
from kongming.records.questions import Question, RankQuestion
from kongming.records.resident import BOUND, Resident
from kongming.records.run import Signature
from kongming.records.scaling import Scaling
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Points, Runs

NOW = 1_800_000_000.0
SUITE = "benchmark"
SETS = (8, 64)
RANK_MS, MEMORY_MIB, CORE_SHARE = 4.0, 512.0, 0.25


class Fleet:
    """What is put into the engine, from one seeded generator."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.random = np.random.default_rng(options.seed)
        self.names = [f"{FAMILIES[j % len(FAMILIES)]}.{j:02}" for j in range(options.columns)]
        self.families = [FAMILIES[j % len(FAMILIES)] for j in range(options.columns)]
        self.idle = 10.0 ** self.random.uniform(-9.0, -3.0, options.columns)
        self.document: dict[str, Any] | None = None
        if options.model:
            self.document = json.loads(Path(options.model).read_text())
            variant = self.document["variants"]["full"]
            self.names = list(variant["columns"])
            self.families = [variant["families"][name] for name in self.names]
            self.idle = np.array([variant["idle"][name] for name in self.names])

    def facts(self, n: int) -> NodeFacts:
        return NodeFacts(
            id=f"node-{n:05}", name=f"host-{n:05}", architecture="x86_64", cpu_vendor="Made",
            cpu_model="Up", cpus=(0, 1), cores={"0": 0, "1": 1}, sockets={"0": 0, "1": 0},
            l1d_bytes=1 << 15, l2_bytes=1 << 20, llc_bytes=1 << 25, llc_cpus=((0, 1),),
            memory_bytes=64 << 30, kernel="6", hypervisor=None, huge_pages="madvise",
        )  # fmt: skip

    def fingerprint(self, facts: NodeFacts, taken_at: float, load: float = 1.0) -> Fingerprint:
        logs = self.random.normal(0.0, 0.02, len(self.names))
        for family in self.random.choice(FAMILIES, 2):
            member = np.array([column_family == family for column_family in self.families])
            logs[member] += load * self.random.uniform(0.0, 0.8)
        times = (self.idle * np.exp(logs)).tolist()
        return Fingerprint(
            node=facts,
            suite="standard",
            suite_version=SUITE if self.document is None else self.document["suite_version"],
            cpu=0,
            started_at=moments.format(taken_at),
            elapsed_s=2.0,
            surrogates={
                name: Reading(name, family, "op", t, t, t, 20, 20)
                for name, family, t in zip(self.names, self.families, times, strict=True)
            },
        )

    def model(self, n: int) -> ModelFile:
        if self.document is not None:
            file = read(self.document)
            return replace(file, app=f"app-{n:03}")
        return read(seal(self.payload(n)))

    def payload(self, n: int) -> dict[str, Any]:
        """What is stored of a made-up model, unsealed."""
        models = {"LM": self._model(self._linear())}
        if n % 2:
            models["KERNEL"] = self._model(self._kernel())
            stack = {"type": "stack", "members": {"LM": 0.3, "KERNEL": 0.7}}
            models["STACK"] = self._model(stack, space="raw")
        by_name = dict(zip(self.names, self.idle.tolist(), strict=True))
        variant = {
            "columns": self.names,
            "families": dict(zip(self.names, self.families, strict=True)),
            "idle": by_name,
            "spread": dict.fromkeys(self.names, 0.02),
            "low": {name: 0.95 * t for name, t in by_name.items()},
            "high": {name: 4.0 * t for name, t in by_name.items()},
            "noise": 0.01,
            "chosen": "STACK" if n % 2 else "LM",
            "models": models,
        }
        return {
            "app": f"app-{n:03}",
            "identity": "0" * 16,
            "node_id": "trainer",
            "placement": "cross-core",
            "suite_version": SUITE,
            "metric_unit": "s",
            "better": "lower",
            "cpu": 0,
            "solo": {"median": 10.0, "noise_pct": 1.0, "n": 6},
            "variants": {"full": variant},
        }

    def signature(self, n: int) -> Signature:
        facts = replace(self.facts(0), id="trainer" if self.document is None
                        else self.document["node_id"])  # fmt: skip
        return Signature(
            app=f"app-{n:03}",
            identity="0" * 16,
            node_id=facts.id,
            placement="cross-core" if self.document is None else self.document["placement"],
            fingerprint=self.fingerprint(facts, NOW - 1e6, load=0.5),
            iterations=3,
        )

    def _model(self, frozen: dict[str, Any], space: str = "log") -> dict[str, Any]:
        return {
            "frozen": frozen,
            "space": space,
            "bounds": [-0.02, 3.0],
            "weights": dict.fromkeys(self.names, 0.1),
            "residuals": self.random.normal(0.0, 0.05, 60).tolist(),
            "severities": self.random.uniform(0.0, 0.5, 60).tolist(),
            "groups": 12,
            "scores": {},
        }

    def _linear(self) -> dict[str, Any]:
        coef = self.random.uniform(0.0, 0.1, len(self.names)).tolist()
        return {"type": "linear", "coef": coef, "intercept": 0.0}

    def _kernel(self) -> dict[str, Any]:
        p = len(self.names)
        return {
            "type": "kernel",
            "mean": [0.1] * p,
            "scale": [0.2] * p,
            "gamma": 0.02,
            "support": self.random.uniform(0.0, 0.8, (40, p)).tolist(),
            "dual": self.random.uniform(0.0, 0.02, 40).tolist(),
            "intercept": 0.0,
        }


def scale_file() -> ScaleFile:
    """Of a made-up job that was run on up to 64 machines."""
    random = np.random.default_rng(0)
    machines = np.repeat([1.0, 4.0, 16.0, 64.0], 4)
    points = Points(machines, np.tile([0.1, 0.2, 0.5, 1.0], 4), np.ones(16))
    seconds = (20.0 + 3000.0 * points.load) * np.exp(0.02 * random.standard_normal(16))
    settings = Settings(read_terms("default", items=None), kind="ernest-relative")
    return ScaleFile("job", "", (fit_runs(Runs(points, seconds), settings),))


def percentiles_ms(times_s: Sequence[float]) -> dict[str, float]:
    return {
        name: round(1e3 * float(np.quantile(times_s, share)), 4)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def timed(action: Callable[[int], object], repeats: int) -> list[float]:
    walls = []
    for n in range(repeats):
        start = time.perf_counter()
        action(n)
        walls.append(time.perf_counter() - start)
    return walls


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def refresh_all(engine: Engine) -> float:
    """Seconds of CPU until nothing lags."""
    start = time.process_time()
    while engine.lagging:
        engine.refresh(NOW, 0.02)
    return time.process_time() - start


def build(engine: Engine, fleet: Fleet, options: argparse.Namespace) -> None:
    for n in range(options.apps):
        engine.put_model(fleet.model(n), 1)
    engine.put_signatures(fleet.signature(n) for n in range(options.apps))
    idle = dict(zip(fleet.names, fleet.idle.tolist(), strict=True))
    # Models are of a node that is known, and of the type of all others.
    trainer = fleet.model(0).node_id
    engine.put_node(replace(fleet.facts(0), id=trainer, name=trainer), NOW)
    for n in range(options.nodes):
        facts = fleet.facts(n)
        engine.put_node(facts, NOW)
        engine.put_reference(facts.id, 0, idle)
        read_now = fleet.fingerprint(facts, NOW - 70.0)
        engine.put_fingerprint(facts.id, 0, read_now, now=NOW - 60.0)
        for k in range(options.residents):
            app = f"app-{(7 * n + 13 * k) % options.apps:03}"
            began = NOW - (30.0 if k % 2 else 300.0)
            engine.put_assignment(
                Resident(f"{n}.{k}", app, facts.id, state=BOUND, reserved_at=began, bound_at=began)
            )


def run(options: argparse.Namespace) -> dict[str, Any]:
    fleet = Fleet(options)
    engine = Engine()
    # As the server does.
    garbage.tune()
    before_mib = memory_mib()
    start = time.perf_counter()
    build(engine, fleet, options)
    refresh_all(engine)
    build_s = time.perf_counter() - start

    def app(n: int) -> str:
        return f"app-{n % options.apps:03}"

    def node(n: int) -> str:
        return f"node-{(37 * n) % options.nodes:05}"

    def rank(n: int) -> None:
        engine.rank(RankQuestion(app(n), limit=10, seed=n), NOW)

    def rank_after_placement(n: int) -> float:
        ranking = engine.rank(RankQuestion(app(n), limit=1, seed=n), NOW)
        placed = Resident(f"new.{n}", app(n), ranking.nodes[0].node_id, state=BOUND,
                          reserved_at=NOW, bound_at=NOW)  # fmt: skip
        engine.put_assignment(placed)
        start = time.perf_counter()
        engine.rank(RankQuestion(app(n), limit=10, seed=n), NOW)
        return time.perf_counter() - start

    def predict(n: int) -> None:
        engine.predict(Question(app(n), node(n)), NOW)

    timed(rank, 20)
    ranks = timed(rank, options.repeats)
    unknown = timed(
        lambda n: engine.rank(RankQuestion(f"unknown-{n}", seed=n), NOW), options.repeats // 4
    )
    engine.put_scale_model("job", scale_file())
    sets = {}
    for size in SETS:
        job = Scaling(size, model="job")
        sets[size] = timed(
            lambda n, job=job: engine.rank(  # type: ignore[misc]
                RankQuestion(app(n), limit=1, seed=n, scaling=job), NOW
            ),
            options.repeats // 4,
        )
    placed = [rank_after_placement(n) for n in range(options.repeats // 4)]
    refresh_all(engine)
    predicts = timed(predict, options.repeats)
    cached = timed(predict, options.repeats)

    arriving = [
        fleet.fingerprint(fleet.facts(n), NOW - 1.0)
        for n in range(0, options.nodes, max(1, options.nodes // options.arriving))
    ]
    start_cpu = time.process_time()
    for fingerprint in arriving:
        engine.put_fingerprint(fingerprint.node.id, 0, fingerprint, now=NOW)
    put_s = (time.process_time() - start_cpu) / len(arriving)
    refresh_s = refresh_all(engine) / len(arriving)
    share = (put_s + refresh_s) * options.nodes / 60.0
    ranked = percentiles_ms(ranks)
    mib = memory_mib()
    return {
        "schema": 1,
        "benchmark": "rank",
        "met": ranked["p99"] < RANK_MS and mib < MEMORY_MIB and share < CORE_SHARE,
        "targets": {"rank_p99_ms": RANK_MS, "memory_mib": MEMORY_MIB, "core_share": CORE_SHARE},
        "nodes": options.nodes,
        "apps": options.apps,
        "residents_per_node": options.residents,
        "columns": len(fleet.names),
        "rank_ms": ranked,
        "rank_unknown_ms": percentiles_ms(unknown),
        **{f"rank_set_{size}_ms": percentiles_ms(walls) for size, walls in sets.items()},
        "rank_after_placement_ms": percentiles_ms(placed),
        "predict_ms": percentiles_ms(predicts),
        "predict_cached_ms": percentiles_ms(cached),
        "put_us_per_fingerprint": round(1e6 * put_s, 1),
        "refresh_us_per_fingerprint": round(1e6 * refresh_s, 1),
        "core_share_at_one_a_minute": round(share, 4),
        "build_s": round(build_s, 2),
        "memory_mib": round(mib, 1),
        "memory_before_mib": round(before_mib, 1),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "load1": os.getloadavg()[0],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--apps", type=int, default=200)
    parser.add_argument("--residents", type=int, default=3, help="on each node")
    parser.add_argument("--columns", type=int, default=35, help="surrogates")
    parser.add_argument("--repeats", type=int, default=1000, help="timed answers of each kind")
    parser.add_argument("--arriving", type=int, default=1000, help="fingerprints that arrive")
    parser.add_argument("--model", metavar="FILE", help="a trained model document, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="exit 4 when a target is missed")
    options = parser.parse_args()
    if min(options.nodes, options.apps, options.columns, options.arriving) < 1:
        parser.error("--nodes, --apps, --columns and --arriving must be 1 or more")
    if options.repeats < 4:
        parser.error("--repeats must be 4 or more")
    document = run(options)
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
