"""A made-up ``kongming-microbench`` and folders of its own for each test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_FAKE = Path(__file__).parent / "fake_microbench.py"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("KONGMING_DIR", raising=False)
    monkeypatch.delenv("KONGMING_STORE", raising=False)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The fake binary, in place of the real one; FAKE_MODE picks how it misbehaves."""
    path = tmp_path / "kongming-microbench"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{_FAKE}" "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("KONGMING_MICROBENCH", str(path))
    monkeypatch.delenv("FAKE_MODE", raising=False)
    return path
