"""A Dask scheduler in this process, and workers as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import distributed

from tests.server.process import python_path


@dataclass(frozen=True)
class DaskCluster:
    client: Any
    workers: Mapping[str, subprocess.Popen[bytes]]


@contextmanager
def dask_cluster(folder: Path, *names: str, stealing: bool = False) -> Iterator[DaskCluster]:
    """One worker with one thread for each node, which its resource names. With ``stealing``, as by
    Dask's default, idle workers take over what waits for others."""
    workers: dict[str, subprocess.Popen[bytes]] = {}
    with warnings.catch_warnings():
        # Of its own making: sockets that it closes late.
        warnings.simplefilter("ignore")
        with (
            dask.config.set(
                {
                    "temporary-directory": str(folder),
                    "distributed.scheduler.work-stealing": stealing,
                }
            ),
            distributed.LocalCluster(
                n_workers=0, processes=False, protocol="tcp://", dashboard_address=None
            ) as scheduler,
            distributed.Client(scheduler) as client,
        ):
            try:
                for name in names:
                    workers[name] = subprocess.Popen(
                        [
                            *(sys.executable, "-m", "distributed.cli.dask_worker"),
                            *(scheduler.scheduler_address, "--no-nanny", "--no-dashboard"),
                            *("--nthreads", "1", "--resources", f"kongming:{name}=1"),
                            *("--local-directory", str(folder)),
                        ],
                        env=os.environ | {"PYTHONPATH": python_path()},
                        stderr=(folder / f"{name}.log").open("wb"),
                    )
                client.wait_for_workers(len(names), timeout=100)
                yield DaskCluster(client, workers)
            finally:
                for worker in workers.values():
                    worker.kill()
                for worker in workers.values():
                    worker.wait()
