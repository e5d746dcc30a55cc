"""What a machine is beyond its node facts: the microcode, and the cloud instance that it is.

Clouds tell an instance what it is under one address that only the host answers. Three services
are asked at once, and no longer than ``LIMIT_S`` in all: where there is none, nothing may wait.
Only the instance's id, type and zone are asked for.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kongming.probes.cgroups import read_text

LIMIT_S = 0.2
"""Within which all services together have to answer."""

ADDRESS = "169.254.169.254:80"
"""Of all three services. KONGMING_METADATA names another."""

_LONGEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class Instance:
    """A cloud instance: ``provider`` is ec2, gce or azure; empty strings are not told."""

    provider: str
    type: str
    id: str
    zone: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def microcode(root: Path = Path("/")) -> str | None:
    """The first CPU's microcode revision, such as ``0x2b000603``; None where nothing tells."""
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == "microcode":
            return value.strip() or None
    return None


def cloud_instance(address: str | None = None, limit_s: float = LIMIT_S) -> Instance | None:
    """The instance that this machine is; None where no service says so within ``limit_s``."""
    deadline = time.monotonic() + limit_s
    place = address or os.environ.get("KONGMING_METADATA") or ADDRESS
    answers: queue.SimpleQueue[Instance | None] = queue.SimpleQueue()
    services = [_Service(place, deadline) for _ in _ASKED]
    for service, asked in zip(services, _ASKED, strict=True):
        threading.Thread(target=_ask, args=(asked, service, answers), daemon=True).start()
    try:
        for _ in services:
            found = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            if found is not None:
                return found
    except queue.Empty:
        pass
    finally:
        for service in services:
            service.close()
    return None


class _Service:
    """Requests to one service, each on a connection of its own, until the deadline."""

    def __init__(self, address: str, deadline: float) -> None:
        self._address = address
        self._deadline = deadline
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[str, Mapping[str, str]]:
        """The body and the headers of an answer.

        Raises:
            OSError, http.client.HTTPException, ValueError: there was none, or it was no success.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection = http.client.HTTPConnection(self._address, timeout=left)
        self._connection = connection
        try:
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            if answer.status != 200:
                raise ValueError(answer.status)
            text = answer.read(_LONGEST).decode("utf-8")
            return text, {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def close(self) -> None:
        """End what still waits: a server that sends byte after byte is never through."""
        sock = None if self._connection is None else self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _ask(
    asked: Callable[[_Service], Instance],
    service: _Service,
    answers: queue.SimpleQueue[Instance | None],
) -> None:
    found = None
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        found = asked(service)
    answers.put(found)


def _ec2(service: _Service) -> Instance:
    token, _ = service.request(
        "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    told = {"X-aws-ec2-metadata-token": token.strip()}

    def get(name: str) -> str:
        return _word(service.request("GET", f"/latest/meta-data/{name}", told)[0])

    return Instance(
        "ec2", get("instance-type"), get("instance-id"), get("placement/availability-zone")
    )


def _gce(service: _Service) -> Instance:
    def get(name: str) -> str:
        path = f"/computeMetadata/v1/instance/{name}"
        text, headers = service.request("GET", path, {"Metadata-Flavor": "Google"})
        if headers.get("metadata-flavor") != "Google":
            raise ValueError(path)
        # projects/123/machineTypes/n2-standard-2
        return _word(text).rpartition("/")[2]

    return Instance("gce", get("machine-type"), get("id"), get("zone"))


def _azure(service: _Service) -> Instance:
    path = "/metadata/instance/compute?api-version=2021-02-01"
    found = json.loads(service.request("GET", path, {"Metadata": "true"})[0])
    zone = "-".join(str(found[key]) for key in ("location", "zone") if found.get(key))
    return Instance("azure", _word(found["vmSize"]), _word(found["vmId"]), zone)


def _word(text: str) -> str:
    """Raises ValueError for what is no name: whatever answers may not be such a service."""
    word = text.strip()
    if not word or len(word) > 200 or not word.isprintable() or "<" in word:
        raise ValueError(word)
    return word


_ASKED: tuple[Callable[[_Service], Instance], ...] = (_ec2, _gce, _azure)
