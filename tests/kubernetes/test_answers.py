"""What is remembered of the questions: the last answers, and how many nodes were shown."""

from __future__ import annotations

import pytest
from kongming_extender import answers
from kongming_extender.answers import Answer, LastAnswers
from kongming_extender.coverage import QUESTIONS, Coverage
from kongming_extender.pods import Demand, Pod


def answer(uid: str, name: str, nodes: int) -> Answer:
    pod = Pod(uid=uid, namespace="default", name=name, demand=Demand(app="etl"))
    scores = dict.fromkeys((f"n{n}" for n in range(nodes)), None)
    return Answer(pod=pod, scores=scores, refused={}, residents={}, judged=True)


def test_the_newest_answers_are_remembered_up_to_a_number_of_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "MAX_ROWS", 10)
    last = LastAnswers()
    for uid, name, nodes in (("1", "a", 4), ("2", "b", 4), ("1", "a", 5)):
        last.put(answer(uid, name, nodes))
    newest = last.get("default/a")
    assert newest is not None
    assert len(newest.scores) == 5
    assert last.get("1") is newest
    # A pod that was made anew under its name, for which the oldest makes room.
    last.put(answer("3", "a", 4))
    remembered = last.get("default/a")
    assert remembered is not None
    assert remembered.pod.uid == "3"
    assert last.get("default/b") is None
    # One answer is kept, however many nodes it has.
    last.put(answer("4", "d", 20))
    assert last.get("default/a") is None
    assert last.get("default/d") is not None


@pytest.mark.parametrize(
    ("named", "known", "questions", "low"),
    [
        (188, 400, QUESTIONS, True),
        (188, 400, QUESTIONS - 1, False),
        (390, 400, QUESTIONS, False),
        (20, 100, QUESTIONS, False),
    ],
)
def test_few_nodes_are_shown_where_many_questions_say_so(
    named: int, known: int, questions: int, low: bool
) -> None:
    coverage = Coverage()
    for _ in range(questions):
        coverage.add(named, known)
    assert coverage.low == low
    # One question that names them all shows that they are not hidden.
    coverage.add(known, known)
    assert not coverage.low
