"""Decompression of event logs: the codec is recognised by content, never by name.

Spark compresses with codecs of Java libraries, whose containers are their own: lz4-java's block
stream, Xerial's stream of snappy blocks, chunks of compress-lzf. What can be decompressed is
yielded, however the rest is cut or damaged.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO

_CHUNK = 1 << 16
"""Bytes at a time: larger pieces of memory are given back, and got again, each time."""

_LARGEST_BLOCK = 1 << 26

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_LZ4_BLOCK = b"LZ4Block"
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_XERIAL = b"\x82SNAPPY\0"
_LZF = b"ZV"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class DamagedStreamError(Exception):
    """Compressed content that ends too early or cannot be decompressed from some place on."""


def decompressed(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of an event log in chunks; content of no known codec as it is.

    Raises:
        DamagedStreamError: after all that could be decompressed.
    """
    start = file.read(16)
    for magic, codec in (
        (_GZIP, _gzip),
        (_ZSTD, _zstd),
        (_LZ4_BLOCK, _lz4_blocks),
        (_LZ4_FRAME, _lz4_frame),
        (_XERIAL, _snappy),
        (_LZF, _lzf),
    ):
        if start.startswith(magic):
            try:
                yield from codec(io.BufferedReader(_Rejoined(start, file), _CHUNK))
            except EOFError as error:
                raise DamagedStreamError("ends within a compressed block") from error
            return
    yield start.removeprefix(_BYTE_ORDER_MARK)
    while chunk := file.read(_CHUNK):
        yield chunk


class _Rejoined(io.RawIOBase):
    """A file whose first bytes have been read already; it need not be able to seek."""

    def __init__(self, start: bytes, rest: BinaryIO) -> None:
        self._start, self._rest = start, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._start[: len(buffer)] or self._rest.read(len(buffer))
        self._start = self._start[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _header(file: BinaryIO, size: int) -> bytes | None:
    """The next header, None at the end of the file."""
    data = file.read(size)
    if not data:
        return None
    if len(data) < size:
        raise EOFError
    return data


def _gzip(file: BinaryIO) -> Iterator[bytes]:
    data = b""
    while data := data or file.read(_CHUNK):
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            if not data:
                raise EOFError
            try:
                chunk = member.decompress(data, _CHUNK)
            except zlib.error as error:
                raise DamagedStreamError(f"cannot be decompressed further: {error}") from error
            if chunk:
                yield chunk
            data = member.unconsumed_tail or (b"" if member.eof else file.read(_CHUNK))
        # Another member may follow, or zeros that pad a tape.
        data = member.unused_data.lstrip(b"\0")


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    """Spark closes a frame whenever it flushes; the last may lack its end."""
    import zstandard

    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    try:
        # read would lose what it has of a chunk when the rest of it is damaged.
        while chunk := reader.read1(_CHUNK):
            yield chunk
    except zstandard.ZstdError as error:
        raise DamagedStreamError(f"cannot be decompressed further: {error}") from error


def _lz4_frame(file: BinaryIO) -> Iterator[bytes]:
    """Return what the program lz4 writes; Spark itself does not."""
    import cramjam

    try:
        yield bytes(cramjam.lz4.decompress(file.read()))
    except cramjam.DecompressionError as error:
        raise DamagedStreamError(f"cannot be decompressed: {error}") from error


def _lz4_blocks(file: BinaryIO) -> Iterator[bytes]:
    """lz4-java's LZ4BlockOutputStream; streams may follow each other."""
    import cramjam

    while header := _header(file, 21):
        token = header[8]
        packed, size = (int.from_bytes(header[at : at + 4], "little") for at in (9, 13))
        raw = token & 0xF0 == 0x10
        if not header.startswith(_LZ4_BLOCK) or max(packed, size) > _LARGEST_BLOCK:
            raise DamagedStreamError("holds a block that is not lz4's")
        data = _exactly(file, packed)
        if size:
            yield data if raw else _block(cramjam.lz4.decompress_block, data, size)


def _snappy(file: BinaryIO) -> Iterator[bytes]:
    """Xerial's SnappyOutputStream; streams may follow each other, each with its header."""
    import cramjam

    _exactly(file, 16)
    while header := _header(file, 4):
        if header == _XERIAL[:4]:
            _exactly(file, 12)
            continue
        packed = int.from_bytes(header, "big")
        if packed > _LARGEST_BLOCK:
            raise DamagedStreamError("holds a block that is not snappy's")
        data = _exactly(file, packed)
        if _snappy_size(data) > _LARGEST_BLOCK:
            raise DamagedStreamError("holds a block that is not snappy's")
        yield _block(cramjam.snappy.decompress_raw, data)


def _snappy_size(data: bytes) -> int:
    """The length of a block's content, with which it begins (seven bits a byte, lowest first)."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return size


def _block(decompress, data: bytes, *more: int) -> bytes:  # type: ignore[no-untyped-def]
    import cramjam

    try:
        return bytes(decompress(data, *more))
    except (cramjam.DecompressionError, ValueError, OverflowError, MemoryError) as error:
        raise DamagedStreamError(f"cannot be decompressed further: {error}") from error


def _lzf(file: BinaryIO) -> Iterator[bytes]:
    """compress-lzf's chunks: ZV, type, length, and for a compressed one its content's length."""
    while header := _header(file, 5):
        size = int.from_bytes(header[3:], "big")
        if not header.startswith(_LZF) or header[2] > 1:
            raise DamagedStreamError("holds a chunk that is not LZF's")
        if header[2] == 0:
            yield _exactly(file, size)
            continue
        _exactly(file, 2)
        try:
            yield _lzf_chunk(_exactly(file, size))
        except IndexError as error:
            raise DamagedStreamError("holds a chunk that is not LZF's") from error


def _lzf_chunk(data: bytes) -> bytes:
    """Decompress one chunk. Raises IndexError where it is damaged."""
    content = bytearray()
    at, end = 0, len(data)
    while at < end:
        control = data[at]
        at += 1
        if control < 32:
            content += data[at : at + control + 1]
            at += control + 1
            continue
        length = (control >> 5) + 2
        if length == 9:
            length += data[at]
            at += 1
        start = len(content) - ((control & 31) << 8) - data[at] - 1
        at += 1
        if start < 0:
            raise IndexError
        piece = content[start : start + length]
        while len(piece) < length:  # it overlaps what it makes: a repetition
            piece += piece[: length - len(piece)]
        content += piece
    return bytes(content)
