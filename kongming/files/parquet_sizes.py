"""Size to which a Parquet file unpacks, counted from its page headers before any page is unpacked.

The footer says how large each column is, and no reader compares it with the pages. What a reader
allocates for a page is in the header of that page alone, so these headers are read here, one after
the other. The numbers of rows and the footer itself are bounded as well: a column of three bytes
takes some hundred in memory.

A header is a structure of Thrift's compact protocol (apache/parquet-format, PageHeader).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from kongming.files.unpacked import check_rows, check_text
from kongming.records.errors import InputError

FOOTER_FREE = 256 * 2**10
"""Bytes that the footer of a file of any size may have, besides a quarter of the file."""

_TRAILER_BYTES = 8
_MAGIC = b"PAR1"
_HEADER_BYTES = 4 * 2**10
"""Read at a time; a header with the least and greatest text of its page may have more."""

_LARGEST_HEADER = 2**20
_DEEPEST = 16
_LONGEST_VARINT = 10
_MOST = (1 << 31) - 1


class _BadHeaderError(Exception):
    """A page header that breaks the format."""


class _Page(NamedTuple):
    header_bytes: int
    packed_bytes: int
    unpacked_bytes: int


def check_footer(file: BinaryIO, path: Path) -> None:
    """Refuse a footer that is no part of a file that holds data; to be called before it is read.

    Raises:
        InputError: it is too large for the file.
        OSError: the file cannot be read.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - _TRAILER_BYTES))
    trailer = file.read(_TRAILER_BYTES)
    file.seek(0)
    if not trailer.endswith(_MAGIC):
        # The reader says what it is instead.
        return
    footer, most = int.from_bytes(trailer[:4], "little"), FOOTER_FREE + size // 4
    if footer > most:
        raise InputError(
            f"{path} describes more columns and pages than a file of its size can hold.",
            field="footer",
            value=footer,
            allowed=f"{most} bytes at the most",
        )


def check_pages(file: BinaryIO, footer: Any, columns: Collection[str], path: Path) -> None:
    """Refuse a file whose ``columns`` unpack to more rows or bytes than it can hold.

    ``footer`` is pyarrow's ``FileMetaData`` of ``file``.

    Raises:
        InputError: they do, or a page header is damaged.
        OSError: the file cannot be read.
    """
    rows = packed = unpacked = 0
    size = file.seek(0, 2)
    try:
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            chunks = [group.column(place) for place in range(group.num_columns)]
            # Of a nested column the path goes on below its name.
            read = [c for c in chunks if c.path_in_schema.split(".")[0] in columns]
            counts = [group.num_rows, *(chunk.num_values for chunk in read)]
            if min(counts) < 0:
                raise _BadHeaderError
            # Of flat columns each row has one value, whatever is said of the file as a whole.
            rows += max(counts)
            check_rows(rows, path)
            for chunk in read:
                for page in _pages(file, chunk, size):
                    packed += page.header_bytes + page.packed_bytes
                    unpacked += page.unpacked_bytes
                    check_text(unpacked, path)
                    if packed > size:
                        # Else a few pages might stand for the columns of many groups.
                        raise _BadHeaderError
    except _BadHeaderError as error:
        raise InputError(
            f"{path} is damaged: its pages are not where it says they are.",
            hint="Export or record it again.",
        ) from error
    file.seek(0)


def is_text(kind: Any) -> bool:
    """Return whether pyarrow's type ``kind`` is of text, in any form that other tools write."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind))


def text_bytes(columns: Collection[Any]) -> int:
    """Return the bytes of the texts in columns (arrays or chunked ones, as dictionaries), each text
    counted as often as it occurs."""
    import pyarrow
    from pyarrow import compute

    total = 0
    for column in columns:
        for chunk in column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]:
            if pyarrow.types.is_dictionary(chunk.type):
                lengths = compute.binary_length(chunk.dictionary).take(chunk.indices)
                total += compute.sum(lengths).as_py() or 0
            else:
                total += chunk.nbytes
    return total


def _pages(file: BinaryIO, chunk: Any, size: int) -> Iterator[_Page]:
    """Yield the pages of a column chunk, where Arrow's reader finds them."""
    at = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset
    if chunk.has_dictionary_page and dictionary is not None and 0 < dictionary < at:
        at = dictionary
    end = at + chunk.total_compressed_size
    if not 0 <= at <= end <= size:
        raise _BadHeaderError
    while at < end:
        page = _page(file, at)
        yield page
        at += page.header_bytes + page.packed_bytes


def _page(file: BinaryIO, at: int) -> _Page:
    window = _HEADER_BYTES
    while True:
        file.seek(at)
        content = file.read(window)
        try:
            return _Header(content).page()
        except IndexError as error:
            if len(content) < window or window >= _LARGEST_HEADER:
                raise _BadHeaderError from error
            window *= 4


class _Header:
    """One page header. Raises IndexError where the bytes end before it does."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def page(self) -> _Page:
        sizes: dict[int, int] = {}
        for field, kind in self._fields():
            # Of a field that occurs twice, readers take the last one.
            if kind == _I32 and field in (_UNPACKED, _PACKED):
                number = self._varint()
                sizes[field] = (number >> 1) ^ -(number & 1)
            else:
                self._skip(kind, 0)
        if len(sizes) != 2 or not all(0 <= number <= _MOST for number in sizes.values()):
            raise _BadHeaderError
        return _Page(self._at, sizes[_PACKED], sizes[_UNPACKED])

    def _fields(self) -> Iterator[tuple[int, int]]:
        field = 0
        while True:
            head = self._byte()
            if head == 0:
                return
            step = head >> 4
            if step:
                field += step
            else:
                number = self._varint()
                field = (number >> 1) ^ -(number & 1)
            yield field, head & 15

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise _BadHeaderError
        if kind in (1, 2):  # A truth value is the kind itself.
            return
        if kind == 3:
            self._jump(1)
        elif kind in (4, _I32, 6):
            self._varint()
        elif kind == 7:
            self._jump(8)
        elif kind == 8:
            self._jump(self._varint())
        elif kind in (9, 10):
            head = self._byte()
            count = head >> 4
            self._skip_all(self._varint() if count == 15 else count, (head & 15,), depth)
        elif kind == 11:
            if count := self._varint():
                kinds = self._byte()
                self._skip_all(count, (kinds >> 4, kinds & 15), depth)
        elif kind == 12:
            for _, inner in self._fields():
                self._skip(inner, depth + 1)
        else:
            raise _BadHeaderError

    def _skip_all(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        for _ in range(count):
            for kind in kinds:
                # Within a list a truth value has a byte.
                self._skip(3 if kind in (1, 2) else kind, depth + 1)

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _jump(self, size: int) -> None:
        self._at += size
        if self._at > len(self._content):
            raise IndexError

    def _varint(self) -> int:
        number = shift = 0
        for _ in range(_LONGEST_VARINT):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        raise _BadHeaderError


_I32 = 5
_UNPACKED, _PACKED = 2, 3
"""Fields of a page header: the sizes of what follows it."""
