"""The sockets of a port by their file descriptors, read without giving up the interpreter.

A thread that makes a system call the usual way gives the interpreter to the others, and waits 5 ms
for it each time while they have much to do: a hundred connections would take seconds, during the
very flood that is looked for. Here nothing is given up, and nothing of it can wait. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kongming.rpc.connections import peer_name, plain_peer
from kongming_server.security.packet_filter import attach

__all__ = ["AcceptedConnections", "PortDescriptors", "ResidentMemory", "available"]

_STATM, _STATUS = Path("/proc/self/statm"), Path("/proc/self/status")
_SNMP = Path("/proc/self/net/snmp")
_BYTES_RECEIVED = 128
"""Where ``struct tcp_info`` has ``tcpi_bytes_received`` (Linux 4.1)."""
_SO_COOKIE = 57
"""A socket's own number for as long as the machine runs (Linux 4.12)."""

_TCP_CLOSE = b"\x07"
_ADDRESS_BYTES = 28
_UNSPECIFIED = struct.pack("=H26x", socket.AF_UNSPEC)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_library = ctypes.PyDLL(None)


def available() -> bool:
    """Return whether this machine has what is read here."""
    if not (_STATM.exists() and hasattr(socket, "TCP_INFO")):
        return False
    with socket.socket() as unconnected:
        try:
            return len(unconnected.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8)) == 8
        except OSError:
            return False


