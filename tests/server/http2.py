"""HTTP/2 frame by frame, for what no library of gRPC would send: calls that never end, messages
that stay unfinished, and answers that nobody reads."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import NamedTuple, Self

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW = 4
_WINDOW_BYTES = 65535


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    content: bytes


class Http2:
    """Over a connected socket. ``window``: bytes that the server may send of each answer.
    ``ended``: the streams that the server has ended; ``over``: whether it ended the connection, as
    far as ``read`` has seen."""

    def __init__(self, connection: socket.socket, *, window: int = _WINDOW_BYTES) -> None:
        self._socket = connection
        self._next = 1
        self.ended: set[int] = set()
        self.over = False
        # What the server lets this side send: of each stream, and 0 of the connection.
        self._initial = _WINDOW_BYTES
        self._windows = {0: _WINDOW_BYTES}
        settings = struct.pack(">HI", _INITIAL_WINDOW, window)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        connection.sendall(preface + _frame(_SETTINGS, 0, 0, settings))

    @classmethod
    def to(
        cls, address: str, *, source: str = "", window: int = _WINDOW_BYTES, timeout: float = 10
    ) -> Self:
        """Connect to HOST:PORT without encryption, from the address ``source`` if one is given."""
        host, _, port = address.rpartition(":")
        own = (source, 0) if source else None
        connection = socket.create_connection(
            (host, int(port)), timeout=timeout, source_address=own
        )
        try:
            return cls(connection, window=window)
        except OSError:
            connection.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Leave without another word: what was not sent or read yet is dropped."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def call(self, method: str, headers: Mapping[str, str] | None = None) -> int:
        """Begin a call without a message; returns its stream."""
        stream, self._next = self._next, self._next + 2
        self._windows[stream] = self._initial
        block = self._block(method, headers)
        self._socket.sendall(_frame(_HEADERS, _END_HEADERS, stream, block))
        return stream

    def flood(
        self, method: str, named: int, headers: Mapping[str, str] | None = None, *, end: bool = True
    ) -> int:
        """Begin a call whose block names one compressed header so many times, in frames of up to
        16 KiB; returns its stream. Without ``end`` the block has none."""
        stream, self._next = self._next, self._next + 2
        # A literal that is indexed is then the newest of the table, number 62.
        block = self._block(method, headers) + b"\x40" + _text("k") + _text("v") + b"\xbe" * named
        parts = [block[at : at + 16384] for at in range(0, len(block), 16384)]
        kinds = [_HEADERS] + [_CONTINUATION] * (len(parts) - 1)
        flags = [0] * (len(parts) - 1) + [_END_HEADERS if end else 0]
        for kind, flag, part in zip(kinds, flags, parts, strict=True):
            self._socket.sendall(_frame(kind, flag, stream, part))
        return stream

    def junk(self, size: int) -> None:
        """Frames of a kind that nobody knows, which are read and dropped."""
        for start in range(0, size, 16000):
            self._socket.sendall(_frame(0x77, 0, 0, bytes(min(16000, size - start))))

    def ask(self, method: str, message: bytes, headers: Mapping[str, str] | None = None) -> int:
        """A complete call of one small message; returns its stream."""
        stream = self.call(method, headers)
        content = struct.pack(">BI", 0, len(message)) + message
        self._socket.sendall(_frame(_DATA, _END_STREAM, stream, content))
        return stream

    def announce(self, stream: int, size: int) -> None:
        """The beginning of a message of so many bytes."""
        self._send(stream, struct.pack(">BI", 0, size))

    def finish(self, stream: int, message: bytes) -> None:
        """What was announced, and the end of the call's messages."""
        self._windows[0] -= len(message)
        self._socket.sendall(_frame(_DATA, _END_STREAM, stream, message))

    def allow(self, stream: int, size: int) -> None:
        """Let the server send so many bytes more of an answer."""
        self._socket.sendall(_frame(_WINDOW, 0, stream, struct.pack(">I", size)))

    def closed(self) -> bool:
        """Whether the server has ended the connection."""
        self._socket.settimeout(0.05)
        try:
            while self._socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def read(self, timeout_s: float) -> list[Frame]:
        """What comes until nothing does for so long, or the connection ends."""
        frames: list[Frame] = []
        self._socket.settimeout(timeout_s)
        try:
            while True:
                frames.append(self._frame())
        except TimeoutError:
            pass
        except (OSError, EOFError):
            self.over = True
        self._socket.settimeout(10)
        return frames

    def _block(self, method: str, headers: Mapping[str, str] | None) -> bytes:
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
        } | dict(headers or {})
        return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())

    def _send(self, stream: int, content: bytes) -> None:
        for counted in (0, stream):
            self._windows[counted] -= len(content)
        self._socket.sendall(_frame(_DATA, 0, stream, content))

    def _frame(self) -> Frame:
        head = self._bytes(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        frame = Frame(kind, flags, int.from_bytes(head[5:], "big"), self._bytes(size))
        if kind == _RESET or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self.ended.add(frame.stream)
        elif kind == _WINDOW:
            more = int.from_bytes(frame.content, "big")
            self._windows[frame.stream] = self._windows.get(frame.stream, 0) + more
        elif kind == _SETTINGS and not flags & _ACK:
            for at in range(0, size, 6):
                self._set(*struct.unpack(">HI", frame.content[at : at + 6]))
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, frame.content))
        return frame

    def _set(self, setting: int, value: int) -> None:
        if setting == _INITIAL_WINDOW:
            for stream in self._windows:
                self._windows[stream] += (value - self._initial) if stream else 0
            self._initial = value

    def _bytes(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            part = self._socket.recv(size - len(content))
            if not part:
                raise EOFError
            content += part
        return content


def _frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def _text(text: str) -> bytes:
    """A literal of HPACK, up to 254 bytes of it."""
    size = len(text)
    length = bytes([size]) if size < 127 else bytes([127, size - 127])
    return length + text.encode("ascii")
