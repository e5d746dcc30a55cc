"""Experiments on real machines: a Slurm job or a Kubernetes Job for each. Waiting in a queue is not
run time: the job itself reports when it began and ended.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from kongming.campaigns.local_machines import filled, refuse_service
from kongming.records import moments
from kongming.records.application import SCRATCH, Application, Command
from kongming.records.errors import ApplicationRunError, InputError, MeasurementError
from kongming.scale.design.experiments import Experiment, Measured

QUEUE_S = 86_400.0
"""Maximum wait of an experiment for its machines."""

_POLL_S = 1.0
_POLLS_LOST = 30
"""Questions after a job in a row that may fail, as when a control plane is upgraded: the job goes
on meanwhile."""

_SECONDS = re.compile(r"^kongming seconds ([0-9.]+)$", re.MULTILINE)


def shell_line(command: Command) -> str:
    """Return a command as one line of a shell."""
    return command if isinstance(command, str) else shlex.join(command)


def ranked_line(command: Command, variable: str) -> str:
    """Return a command as one line of a shell, which finds its {rank} in this variable."""
    if isinstance(command, str):
        # In braces: what follows may be a part of a name.
        return command.replace("{rank}", f"${{{variable}}}")
    # What is quoted would stay as it is.
    return " ".join(
        f'"${variable}"'.join(map(shlex.quote, part.split("{rank}"))) for part in command
    )


def timed_script(app: Application, experiment: Experiment) -> str:
    """Return a batch script that starts the command on each machine with ``srun`` and prints the
    seconds.

    A command with {rank} finds it in SLURM_PROCID; any other runs once, on the first node, and
    finds its nodes in Slurm's own variables.
    """
    ranked = app.ranked
    line = ranked_line(filled(app.command, experiment), "SLURM_PROCID")
    steps = [
        shell_line(filled(part, experiment))
        for part in (app.setup, app.prepare)
        if part is not None
    ]
    exports = [f"export {key}={shlex.quote(value)}" for key, value in app.env.items()]
    start = f"srun --ntasks={experiment.machines} sh -c {shlex.quote(line)}" if ranked else line
    return "\n".join(
        [
            "#!/bin/sh",
            "set -e",
            *exports,
            *([] if app.workdir is None else [f"cd {shlex.quote(app.workdir)}"]),
            *steps,
            "begin=$(date +%s.%N)",
            start,
            "end=$(date +%s.%N)",
            'echo "kongming seconds $(echo "$end $begin" | awk \'{printf "%.6f", $1 - $2}\')"',
            "",
        ]
    )


class _Cluster:
    """Raises InputError for an application that a cluster cannot run and time as this node does:
    its runs would be of something else."""

    def __init__(self, app: Application) -> None:
        refuse_service(app)
        for name, command in self._commands(app):
            if SCRATCH in shell_line(command):
                raise InputError(
                    f"has {SCRATCH}, which only a run on this node has.",
                    field=f"apps.{app.name}.{name}",
                    hint="Name a folder that each machine has.",
                )
        self._app = app

    def _commands(self, app: Application) -> Iterator[tuple[str, Command]]:
        for name in ("command", "setup", "prepare"):
            command: Command | None = getattr(app, name)
            if command is not None:
                yield name, command

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to clean up: each run removes its files."""


class SlurmRunner(_Cluster):
    """Runs experiments by ``sbatch --wait`` with as many nodes as machines. Raises
    MeasurementError where Slurm's controller does not answer."""

    def run(self, experiment: Experiment) -> Measured:
        started_at = moments.now()
        with tempfile.TemporaryDirectory(prefix="kongming-scale-", dir=Path.cwd()) as folder:
            script, output = Path(folder) / "job.sh", Path(folder) / "out"
            script.write_text(timed_script(self._app, experiment), encoding="utf-8")
            minutes = max(1, round(self._app.timeout_s / 60.0 + 0.5))
            try:
                _wait_for_job(
                    [
                        "sbatch",
                        "--wait",
                        "--parsable",
                        f"--nodes={experiment.machines}",
                        "--ntasks-per-node=1",
                        f"--time={minutes}",
                        f"--job-name=kongming-{self._app.name}",
                        f"--output={output}",
                        str(script),
                    ],
                    QUEUE_S,
                )
            except ApplicationRunError as error:
                _require_answer(["scontrol", "ping"], error)
                tail = output.read_text(errors="replace")[-500:] if output.exists() else ""
                return Measured(None, "slurm", started_at, f"{error} {tail}".strip())
            text = output.read_text(errors="replace") if output.exists() else ""
        lines = _SECONDS.findall(text)
        if not lines:
            return Measured(None, "slurm", started_at, "the job did not report its run time.")
        if (problem := _unchecked(self._app, _SECONDS.sub("", text))) is not None:
            return Measured(None, "slurm", started_at, problem)
        return Measured(float(lines[-1]), "slurm", started_at)


