"""Does serving slow down while the server trains? Prints one JSON document.

A real kongming-server on loopback is asked Predict questions back to back by one caller, in blocks
that take turns: quiet ones, and ones in which an application is trained all the while, from the
start of the worker process to the moment when the new version answers. Both kinds of block are as
long. Each question names another surrounding: an answer is never one that was just given.

    quiet, training   microseconds per question: p50, p99, p999 and the greatest, and how many
    ratio             training over quiet, of p50 and p99: of each pair of blocks, the median
    training_s        how long each training took
    cancel_s          how long it took to cancel one in the midst of its work: at most 1 s

The caller and the server are on the same machine, with the worker: where there are fewer than
three CPUs the worker gets what the two leave over. Exit status 0; 1 if something could not be
run; 4 with --check when a ratio or a cancel passes its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from kongming.probes.node import node_facts
from kongming.records import moments
from kongming.records.errors import KongmingError
from kongming.records.fingerprint import Fingerprint, NodeFacts, Reading
from kongming.records.run import LoadLevel, Run
from kongming.rpc import record_codec as records
from kongming.rpc.v1 import (
    fleet_pb2,
    fleet_pb2_grpc,
    predictor_pb2,
    predictor_pb2_grpc,
    profiles_pb2,
    profiles_pb2_grpc,
)

LIMITS = {"p50": 1.2, "p99": 1.5}
"""What "does not move" is held to: medians of ratios within one run."""

CANCELS = 5
CANCEL_LIMIT_S = 1.0

FAMILIES = ("cache", "memory", "compute", "os", "read", "write", "metadata", "network")
SUITE = "1-benchmark"
APP = "prog"


class Fleet:
    """A made-up node, and an application that was profiled on it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._random = np.random.default_rng(options.seed)
        self._columns = options.columns
        self._runs = options.runs
        self._idle = 10.0 ** self._random.uniform(-9, -3, options.columns)
        self.facts: NodeFacts = node_facts()

    def fingerprint(self, loaded: int | None = None, strength: float = 0.0) -> Fingerprint:
        logs = self._random.normal(0.0, 0.02, self._columns)
        if loaded is not None:
            logs[loaded :: len(FAMILIES)] += strength
        readings = {}
        for j, seconds in enumerate((self._idle * np.exp(logs)).tolist()):
            family = FAMILIES[j % len(FAMILIES)]
            name = f"{family}.{j:03}"
            readings[name] = Reading(
                name=name,
                family=family,
                op="one operation",
                seconds_per_op=seconds,
                median=seconds,
                p90=seconds,
                n=20,
                ops=1000,
                elapsed_s=1000 * seconds,
            )
        return Fingerprint(
            node=self.facts,
            suite="quick",
            suite_version=SUITE,
            cpu=self.facts.cpus[0],
            started_at=_now(),
            elapsed_s=1.0,
            surrogates=readings,
        )

    def runs(self) -> Iterator[Run]:
        for number in range(self._runs):
            loaded = None if number % 5 == 0 else number % len(FAMILIES)
            strength = float(self._random.uniform(0.2, 1.0))
            seen = self.fingerprint(loaded, strength)
            metric = 3.0 * float(np.exp(0.5 * strength * (loaded is not None)))
            levels = ()
            if loaded is not None:
                levels = (LoadLevel(f"{FAMILIES[loaded]}.load", FAMILIES[loaded]),)
            yield Run(
                app=APP,
                identity="a" * 16,
                node_id=self.facts.id,
                placement="cross-core",
                kind="induced" if levels else "solo",
                started_at=_now(),
                wall_s=metric,
                metric=metric * float(np.exp(self._random.normal(0.0, 0.01))),
                levels=levels,
                fingerprint=seen,
                before=seen,
                step=number,
            )


class Caller:
    def __init__(self, channel: grpc.Channel, fleet: Fleet) -> None:
        self._predictor = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
        self._profiles = profiles_pb2_grpc.ProfilesStub(channel)  # type: ignore[no-untyped-call]
        self._fleet_stub = fleet_pb2_grpc.FleetStub(channel)  # type: ignore[no-untyped-call]
        self._fleet = fleet
        self._question_count = 0

    def prepare(self) -> None:
        self._fleet_stub.Register(
            fleet_pb2.RegisterRequest(
                node=records.node_to_message(self._fleet.facts),
                references=[records.fingerprint_to_message(self._fleet.fingerprint())],
            ),
            timeout=30,
        )
        live = fleet_pb2.ReportedFingerprint(
            sequence=1,
            fingerprint=records.fingerprint_to_message(self._fleet.fingerprint(1, 0.5)),
            purpose=fleet_pb2.PURPOSE_LIVE,
        )
        self._fleet_stub.Report(
            fleet_pb2.ReportRequest(node_id=self._fleet.facts.id, fingerprints=[live]), timeout=30
        )
        runs = (
            profiles_pb2.ImportRunsRequest(run=records.run_to_message(run))
            for run in self._fleet.runs()
        )
        self._profiles.ImportRuns(runs, timeout=60)

    def question(self) -> float:
        """Seconds that one took. Its level is another one each time, so it is no cached answer."""
        self._question_count += 1
        question = predictor_pb2.PredictQuestion(
            app=APP,
            node=self._fleet.facts.id,
            level=0.5 + 0.4 * (self._question_count % 9973) / 9973,
        )
        request = predictor_pb2.PredictRequest(questions=[question])
        began = time.perf_counter()
        answer = self._predictor.Predict(request, timeout=30).answers[0]
        took = time.perf_counter() - began
        if answer.WhichOneof("answer") != "prediction":
            raise KongmingError(f"The server did not predict: {answer.failure.message}")
        return took

    def ask_while(self, wanted: Callable[[], bool]) -> list[float]:
        times = []
        while wanted():
            times.append(self.question())
        return times

    def train(self, seed: int) -> str:
        request = profiles_pb2.TrainRequest(apps=[APP], random_state=seed)
        operation = self._profiles.Train(request, timeout=30).operation
        return str(operation.id)

    def wait(self, operation_id: str) -> Any:
        """The stream of the operation's states."""
        return self._profiles.WatchOperation(
            profiles_pb2.WatchOperationRequest(id=operation_id), timeout=600
        )

    def cancel(self, seed: int) -> float:
        """Seconds that it took to end a training which had begun to work."""
        operation_id = self.train(seed)
        for state in self.wait(operation_id):
            if state.operation.state >= profiles_pb2.OPERATION_STATE_DONE:
                raise KongmingError("The training ended before it could be cancelled.")
            if state.operation.progress > 0.0:
                break
        request = profiles_pb2.CancelOperationRequest(id=operation_id)
        began = time.perf_counter()
        ended = self._profiles.CancelOperation(request, timeout=60).operation
        took = time.perf_counter() - began
        if ended.state != profiles_pb2.OPERATION_STATE_CANCELLED:
            raise KongmingError("The training was not cancelled.")
        return took


