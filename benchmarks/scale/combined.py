"""Scale model and slowdown together: predicted and measured while neighbours load the node.

    python benchmarks/scale/combined.py --budget 25 --keep FOLDER

Prints one JSON document. Parallel programs (``programs/parallel.py``) run on machines that are
control groups with an eighth of a CPU each, all on one CPU; neighbours load another one that shares
its last-level cache. First the scale models learn from idle runs, then the interference models
from profiles under inducers (``kongming profile`` and ``train``) at two configurations, of few
machines and of many. Then, until the budget in minutes is used up, visits in a random order, idle
and next to loads and programs that were in no training: the suite is timed, which is all that a
prediction knows of the load, and each program runs at configurations that were in neither.

With ``--keep`` everything measured is kept as soon as it is, and the same command goes on where it
was stopped, even by SIGKILL; with ``--budget 0`` it judges what is there. It changes nothing but
control groups of its own, which end with it or at the next start.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from combined_order import judged

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
from kongming.records.fingerprint import Fingerprint
from kongming.records.scaling import ProfiledSlowdown, Scaling, SlowedNode, profile_name
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
PROFILED = ((1, 0.25), (6, 0.5))
TESTED = ((1, 0.35), (2, 0.75), (5, 0.75))
AT_ONCE = 2
"""Number of configurations of each program in a visit."""

LOADS = (
    "stream.triad 0.8",
    "stream.triad 0.45",
    "memory.streaming.LLChalf 0.75",
    "program sort",
    "program stencil",
)
ONE_PROFILE = ("combination_profile_few", "combination_profile_many")
"""The combination with one of the two profiles alone."""

PAIRS = (
    ("combination", "scale_only"),
    ("combination", "solo"),
    ("scale_only", "solo"),
    *(("combination", name) for name in ONE_PROFILE),
)


@dataclass(frozen=True)
class Job:
    """A program with its models, an interference model for each profiled configuration, and the
    idle runs that the scale model learnt from."""

    name: str
    scale: ScaleModel
    interference: tuple[ModelFile, ...]
    idle: Runs

    def predicted(self, at: Configuration, fingerprint: Fingerprint) -> dict[str, Any]:
        """Return seconds by predictor, and the intervals of those that have one."""
        answers = [predict_environment(model, fingerprint) for model in self.interference]
        profiled = [
            ProfiledSlowdown(*place, answer.slowdown)
            for place, answer in zip(PROFILED, answers, strict=True)
        ]
        scaling = Scaling(int(at.machines), at.scale)
        both, few, many = (
            combine(
                self.scale,
                scaling,
                [SlowedNode("node", "node", some[0].slowdown)],
                profiled={"node": some},
            )
            for some in (profiled, profiled[:1], profiled[1:])
        )
        solo = float(fit_nearest(self.idle).predict(Points.of([at]))[0])
        idle = both.scaled.idle_s
        return {
            "predicted": {
                "combination": both.runtime.median,
                "scale_only": idle.median,
                "solo": solo,
                "slowdown_x_solo": solo * both.slowdown.median,
                **{
                    name: combined.runtime.median
                    for name, combined in zip(ONE_PROFILE, (few, many), strict=True)
                },
            },
            "intervals": {
                "combination": (both.runtime.lower, both.runtime.upper),
                "scale_only": (idle.lower, idle.upper),
            },
        }


class Bench:
    """What is measured, in a folder that outlives it or not."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self.node = node_facts()
        self.seats: Seats = choose(self.node, "cross-core")
        self.cpu = self.seats.app[0]
        self.ends = time.monotonic() + 60.0 * options.budget
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

    def learn_scale(self) -> None:
        """Idle runs of all programs, interleaved."""
        tables, left = {}, []
        for name in self.options.program:
            app = self.application(name)
            tables[name] = RunTable(self.folder / f"{name}.csv", identity(app))
            design = [(Configuration(*at), self.options.repeats) for at in TRAINED]
            left += [
                (name, experiment) for experiment in remaining(ordered(design), tables[name].done)
            ]
        random.Random(1).shuffle(left)
        for number, (name, experiment) in enumerate(left):
            if self.left() <= 0.0:
                raise RuntimeError("The budget was used up by idle runs; the same command goes on.")
            say(f"idle run {number + 1} of {len(left)}: {name} on {experiment.at}")
            with LocalRunner(self.application(name), self.folder, share=SHARE) as runner:
                measured = runner.run(experiment)
            if measured.seconds is None:
                raise RuntimeError(f"{name} on {experiment.at} failed: {measured.error}")
            tables[name].add(experiment, measured)

    def tables(self) -> dict[str, Runs]:
        """Return the idle runs by program."""
        return {
            name: next(iter(read_table(self.folder / f"{name}.csv").parts.values()))
            for name in self.options.program
        }

    def learn_slowdowns(self) -> None:
        """Profiles of each program, and their models."""
        file = self.folder / "profiled.toml"
        tables = []
        for name in self.options.program:
            for place in PROFILED:
                command = [sys.executable, str(Path(__file__).resolve()), "--inside", name]
                command += [str(value) for value in place]
                tables.append(
                    f"[apps.'{profile_name(name, *place)}']\ncommand = {json.dumps(command)}\n"
                    + "".join(f'env.{key} = "{value}"\n' for key, value in ENV.items())
                    + """metric = { pattern = '"seconds": ([0-9.e+-]+)', unit = "s" }\n"""
                )
        file.write_text("\n".join(tables), encoding="utf-8")
        done = self.folder / "trained.json"
        wanted = [list(self.options.program), [list(place) for place in PROFILED]]
        if done.exists() and json.loads(done.read_text(encoding="utf-8")) == wanted:
            return
        if self.left() <= 0.0:
            raise RuntimeError("The budget was used up by idle runs; the same command goes on.")
        say(f"profiling under inducers, {self.left() / 60.0:.1f} min left")
        report = kongming(
            *("profile", str(file), "--store", self.store, "--dir", str(self.folder), "--json"),
            *("--levels", str(self.options.levels), "--suite", "standard", "--seed", "1"),
            *("--repeats", str(self.options.observations)),
            *("--budget", f"{max(self.left(), 20.0):.1f}s"),
        )
        if not json.loads(report)["complete"]:
            # Its loads come in a random order: half a profile may have no load of the memory.
            raise RuntimeError("The budget was used up by profiles; the same command goes on.")
        say("training")
        for name in self.options.program:
            for place in PROFILED:
                kongming("train", profile_name(name, *place), "--store", self.store)
        done.write_text(json.dumps(wanted), encoding="utf-8")

    def jobs(self, idle: Mapping[str, Runs]) -> list[Job]:
        settings = Settings(read_terms("default", items=None))
        jobs = []
        with Store.open(self.store) as store:
            for name, runs in idle.items():
                models = []
                for place in PROFILED:
                    document = store.model(profile_name(name, *place), "cross-core")
                    if document is None:
                        raise RuntimeError(f"{name} has no model: its profile failed")
                    models.append(read(document))
                jobs.append(Job(name, fit_runs(runs, settings), tuple(models), runs))
        return jobs

    def visit(self, number: int) -> None:
        """One load: the suite, then each program at configurations of its own."""
        load = load_of(number)
        random_ = random.Random(f"rows of visit {number}")
        runs = [
            (name, *place)
            for name in self.options.program
            for place in random_.sample(TESTED, AT_ONCE)
        ]
        random_.shuffle(runs)
        with loaded(load, self.seats.neighbour, self.folder):
            fingerprint = take_fingerprint(cpu=self.cpu, suite="standard", directory=self.folder)
            self.keep("visits.jsonl", {"visit": number, "fingerprint": fingerprint.to_dict()})
            for name, machines, scale in runs:
                experiment = Experiment(Configuration(machines, scale))
                with LocalRunner(self.application(name), self.folder, share=SHARE) as runner:
                    measured = runner.run(experiment)
                if measured.seconds is None:
                    raise RuntimeError(f"{name} on {experiment.at} failed: {measured.error}")
                self.keep(
                    "tested.jsonl",
                    {
                        "visit": number,
                        "load": load,
                        "program": name,
                        "machines": machines,
                        "scale": scale,
                        "seconds": measured.seconds,
                    },
                )

    def keep(self, name: str, row: Mapping[str, Any]) -> None:
        path = self.folder / name
        self.stored_rows(name)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def stored_rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a file, of which a row that was cut off is removed."""
        path = self.folder / name
        if not path.exists():
            return []
        text = path.read_text(encoding="utf-8")
        end = text.rfind("\n") + 1
        if end < len(text):
            path.write_text(text[:end], encoding="utf-8")
        return [json.loads(line) for line in text[:end].splitlines()]

    def measure(self) -> None:
        began = time.monotonic()
        self.learn_scale()
        self.took["idle_runs_s"] = time.monotonic() - began
        began = time.monotonic()
        self.learn_slowdowns()
        self.took["profiles_s"] = time.monotonic() - began
        began = time.monotonic()
        first = number = 1 + max(
            (row["visit"] for row in self.stored_rows("visits.jsonl")), default=-1
        )
        longest = 0.0
        while self.left() > longest:
            started = time.monotonic()
            done = number - first
            say(
                f"visit {number}, {done + 1} of about "
                f"{done + max(1, round(self.left() / longest)) if longest else '?'}: "
                f"{load_of(number) or 'idle'}, {max(self.left(), 0.0) / 60.0:.1f} min left"
            )
            self.visit(number)
            number += 1
            longest = max(longest, time.monotonic() - started)
        self.took["visits_s"] = time.monotonic() - began

    def rows(self) -> list[dict[str, Any]]:
        """Return all runs of visits, with what is predicted for them."""
        fingerprints = {
            row["visit"]: Fingerprint.from_dict(row["fingerprint"])
            for row in self.stored_rows("visits.jsonl")
        }
        jobs = {job.name: job for job in self.jobs(self.tables())}
        return [
            row
            | jobs[row["program"]].predicted(
                Configuration(row["machines"], row["scale"]), fingerprints[row["visit"]]
            )
            for row in self.stored_rows("tested.jsonl")
            if row["program"] in jobs
        ]


def load_of(visit: int) -> str | None:
    """Return the load of a visit: in blocks, each load once in a random order and idle as often, so
    that what the host does meanwhile is in all alike."""
    block, place = divmod(visit, 2 * len(LOADS))
    loads: list[str | None] = [*LOADS, *(None for _ in LOADS)]
    random.Random(f"loads of block {block}").shuffle(loads)
    return loads[place]


def kongming(*arguments: str) -> str:
    """The output of the command of this very Python. Raises RuntimeError with its error output."""
    command = [sys.executable, "-m", "kongming.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode not in (0, 1):
        raise RuntimeError(f"kongming {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


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
    # It ends soon after this process does, even by SIGKILL.
    again = (
        f"while os.getppid() == {os.getpid()}:\n"
        f"    subprocess.run([sys.executable, {str(PARALLEL)!r}, {what!r}, '1', '0.5'])"
    )
    imports = "import os, subprocess, sys"
    command = ["taskset", "-c", str(cpu), sys.executable, "-c", f"{imports}\n{again}"]
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
        command = [sys.executable, str(PARALLEL), name, str(machines), scale]
        if groups.active:
            # The interpreter starts in the group of all machines, as in the tests.
            enter = f'echo $$ > "{groups.together}"; exec "$@"'
            command = ["sh", "-c", enter, "sh", *command]
        began = time.monotonic()
        subprocess.run(command, env=env, check=True)
        print(json.dumps({"seconds": time.monotonic() - began}))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--budget", type=float, default=25.0, help="minutes")
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="repeatable")
    parser.add_argument("--repeats", type=int, default=2, help="idle runs of a configuration")
    parser.add_argument("--levels", type=int, default=12, help="load levels of a profile")
    parser.add_argument("--observations", type=int, default=2, help="of each of these levels")
    parser.add_argument("--keep", type=Path, help="folder to keep and resume from")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        name, machines, scale = options.inside
        inside(name, int(machines), scale)
        return 0
    options.program = sorted(set(options.program or ["pagerank"]))
    # As with Ctrl-C: neighbours and control groups end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="kongming-combined-") as place:
        folder = options.keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, options)
        status = 0
        try:
            if options.budget > 0.0:
                bench.measure()
        except KeyboardInterrupt:
            status = 130
        except (KongmingError, RuntimeError, OSError) as problem:
            say(f"{problem}")
            status = 1
        # What disk probes read, 2 GB, is no measurement.
        for left in folder.glob("kongming-io*"):
            left.unlink()
        try:
            rows = bench.rows()
        except (KongmingError, RuntimeError, OSError) as problem:
            say(f"Nothing can be judged yet: {problem}")
            return status or 1
        document = {
            "programs": {
                name: judged([row for row in rows if row["program"] == name], PAIRS)
                for name in options.program
            },
            "together": judged(rows, PAIRS),
            "trained": [list(configuration) for configuration in TRAINED],
            "profiled": [list(configuration) for configuration in PROFILED],
            "tested": [list(configuration) for configuration in TESTED],
            "took": bench.took,
            "node": {"cpu": bench.node.cpu_model, "cpus": len(bench.node.cpus)},
        }
    print(json.dumps(document, indent=2))
    return status


if __name__ == "__main__":
    sys.exit(main())
