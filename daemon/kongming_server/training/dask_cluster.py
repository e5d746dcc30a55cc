"""A Dask cluster: where it is by the settings, and fitting on it by text alone.

On other machines it is reached over TLS only. Dask's protocol carries pickled objects, so that a
machine of the cluster, or whoever is between, could run code in a process that speaks it; and the
process here has the store's password. What speaks it is a process of its own (``dask_client``): it
is given texts to fit and returns texts, it unpickles nothing, its environment holds no credentials,
and where it is started as root it becomes the user nobody before it connects.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kongming.addresses import resolves_to_loopback
from kongming.records.errors import InputError, MissingExtraError, UnavailableError
from kongming_server.configuration.settings import Training

_FILES = ("dask_ca", "dask_cert", "dask_key")

_ENVIRONMENT = ("LANG", "LC_ALL", "PATH", "PYTHONPATH", "TMPDIR", "TZ")
"""Variables that the process keeps; those of numerical libraries' threads besides."""

_PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Dask cluster: the scheduler's ``address``, and for tls:// the PEM texts of the authority,
    and of the certificate and key that are shown to it."""

    address: str
    ca: str = ""
    cert: str = ""
    key: str = field(default="", repr=False)

    def texts(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}


def check_cluster(settings: Training) -> None:
    """Check that ``training.dask`` and its files fit together.

    Raises:
        InputError: an address that is none, plain TCP to another machine, or a file is missing.
    """
    if not settings.dask:
        return
    scheme, separator, rest = settings.dask.partition("://")
    host = rest.rpartition(":")[0]
    if not separator or scheme not in ("tcp", "tls") or not host:
        raise InputError(
            "is not an address.",
            field="training.dask",
            value=settings.dask,
            allowed="tls://HOST:PORT, or tcp://HOST:PORT on loopback",
        )
    if scheme == "tcp" and not resolves_to_loopback(host):
        raise InputError(
            "is on another machine, and nothing says that it is the cluster which answers.",
            field="training.dask",
            value=settings.dask,
            allowed="tls://HOST:PORT, or tcp://HOST:PORT on loopback",
            hint="Start Dask with TLS and give training.dask_ca, dask_cert and dask_key.",
        )
    if scheme == "tls":
        for name in _FILES:
            if not getattr(settings, name):
                raise InputError(
                    "is missing: tls:// needs an authority, a certificate and its key.",
                    field=f"training.{name}",
                )


def cluster_of(settings: Training) -> Cluster | None:
    """The cluster with its certificates, None without one.

    Raises:
        InputError: as ``check_cluster``, or a file cannot be read.
    """
    check_cluster(settings)
    if not settings.dask:
        return None
    if settings.dask.startswith("tcp://"):
        return Cluster(settings.dask)
    texts = []
    for name in _FILES:
        path = Path(getattr(settings, name))
        try:
            texts.append(path.read_text(encoding="ascii"))
        except (OSError, UnicodeError) as error:
            raise InputError(
                f"{path} cannot be read: {error}.", field=f"training.{name}"
            ) from error
    return Cluster(settings.dask, *texts)


class DaskFitting:
    """A client of the Dask cluster. The cluster's machines need this package.

    Raises:
        MissingExtraError: Dask is not installed.
        UnavailableError: nothing answers there.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._address = cluster.address
        self._waiting: dict[int, Future[str]] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._ended = False
        self._process = _start()
        first = self._say(cluster.texts()) and self._hear()
        if not first or "error" in first:
            self._process.kill()
            self._process.communicate()
            if first and first.get("missing"):
                raise MissingExtraError("Training on a cluster", "dask", "distributed")
            reason = first["error"] if first else "the process that speaks to it has ended"
            raise UnavailableError(
                f"The Dask scheduler at {self._address} does not answer: {reason}.",
                hint="Start it, or train here: leave out --dask.",
            )
        self._threads = int(first["threads"])
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Id of the process that speaks to the cluster."""
        return self._process.pid

    def close(self) -> None:
        """End that process; what it was asked for is lost."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._listener.join()

    def threads(self) -> int:
        """Threads of all the cluster's workers when it was connected to; 1 where it had none."""
        return self._threads

    def fit(self, text: str) -> str:
        """``fit_text``, on one of the cluster's workers. For any thread.

        Raises:
            UnavailableError: the cluster lost it.
        """
        future: Future[str] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
            if self._ended or not self._say({"id": number, "text": text}):
                self._waiting.pop(number)
                future.set_exception(_Lost("the process that speaks to it has ended"))
        try:
            return future.result()
        except _Lost as error:
            raise UnavailableError(
                f"The Dask cluster at {self._address} did not train it: {error}."
            ) from error

    def _listen(self) -> None:
        while True:
            message = self._hear()
            if message is None:
                break
            with self._lock:
                future = self._waiting.pop(int(message["id"]), None)
            if future is None:
                continue
            if "answer" in message:
                future.set_result(str(message["answer"]))
            else:
                future.set_exception(_Lost(str(message["error"])))
        self._process.kill()
        with self._lock:
            self._ended = True
            lost = list(self._waiting.values())
            self._waiting.clear()
        for future in lost:
            future.set_exception(_Lost("the process that speaks to it has ended"))
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _say(self, message: dict[str, Any]) -> bool:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def _hear(self) -> dict[str, Any] | None:
        """The next message, or None where there are no more, or where it is none."""
        assert self._process.stdout is not None
        try:
            message = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None


class _Lost(Exception):
    """The cluster did not fit a text; the message says why."""


def hide_memory() -> None:
    """Keep other processes of the same user from reading this one's memory and environment
    (prctl(2), PR_SET_DUMPABLE); nothing happens where the system has no such call."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (AttributeError, OSError):
        return


def _start() -> subprocess.Popen[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _ENVIRONMENT or name.endswith("_NUM_THREADS")
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kongming_server.training.dask_client"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**environment, "HOME": "/nonexistent"},
        cwd="/",
    )
