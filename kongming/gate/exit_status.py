"""Exit status of what gates a benchmark: the same wherever it is asked."""

from __future__ import annotations

UNFIT = SLOWER = 4
"""The machine cannot show the effect, or the program is slower by it."""

CANNOT_TELL = 3
"""There were too few runs for either."""
