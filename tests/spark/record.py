"""Record the logs in ``logs/`` anew, or one log for a test.

    python -m tests.spark.record --python PYTHON_WITH_PYSPARK [--label spark-4] [NAME...]

Logs are written without what identifies the machine: of settings those that matter, no class path,
no stack traces, no addresses. Moments and sizes stay as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import zstandard

__all__ = ["LOGS", "SETTINGS", "log_of", "main", "sanitised"]

LOGS = Path(__file__).resolve().parent / "logs"

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,640]"

TWO_HOSTS = "spark://127.0.0.1"
"""A master and workers of two addresses: no task is copied to the host that it runs on, and the
workers of a local cluster have one."""

SETTINGS: dict[str, tuple[str, dict[str, str]]] = {
    "queries": (LOCAL, {}),
    "cache": (
        LOCAL,
        {
            "spark.eventLog.logBlockUpdates.enabled": "true",
            "spark.eventLog.logStageExecutorMetrics": "true",
        },
    ),
    "pools": (LOCAL, {"spark.scheduler.mode": "FAIR"}),
    "streaming": (LOCAL, {"spark.sql.shuffle.partitions": "3"}),
    "dynamic": (
        CLUSTER,
        {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": "2",
            "spark.dynamicAllocation.executorIdleTimeout": "2s",
        },
    ),
    "barrier": (CLUSTER, {}),
    "failures": ("local[2,3]", {}),
    "killed_executor": (
        CLUSTER,
        # Three times five seconds of waiting for what is lost show nothing more.
        {"spark.shuffle.io.maxRetries": "1", "spark.shuffle.io.retryWait": "1s"},
    ),
    "killed_driver": (LOCAL, {}),
    "speculation": (
        TWO_HOSTS,
        {
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "2m",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.5",
        },
    ),
    "rolling": (
        LOCAL,
        {
            "spark.eventLog.rolling.enabled": "true",
            "spark.eventLog.rolling.maxFileSize": "10m",
            "spark.sql.shuffle.partitions": "200",
            "spark.sql.adaptive.enabled": "false",
        },
    ),
}
"""The master and the settings of each application of workload.py."""


def log_of(name: str, python: str, folder: Path, more: Mapping[str, str] | None = None) -> Path:
    """Run an application of workload.py and return the folder that its log is in.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    master, settings = SETTINGS.get(name, (LOCAL, {}))
    logs = folder / "events"
    logs.mkdir(parents=True)
    with ExitStack() as stack:
        if master == TWO_HOSTS:
            master = stack.enter_context(_two_hosts(python, folder))
        _run(
            python,
            [name],
            folder,
            {
                "spark.master": master,
                "spark.eventLog.enabled": "true",
                "spark.eventLog.compress": "false",
                "spark.eventLog.dir": logs.as_uri(),
                **settings,
                **(more or {}),
            },
        )
    return logs


@contextmanager
def _two_hosts(python: str, folder: Path) -> Iterator[str]:
    """Start a master and two workers of a core each, and give the master's address."""
    [home] = Path(python).parent.parent.glob("lib/python3*/site-packages/pyspark")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    master = f"{TWO_HOSTS}:{port}"
    worker = ("worker.Worker", "--cores", "1", "--memory", "640m", "--webui-port", "0", master)
    commands = [
        ("master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0"),
        *((*worker, "--host", f"127.0.0.{number}") for number in (1, 2)),
    ]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}",
    }
    processes = []
    try:
        for command in commands:
            words = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{command[0]}"]
            processes.append(
                subprocess.Popen(
                    [*words, *command[1:]],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        yield master
    finally:
        # A worker's executors are in its session.
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _run(python: str, words: list[str], folder: Path, settings: Mapping[str, str]) -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "640m",
        "spark.executor.memory": "512m",
        "spark.kongming.scratch": str(folder),
        **settings,
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    environment = os.environ | {
        "PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"]),
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "SPARK_USER": "user",
        # A JVM that is killed leaves its native libraries there.
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}",
    }
    # Where it is set for another Spark.
    environment.pop("SPARK_HOME", None)
    subprocess.run(
        [python, str(Path(__file__).with_name("workload.py")), *words],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        timeout=300,
    )


