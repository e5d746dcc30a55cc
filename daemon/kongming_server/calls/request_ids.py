"""Ids of requests: of answers, errors and lines of a log."""

from __future__ import annotations

import itertools
import logging
import secrets

from kongming.records.errors import InputError
from kongming_server.security.admission import current_call
from kongming_server.security.roles import Role

REQUEST_ID_KEY = "x-request-id"
_LONGEST_REQUEST_ID = 128
_process = secrets.token_hex(4)
_count = itertools.count(1)


def request_id_of(given: str) -> str:
    """The request id to use: what the caller gave, or a new one.

    Raises:
        InputError: what was given is too long, or cannot stand in a header or on a line of a log.
    """
    if not given:
        return f"{_process}-{next(_count):x}"
    # Metadata and headers that bring it back hold no other characters.
    plain = given.isascii() and given.isprintable()
    if len(given) > _LONGEST_REQUEST_ID or not plain:
        raise InputError(
            "is not allowed.",
            field="request_id",
            value=given[:_LONGEST_REQUEST_ID],
            allowed=f"up to {_LONGEST_REQUEST_ID} printable ASCII characters",
        )
    return given


class RequestIds(logging.Filter):
    """Puts ``request_id`` and ``caller`` on each record of a log: of the call, or a dash; and
    ``agent``, the credentials of an agent that had to say who it is, empty for others."""

    def filter(self, record: logging.LogRecord) -> bool:
        call = current_call.get()
        record.request_id = "-" if call is None else call.request_id
        record.caller = "-" if call is None else call.caller.name
        by_agent = call is not None and call.caller.role is Role.AGENT
        record.agent = call.caller.identity if call is not None and by_agent else ""
        return True
