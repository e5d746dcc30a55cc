"""Questions as messages, and the predictor's messages as answers: for the client and the server."""

from __future__ import annotations

from typing import Any

from kongming.records.answers import Forecast
from kongming.records.errors import KongmingError
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.rpc.errors import failure_message, from_failure
from kongming.rpc.message_codec import as_fields, from_message, to_message
from kongming.rpc.v1 import predictor_pb2

_SETS = 1
"""Sets of nodes that are returned where a request does not say how many."""


# -- questions ---------------------------------------------------------------------------------


def question_to_message(question: Question) -> predictor_pb2.PredictQuestion:
    return to_message(question, predictor_pb2.PredictQuestion)


def question_from_message(message: predictor_pb2.PredictQuestion) -> Question:
    """Raises InputError naming the field."""
    return from_message(Question, message)


def colocation_to_message(
    question: ColocationQuestion, request_id: str
) -> predictor_pb2.PredictColocationRequest:
    message = to_message(question, predictor_pb2.PredictColocationRequest)
    message.request_id = request_id
    return message


def colocation_from_message(message: predictor_pb2.PredictColocationRequest) -> ColocationQuestion:
    """Raises InputError naming the field."""
    return from_message(ColocationQuestion, message)


def rank_to_message(question: RankQuestion, request_id: str) -> predictor_pb2.RankNodesRequest:
    message = to_message(question, predictor_pb2.RankNodesRequest)
    message.request_id = request_id
    return message


def rank_from_message(message: predictor_pb2.RankNodesRequest) -> RankQuestion:
    """Raises InputError naming the field."""
    if message.HasField("scaling") and not message.limit:
        return from_message(RankQuestion, message, limit=_SETS)
    return from_message(RankQuestion, message)


# -- answers -----------------------------------------------------------------------------------


def answer_fields(answer: Forecast | KongmingError) -> dict[str, Any]:
    """Return what a PredictAnswer is made of, for ``answers.add``: one that is made first is
    copied."""
    if isinstance(answer, KongmingError):
        return {"failure": failure_message(answer)}
    return {"prediction": as_fields(answer, predictor_pb2.Prediction)}


def answer_from_message(message: predictor_pb2.PredictAnswer) -> Forecast | KongmingError:
    """A question's answer, or the error that it has in place of one.

    Raises:
        InputError: an interval is implausible.
    """
    if message.WhichOneof("answer") == "failure":
        return from_failure(message.failure)
    return from_message(Forecast, message.prediction)
