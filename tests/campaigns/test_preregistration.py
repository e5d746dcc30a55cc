"""What was written before measuring is what a table states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kongming.campaigns.preregistration import (
    PROGRAMS,
    code_digests,
    files_digest,
    preregister,
    registered,
    statement,
)
from kongming.profiling.plans.identity import files_named
from kongming.records.application import Application
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


def test_files_of_the_programs_are_stated_where_they_were_registered(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text("print(1)")
    app = Application("a", ("python3", "work.py", "--size", "5" * 300), workdir=str(tmp_path))
    shell = Application("b", "cd . && sh -c 'true' < work.py", workdir=str(tmp_path))
    assert files_named(app) == files_named(shell) == [script]
    earlier = preregister(tmp_path / "old.json", {".": "1"}, ["LM"], SETTINGS)
    document = preregister(
        tmp_path / "plan.json", {".": "1", PROGRAMS: files_digest([script])}, ["LM"], SETTINGS
    )
    script.write_text("print(2)")
    now = {".": "1", PROGRAMS: files_digest([script])}
    assert statement(document, now, None)["code_changed"] == [PROGRAMS]
    assert statement(earlier, now, None)["code_changed"] == []


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
