"""``predict --fingerprint FILE``: a file that is none is named, with the way to make one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kongming.files.fingerprint_file import read_fingerprint
from kongming.records.errors import InputError


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty."),
        (b" \n", "is empty."),
        (b"[1,2", "is not JSON ("),
        (b"[1]", "holds no fingerprint."),
        (b"{}", "holds no fingerprint."),
        ("{}".encode("utf-16"), "is not UTF-8 text."),
        (b"[" * 100_000, "is not JSON ("),
        (b'{"schema": 1, "surrogates": {}}', "is not a fingerprint ("),
    ],
)
def test_a_file_without_a_fingerprint(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "now.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"--fingerprint: .*now\.json ") as raised:
        read_fingerprint(file, field="--fingerprint")
    assert f"now.json {problem}" in str(raised.value)
    assert raised.value.hint == "Write one with: kongming fingerprint --json > FILE"
