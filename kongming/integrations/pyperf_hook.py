"""``--hook kongming`` of pyperf: what the machine did while a worker of pyperf measured.

A quick fingerprint before and after a worker's values goes into the run's metadata, with what
disturbed it. pyperf itself judges nothing by metadata: ``kongming.integrations.pyperf_check`` does.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from kongming.gate.watching import Opened, Watcher, summary
from kongming.printable import printable
from kongming.records.errors import ProbeError

PREFIX = "kongming_"
QUIET = "no"
"""What ``kongming_disturbed`` says of an undisturbed run; else the resources."""

EFFECT = 0.02
"""The slowdown for which signals are judged: pyperf hands nothing to a hook."""


class Hook:
    """A hook of pyperf, which makes one for each series of values of a worker. Surrogates that fail
    do not fail the worker: it is taken for disturbed.

    Raises:
        ProbeError: the micro-benchmark binary is missing.
    """

    def __init__(self) -> None:
        self._watcher = Watcher(EFFECT)
        self._opened: Opened | ProbeError | None = None

    def __enter__(self) -> None:
        # pyperf enters before each value, and times only what is inside.
        if self._opened is None:
            try:
                self._opened = self._watcher.begin()
            except ProbeError as error:
                self._opened = error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """A value was measured."""

    def teardown(self, metadata: dict[str, Any]) -> None:
        """Called by pyperf after the last value; metadata are numbers and texts."""
        if self._opened is None:
            return
        try:
            if isinstance(self._opened, ProbeError):
                raise self._opened
            stretch = self._watcher.end(self._opened)
        except ProbeError as error:
            metadata[f"{PREFIX}disturbed"] = "machine"
            metadata[f"{PREFIX}reasons"] = printable(f"The machine could not be watched: {error}")
            return
        metadata[f"{PREFIX}machine"] = stretch.before.node.id
        metadata[f"{PREFIX}disturbed"] = summary(stretch.reasons) or QUIET
        if stretch.reasons:
            metadata[f"{PREFIX}reasons"] = " ".join(map(str, stretch.reasons))
        before, after = stretch.before.times(), stretch.after.times()
        for name in before.keys() & after.keys():
            metadata[f"{PREFIX}{name}"] = (before[name] + after[name]) / 2.0
