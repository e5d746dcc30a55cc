"""``--hook kongming`` of pyperf: what the machine did while a worker of pyperf measured.

A quick fingerprint before and after a worker's values goes into the run's metadata, with what
disturbed it. pyperf itself judges nothing by metadata: ``kongming.integrations.pyperf_check`` does.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

from kongming.gate.disturbance import Reason
from kongming.gate.locks import hold
from kongming.gate.watching import Opened, Watcher, summary
from kongming.printable import printable
from kongming.records.errors import ProbeError

PREFIX = "kongming_"
QUIET = "no"
"""What ``kongming_disturbed`` says of an undisturbed run; else the resources."""

EFFECT = 0.02
"""The slowdown for which signals are judged: pyperf hands nothing to a hook."""

PATIENCE_S = 1.0
"""An agent's probe is over by then; a worker of pyperf, of which there are twenty, may have a time
limit."""


class Hook:
    """A hook of pyperf, which makes one for each series of values of a worker. It holds the locks
    of measurements meanwhile. Surrogates that fail and another measurement that has the locks do
    not fail the worker: it is taken for disturbed.

    Raises:
        ProbeError: the micro-benchmark binary is missing.
    """

    def __init__(self) -> None:
        self._watcher = Watcher(EFFECT)
        self._opened: Opened | ProbeError | None = None
        self._locks = ExitStack()
        self._reasons: tuple[Reason, ...] = ()

    def __enter__(self) -> None:
        # pyperf enters before each value, and times only what is inside.
        if self._opened is None:
            self._reasons = hold(self._locks, "pyperf --hook kongming", patience_s=PATIENCE_S)
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
        with self._locks:
            self._tell(self._opened, metadata)

    def _tell(self, opened: Opened | ProbeError, metadata: dict[str, Any]) -> None:
        try:
            if isinstance(opened, ProbeError):
                raise opened
            stretch = self._watcher.end(opened)
        except ProbeError as error:
            metadata[f"{PREFIX}disturbed"] = "machine"
            metadata[f"{PREFIX}reasons"] = printable(f"The machine could not be watched: {error}")
            return
        metadata[f"{PREFIX}machine"] = stretch.before.node.id
        reasons = (*self._reasons, *stretch.reasons)
        metadata[f"{PREFIX}disturbed"] = summary(reasons) or QUIET
        if reasons:
            metadata[f"{PREFIX}reasons"] = " ".join(map(str, reasons))
        before, after = stretch.before.times(), stretch.after.times()
        for name in before.keys() & after.keys():
            metadata[f"{PREFIX}{name}"] = (before[name] + after[name]) / 2.0
