"""Work shared among processes: its order, its errors, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from kongming.learning.training import train_application
from kongming.processes.pool import in_order
from kongming.records.errors import KongmingError, UntrainedError
from kongming.store import Store
from tests import builders
from tests.cli.pool_tasks import ended, first_ends_last, refused, square, waiting
from tests.conftest import Kongming
from tests.models import synthetic
from tests.profiling.processes import eventually

MARK = "KONGMING_TEST_MARK"
WORKER = "popen_loky"
"""In the command line of every worker."""


def _workers(parent: int) -> list[psutil.Process]:
    """Workers of the process, but for those that are zombies."""
    return [
        child
        for child in psutil.Process(parent).children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and WORKER in " ".join(child.cmdline())
    ]


def test_answers_come_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path)) for number in range(7)]
    answers = list(in_order(first_ends_last, tasks, 3))
    assert [(task, square) for task, (square, _) in answers] == [(t, t[0] ** 2) for t in tasks]
    elsewhere = {pid for _, (_, pid) in answers} - {os.getpid()}
    assert len(elsewhere) > 1
    assert not _workers(os.getpid())


def test_one_job_needs_no_other_process() -> None:
    answers = list(in_order(square, range(7), 1))
    assert answers == [(k, (k * k, os.getpid())) for k in range(7)]


def test_one_task_needs_no_other_process() -> None:
    assert list(in_order(square, [4], 8)) == [(4, (16, os.getpid()))]
    assert list(in_order(square, [], 8)) == []


def test_tasks_are_taken_when_they_are_needed() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    with closing(in_order(square, tasks(), 2)) as answers:
        next(answers)
        assert len(taken) <= 5
    assert not _workers(os.getpid())


def test_an_error_is_raised_here_and_ends_the_others() -> None:
    answers = in_order(refused, range(9), 2)
    assert [next(answers) for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(UntrainedError, match=r"No third\. Take the second\."):
        next(answers)
    assert not _workers(os.getpid())


def test_a_process_that_was_killed_is_reported() -> None:
    with pytest.raises(KongmingError, match="--jobs 1"):
        list(in_order(ended, range(9), 2))
    assert not _workers(os.getpid())


def test_large_tasks_that_nobody_reads_any_more_do_not_hold_up_the_end() -> None:
    size = 4 << 20
    answers = in_order(waiting, [(0.0, bytes(size)), *[(600.0, bytes(size))] * 7], 2)
    _, length = next(answers)
    assert length == size
    answers.close()
    assert not _workers(os.getpid())


@pytest.fixture
def profiled(store_url: str) -> list[str]:
    """Four applications of a dozen runs each."""
    names = [f"program-{k}" for k in range(4)]
    with Store.open(store_url) as store:
        store.put_node(builders.node())
        for k, name in enumerate(names):
            powers = {"memory.random.128M": 0.2 * k, "iobench.write.4M": 0.3}
            store.add_all(
                runs=synthetic.campaign(name, powers, seed=k, intensities=(1.0,), solos=3),
                signatures=[],
            )
    return names


def trained(name: str) -> dict[str, Any]:
    runs = synthetic.campaign(name, {"memory.random.128M": 0.4}, intensities=(1.0,), solos=3)
    return _without_time(train_application(runs, models=("LM.GA", "CART")))


@pytest.mark.thorough
def test_a_model_is_the_same_from_any_process() -> None:
    serial, parallel = (list(in_order(trained, ["first", "second"], jobs)) for jobs in (1, 2))
    assert serial == parallel


@pytest.mark.thorough
def test_models_do_not_depend_on_how_many_processes_train_them(
    profiled: list[str], store_url: str, kongming: Kongming
) -> None:
    documents: list[list[dict[str, Any]]] = []
    for jobs in ("1", "2"):
        done = kongming("train", *profiled[:2], "--jobs", jobs, "--json")
        assert done.returncode == 0, done.stderr
        with Store.open(store_url) as store:
            models = [store.model(name, "cross-core") for name in profiled[:2]]
        documents.append([_without_time(document) for document in models])
    assert documents[0] == documents[1]


def _without_time(document: dict[str, Any] | None) -> dict[str, Any]:
    assert document is not None
    return {k: v for k, v in document.items() if k not in ("trained_at", "checksum")}


def test_jobs_must_be_one_or_more(kongming: Kongming) -> None:
    assert kongming("train", "--jobs", "0").returncode == 2


@pytest.mark.parametrize(
    ("ending", "status"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.thorough)],
)
def test_training_that_is_stopped_leaves_nothing_behind(
    ending: signal.Signals,
    status: int,
    profiled: list[str],
    kongming_env: dict[str, str],
    tmp_path: Path,
) -> None:
    command, mark = _training(kongming_env, tmp_path)
    if ending == signal.SIGINT:
        # As a terminal does: to every process of the command.
        os.killpg(command.pid, ending)
    else:
        command.send_signal(ending)
    try:
        _, errors = command.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(command.pid, signal.SIGKILL)
        command.communicate()
        raise
    assert command.returncode == status, errors
    assert "Traceback" not in errors
    assert eventually(lambda: not _marked(mark))


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_training_that_is_killed_leaves_nothing_behind(
    workers: int,
    profiled: list[str],
    kongming_env: dict[str, str],
    tmp_path: Path,
) -> None:
    """At work, and while its workers are starting: they see that it is gone once they can."""
    command, mark = _training(kongming_env, tmp_path, workers)
    command.kill()
    command.communicate(timeout=60)
    assert eventually(lambda: not _marked(mark))


def _training(
    env: dict[str, str], folder: Path, workers: int = 2
) -> tuple[subprocess.Popen[str], str]:
    """The command as a terminal runs it, once so many processes share its work."""
    mark = uuid.uuid4().hex
    command = subprocess.Popen(
        [sys.executable, "-m", "kongming.cli.main", "train", "--jobs", "2"],
        cwd=folder,
        env=env | {MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert eventually(lambda: sum(WORKER in words for words in _marked(mark)) >= workers, 60.0)
    except BaseException:
        os.killpg(command.pid, signal.SIGKILL)
        command.communicate()
        raise
    return command, mark


def _marked(mark: str) -> list[str]:
    command_lines = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                command_lines.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return command_lines
