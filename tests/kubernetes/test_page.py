"""docs/kubernetes.md names settings, metrics, annotations, files and commands that exist."""

from __future__ import annotations

import re

import pytest
from kongming_extender import extender_config as config
from kongming_extender import metrics

from kongming import settings as declared
from tests.docs import commands
from tests.kubernetes import tables

PAGE = tables.PAGE.read_text(encoding="utf-8")
ROOT = tables.PAGE.parents[1]


def test_the_tables_are_those_of_the_program() -> None:
    assert tables.with_tables(PAGE) == PAGE, "run: python -m tests.kubernetes.tables"


def test_all_that_the_text_names_exists() -> None:
    settings = {row.key for row in declared.table(config.Config)}
    sections = {key.partition(".")[0] for key in settings} - {"server"}
    named = {f"{s}.{k}" for s, k in re.findall(r"`(\w+)\.(\w+)`", PAGE) if s in sections}
    assert named - settings == set()
    known = {metrics.PREFIX + row.name for row in metrics.DECLARED}
    assert set(re.findall(r"\bkongming_extender_\w+", PAGE)) - known == set()
    for path in re.findall(r"`((?:daemon|benchmarks)/[\w./-]+)`", PAGE):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("words", commands.in_page(tables.PAGE), ids=lambda w: " ".join(w)[:60])
def test_the_programs_know_each_command(words: list[str]) -> None:
    assert commands.unknown(words) == []
