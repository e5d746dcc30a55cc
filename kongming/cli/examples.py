"""Examples at the end of a command's help."""

from kongming.help_examples import examples

__all__ = ["examples"]
