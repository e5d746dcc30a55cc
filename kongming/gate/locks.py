"""The locks of measurements, for what measures all the same and says who else does."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from kongming.gate.disturbance import Reason
from kongming.probes.measuring import BusyError, Holder, measuring


def hold(stack: ExitStack, command: str, *, patience_s: float | None = None) -> tuple[Reason, ...]:
    """Hold the locks of all CPUs until ``stack`` ends; where another measurement of ours has one,
    nothing is held and that is the reason. ``command`` and ``patience_s`` as in ``measuring``."""
    try:
        stack.enter_context(measuring(command, patience_s=patience_s))
    except BusyError as error:
        return (lock_reason(error.holder),)
    return ()


def lock_reason(other: Holder) -> Reason:
    """Return the reason that ``other`` is."""
    # The reason has the time for itself.
    who = replace(other, since="")
    return Reason("lock", f"{who} measures on CPU {who.cpu}.", other.since or None)
