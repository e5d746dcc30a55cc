"""Scale model and slowdown together: predicted and measured while neighbours load the node.

    python benchmarks/scale/combined.py --budget 720 [--keep FOLDER]

Prints one JSON document. Parallel programs (``programs/parallel.py``) run on machines that are
control groups with an eighth of a CPU each, all on one CPU; neighbours load another one that shares
its last-level cache. First the scale models learn from idle runs, then the interference models
from a profile under inducers (one configuration, ``kongming profile`` and ``train``). Then, until
the budget in seconds is used up: configurations that were in neither, in a random order, idle and
next to loads and programs that were in no training; before each of them the suite is timed, which
is all that the prediction knows of the load.

With ``--keep`` everything measured is kept, and the same command goes on where it was stopped, by
Ctrl-C too. It changes nothing but control groups of its own, which end with it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kongming.campaigns.local_machines import PROCS, LocalRunner, MachineGroups
from kongming.inducers import induce
from kongming.learning.model_file import ModelFile, read
from kongming.learning.predict import predict_environment
from kongming.probes.fingerprinting import take_fingerprint
from kongming.probes.node import node_facts
from kongming.profiling.plans.identity import identity
from kongming.profiling.plans.placement import Seats, choose
from kongming.records.application import Application
from kongming.records.errors import KongmingError
from kongming.records.scaling import Scaling, SlowedNode
from kongming.scale.decide.combination import combine
from kongming.scale.design.experiments import Experiment, RunTable, ordered, remaining
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.nearest import fit_nearest
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration, Points, Runs
from kongming.scale.table import read_table
from kongming.store import Store

HERE = Path(__file__).resolve().parent
PARALLEL = HERE / "programs" / "parallel.py"
PROGRAMS = ("compress", "gradient", "kmeans", "pagerank", "sort")
SHARE = 0.125
ENV = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

TRAINED = (
    (1, 0.25),
    (1, 0.5),
    (2, 0.25),
    (2, 1.0),
    (3, 0.5),
    (4, 0.25),
    (4, 1.0),
    (6, 0.5),
    (6, 1.0),
)
PROFILED = (4, 0.5)
TESTED = ((2, 0.5), (3, 0.75), (5, 1.0))
LOADS = (
    None,
    "stream.triad 0.8",
    "stream.triad 0.45",
    "memory.streaming.LLChalf 0.75",
    "program sort",
    "program stencil",
)
PREDICTORS = (
    "combination",
    "scale_only",
    "slowdown_x_nearest_idle",
    "slowdown_x_own_idle",
    "repeat_idle",
)


@dataclass(frozen=True)
class Job:
    """A program with its two models and the idle runs that the scale model learnt from."""

    name: str
    scale: ScaleModel
    interference: ModelFile
    idle: Runs


class Bench:
    """What is measured, in a folder that outlives it or not."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self.node = node_facts()
        self.seats: Seats = choose(self.node, "cross-core")
        self.cpu = self.seats.app[0]
        self.ends = time.monotonic() + options.budget
        self.store = f"sqlite:///{folder / 'store.db'}"
        self.took: dict[str, float] = {}

    def left(self) -> float:
        return self.ends - time.monotonic()

    def application(self, name: str) -> Application:
        """The program on so many machines, all of them on one CPU."""
        command = (
            *("taskset", "-c", str(self.cpu), sys.executable, str(PARALLEL), name),
            *("{machines}", "{scale}"),
        )
        return Application(name=name, command=command, env=ENV, timeout_s=120.0)

    def learn_scale(self) -> dict[str, Runs]:
        """Idle runs of all programs, interleaved."""
        tables, left = {}, []
        for name in self.options.program:
            app = self.application(name)
            tables[name] = RunTable(self.folder / f"{name}.csv", identity(app))
            design = [(Configuration(*at), self.options.repeats) for at in TRAINED]
            left += [(name, one) for one in remaining(ordered(design), tables[name].done)]
        random.Random(1).shuffle(left)
        for number, (name, one) in enumerate(left):
            say(f"idle run {number + 1} of {len(left)}: {name} on {one.at}")
            with LocalRunner(self.application(name), self.folder, share=SHARE) as runner:
                found = runner.run(one)
            if found.seconds is None:
                raise RuntimeError(f"{name} on {one.at} failed: {found.error}")
            tables[name].add(one, found)
        return {
            name: next(iter(read_table(table.path).parts.values()))
            for name, table in tables.items()
        }

    def learn_slowdowns(self) -> None:
        """A profile of each program, and its models."""
        file = self.folder / "profiled.toml"
        tables = []
        for name in self.options.program:
            command = [sys.executable, str(Path(__file__).resolve()), "--inside", name]
            command += [str(value) for value in PROFILED]
            tables.append(
                f"[apps.{name}]\ncommand = {json.dumps(command)}\n"
                + "".join(f'env.{key} = "{value}"\n' for key, value in ENV.items())
                + """metric = { pattern = '"seconds": ([0-9.e+-]+)', unit = "s" }\n"""
            )
        file.write_text("\n".join(tables), encoding="utf-8")
        say("profiling under inducers")
        kongming(
            *("profile", str(file), "--store", self.store, "--dir", str(self.folder)),
            *("--levels", str(self.options.levels), "--suite", "standard", "--seed", "1"),
            # Half an hour would be too long; what was measured until then is kept.
            *("--budget", f"{max(self.left() / 2.0, 20.0):.1f}s"),
        )
        say("training")
        for name in self.options.program:
            kongming("train", name, "--store", self.store)

    def jobs(self, idle: Mapping[str, Runs]) -> list[Job]:
        settings = Settings(read_terms("default", items=None))
        found = []
        with Store.open(self.store) as store:
            for name, runs in idle.items():
                document = store.model(name, "cross-core")
                if document is None:
                    raise RuntimeError(f"{name} has no model: its profile failed")
                found.append(Job(name, fit_runs(runs, settings), read(document), runs))
        return found

    def visit(self, jobs: Sequence[Job], load: str | None, random_: random.Random) -> None:
        """One load: the suite, then each program at a configuration of its own."""
        with loaded(load, self.seats.neighbour, self.folder):
            fingerprint = take_fingerprint(cpu=self.cpu, suite="standard", directory=self.folder)
            for job in random_.sample(list(jobs), len(jobs)):
                machines, scale = random_.choice(TESTED)
                said = predict_environment(job.interference, fingerprint)
                node = SlowedNode("node", self.node.name, said.slowdown, said.extrapolating)
                both = combine(job.scale, Scaling(machines, scale), [node])
                one = Experiment(Configuration(machines, scale))
                with LocalRunner(self.application(job.name), self.folder, share=SHARE) as runner:
                    measured = runner.run(one)
                if measured.seconds is None:
                    raise RuntimeError(f"{job.name} on {one.at} failed: {measured.error}")
                near = fit_nearest(job.idle).predict(Points.of([one.at]))[0]
                self.keep(
                    {
                        "program": job.name,
                        "machines": machines,
                        "scale": scale,
                        "load": load,
                        "seconds": measured.seconds,
                        "slowdown": said.slowdown.to_dict(),
                        "combination": both.runtime.to_dict(),
                        "scale_only": both.scaled.idle_s.to_dict(),
                        "nearest_idle": float(near),
                        "extrapolating": both.extrapolating,
                    }
                )

    def keep(self, row: Mapping[str, Any]) -> None:
        with (self.folder / "tested.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def tested(self) -> list[dict[str, Any]]:
        path = self.folder / "tested.jsonl"
        if not path.exists():
            return []
        # A line that was cut off has no end.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def run(self) -> None:
        began = time.monotonic()
        idle = self.learn_scale()
        self.took["idle_runs_s"] = time.monotonic() - began
        began = time.monotonic()
        self.learn_slowdowns()
        self.took["profiles_s"] = time.monotonic() - began
        jobs = self.jobs(idle)
        random_ = random.Random(len(self.tested()))
        longest, number = 0.0, 0
        while self.left() > longest or (number == 0 and not self.tested()):
            # Idle every other time: what the host does meanwhile is in both alike.
            for load in (None, random_.choice(LOADS[1:])):
                began = time.monotonic()
                number += 1
                say(f"visit {number}: {load or 'idle'}, {max(self.left(), 0):.0f} s left")
                self.visit(jobs, load, random_)
                longest = max(longest, 2.0 * (time.monotonic() - began))


def kongming(*arguments: str) -> None:
    """The command of this very Python. Raises RuntimeError with what it said."""
    command = [sys.executable, "-m", "kongming.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode not in (0, 1):
        raise RuntimeError(f"kongming {arguments[0]} failed: {done.stderr.strip()}")


@contextmanager
def loaded(load: str | None, cpu: int, folder: Path) -> Iterator[None]:
    """The node with this load on a CPU."""
    if load is None:
        yield
        return
    name, what = load.split()
    if name != "program":
        with induce(name, intensity=float(what), cpu=cpu, directory=folder, seconds=120.0):
            yield
        return
    again = f"while True: subprocess.run([sys.executable, {str(PARALLEL)!r}, {what!r}, '1', '0.5'])"
    command = ["taskset", "-c", str(cpu), sys.executable, "-c", f"import subprocess, sys\n{again}"]
    running = subprocess.Popen(command, start_new_session=True, env=os.environ | ENV)
    try:
        time.sleep(1.0)
        yield
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def inside(name: str, machines: int, scale: str) -> None:
    """A run as the tests make them, for the profiler: prints the seconds of the program alone."""
    with MachineGroups(machines, SHARE) as groups:
        env = dict(os.environ)
        if groups.active:
            env[PROCS] = ":".join(str(groups.machine(i)) for i in range(machines))
        began = time.monotonic()
        subprocess.run(
            [sys.executable, str(PARALLEL), name, str(machines), scale], env=env, check=True
        )
        print(json.dumps({"seconds": time.monotonic() - began}))


def judged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Errors in percent of each predictor, coverage, and the noise floor."""
    idle: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        if row["load"] is None:
            idle[at(row)].append(row["seconds"])
    told = []
    for row in rows:
        others = list(idle[at(row)])
        if row["load"] is None:
            others.remove(row["seconds"])
        own = math.exp(float(np.mean(np.log(others)))) if others else math.nan
        slowdown = row["slowdown"]["median"]
        told.append(
            {
                "combination": row["combination"]["median"],
                "scale_only": row["scale_only"]["median"],
                "slowdown_x_nearest_idle": slowdown * row["nearest_idle"],
                "slowdown_x_own_idle": slowdown * own,
                "repeat_idle": own,
            }
        )
    which = {
        "all": list(range(len(rows))),
        "loaded": [i for i, row in enumerate(rows) if row["load"] is not None],
        "idle": [i for i, row in enumerate(rows) if row["load"] is None],
    }
    return {
        **{
            part: {
                "runs": len(places),
                "error_pct": {
                    name: error([told[i][name] for i in places], [rows[i] for i in places])
                    for name in PREDICTORS
                },
                "coverage": {
                    name: share(
                        row[name]["lower"] <= row["seconds"] <= row[name]["upper"]
                        for row in (rows[i] for i in places)
                    )
                    for name in ("combination", "scale_only")
                },
            }
            for part, places in which.items()
        },
        "noise_floor_pct": noise_floor(rows),
        "measured_slowdown": {
            str(load): share(
                [
                    row["seconds"] / float(np.mean(idle[at(row)]))
                    for row in rows
                    if row["load"] == load and idle[at(row)]
                ]
            )
            for load in sorted({row["load"] for row in rows if row["load"]})
        },
        "predicted_slowdown": {
            str(load): share([row["slowdown"]["median"] for row in rows if row["load"] == load])
            for load in sorted({row["load"] for row in rows if row["load"]})
        },
        "interval_width": share(
            [math.log(row["combination"]["upper"] / row["combination"]["lower"]) for row in rows]
        ),
        "extrapolating": share(row["extrapolating"] for row in rows),
    }


def at(row: Mapping[str, Any]) -> tuple[str, int, float]:
    return row["program"], row["machines"], row["scale"]


def error(predicted: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean absolute, in percent."""
    errors = [
        100.0 * abs(one / row["seconds"] - 1.0)
        for one, row in zip(predicted, rows, strict=True)
        if not math.isnan(one)
    ]
    return float(np.mean(errors)) if errors else None


def share(values: Any) -> float | None:
    found = [float(value) for value in values]
    return float(np.mean(found)) if found else None


def noise_floor(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """What repeats of one configuration under one load differ by: the error of the true model."""
    same: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        same[(*at(row), row["load"])].append(math.log(row["seconds"]))
    freedom = sum(len(logs) - 1 for logs in same.values())
    if freedom < 1:
        return None
    squares = sum(float(np.sum((np.array(logs) - np.mean(logs)) ** 2)) for logs in same.values())
    return 100.0 * math.sqrt(squares / freedom) * math.sqrt(2.0 / math.pi)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--budget", type=float, default=720.0, help="seconds")
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="repeatable")
    parser.add_argument("--repeats", type=int, default=2, help="idle runs of a configuration")
    parser.add_argument("--levels", type=int, default=9, help="load levels of the profile")
    parser.add_argument("--keep", type=Path, help="folder to keep and resume from")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        name, machines, scale = options.inside
        inside(name, int(machines), scale)
        return 0
    options.program = options.program or ["gradient", "kmeans"]
    # As with Ctrl-C: neighbours and control groups end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="kongming-combined-") as place:
        folder = options.keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, options)
        status = 0
        try:
            bench.run()
        except KeyboardInterrupt:
            status = 130
        except (KongmingError, RuntimeError, OSError) as problem:
            say(f"{problem}")
            status = 1
        rows = bench.tested()
        document = {
            "programs": {
                name: judged([row for row in rows if row["program"] == name])
                for name in options.program
            },
            "together": judged(rows),
            "machines_trained": [list(one) for one in TRAINED],
            "machines_tested": [list(one) for one in TESTED],
            "took": bench.took,
            "node": {"cpu": bench.node.cpu_model, "cpus": len(bench.node.cpus)},
        }
    print(json.dumps(document, indent=2))
    return status


if __name__ == "__main__":
    sys.exit(main())
