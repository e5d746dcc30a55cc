"""Examples at the end of a command's help."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return the ``epilog`` of a click command that shows ``lines``, one command each."""
    # A line with \b alone keeps click from wrapping what follows it.
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
