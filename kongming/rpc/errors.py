"""Errors on the wire: one mapping on each side, so that a caller meets what the server raised.

The status carries google.rpc.ErrorInfo (reason: the class, as UNKNOWN_NAME; domain; what else
the error holds) and, where the error is about a field, google.rpc.BadRequest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from kongming.records import errors
from kongming.records.errors import AccessError, InputError, KongmingError
from kongming.rpc.v1 import predictor_pb2

DOMAIN = "kongming.dev"
"""The domain of every ErrorInfo."""

DETAILS_KEY = "grpc-status-details-bin"
"""The trailer that holds a google.rpc.Status."""

_LONGEST = 600
"""Bytes of one text: gRPC bounds all headers of an answer to 8 KiB, in which a text stands up to
three times, in base 64 or with each byte as %XX."""

_Code = grpc.StatusCode

_CODES: dict[type[KongmingError], grpc.StatusCode] = {
    KongmingError: _Code.INTERNAL,
    InputError: _Code.INVALID_ARGUMENT,
    errors.ImplausibleError: _Code.INVALID_ARGUMENT,
    errors.UnknownNameError: _Code.NOT_FOUND,
    errors.ApplicationFileError: _Code.INVALID_ARGUMENT,
    errors.MissingExtraError: _Code.UNIMPLEMENTED,
    errors.ConflictError: _Code.ALREADY_EXISTS,
    errors.IncompatibleError: _Code.FAILED_PRECONDITION,
    errors.CannotAnswerError: _Code.FAILED_PRECONDITION,
    errors.UntrainedError: _Code.FAILED_PRECONDITION,
    errors.StaleError: _Code.FAILED_PRECONDITION,
    errors.ExtrapolationError: _Code.FAILED_PRECONDITION,
    errors.CheckFailedError: _Code.INTERNAL,
    errors.MeasurementError: _Code.INTERNAL,
    errors.ProbeError: _Code.INTERNAL,
    errors.InducerError: _Code.INTERNAL,
    errors.ApplicationRunError: _Code.INTERNAL,
    # The same request may succeed once the database is back.
    errors.StoreError: _Code.UNAVAILABLE,
    errors.ServiceError: _Code.INTERNAL,
    errors.UnavailableError: _Code.UNAVAILABLE,
    errors.OverloadedError: _Code.RESOURCE_EXHAUSTED,
    AccessError: _Code.PERMISSION_DENIED,
}

_UNFORESEEN = "The server failed with an unexpected error."


def reason_of(kind: type[KongmingError]) -> str:
    """The class's name as ErrorInfo has it: UnknownNameError is UNKNOWN_NAME."""
    name = kind.__name__.removesuffix("Error") if kind is not KongmingError else kind.__name__
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


_CONNECTING = {
    "http1.x server": "That is a port of HTTP, as the server has for metrics; gRPC has another, "
    "7400 where nothing else was set (kongming-server --listen).",
    "Hostname Verification": "The server's certificate is of another name: use the one that it is "
    "for, or make it one for this name (kongming-server init-tls DIR --renew --name NAME).",
    "certificate has expired": "The server's certificate has expired: its operator makes a new one "
    "(kongming-server init-tls DIR --renew).",
    "CERTIFICATE_VERIFY_FAILED": "The server's certificate was made by another authority: give "
    "that server's own as --ca FILE (init-tls calls it ca.crt).",
    "security handshaker": "Do --cert and --key belong together, and is --ca a certificate? All "
    "are PEM files.",
    "Socket closed": "If the server has TLS, give its authority (--ca FILE); if it asks for client "
    "certificates, one that it accepts (--cert FILE --key FILE).",
    "WRONG_VERSION_NUMBER": "The server has no TLS: leave out --ca, --cert, --key and --tls.",
    "Connection reset by peer": "If the server has TLS, give its authority (--ca FILE); if it asks "
    "for client certificates, one that it accepts (--cert FILE --key FILE).",
}
"""Words of gRPC that tell why there is no connection, and the way out; the first that fits."""


_CLASSES = {reason_of(kind): kind for kind in _CODES}