def block_of_training(caller: Caller, seed: int) -> tuple[list[float], float]:
    """Latencies from the request to train until the new version answers, and how long that was."""
    ended: list[int] = []
    began = time.perf_counter()
    states = caller.wait(caller.train(seed))

    def watch() -> None:
        for state in states:
            if state.operation.state >= profiles_pb2.OPERATION_STATE_DONE:
                ended.append(state.operation.state)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    times = caller.ask_while(lambda: not ended and watching.is_alive())
    watching.join(30)
    if ended != [profiles_pb2.OPERATION_STATE_DONE]:
        raise KongmingError("The training did not end well.")
    return times, time.perf_counter() - began


def block_of_quiet(caller: Caller, seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    return caller.ask_while(lambda: time.perf_counter() < end)


def summary(times: list[float]) -> dict[str, float]:
    values = 1e6 * np.array(times)
    return {
        "p50_us": round(float(np.quantile(values, 0.5)), 1),
        "p99_us": round(float(np.quantile(values, 0.99)), 1),
        "p999_us": round(float(np.quantile(values, 0.999)), 1),
        "max_us": round(float(values.max()), 1),
        "questions": len(times),
    }


@contextmanager
def server(options: argparse.Namespace) -> Iterator[str]:
    """A server's address; it ends with the block."""
    root = Path(__file__).resolve().parents[2]
    paths = (str(root / "daemon"), str(root), os.environ.get("PYTHONPATH"))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "server.toml"
        config.write_text(f"[training]\nworkers = {options.workers}\n", encoding="utf-8")
        process = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "kongming_server.commands.server_command",
                    "--config",
                    str(config),
                ),
                *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"),
                *("--store", f"sqlite:///{folder}/server.db"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("listening grpc="):
                raise KongmingError("The server did not start.")
            yield line.split()[1].removeprefix("grpc=")
        finally:
            process.terminate()
            process.wait(30)


def run(options: argparse.Namespace) -> dict[str, Any]:
    quiet: list[list[float]] = []
    training: list[list[float]] = []
    lengths: list[float] = []
    with server(options) as address, grpc.insecure_channel(address) as channel:
        caller = Caller(channel, Fleet(options))
        caller.prepare()
        for _ in caller.wait(caller.train(0)):
            pass
        block_of_quiet(caller, 0.5)
        deadline = time.perf_counter() + options.seconds
        length = options.quiet_s
        while not training or time.perf_counter() < deadline:
            quiet.append(block_of_quiet(caller, length))
            times, length = block_of_training(caller, len(training) + 1)
            training.append(times)
            lengths.append(length)
        cancels = [caller.cancel(len(training) + 1 + number) for number in range(CANCELS)]
    pairs = [(summary(on), summary(off)) for on, off in zip(training, quiet, strict=True)]
    ratio = {
        name: round(statistics.median(on[f"{name}_us"] / off[f"{name}_us"] for on, off in pairs), 3)
        for name in LIMITS
    }
    return {
        "schema": 1,
        "benchmark": "training_latency",
        "met": all(ratio[name] <= limit for name, limit in LIMITS.items())
        and max(cancels) <= CANCEL_LIMIT_S,
        "ratio": ratio,
        "limits": LIMITS,
        "quiet": summary([latency for block in quiet for latency in block]),
        "training": summary([latency for block in training for latency in block]),
        "blocks": len(pairs),
        "training_s": [round(length, 2) for length in lengths],
        "cancel_s": [round(took, 3) for took in cancels],
        "cancel_limit_s": CANCEL_LIMIT_S,
        "runs": options.runs,
        "columns": options.columns,
        "workers": options.workers,
        "cpus": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "load1": os.getloadavg()[0],
        "node": node_facts().to_dict(),
    }


def _now() -> str:
    return moments.now()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no block after so long")
    parser.add_argument("--quiet-s", type=float, default=5.0, help="length of the first block")
    parser.add_argument("--runs", type=int, default=60, help="runs that are trained on")
    parser.add_argument("--columns", type=int, default=35, help="surrogates")
    parser.add_argument("--workers", type=int, default=1, help="processes that train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="exit 4 when a limit is passed")
    options = parser.parse_args()
    if options.runs < 10 or options.columns < len(FAMILIES) or options.workers < 1:
        parser.error(f"--runs must be 10 or more, --columns {len(FAMILIES)} or more")
    try:
        document = run(options)
    except (KongmingError, grpc.RpcError) as error:
        print(f"training_latency: {error}", file=sys.stderr)
        return 1
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
