"""Commands that the README names exist, with each of their options."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from google.protobuf import json_format

from kongming.rpc.v1 import predictor_pb2
from tests.docs import commands
from tests.docs.tables import ROOT

README = ROOT / "README.md"
SERVICE = README.read_text().partition("## The service\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("words", commands.in_page(README), ids=lambda words: " ".join(words)[:60])
def test_the_programs_know_each_command(words: list[str]) -> None:
    assert commands.unknown(words) == []


def test_the_service_is_shown_by_commands() -> None:
    shown = {line.split()[0] for line in SERVICE.partition("```")[2].splitlines() if line.strip()}
    assert {"kongming", "kongming-agent", "kongming-server"} <= shown
    (target,) = set(re.findall(r"`make (\w+)`", SERVICE))
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_question_by_curl_is_one() -> None:
    (line,) = re.findall(r"^curl .*/v1/rank$", SERVICE.replace("\\\n", " "), re.MULTILINE)
    assert "Content-Type: application/json" in line
    (body,) = re.findall(r"-d '([^']+)'", line)
    request = json_format.Parse(body, predictor_pb2.RankNodesRequest())
    assert json.loads(body)["app"] == request.app


def test_all_extras_are_in_the_extra_all_and_on_the_page() -> None:
    """The Makefile installs what ``all`` lists, but for Ray."""
    text = (ROOT / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "packaging.md").read_text()
    (row,) = re.findall(r"^\| everything that models \|(.*)\|$", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(extras)
    (listed,) = extras.pop("all")
    # Of the wire alone nothing can be used; the others bring it.
    assert set(listed[len("kongming[") : -1].split(",")) == set(extras) - {"wire"}
    assert f'\nall = ["{listed}"]\n' in text
