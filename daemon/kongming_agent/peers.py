"""Times the network to another agent: round trips of small messages, then a short stream.

The protocol is a greeting and two kinds of request, so that nothing but an agent is ever sent
data to; the answering side only counts and echoes a few bytes, and bounds everything: what it
takes in of one caller, for how long, and how many call at once.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import statistics
import threading
import time
from dataclasses import dataclass

from kongming.errors import MeasurementError

GREETING = b"KONGMING PEER 1\n"
ROUND_TRIPS = 20
_ECHO = b"e"
_STREAM = b"s"
_PING_BYTES = 64
_COUNT_BYTES = 8
_BLOCK_BYTES = 1 << 16
_CONNECT_S = 1.0
_MOST_CALLERS = 2
_MOST_BYTES = 256 << 20
_LONGEST_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PeerTiming:
    """``round_trip_s`` is the median of small messages; ``bytes_per_s`` of what had arrived."""

    peer_node_id: str
    address: str
    round_trip_s: float
    bytes_per_s: float
    sent_bytes: int
    elapsed_s: float


def time_peer(
    address: str, *, peer_node_id: str = "", most_bytes: int, most_s: float
) -> PeerTiming:
    """Times the network to the agent at ``address`` (HOST:PORT) within bytes and seconds.

    Raises:
        MeasurementError: it cannot be reached, or is no agent.
    """
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(GREETING)
            if _exactly(peer, len(GREETING)) != GREETING:
                raise MeasurementError(f"What answers at {address} is no agent of KONGMING.")
            started = time.monotonic()
            round_trip = _round_trips(peer, started + 0.3 * most_s)
            sent, rate = _stream(peer, most_bytes, max(0.01, started + most_s - time.monotonic()))
    except (OSError, ValueError) as error:
        raise MeasurementError(
            f"The network to {address} could not be timed: {error}.",
            hint="Is peer.listen set there, and does a firewall let it through?",
        ) from error
    return PeerTiming(peer_node_id, address, round_trip, rate, sent, time.monotonic() - began)


def _round_trips(peer: socket.socket, deadline: float) -> float:
    ping = b"\0" * _PING_BYTES
    times: list[float] = []
    while len(times) < ROUND_TRIPS and (not times or time.monotonic() < deadline):
        start = time.perf_counter()
        peer.sendall(_ECHO + ping)
        _exactly(peer, _PING_BYTES)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _stream(peer: socket.socket, most_bytes: int, most_s: float) -> tuple[int, float]:
    """(bytes sent, bytes a second): timed until the other side says that it has them all."""
    block = b"\0" * _BLOCK_BYTES
    blocks, sent = max(1, most_bytes // _BLOCK_BYTES), 0
    start = time.perf_counter()
    # Blocks are announced one by one, so that time can end it as well as their number.
    while sent < blocks and (sent == 0 or time.perf_counter() - start < most_s):
        peer.sendall(_STREAM + block)
        sent += 1
    peer.sendall(b".")
    arrived = int.from_bytes(_exactly(peer, _COUNT_BYTES), "big")
    took = time.perf_counter() - start
    if arrived != sent * _BLOCK_BYTES:
        raise MeasurementError("The other agent did not get all that was sent.")
    return arrived, arrived / max(took, 1e-9)


def _exactly(peer: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = peer.recv(count - len(found))
        if not data:
            raise OSError("it hung up")
        found += data
    return found


class Responder:
    """Answers other agents at HOST:PORT (port 0: any) until closed. ``address`` is where.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, int(port)), family=family, backlog=8)
        bound = self._socket.getsockname()
        self.address = f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"
        self._free = threading.BoundedSemaphore(_MOST_CALLERS)
        self._thread = threading.Thread(target=self._accept, name="peers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=1.0)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            if not self._free.acquire(blocking=False):
                caller.close()
                continue
            threading.Thread(target=self._answer, args=(caller,), daemon=True).start()

    def _answer(self, caller: socket.socket) -> None:
        try:
            with caller:
                _serve(caller)
        except OSError as error:
            _log.debug("a caller went away: %s", error)
        finally:
            self._free.release()


def _serve(caller: socket.socket) -> None:
    deadline = time.monotonic() + _LONGEST_S
    caller.settimeout(_CONNECT_S)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if _exactly(caller, len(GREETING)) != GREETING:
        return
    caller.sendall(GREETING)
    arrived = 0
    buffer = bytearray(_BLOCK_BYTES)
    while time.monotonic() < deadline and arrived <= _MOST_BYTES:
        kind = caller.recv(1)
        if kind == _ECHO:
            caller.sendall(_exactly(caller, _PING_BYTES))
        elif kind == _STREAM:
            _take(caller, buffer)
            arrived += _BLOCK_BYTES
        else:
            if kind == b".":
                caller.sendall(arrived.to_bytes(_COUNT_BYTES, "big"))
            return


def _take(caller: socket.socket, buffer: bytearray) -> None:
    view, got = memoryview(buffer), 0
    while got < len(buffer):
        count = caller.recv_into(view[got:])
        if count == 0:
            raise OSError("it hung up")
        got += count