# -- without what identifies the machine

_COPIED_SETTINGS = re.compile(
    r"spark\.(master|app\.id|executor\.|task\.|cores|default|dynamicAllocation|eventLog\.|memory\."
    r"|scheduler|speculation|sql\.(shuffle|adaptive|files)|driver\.memory)"
)
_DROPPED = ("Details", "Callsite", "Scope", "Log Urls", "Attributes", "Stack Trace", "details")
_PLANS = ("physicalPlanDescription", "sparkPlanInfo", "Full Stack Trace", "Description")
_PLACES = re.compile(r"(?:file:)?/[\w./-]+/(?=[\w.]+)|\b\d+\.\d+\.\d+\.\d+\b")


def sanitised(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of a log without paths, addresses, stack traces, plans and most settings. What a killed
    driver left of its last line stays cut where it is."""
    for line in lines:
        if line.strip():
            try:
                event = _clean(json.loads(line))
            except json.JSONDecodeError:
                yield _PLACES.sub("", line.decode(errors="ignore")).encode()
                continue
            if event["Event"] == "SparkListenerEnvironmentUpdate":
                properties = event["Spark Properties"]
                event = {
                    "Event": event["Event"],
                    "Spark Properties": {
                        key: "file:///logs" if key == "spark.eventLog.dir" else value
                        for key, value in properties.items()
                        if _COPIED_SETTINGS.match(key)
                    },
                }
            yield json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _clean(value: object) -> object:  # type: ignore[misc]
    if isinstance(value, dict):
        cleaned = {}
        for key, inner in value.items():
            if key in _DROPPED:
                continue
            if key in _PLANS:
                adaptive = "AdaptiveSparkPlan" in json.dumps(inner)
                cleaned[key] = "AdaptiveSparkPlan" if adaptive else ""
            elif key == "Accumulables":
                # Of each task only as many as show their form.
                cleaned[key] = _clean(inner[:2])
            elif key == "Host":
                cleaned[key] = "localhost"
            else:
                cleaned[key] = _clean(inner)
        return cleaned
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    return _PLACES.sub("", value) if isinstance(value, str) else value


def _keep(name: str, label: str, logs: Path) -> list[Path]:
    """Write the files of a log below ``LOGS``, compressed; a rolling log stays a folder."""
    written = []
    for file in sorted(path for path in logs.rglob("*") if path.is_file()):
        if file.name.startswith((".", "appstatus")):
            continue
        content = b"".join(sanitised(file.read_bytes().splitlines()))
        if name == "rolling":
            target = LOGS / f"{label}-rolling" / file.parent.name / f"{file.name}.zstd"
        else:
            ending = ".inprogress" if file.name.endswith(".inprogress") else ""
            target = LOGS / f"{label}-{name.replace('_', '-')}.zstd{ending}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(zstandard.ZstdCompressor(level=19).compress(content))
        written.append(target)
    return written


def _pack(python: str, label: str, folder: Path) -> None:
    """The log of the queries with each codec, by Spark's own libraries."""
    content = zstandard.decompress((LOGS / f"{label}-queries.zstd").read_bytes())
    (folder / "plain").write_bytes(content)
    _run(python, ["compress", str(folder / "plain")], folder, {"spark.master": LOCAL})
    (LOGS / "codecs").mkdir(exist_ok=True)
    for file in folder.glob("plain.*"):
        (LOGS / "codecs" / f"{label}-{file.suffix[1:]}").write_bytes(file.read_bytes())


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.record", description=__doc__)
    parser.add_argument("--python", required=True, help="a Python that has PySpark")
    parser.add_argument("--label", default="spark-4")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of " + ", ".join(SETTINGS))
    options = parser.parse_args(argv)
    for name in options.names or [*SETTINGS, "codecs"]:
        with tempfile.TemporaryDirectory() as scratch:
            if name == "codecs":
                _pack(options.python, options.label, Path(scratch))
                continue
            logs = log_of(name, options.python, Path(scratch))
            for path in _keep(name, options.label, logs):
                sys.stdout.write(f"{path.relative_to(LOGS)} {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
