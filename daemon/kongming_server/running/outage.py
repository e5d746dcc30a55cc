"""Log once when the store stops accepting writes, and once when it accepts them again."""

from __future__ import annotations

import logging

from kongming.records.errors import KongmingError, StoreError

_log = logging.getLogger(__name__)


class Outage:
    """A full disk, a database that is away: one line of the log for each, however many calls meet
    it. Used from one event loop."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._refused = 0

    @property
    def reason(self) -> str | None:
        """Return why nothing can be kept; None where it can."""
        return self._reason

    def failed(self, error: Exception) -> None:
        """Something could not be written. Other errors than of the store are about its content."""
        if isinstance(error, KongmingError) and not isinstance(error, StoreError):
            return
        self._refused += 1
        if self._reason is None:
            self._reason = f"The store takes nothing: {error}"
            _log.error("The store takes nothing; callers are asked to try again: %s", error)

    def succeeded(self) -> None:
        """Something was written."""
        if self._reason is not None:
            _log.warning("The store takes records again; %d writes had failed.", self._refused)
        self._reason, self._refused = None, 0