class Status(NamedTuple):
    """Status that a call ends with: ``context.abort(status.code, status.message,
    status.trailers)``."""

    code: grpc.StatusCode
    message: str
    details: tuple[Message, ...]

    @property
    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        """The trailing metadata that holds the details."""
        full = status_pb2.Status(code=self.code.value[0], message=self.message)
        for detail in self.details:
            full.details.add().Pack(detail)
        return ((DETAILS_KEY, full.SerializeToString()),)


def to_status(error: BaseException) -> Status:
    """The status of an error. What is no KongmingError tells nothing of the server's inside."""
    if isinstance(error, TimeoutError):
        return Status(_Code.DEADLINE_EXCEEDED, "The server did not finish in time.", ())
    if not isinstance(error, KongmingError):
        return Status(_Code.INTERNAL, _UNFORESEEN, ())
    known = _known(error)
    code = _CODES[known]
    if isinstance(error, AccessError) and error.reason == "unauthenticated":
        code = _Code.UNAUTHENTICATED
    message = _cut(error.message)
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=reason_of(known), domain=DOMAIN, metadata=_held(error))
    ]
    if isinstance(error, InputError) and error.field is not None:
        request = error_details_pb2.BadRequest()
        request.field_violations.add(field=_cut(error.field), description=message)
        details.append(request)
    return Status(code, message, tuple(details))


def from_rpc_error(error: grpc.RpcError, server: str | None = None) -> KongmingError:
    """Return what the server raised, of the same class, with its message, field and hint.

    An error of the way there, or of another server, becomes a ServiceError or InputError by its
    code. ``server`` is named in the hint of one that is away.
    """
    code, message = _code(error), _message(error)
    info, field = _details(error)
    if info is not None and info.reason in _CLASSES:
        return _error_of(_CLASSES[info.reason], message, info.metadata, field)
    where = "the server" if server is None else server
    kind: type[KongmingError] = errors.ServiceError
    match code:
        case _Code.UNAVAILABLE:
            return errors.UnavailableError(
                f"No answer from {where} ({_shortened(message)}).", hint=_way_out(message)
            )
        case _Code.DEADLINE_EXCEEDED:
            return errors.UnavailableError(
                f"No answer from {where} in time.", hint="Try again, or allow more time."
            )
        case _Code.RESOURCE_EXHAUSTED:
            return errors.OverloadedError(message, hint="Try again later.")
        case _Code.UNAUTHENTICATED:
            return AccessError(
                message,
                reason="unauthenticated",
                hint="Give --token-file, or --cert and --key.",
            )
        case _Code.PERMISSION_DENIED:
            return AccessError(message, hint="Ask for a token of a role that may do this.")
        case _Code.UNIMPLEMENTED:
            return errors.IncompatibleError(
                f"The server does not know this call ({message}).",
                hint="Is it a kongming-server, and as new as this kongming?",
            )
        case _Code.INVALID_ARGUMENT | _Code.OUT_OF_RANGE | _Code.NOT_FOUND:
            kind = InputError
        case _Code.ALREADY_EXISTS:
            kind = errors.ConflictError
        case _Code.FAILED_PRECONDITION:
            kind = errors.CannotAnswerError
    return _error_of(kind, message or f"The server ended the call with {code.name}.", {}, field)


def _shortened(message: str) -> str:
    """Leave out what gRPC says before the error, and how OpenSSL names which of its own it is."""
    return re.sub(
        r"^failed to connect to all addresses; last error: \w+: |"
        r"SSL_ERROR_SSL: error:[0-9a-f]+:SSL routines:OPENSSL_internal:|: OK$",
        "",
        message,
    )


def _way_out(message: str) -> str:
    """Return what to do where there is no connection. A server that a TLS client without a
    certificate, or a client without TLS, has called closes the connection and says nothing."""
    for sign, hint in _CONNECTING.items():
        if sign in message:
            return hint
    return "Is kongming-server running there, and are the address and --ca right?"


