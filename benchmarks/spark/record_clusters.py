"""Record Spark's event logs on real clusters of 1 to 8 executors, on one machine.

    python -m benchmarks.spark.record_clusters --spark VENV --data FOLDER --out FOLDER
        [--program NAME]... [--sizes 1,2,4,8] [--repeats 3] [--log PROGRAM-SIZE-REPEAT]...

A standalone master and eight workers run for as long as the recording; each executor is a process
in a control group with a fifth of a CPU. Programs, sizes and repeats are interleaved, so that a
busy quarter of an hour hits all of them. Logs are kept without what identifies the machine. What is
recorded already is not run again: the same command goes on where it was stopped. VENV has PySpark;
FOLDER has the tables of TPC-H:

    tpchgen-cli parquet -s 0.3 --output-dir=FOLDER

It changes nothing but control groups of its own, which end with it, as do all of Spark's processes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

import zstandard

from kongming.campaigns.local_machines import MachineGroups
from kongming.spark.reading.codecs import decompressed
from tests.spark.record import sanitised

HERE = Path(__file__).resolve().parent
PROGRAMS = ("tpch", "sort", "cached", "threads", "windows", "words")
FIRST = "threads"
"""The program that is run once for nothing, when a cluster is new."""
WORKERS = 8
SHARE = 0.2
_LOG = re.compile(rf"({'|'.join(PROGRAMS)})-[1-{WORKERS}]-\d+")

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.memory": "1g",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.network.timeout": "600s",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.ui.enabled": "false",
    # Reduces by hand what a cluster of eight small executors would not use.
    "spark.sql.shuffle.partitions": "32",
    "spark.sql.files.maxPartitionBytes": "4m",
}


class Java:
    """Folders whose ``bin/java`` enters a control group and becomes the real one: Spark starts
    executors by the JAVA_HOME of their worker."""

    def __init__(self, folder: Path) -> None:
        java = shutil.which("java")
        if java is None:
            raise SystemExit("There is no java on the PATH.")
        self.real = Path(java).resolve()
        self._folder = folder

    def home(self, rank: int, procs: Path) -> Path:
        home = self._folder / f"java{rank}"
        script = home / "bin" / "java"
        script.parent.mkdir(parents=True)
        script.write_text(f'#!/bin/sh\necho $$ > {procs}\nexec {self.real} "$@"\n')
        script.chmod(0o755)
        return home


@contextmanager
def cluster(spark: Path, folder: Path) -> Iterator[str]:
    """Start a master and the workers; yields the master's address."""
    with ExitStack() as stack:
        groups = stack.enter_context(MachineGroups(WORKERS, SHARE))
        if not groups.active:
            raise SystemExit(f"No control groups: {groups.reason}")
        java = Java(folder)
        port = _free_port()
        classes = ["-cp", f"{spark / 'jars'}/*"]
        here = "127.0.0.1"
        scala = next((spark / "jars").glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]
        env = dict(
            os.environ,
            SPARK_LOCAL_IP=here,
            SPARK_HOME=str(spark),
            SPARK_SCALA_VERSION=scala,
        )

        def start(name: str, env: dict[str, str], *args: str) -> None:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [str(java.real), "-Xmx256m", *_OPENS, *classes, *args],
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_end, process)

        package = "org.apache.spark.deploy"
        start(
            "master",
            env,
            *(f"{package}.master.Master", "--host", here, "--port", str(port)),
            *("--webui-port", "0"),
        )
        _await_port(port)
        for rank in range(WORKERS):
            home = java.home(rank, groups.machine(rank))
            start(
                f"worker{rank}",
                dict(env, JAVA_HOME=str(home), SPARK_WORKER_DIR=str(folder / f"work{rank}")),
                *(f"{package}.worker.Worker", "--host", here, "--cores", "1", "--memory", "700m"),
                *("--webui-port", "0", f"spark://{here}:{port}"),
            )
        yield f"spark://{here}:{port}"


_OPENS = (
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)


def run(
    python: Path,
    spark: Path,
    master: str,
    program: str,
    size: int,
    data: Path,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Run a program on ``size`` executors; returns its log without what identifies the machine.
    Further ``settings`` go before those of all recordings."""
    with tempfile.TemporaryDirectory() as logs:
        settings = {
            **SETTINGS,
            **settings,
            "spark.cores.max": str(size),
            "spark.eventLog.dir": f"file://{logs}",
        }
        command = [str(spark / "bin" / "spark-submit"), "--master", master]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        command += [str(HERE / "programs" / "programs.py"), program, str(data)]
        env = dict(
            os.environ,
            SPARK_HOME=str(spark),
            SPARK_LOCAL_IP="127.0.0.1",
            PYSPARK_PYTHON=str(python),
            PYSPARK_DRIVER_PYTHON=str(python),
        )
        process = subprocess.Popen(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=3600)
        finally:
            _end(process)
        if process.returncode:
            raise SystemExit(f"{program} on {size} executors failed:\n{output[-3000:]}")
        (log,) = Path(logs).iterdir()
        with log.open("rb") as file:
            content = b"".join(decompressed(file))
        return b"".join(sanitised(content.splitlines()))


def keep(content: bytes, out: Path) -> None:
    """Write a log next to its place and rename it, so that a file of its name is complete."""
    partial = out.with_name(f".{out.name}.partial")
    partial.write_bytes(zstandard.ZstdCompressor(level=19).compress(content))
    partial.rename(out)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _await_port(port: int) -> None:
    for _ in range(300):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise SystemExit("The master did not start.")


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End a process and its children, which are in a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=15)
            break
        except subprocess.TimeoutExpired:
            continue


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spark", type=Path, required=True, help="A venv with PySpark.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--program", action="append", choices=PROGRAMS)
    parser.add_argument("--sizes", default="1,2,3,4,6,8")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--log",
        action="append",
        metavar="PROGRAM-SIZE-REPEAT",
        help="Record this one, as tpch-8-1; all that are given, in their order, and no others.",
    )
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    names = options.log or [
        f"{program}-{size}-{repeat}"
        for repeat in range(options.repeats)
        for size in sizes
        for program in options.program or PROGRAMS
    ]
    for name in names:
        if not _LOG.fullmatch(name):
            parser.error(
                f"{name} is no log: PROGRAM-SIZE-REPEAT, of {', '.join(PROGRAMS)}, on 1 to "
                f"{WORKERS} executors."
            )
    options.out.mkdir(parents=True, exist_ok=True)
    python = options.spark.absolute() / "bin" / "python"
    spark = next(options.spark.absolute().glob("lib/python*/site-packages/pyspark"))
    left = [out for name in names if not (out := options.out / f"{name}.zstd").exists()]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not left:
        print("All are recorded.")
        return
    data = options.data.absolute()
    with tempfile.TemporaryDirectory() as folder, cluster(spark, Path(folder)) as master:
        # What runs first on a new cluster takes half a minute longer than it would later: the
        # system reads Java and Spark from the disk.
        run(python, spark, master, FIRST, WORKERS, data)
        for number, out in enumerate(left):
            program, size, _ = out.stem.split("-")
            began = time.monotonic()
            keep(run(python, spark, master, program, int(size), data), out)
            seconds = time.monotonic() - began
            print(f"{number + 1}/{len(left)} {out.name}: {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
