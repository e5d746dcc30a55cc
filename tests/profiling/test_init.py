"""``kongming init`` and the file that it writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kongming.profiling.appfile import KEYS, load
from kongming.profiling.runs.runner import open_runner
from tests.conftest import Kongming
from tests.ports import free_port


def test_it_writes_an_example_and_does_not_overwrite(kongming: Kongming, tmp_path: Path) -> None:
    first = kongming("init")
    assert first.returncode == 0
    assert "apps.toml" in first.stdout
    assert list(load(tmp_path / "apps.toml")) == ["sort"]
    (tmp_path / "apps.toml").write_text("mine")
    again = kongming("init", "apps.toml")
    assert again.returncode == 2
    assert "apps.toml" in again.stderr
    assert "--force" in again.stderr
    assert (tmp_path / "apps.toml").read_text() == "mine"
    assert kongming("init", "apps.toml", "--force").returncode == 0
    assert list(load(tmp_path / "apps.toml")) == ["sort"]


def test_json_names_the_file(kongming: Kongming) -> None:
    assert json.loads(kongming("init", "x.toml", "--json").stdout) == {"file": "x.toml"}


@pytest.mark.parametrize("file", ["no/such/folder/apps.toml", "."])
def test_a_place_that_cannot_be_written_is_reported(kongming: Kongming, file: str) -> None:
    done = kongming("init", file)
    assert done.returncode == 2
    assert file in done.stderr
    assert "Traceback" not in done.stderr


def uncommented(text: str) -> str:
    head, service = text.split("# [apps.web]")
    return head + re.sub(r"(?m)^# ?", "", "# [apps.web]" + service)


def test_every_key_is_explained_and_the_service_can_be_uncommented(
    kongming: Kongming, tmp_path: Path
) -> None:
    kongming("init")
    text = (tmp_path / "apps.toml").read_text()
    for key in KEYS:
        assert re.search(rf"(?m)^(# )*{key} = ", text), key
    (tmp_path / "apps.toml").write_text(uncommented(text))
    assert list(load(tmp_path / "apps.toml")) == ["sort", "web"]


@pytest.mark.real
@pytest.mark.parametrize("name", ["sort", "web"])
def test_its_applications_work(kongming: Kongming, tmp_path: Path, name: str) -> None:
    kongming("init")
    file = tmp_path / "apps.toml"
    # Smaller than in the example, so that the test is short, and on a port that is free.
    text = uncommented(file.read_text()).replace("3000000", "30000").replace("1000", "50")
    file.write_text(text.replace("8127", str(free_port())))
    with open_runner(load(file)[name], tmp_path / "work") as runner:
        outcome = runner.run((0,))
    assert outcome.error is None
    assert outcome.metric
