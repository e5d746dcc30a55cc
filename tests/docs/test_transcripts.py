"""Transcripts on the pages are what the commands print."""

from __future__ import annotations

import re

import pytest

from tests.docs.scripts import load
from tests.docs.tables import ROOT

transcripts = load("transcripts")
RECORDED = [transcript for transcript in transcripts.TRANSCRIPTS if not transcript.measures]


@pytest.mark.parametrize("transcript", RECORDED, ids=lambda transcript: transcript.name)
def test_a_transcript_of_recorded_data_is_what_the_command_prints(transcript) -> None:  # type: ignore[no-untyped-def]
    page = (ROOT / transcript.page).read_text()
    assert transcripts.replaced(page, transcript.name, transcripts.record(transcript)) == page


def test_each_transcript_has_its_block() -> None:
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in transcripts.pages()
        for name in re.findall(r"<!-- transcript: ([\w-]+) -->\n```\n\$ ", path.read_text())
    }
    assert named == {(transcript.page, transcript.name) for transcript in transcripts.TRANSCRIPTS}


def test_no_block_that_shows_a_command_and_its_output_is_written_by_hand() -> None:
    for path in transcripts.pages():
        text = path.read_text()
        shown = len(re.findall(r"^```\n\$ ", text, re.MULTILINE))
        assert shown == len(re.findall(r"^<!-- transcript: ", text, re.MULTILINE)), path


def test_the_block_of_an_unknown_name_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no block"):
        transcripts.replaced("# A page\n", "demo", "text")
