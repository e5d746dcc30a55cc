"""What was written before measuring is what a table states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kongming.campaigns.preregistration import (
    code_digests,
    preregister,
    registered,
    statement,
)
from kongming.records.errors import InputError

SETTINGS = {"apps": {"a": "1"}, "repeats": 4}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("top.py", "learning/model.py", "evaluate/score.py"):
        file = tmp_path / "package" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}")
    return tmp_path / "package"


def test_it_is_written_once_and_says_what_changed(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "plan.json"
    code = code_digests(package)
    assert list(code) == [".", "evaluate", "learning"]
    document = preregister(file, code, ["RIDGE"], SETTINGS)
    stated = statement(document, code, "2999-01-01T00:00:00Z")
    assert (stated["before_first_run"], stated["code_changed"]) == (True, [])
    (package / "learning" / "model.py").write_text("# another")
    # The file stays as it was written; the change is stated.
    assert preregister(file, code_digests(package), ["RIDGE"], SETTINGS) == document
    stated = statement(registered(file), code_digests(package), "2000-01-01T00:00:00Z")
    assert (stated["before_first_run"], stated["code_changed"]) == (False, ["learning"])


@pytest.mark.parametrize(
    ("models", "settings", "words"),
    [
        (["LM"], SETTINGS, "other models"),
        (["RIDGE"], SETTINGS | {"repeats": 5}, "other settings"),
    ],
)
def test_another_list_is_refused(
    models: list[str], settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    preregister(tmp_path / "plan.json", {}, ["RIDGE"], SETTINGS)
    with pytest.raises(InputError, match=words):
        preregister(tmp_path / "plan.json", {}, models, settings)


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    document = preregister(file, {}, ["RIDGE"], SETTINGS)
    file.write_text(json.dumps(document | {"written_at": "2000-01-01T00:00:00Z"}))
    with pytest.raises(InputError, match="was edited"):
        registered(file)
    for content in ("[]", "{", "{}"):
        file.write_text(content)
        with pytest.raises(InputError, match=r"plan\.json"):
            registered(file)
    with pytest.raises(InputError, match="There is no file"):
        registered(tmp_path / "missing.json")
