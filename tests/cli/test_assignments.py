"""``kongming assignments reserve`` and ``bind``: the exit status says whether the place is held."""

from __future__ import annotations

import json

import pytest

from kongming.cli.main import run
from kongming.rpc.v1 import assignments_pb2 as pb
from tests.rpc.scripted import serving

RESERVED, BOUND, RELEASED, EXPIRED = (
    pb.ASSIGNMENT_STATE_RESERVED,
    pb.ASSIGNMENT_STATE_BOUND,
    pb.ASSIGNMENT_STATE_RELEASED,
    pb.ASSIGNMENT_STATE_EXPIRED,
)
RESERVE, BIND = ("reserve", "job-1", "sort", "n1"), ("bind", "job-1", "--node", "n1")


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize(
    ("arguments", "state", "status"),
    [
        (RESERVE, RESERVED, 0),
        (RESERVE, BOUND, 0),
        (RESERVE, EXPIRED, 2),
        (RESERVE, RELEASED, 2),
        (BIND, BOUND, 0),
        (BIND, RELEASED, 2),
    ],
)
def test_an_id_whose_assignment_has_ended_holds_no_place(
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    state: pb.AssignmentState.ValueType,
    status: int,
    as_json: bool,
) -> None:
    assignment = pb.Assignment(assignment_id="job-1", app="sort", node_id="n1", state=state)
    answers = {
        "Reserve": lambda _: pb.ReserveResponse(assignment=assignment),
        "Bind": lambda _: pb.BindResponse(assignment=assignment),
    }
    with serving(answers) as server:
        options = ["--server", server.target, *(["--json"] if as_json else [])]
        assert run(["assignments", *arguments, *options]) == status
    shown = capsys.readouterr()
    if as_json:
        word = pb.AssignmentState.Name(state).rpartition("_")[2].lower()
        assert json.loads(shown.out)["state"] == word
    assert ("an id of its own" in shown.err) == (status == 2)
