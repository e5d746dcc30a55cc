"""A real kongming-server in a process of its own, on ports of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import grpc

from kongming.store import Store
from tests import warm_start
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
START_S = 100.0
"""The longest that a start may take on a machine that is busy with other tests."""


def python_path() -> str:
    """What a process needs to find the packages under test, and not installed ones."""
    paths = (str(ROOT / "daemon"), str(ROOT), os.environ.get("PYTHONPATH"))
    return os.pathsep.join(filter(None, paths))


@cache
def _empty_store() -> bytes:
    """A SQLite store without a record: for a server it takes a tenth of a second to make one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        Store.open(f"sqlite:///{path}").close()
        return path.read_bytes()


class ServerProcess:
    """``start()`` waits until it listens; ``grpc`` and ``http`` are then its addresses.

    ``settings`` are keys of the configuration file, as ``{"fleet.silent_after_s": 1.0}``. A
    restart takes the same ports again, so that clients find it. What it writes to stderr is in
    ``log``. Its store is ``store_url``, else a SQLite store in ``folder``, where there may be one.
    """

    module = "kongming_server.commands.server_command"

    def __init__(
        self,
        folder: Path,
        *,
        store_url: str | None = None,
        settings: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        path = folder / "server.db"
        self.store_url = store_url or f"sqlite:///{path}"
        if store_url is None and not path.exists():
            path.write_bytes(_empty_store())
        self.log = folder / "server.log"
        self.grpc, self.http = (f"127.0.0.1:{port}" for port in free_ports(2))
        self._options = list(options)
        self._env = dict(env or {})
        self._config = folder / "server.toml"
        self._config.write_text(_toml(settings or {}), encoding="utf-8")
        self._process: warm_start.Started | None = None
        self._channels: list[grpc.Channel] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        assert self._process is None, "it runs already"
        arguments = ["--listen", self.grpc, "--http", self.http, "--store", self.store_url]
        arguments += ["--config", str(self._config), *self._options]
        with self.log.open("a", encoding="utf-8") as log:
            self._process = warm_start.start(
                self.module,
                *arguments,
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": python_path()} | self._env,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = re.fullmatch(r"listening grpc=(\S+) http=(\S*)\n", line)
        if match is None:
            self.kill()
            raise AssertionError(f"it did not start: {line!r}\n{self.log.read_text()[-4000:]}")
        self.grpc, self.http = match.groups()
        return self

    def channel(self) -> grpc.Channel:
        """A channel without encryption, closed with the server's fixture."""
        options = [
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
            # Else channels of one test share a connection, and with it its back-off.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        channel = grpc.insecure_channel(self.grpc, options=options)
        self._channels.append(channel)
        return channel

    def get(self, path: str) -> Any:
        """The JSON document, or the text, that HTTP gives at a path."""
        with urlopen(f"http://{self.http}{path}", timeout=60) as answer:
            body = answer.read().decode()
            return json.loads(body) if "json" in answer.headers["Content-Type"] else body

    def stop(self, timeout_s: float = 100.0) -> int:
        """End it with SIGTERM; returns its exit status."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """End it with SIGKILL: it has no time left to do anything."""
        self._end(signal.SIGKILL, 100.0)

    def restart(self) -> Self:
        if self._process is not None:
            self.stop()
        return self.start()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        if self._process is not None:
            self.kill()

    def _end(self, signum: int, timeout_s: float) -> int:
        process = self._process
        assert process is not None, "it does not run"
        process.send_signal(signum)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            self._process = None
            assert process.stdout is not None
            process.stdout.close()
        return status


def eventually(what: Any, timeout_s: float = 60.0) -> Any:
    """The first true value of ``what()``; fails when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def _toml(settings: Mapping[str, Any]) -> str:
    sections: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
    return "\n".join(line for s, lines in sections.items() for line in (f"[{s}]", *lines)) + "\n"