def failure_message(error: BaseException) -> predictor_pb2.Failure:
    """One question's error inside a batch."""
    status = to_status(error)
    hint = error.hint if isinstance(error, KongmingError) else None
    return predictor_pb2.Failure(
        code=code_pb2.Code.Name(status.code.value[0]),
        message=status.message,
        field=_cut(error.field or "") if isinstance(error, InputError) else "",
        hint=_cut(hint or ""),
        reason=reason_of(_known(error)) if isinstance(error, KongmingError) else "",
    )


def from_failure(failure: predictor_pb2.Failure) -> KongmingError:
    """The error that a batch holds in place of an answer: class, message, field and hint."""
    held = {"hint": failure.hint} if failure.hint else {}
    kind = _CLASSES.get(failure.reason, errors.ServiceError)
    return _error_of(kind, failure.message, held, failure.field or None)


# -- what an error holds besides its message ---------------------------------------------------

_TEXTS = ("hint", "allowed", "kind", "name", "extra", "reason")
"""Attributes that are texts or None, as they are in the metadata."""


def _known(error: KongmingError) -> type[KongmingError]:
    """The nearest class that the other side knows."""
    return next(kind for kind in type(error).__mro__ if kind in _CODES)


def _held(error: KongmingError) -> dict[str, str]:
    held = {
        name: _cut(value) for name in _TEXTS if isinstance(value := getattr(error, name, None), str)
    }
    suggestions = getattr(error, "suggestions", ())
    if suggestions:
        held["suggestions"] = json.dumps([_cut(text) for text in suggestions])
    return held


def _error_of(
    kind: type[KongmingError], message: str, held: Mapping[str, str], field: str | None
) -> KongmingError:
    # Not by its constructor, which would put the message together a second time.
    error = kind.__new__(kind, message)
    KongmingError.__init__(error, message, hint=held.get("hint"))
    attributes: dict[str, Any] = {}
    if isinstance(error, InputError):
        attributes = {
            "problem": message.removeprefix(f"{field}: "),
            "field": field,
            "value": None,
            "allowed": held.get("allowed"),
        }
    if isinstance(error, errors.UnknownNameError):
        attributes |= {
            "kind": held.get("kind", ""),
            "name": held.get("name", ""),
            "suggestions": _suggestions(held.get("suggestions", "[]")),
        }
    if isinstance(error, errors.MissingExtraError):
        attributes["extra"] = held.get("extra", "")
    if isinstance(error, AccessError):
        unknown = held.get("reason") == "unauthenticated"
        attributes["reason"] = "unauthenticated" if unknown else "forbidden"
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def _suggestions(text: str) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except ValueError:
        return ()
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def _cut(text: str) -> str:
    # What is quoted from a request may hold half a surrogate pair, which no message can.
    data = text.encode("utf-8", "replace")
    if len(data) <= _LONGEST:
        return data.decode("utf-8")
    return data[: _LONGEST - 4].decode("utf-8", "ignore") + " ..."


# -- what a call ended with --------------------------------------------------------------------


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    # What ends a call has these methods; the class alone has not.
    code = error.code() if hasattr(error, "code") else None
    return code if isinstance(code, grpc.StatusCode) else _Code.UNKNOWN


def _message(error: grpc.RpcError) -> str:
    return str(error.details() or "") if hasattr(error, "details") else str(error)


def _details(error: grpc.RpcError) -> tuple[error_details_pb2.ErrorInfo | None, str | None]:
    """Our ErrorInfo and the first field of a BadRequest, where there are any."""
    trailers: Any = ()
    if hasattr(error, "trailing_metadata"):
        trailers = error.trailing_metadata() or ()
    info, field = None, None
    for key, value in trailers:
        if key != DETAILS_KEY:
            continue
        try:
            full = status_pb2.Status.FromString(value)
            for packed in full.details:
                error_info = error_details_pb2.ErrorInfo()
                request = error_details_pb2.BadRequest()
                if packed.Unpack(error_info) and error_info.domain == DOMAIN:
                    info = error_info
                elif packed.Unpack(request) and request.field_violations:
                    field = request.field_violations[0].field
        except DecodeError:
            return None, None
    return info, field
