"""Errors of calls as gRPC statuses: what a caller gets to read, and how a call ends."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from kongming.records.errors import InputError, KongmingError, StoreError
from kongming.rpc.errors import to_status
from kongming_server.calls.request_ids import REQUEST_ID_KEY
from kongming_server.security.admission import current_call
from kongming_server.security.roles import Role

_log = logging.getLogger(__name__)

if TYPE_CHECKING:  # Their types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[Any, Any]


def code_of(error: Exception, context: Context) -> str:
    """Return the name of the status that a call which failed with ``error`` ends with."""
    if isinstance(error, grpc.aio.AbortError):
        code = context.code()
        return code.name if isinstance(code, grpc.StatusCode) else "UNKNOWN"
    return to_status(_public_error(error)).code.name


async def end(error: Exception, context: Context) -> NoReturn:
    """End the call with the status of ``error``."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    call = current_call.get()
    request_id = "-" if call is None else call.request_id
    public = _public_error(error)
    if isinstance(error, StoreError) and public is not error:
        _log.warning("The store failed in request %s: %s", request_id, error)
    error = public
    if not isinstance(error, KongmingError | TimeoutError):
        # The caller is told nothing of it but the id to ask for.
        _log.error("Unexpected error in request %s", request_id, exc_info=error)
    status = to_status(error)
    trailers: tuple[tuple[str, str | bytes], ...] = (
        *status.trailers,
        (REQUEST_ID_KEY, request_id),
    )
    try:
        await context.abort(status.code, status.message, trailers)
    except grpc.aio.AbortError as aborted:
        _forget_frames(aborted, error)
        raise
    raise AssertionError("abort returns")


def _public_error(error: Exception) -> Exception:
    """Return what the caller gets to read."""
    if isinstance(error, StoreError):
        call = current_call.get()
        if call is not None and call.caller.role is Role.AGENT:
            # Where it is and of what kind is none of an agent's business.
            return StoreError("The store failed.", hint="Try again later.")
    if isinstance(error, DecodeError):
        return InputError("The bytes are no message of this method.", field="message")
    return error


def _forget_frames(*errors: BaseException) -> None:
    """Let go of the frames that the errors came through, once this call's task has ended.

    gRPC keeps with a call what it was ended with, and each frame knows the call. In such a circle
    all headers of the call would stay until garbage is collected: 16,000 of them, in
    whose making they grow old, for up to ``COLLECTING_S``.
    """

    def forget(_: object) -> None:
        for error in errors:
            error.__traceback__ = error.__context__ = error.__cause__ = None

    call = asyncio.current_task()
    assert call is not None, "no task"
    call.add_done_callback(forget)
