"""An error that the server raises is the one that the caller meets."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from kongming.records import errors
from kongming.records.errors import InputError, KongmingError
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from kongming.rpc.errors import (
    DOMAIN,
    failure_message,
    from_failure,
    from_rpc_error,
    reason_of,
    to_status,
)
from tests.rpc.scripted import serving

HINT = "Do it otherwise."

EXAMPLES: list[KongmingError] = [
    KongmingError("It failed.", hint=HINT),
    InputError("is wrong.", field="a.b", value=-1, allowed="0 or more", hint=HINT),
    InputError("Something is wrong."),
    errors.ImplausibleError("is implausible.", field="wall_s", value=-1.0, hint=HINT),
    errors.UnknownNameError("application", "srot", ["sort", "sore"], hint=HINT),
    errors.ApplicationFileError("The key is wrong."),
    errors.MissingExtraError("Training", "predict", "numpy"),
    errors.ConflictError("is another's.", field="assignment_id", value="job-1"),
    errors.IncompatibleError("Another suite.", hint=HINT),
    errors.CannotAnswerError("There is no answer."),
    errors.UntrainedError("Nothing was trained, not for a café.", hint=HINT),
    errors.StaleError("It is too old.", hint=HINT),
    errors.ExtrapolationError("It lies outside.", hint=HINT),
    errors.CheckFailedError("The check failed."),
    errors.MeasurementError("It could not be measured."),
    errors.ProbeError("The probe failed."),
    errors.InducerError("The inducer failed."),
    errors.ApplicationRunError("The application failed."),
    errors.StoreError("The database is away.", hint=HINT),
    errors.ServiceError("The server failed."),
    errors.UnavailableError("The server is away."),
    errors.OverloadedError("The queue is full.", hint=HINT),
    errors.AccessError("Who are you?", reason="unauthenticated", hint=HINT),
    errors.AccessError("An agent may not predict.", hint=HINT),
]


def all_errors(kind: type[KongmingError] = KongmingError) -> set[type[KongmingError]]:
    return {kind}.union(*(all_errors(below) for below in kind.__subclasses__()))


def same(received: BaseException, raised: KongmingError) -> bool:
    """Class, message, hint and all else that it holds but ``value``, which is in the message."""
    held = {k: v for k, v in vars(raised).items() if k != "value"}
    return (
        type(received) is type(raised)
        and {k: v for k, v in vars(received).items() if k != "value"} == held
    )


def test_the_examples_are_of_every_class() -> None:
    ours = {kind for kind in all_errors() if kind.__module__ == "kongming.records.errors"}
    assert {type(error) for error in EXAMPLES} == ours
    assert len({reason_of(kind) for kind in ours}) == len(ours)


@pytest.mark.parametrize("raised", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_survives_a_real_call(raised: KongmingError) -> None:
    def refuse(request: Any) -> Any:
        raise raised

    with (
        serving({"ListNodes": refuse}) as server,
        RemoteService(Connection(server.target)) as service,
        pytest.raises(KongmingError) as caught,
    ):
        service.nodes()
    assert same(caught.value, raised)
    assert caught.value.exit_status == raised.exit_status


@pytest.mark.parametrize("raised", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_in_a_batch_keeps_class_message_field_and_hint(raised: KongmingError) -> None:
    failure = failure_message(raised)
    received = from_failure(type(failure).FromString(failure.SerializeToString()))
    assert (type(received), received.message, received.hint) == (
        type(raised),
        raised.message,
        raised.hint,
    )
    assert getattr(received, "field", None) == getattr(raised, "field", None)
    assert failure.code == to_status(raised).code.name


def test_status_names_the_field_for_those_who_do_not_know_kongming() -> None:
    code, message, details = to_status(InputError("is wrong.", field="a.b", value=-1, hint=HINT))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    info, request = details
    assert isinstance(info, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain, info.metadata["hint"]) == ("INPUT", DOMAIN, HINT)
    assert isinstance(request, error_details_pb2.BadRequest)
    assert [(v.field, v.description) for v in request.field_violations] == [("a.b", message)]


@pytest.mark.parametrize("error", [ValueError("secret"), OSError(5, "/private/path")])
def test_what_was_not_foreseen_tells_nothing_of_the_inside(error: Exception) -> None:
    status = to_status(error)
    assert status.code is grpc.StatusCode.INTERNAL
    assert "secret" not in status.message
    assert "/private" not in status.message
    assert not status.details


def test_subclass_of_another_module_arrives_as_its_nearest_known_class() -> None:
    class Special(errors.UntrainedError):
        pass

    assert type(from_failure(failure_message(Special("no")))) is errors.UntrainedError


@pytest.mark.parametrize("letter", ["x", "é", "鴻"])
def test_long_texts_are_cut_to_fit_the_headers(letter: str) -> None:
    long = letter * 100_000
    raised = InputError(long, field=long, allowed=long, hint=long)

    def refuse(request: Any) -> Any:
        raise raised

    with (
        serving({"ListNodes": refuse}) as server,
        RemoteService(Connection(server.target)) as service,
        pytest.raises(InputError) as caught,
    ):
        service.nodes()
    for text in (caught.value.message, caught.value.field, caught.value.hint):
        assert text is not None
        assert text.startswith(letter * 100)
        assert text.endswith(" ...")


class Ended(grpc.RpcError):
    """A call that ended with a bare status, as another server's."""

    def __init__(self, code: grpc.StatusCode, trailers: Any = None) -> None:
        super().__init__()
        self._code, self._trailers = code, trailers

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "a message"

    def trailing_metadata(self) -> Any:
        return self._trailers


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.UnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.UnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.OverloadedError),
        (grpc.StatusCode.UNAUTHENTICATED, errors.AccessError),
        (grpc.StatusCode.PERMISSION_DENIED, errors.AccessError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.IncompatibleError),
        (grpc.StatusCode.INVALID_ARGUMENT, InputError),
        (grpc.StatusCode.NOT_FOUND, InputError),
        (grpc.StatusCode.ALREADY_EXISTS, errors.ConflictError),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.CannotAnswerError),
        (grpc.StatusCode.INTERNAL, errors.ServiceError),
        (grpc.StatusCode.UNKNOWN, errors.ServiceError),
    ],
)
@pytest.mark.parametrize("trailers", [None, (("grpc-status-details-bin", b"\xff\xff"),)])
def test_status_of_anyone_becomes_an_error_by_its_code(
    code: grpc.StatusCode, kind: type[KongmingError], trailers: Any
) -> None:
    received = from_rpc_error(Ended(code, trailers), "host:7400")
    assert type(received) is kind
    assert "a message" in received.message or "host:7400" in received.message


def test_suggestions_arrive() -> None:
    raised = errors.UnknownNameError("application", "srot", ["sort", "zip"])
    assert json.loads(to_status(raised).details[0].metadata["suggestions"]) == ["sort"]  # type: ignore[attr-defined]


def test_no_line_of_grpc_reaches_a_user(kongming_env: dict[str, str]) -> None:
    """TLS towards a server without it: gRPC would log the handshake itself."""
    code = "from kongming.cli.start import main; main()"
    with serving({}) as server:
        command = [sys.executable, "-c", code, "nodes", "--tls", "--server", server.target]
        done = subprocess.run(command, env=kongming_env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: No answer from ")
    assert "ssl_transport_security.cc" not in done.stderr
