"""Names of all model kinds, as parameters of tests."""

from __future__ import annotations

import pytest

from kongming.learning.registry import KINDS

KIND_NAMES = [
    pytest.param(name, marks=pytest.mark.thorough) if KINDS[name].optional else name
    for name in sorted(KINDS)
]
"""Those that are fitted only when asked for, which are slow, are left to the thorough tests."""