class KubernetesRunner(_Cluster):
    """Runs experiments as indexed Jobs with as many pods as machines. The run time is that of the
    cluster's status, in whole seconds. Raises MeasurementError where the cluster does not answer.
    """

    def __init__(self, app: Application, image: str) -> None:
        super().__init__(app)
        for name, _ in self._commands(app):
            if name != "command":
                raise InputError(
                    "is not run in a pod, of which all is timed.",
                    field=f"apps.{app.name}.{name}",
                    hint="Put what it prepares into the image.",
                )
        self._image = image

    def run(self, experiment: Experiment) -> Measured:
        started_at = moments.now()
        name = f"kongming-{re.sub('[^a-z0-9-]', '-', self._app.name.lower())}"
        # Another one each time: pods of an earlier job may still be there.
        name = f"{name[:40]}-{experiment.machines}-{uuid.uuid4().hex[:8]}".strip("-")
        manifest = json.dumps(job_manifest(self._app, experiment, name, self._image))
        problem: str | None = None
        try:
            _call(["kubectl", "apply", "-f", "-"], 60.0, given=manifest)
            try:
                _wait_for_pods(name, self._app.timeout_s + 600.0)
                pods = _call(["kubectl", "get", "pods", "-l", f"job-name={name}", "-o", "json"], 60)
                if self._app.check is not None:
                    logs = _call(["kubectl", "logs", "-l", f"job-name={name}", "--tail=-1"], 60.0)
                    problem = _unchecked(self._app, logs)
            finally:
                _call(["kubectl", "delete", "job", name, "--ignore-not-found"], 120.0)
        except ApplicationRunError as error:
            _require_answer(["kubectl", "get", "--raw", "/version"], error)
            return Measured(None, "kubernetes", started_at, str(error))
        if problem is not None:
            return Measured(None, "kubernetes", started_at, problem)
        seconds = pod_seconds(json.loads(pods))
        problem = None if seconds is not None else "the pods have no start and end times."
        return Measured(seconds, "kubernetes", started_at, problem)


def job_manifest(app: Application, experiment: Experiment, name: str, image: str) -> dict[str, Any]:
    """A Job of ``batch/v1``: {rank} is the completion index; without it there is one pod, which
    gets the number of machines."""
    ranked = app.ranked
    pods = experiment.machines if ranked else 1
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(app.timeout_s + 600),
            # Of a command that was killed nobody deletes it.
            "ttlSecondsAfterFinished": 3600,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    # A measured program never speaks to the Kubernetes API.
                    "automountServiceAccountToken": False,
                    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [
                        {
                            "name": "machine",
                            "image": image,
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "command": [
                                "/bin/sh",
                                "-c",
                                ranked_line(
                                    filled(app.command, experiment), "JOB_COMPLETION_INDEX"
                                ),
                            ],
                            **({} if app.workdir is None else {"workingDir": app.workdir}),
                            "env": [
                                {"name": key, "value": value} for key, value in app.env.items()
                            ],
                        }
                    ],
                }
            },
        },
    }


def pod_seconds(document: Any) -> float | None:
    """Return the seconds from the first container's start to the last one's end; None if
    unknown.
    """
    begun, ended = [], []
    for pod in document.get("items", []):
        for status in pod.get("status", {}).get("containerStatuses", []):
            last = status.get("state", {}).get("terminated", {})
            if last.get("startedAt") and last.get("finishedAt"):
                begun.append(moments.parse(last["startedAt"], "startedAt"))
                ended.append(moments.parse(last["finishedAt"], "finishedAt"))
    if not begun:
        return None
    seconds = (max(ended) - min(begun)).total_seconds()
    return seconds if seconds > 0.0 else None


