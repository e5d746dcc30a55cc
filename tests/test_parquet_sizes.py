"""Files that unpack to more than they can hold are refused before they are unpacked."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow
import pyarrow.parquet as parquet

from kongming.audit.readings import METADATA_KEY, SCHEMA, read_observations, table_of
from kongming.files import parquet_sizes
from kongming.records.errors import InputError
from kongming.store.parquet import read_export
from tests.audit.sessions import later, reading, session

EXPORT = {b"kongming.format": b"1"}
MIB = 2**20


def export(path: Path, document: str, **options: Any) -> Path:
    table = pyarrow.table(
        {"record": ["node"], "document": [document], "kind": pyarrow.nulls(1, pyarrow.string())}
    )
    parquet.write_table(table.replace_schema_metadata(EXPORT), path, **options)
    return path


def observation(path: Path, rows: int = 100, **columns: Any) -> Path:
    table = table_of([reading("a", 1.0, at=later(k), position=k) for k in range(rows)])
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    document = {"format": 1, "sessions": {"s1": session()}}
    metadata = {METADATA_KEY: json.dumps(document).encode()}
    parquet.write_table(table.replace_schema_metadata(metadata), path, compression="zstd")
    return path


def varint(number: int, size: int = 1) -> bytes:
    """A number of Thrift above 0, in at least so many bytes."""
    number <<= 1
    encoded = b""
    while number >= 128 or len(encoded) < size - 1:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def most_allocated() -> int:
    return int(pyarrow.default_memory_pool().max_memory())


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_every_page_is_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dictionary: bool,
    version: str,
    compression: str,
) -> None:
    table = pyarrow.table(
        {
            "text": [None if k % 7 == 0 else f"text-{k % 501}" * 9 for k in range(5_000)],
            "number": [k / 7 for k in range(5_000)],
            "other": list(range(5_000)),
        }
    )
    path = tmp_path / "a.parquet"
    parquet.write_table(
        table,
        path,
        compression=compression,
        use_dictionary=dictionary,
        data_page_version=version,
        data_page_size=1_000,
        write_batch_size=100,
        row_group_size=1_700,
    )
    counted: list[int] = []
    monkeypatch.setattr(parquet_sizes, "check_text", lambda read, path: counted.append(read))
    footer = parquet.read_metadata(path)
    names = ["text", "number"]
    with path.open("rb") as file:
        parquet_sizes.check_pages(file, footer, names, path)
    chunks = [footer.row_group(g).column(c) for g in range(footer.num_row_groups) for c in (0, 1)]
    assert len(counted) > 2 * len(chunks)
    headers = sum(chunk.total_uncompressed_size for chunk in chunks) - counted[-1]
    assert 0 < headers < 200 * len(counted)


def test_a_page_that_is_far_larger_than_its_file_is_not_unpacked(tmp_path: Path) -> None:
    path = export(tmp_path / "a.parquet", " " * (MIB + MIB // 2), compression="zstd")
    content = path.read_bytes()
    footer = parquet.read_metadata(path).row_group(0).column(1)
    header = footer.dictionary_page_offset
    # Kind of page, unpacked size, packed size.
    assert content[header : header + 2] == b"\x15\x04"
    encoded = varint(parquet_page_bytes(content, header))
    assert content[header + 3 : header + 3 + len(encoded)] == encoded
    larger = varint(127 * MIB)
    assert len(larger) == len(encoded)
    path.write_bytes(content[: header + 3] + larger + content[header + 3 + len(encoded) :])
    before = most_allocated()
    with pytest.raises(InputError, match="unpacks to more text than a file of its size"):
        read_export(path)
    assert most_allocated() - before < 50 * MIB


def parquet_page_bytes(content: bytes, at: int) -> int:
    return parquet_sizes._page(io.BytesIO(content), at).unpacked_bytes


def test_rows_that_only_the_pages_tell_of(tmp_path: Path) -> None:
    count = 2_000_000
    nothing = pyarrow.nulls(count, pyarrow.string())
    table = pyarrow.table({name: nothing for name in ("record", "document", "kind")})
    path = tmp_path / "a.parquet"
    parquet.write_table(table.replace_schema_metadata(EXPORT), path)
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    packed, footer = content[: -8 - size], content[-8 - size : -8]
    true = b"\x16" + varint(count)
    assert true in footer
    footer = footer.replace(true, b"\x16" + varint(10, len(true) - 1), 1)
    path.write_bytes(packed + footer + content[-8:])
    assert parquet.read_metadata(path).num_rows == 10
    with pytest.raises(InputError, match="more rows than bytes"):
        read_export(path)


@pytest.mark.parametrize("what", ["columns", "chunks"])
def test_a_footer_that_is_the_whole_file_is_not_read(tmp_path: Path, what: str) -> None:
    """Three bytes of a footer take some hundred in memory."""
    names = [b"record", b"document", b"kind"]
    # Optional texts, and columns without a name.
    texts = [b"\x15\x0c\x25\x02\x18" + bytes([len(n)]) + n + b"\x25\x00\x00" for n in names]
    more = 100_000 if what == "columns" else 0
    root = b"\x48\x06schema\x15" + varint(3 + more) + b"\x00"
    count = b"\xfc" + length(4 + more) if more else b"\x4c"
    schema = count + root + b"".join(texts) + b"\x15\x02\x25\x02\x18\x00\x00" * more
    groups = b"\x0c"
    if what == "chunks":
        groups = (
            b"\x1c\x19\xfc" + length(200_000) + b"\x26\x00\x00" * 200_000 + b"\x16\x00\x16\x00\x00"
        )
    metadata = b"\x1c\x18\x0fkongming.format\x18\x011\x00"
    footer = b"\x15\x02\x19" + schema + b"\x16\x00\x19" + groups + b"\x19" + metadata + b"\x00"
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert parquet.read_metadata(path).num_rows == 0
    with pytest.raises(InputError, match="more columns and pages than a file of its size"):
        read_export(path)
    with pytest.raises(InputError, match="more columns and pages than a file of its size"):
        read_observations([path])


def length(number: int) -> bytes:
    """A length of Thrift, which has no sign."""
    encoded = b""
    while number >= 128:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


@pytest.mark.parametrize("cut", [1, 3, 40])
def test_pages_that_end_before_they_should(tmp_path: Path, cut: int) -> None:
    path = export(tmp_path / "a.parquet", "{}")
    footer = parquet.read_metadata(path)
    with pytest.raises(InputError, match="pages are not where it says"):
        parquet_sizes.check_pages(io.BytesIO(path.read_bytes()[:cut]), footer, ["record"], path)


def test_bytes_of_any_kind_are_no_page_header(tmp_path: Path) -> None:
    path = export(tmp_path / "a.parquet", "{}", use_dictionary=False)
    footer = parquet.read_metadata(path)
    content = bytearray(path.read_bytes())
    at = footer.row_group(0).column(0).data_page_offset
    for junk in (b"\xff" * 16, b"\x19\xff\xff\xff\xff\xff\x7f", b"\x1c" * 32, b"\x15\xff" * 8):
        content[at : at + len(junk)] = junk
        with pytest.raises(InputError, match="pages are not where it says"):
            parquet_sizes.check_pages(io.BytesIO(content), footer, ["record"], path)


COLUMNS: dict[str, Callable[[], Any]] = {
    "lists": lambda: pyarrow.array([[None] * 100_000] * 100, pyarrow.list_(pyarrow.float64())),
    "fixed": lambda: pyarrow.array([b"x" * MIB] * 100, pyarrow.binary(MIB)),
    "letters": lambda: pyarrow.array(["x" * MIB] * 100),
    "blanks": lambda: pyarrow.array([" " * MIB] * 100),
}
"""Of a hundred MiB or more each, so that they are made when a test runs."""


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("value", "lists", "^value: .*the column is list"),
        ("reason", "fixed", "^reason: .*the column is fixed_size_binary"),
        ("reason", "letters", "unpacks to more text than a file of its"),
        ("session", "blanks", "unpacks to more text than a file of its"),
    ],
    ids=["lists", "fixed", "reason", "session"],
)
def test_observations_that_unpack_without_end(
    tmp_path: Path, name: str, values: str, message: str
) -> None:
    path = observation(tmp_path / "a.parquet", **{name: COLUMNS[values]()})
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match=message):
        read_observations([path])


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = observation(tmp_path / "a.parquet")
    table = parquet.read_table(path, partitioning=None)
    parquet.write_table(table.append_column("value", table["value"]), path)
    with pytest.raises(InputError, match=r"^value: .*more than once"):
        read_observations([path])


def test_text_that_other_tools_write_is_read(tmp_path: Path) -> None:
    path = observation(tmp_path / "a.parquet")
    table = parquet.read_table(path, partitioning=None)
    for number, field in enumerate(SCHEMA):
        if field.name in ("session", "kind", "unit"):
            table = table.set_column(
                number, field.name, table[field.name].cast("string").cast("large_string")
            )
    parquet.write_table(table, path)
    assert read_observations([path]).table.num_rows == 100