class PortDescriptors:
    """The connected sockets of this process at a local port, of IPv4 or IPv6. For one thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._status = _ProcFile(_STATUS, 4096)
        self._address = ctypes.create_string_buffer(_ADDRESS_BYTES)
        self._size = ctypes.c_uint32()
        self._size_at = ctypes.byref(self._size)
        self._answer = ctypes.create_string_buffer(256)
        # By descriptor: the kernel's number for the socket, which it never gives again, and the
        # peer; empty where it left before anybody looked.
        self._known: dict[int, tuple[int, str]] = {}
        # Those whose peers have left with a reset.
        self._left: set[int] = set()

    def close(self) -> None:
        self._status.close()

    def received(self) -> dict[str, int]:
        """The bytes that came so far from the peers of those that are open now, read or not; also
        from those who have left, while not all of them are read."""
        known: dict[int, tuple[int, str]] = {}
        left: set[int] = set()
        sizes: dict[str, int] = {}
        for descriptor in range(self._descriptors()):
            number, before = self._number(descriptor), self._known.get(descriptor)
            if number < 0:
                continue
            if before is None or before[0] != number:
                # Asked of each new one: a peer may leave another port, and come to this one from
                # the same port of its own, at the same descriptor.
                if self._own_port(descriptor) != self._port or self._listens(descriptor):
                    continue
                before = number, self._peer(descriptor)
            known[descriptor] = before
            size, closed = self._received(descriptor)
            if closed:
                left.add(descriptor)
            if before[1] and (size or not closed):
                sizes[before[1]] = size
        self._known, self._left = known, left
        return sizes

    def abort(self, peers: Iterable[str]) -> None:
        """End the connections with these peers as they were last seen, in this order, and drop what
        came and was not read yet: gRPC reads that to its end after a mere shutdown. So it does
        after a reset by a peer, to whom nothing can be answered: what they left is dropped, whoever
        they are."""
        seen = {peer: (descriptor, number) for descriptor, (number, peer) in self._known.items()}
        ending = [seen[peer] for peer in peers if peer in seen]
        ending += [(descriptor, self._known[descriptor][0]) for descriptor in self._left]
        for descriptor, number in ending:
            # gRPC's own threads close descriptors at any time, and the number is then a newcomer's,
            # or the store's: it is asked and ended by a descriptor that nobody else closes.
            held = _library.dup(descriptor)
            if held < 0:
                continue
            try:
                if self._number(held) == number:
                    _library.connect(held, _UNSPECIFIED, len(_UNSPECIFIED))
            finally:
                _library.close(held)

    def filter(self, rules: bytes) -> bool:
        """Let those connect whom the rules of ``packet_filter`` let pass, and no others; whether
        the kernel does that. What is connected stays."""
        listening = [
            descriptor
            for descriptor in range(self._descriptors())
            if self._own_port(descriptor) == self._port and self._listens(descriptor)
        ]
        return bool(listening) and all([attach(descriptor, rules) for descriptor in listening])

    def _descriptors(self) -> int:
        """One more than the greatest that can be open."""
        _, _, rest = self._status.read().partition(b"FDSize:")
        return int(rest.split(maxsplit=1)[0])

    def _number(self, descriptor: int) -> int:
        if self._option(descriptor, socket.SOL_SOCKET, _SO_COOKIE) != 8:
            return -1
        (number,) = struct.unpack_from("=Q", self._answer)
        return int(number)

    def _listens(self, descriptor: int) -> bool:
        size = self._option(descriptor, socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return size == 4 and any(self._answer.raw[:4])

    def _peer(self, descriptor: int) -> str:
        """Empty for one that has left with a reset."""
        self._size.value = _ADDRESS_BYTES
        if _library.getpeername(descriptor, self._address, self._size_at):
            return ""
        family, port = struct.unpack_from("=H2s", self._address.raw)
        if family not in (socket.AF_INET, socket.AF_INET6):
            return ""
        raw = self._address.raw[4:8] if family == socket.AF_INET else self._address.raw[8:24]
        host = socket.inet_ntop(family, raw)
        return plain_peer(peer_name(host, int.from_bytes(port, "big")))

    def _own_port(self, descriptor: int) -> int:
        self._size.value = _ADDRESS_BYTES
        if _library.getsockname(descriptor, self._address, self._size_at):
            return -1
        family, port = struct.unpack_from("=H2s", self._address.raw)
        inet = family in (socket.AF_INET, socket.AF_INET6)
        return int.from_bytes(port, "big") if inet else -1

    def _received(self, descriptor: int) -> tuple[int, bool]:
        """Return how many bytes, and whether the connection is no more."""
        if self._option(descriptor, socket.IPPROTO_TCP, socket.TCP_INFO) < _BYTES_RECEIVED + 8:
            return 0, False
        (size,) = struct.unpack_from("=Q", self._answer, _BYTES_RECEIVED)
        return int(size), self._answer[0] == _TCP_CLOSE

    def _option(self, descriptor: int, level: int, name: int) -> int:
        """Read an option of a socket; returns how many bytes it has, 0 where it cannot be read."""
        self._size.value = len(self._answer)
        failed = _library.getsockopt(descriptor, level, name, self._answer, self._size_at)
        return 0 if failed else self._size.value


class ResidentMemory:
    """Memory that this process takes of the machine, without files and what is shared."""

    def __init__(self) -> None:
        self._statm = _ProcFile(_STATM, 256)

    def close(self) -> None:
        self._statm.close()

    def bytes(self) -> int:
        fields = self._statm.read().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


class AcceptedConnections:
    """Count of connections that others have opened to this machine so far, whatever became of
    them."""

    def __init__(self) -> None:
        self._snmp = _ProcFile(_SNMP, 8192) if _SNMP.exists() else None

    def close(self) -> None:
        if self._snmp is not None:
            self._snmp.close()

    def count(self) -> int:
        """0 where the kernel does not tell."""
        if self._snmp is None:
            return 0
        lines = [line.split() for line in self._snmp.read().splitlines()]
        names, values = [line for line in lines if line[:1] == [b"Tcp:"]] or ([], [])
        return int(dict(zip(names, values, strict=False)).get(b"PassiveOpens", 0))


def give_back_memory() -> None:
    """Have the C library give what is free in it back to the machine; without the interpreter, as
    that takes some ms for each hundred MiB. Not every C library does."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class _ProcFile:
    """A file of the kernel's that stays open, and is made again each time it is read."""

    def __init__(self, path: Path, most: int) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._content = ctypes.create_string_buffer(most)

    def close(self) -> None:
        os.close(self._descriptor)

    def read(self) -> bytes:
        size = len(self._content)
        count = _library.pread(self._descriptor, self._content, size, ctypes.c_long(0))
        return self._content.raw[: max(count, 0)]