def _wait_for_pods(name: str, timeout_s: float) -> None:
    """Wait for the end of a Job. ``kubectl wait`` for one that is complete goes on to wait for one
    that has failed.

    Raises:
        ApplicationRunError: it failed, or did not end in time.
    """
    deadline = time.monotonic() + timeout_s
    lost, job = 0, {}
    while True:
        try:
            job = json.loads(_call(["kubectl", "get", "job", name, "-o", "json"], 60.0))
            lost = 0
        except ApplicationRunError:
            lost += 1
            if lost > _POLLS_LOST:
                raise
        for condition in job.get("status", {}).get("conditions") or []:
            if condition.get("status") != "True":
                continue
            if condition.get("type") == "Complete":
                return
            if condition.get("type") == "Failed":
                logs = ""
                # Of a pod that never began there are none.
                with contextlib.suppress(ApplicationRunError):
                    logs = _call(["kubectl", "logs", "-l", f"job-name={name}", "--tail=20"], 60.0)
                raise ApplicationRunError(
                    f"the job failed: {condition.get('message', 'no reason given')} The end of its "
                    f"output: {logs[-500:].strip()}"
                )
        if time.monotonic() >= deadline:
            raise ApplicationRunError(f"the job did not end within {timeout_s:g} s.")
        time.sleep(_POLL_S)


def _unchecked(app: Application, text: str) -> str | None:
    """Return why the output of a job is not that of a success; None if it is."""
    if app.accepts(text):
        return None
    return f"nothing in the output matches its check {app.check!r}. Its end: {text[-500:].strip()}"


def _wait_for_job(argv: list[str], timeout_s: float) -> None:
    """Submit a job and wait for its end; it is cancelled when the wait ends early (Ctrl-C, or
    after ``timeout_s``): Slurm would run it all the same.

    Raises:
        ApplicationRunError: it could not be submitted, failed, or took too long.
    """
    number, ended = "", False
    with (
        _explained(argv, timeout_s),
        subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process,
    ):
        try:
            assert process.stdout is not None
            number = process.stdout.readline().partition(";")[0].strip()
            _, problem = process.communicate(timeout=timeout_s)
            ended = True
        finally:
            if not ended:
                process.kill()
                if number.isdigit():
                    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                        subprocess.run(
                            ["scancel", number], capture_output=True, timeout=60.0, check=False
                        )
    _check_status(argv, process.returncode, problem or number)


def _call(argv: list[str], timeout_s: float, given: str | None = None) -> str:
    """Return the output of a command. Raises ApplicationRunError if it is missing, fails or takes
    too long.
    """
    with _explained(argv, timeout_s):
        done = subprocess.run(
            argv,
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    _check_status(argv, done.returncode, done.stderr or done.stdout)
    return done.stdout


@contextlib.contextmanager
def _explained(argv: list[str], timeout_s: float) -> Iterator[None]:
    """Raise ApplicationRunError where a command is missing or takes too long."""
    try:
        yield
    except FileNotFoundError as error:
        raise ApplicationRunError(f"{argv[0]} is not installed here.") from error
    except subprocess.TimeoutExpired as error:
        raise ApplicationRunError(f"{argv[0]} did not end within {timeout_s:g} s.") from error


def _require_answer(question: list[str], failure: ApplicationRunError) -> None:
    """Raise MeasurementError for a ``failure`` where the cluster itself does not answer: it says
    nothing of the program, and is no run."""
    try:
        _call(question, 60.0)
    except ApplicationRunError as error:
        raise MeasurementError(
            f"The cluster does not answer: {failure} {' '.join(question)}: {error}",
            hint="No run was recorded for it; once the cluster answers, the same command goes on.",
        ) from error


def _check_status(argv: list[str], status: int, printed: str) -> None:
    if status != 0:
        raise ApplicationRunError(f"{argv[0]} failed ({status}): {printed.strip()[-500:]}")
