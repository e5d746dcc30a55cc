"""Tags of comments, and notes that job_submit.lua makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_slurm import tags
from kongming_slurm.tags import Note, Tag


@pytest.mark.parametrize(
    ("comment", "tag"),
    [
        ("kongming:app=xz", Tag("xz")),
        ("kongming:app=xz,limit=1.2", Tag("xz", 1.2)),
        ("for the paper kongming:limit=2,app=a.b-c_d+e please", Tag("a.b-c_d+e", 2.0)),
        ("kongming:no-exclusions kongming:no-time kongming:app=xz", Tag("xz")),
        ("", None),
        ("app=xz", None),
        ("kongming:", None),
        ("kongming:limit=2", None),
        ("kongming:app=xz,limit=0.9", None),
        ("kongming:app=xz,limit=inf", None),
        ("kongming:app=xz,limit=1e3", None),
        ("kongming:app=xz,speed=2", None),
        ("kongming:app=" + "x" * 65, None),
        ("kongming:app=x;rm", None),
    ],
)
def test_tags(comment: str, tag: Tag | None) -> None:
    assert tags.tag(comment) == tag


@given(st.text())
def test_any_comment_can_be_read(comment: str) -> None:
    for text in (comment, f"kongming:{comment}", f"kongming:app=x,limit={comment}"):
        tag = tags.tag(text)
        assert tag is None or (tags.is_name(tag.app) and (tag.limit or 1.0) >= 1.0)
        tags.note(text)


def test_notes() -> None:
    text = "kongming:app=xz,limit=1.5,nodes=2,cpus=3,memory=4,total=5,own=n[1-2],m"
    assert tags.note(text) == Note("xz", 1.5, 2, 3, 4, 5, "n[1-2],m")
    assert tags.note(f"of the operator {text}") == tags.note(text)
    bounds = "task-cpus=2,node-tasks=3,node-cpus=7,memory-per-cpu=500,time=9,own="
    assert tags.note(text.replace("own=", bounds)) == Note(
        "xz", 1.5, 2, 3, 4, 5, "n[1-2],m", 9, 2, 3, 7, 500
    )
    # A tag of a user's is no note.
    assert tags.note("kongming:app=xz,limit=1.5") is None
    assert tags.note(text.replace("nodes=2", "nodes=two")) is None
