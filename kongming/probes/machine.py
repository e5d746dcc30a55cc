"""Machine properties beyond the node facts: microcode revision and cloud instance.

Cloud providers describe an instance at a link-local address that only the host answers. Three
metadata services are queried in parallel, for at most ``LIMIT_S`` in total, so that a machine
without one is not delayed. Only the instance's id, type and zone are requested.
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
"""Time limit for all metadata services together."""

ADDRESS = "169.254.169.254:80"
"""Address of all three services. KONGMING_METADATA overrides it."""

_LONGEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class Instance:
    """Cloud instance: ``provider`` is ec2, gce or azure; unknown values are empty."""

    provider: str
    type: str
    id: str
    zone: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def microcode(root: Path = Path("/")) -> str | None:
    """Return the first CPU's microcode revision, such as ``0x2b000603``; None if unknown."""
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == "microcode":
            return value.strip() or None
    return None


def cloud_instance(address: str | None = None, limit_s: float = LIMIT_S) -> Instance | None:
    """Identify the cloud instance; None if no service answers within ``limit_s``."""
    deadline = time.monotonic() + limit_s
    service_address = address or os.environ.get("KONGMING_METADATA") or ADDRESS
    answers: queue.SimpleQueue[Instance | None] = queue.SimpleQueue()
    services = [_Service(service_address, deadline) for _ in _QUERIES]
    for service, query in zip(services, _QUERIES, strict=True):
        threading.Thread(target=_query, args=(query, service, answers), daemon=True).start()
    try:
        for _ in services:
            instance = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            if instance is not None:
                return instance
    except queue.Empty:
        pass
    finally:
        for service in services:
            service.close()
    return None


class _Service:
    """Client of one metadata service; uses one connection per request, until the deadline."""

    def __init__(self, address: str, deadline: float) -> None:
        self._address = address
        self._deadline = deadline
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[str, Mapping[str, str]]:
        """Return the body and headers of a response.

        Raises:
            OSError, http.client.HTTPException, ValueError: no response, or not status 200.
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
        """Abort a pending request: a server that sends one byte at a time would never finish."""
        sock = None if self._connection is None else self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _query(
    query: Callable[[_Service], Instance],
    service: _Service,
    answers: queue.SimpleQueue[Instance | None],
) -> None:
    instance = None
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        instance = query(service)
    answers.put(instance)


def _ec2(service: _Service) -> Instance:
    token, _ = service.request(
        "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    headers = {"X-aws-ec2-metadata-token": token.strip()}

    def get(name: str) -> str:
        return _word(service.request("GET", f"/latest/meta-data/{name}", headers)[0])

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
    compute = json.loads(service.request("GET", path, {"Metadata": "true"})[0])
    zone = "-".join(str(compute[key]) for key in ("location", "zone") if compute.get(key))
    return Instance("azure", _word(compute["vmSize"]), _word(compute["vmId"]), zone)


def _word(text: str) -> str:
    """Validate a name. Raises ValueError: the responder may not be a metadata service."""
    word = text.strip()
    if not word or len(word) > 200 or not word.isprintable() or "<" in word:
        raise ValueError(word)
    return word


_QUERIES: tuple[Callable[[_Service], Instance], ...] = (_ec2, _gce, _azure)
