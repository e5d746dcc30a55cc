"""Variants of one test: some in ``make test``, all others in ``make thorough``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["variants"]


def variants(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """Return values of one argument for ``parametrize``; all but the first ``quick`` of them are
    thorough."""
    return [
        value if k < quick else pytest.param(value, marks=pytest.mark.thorough)
        for k, value in enumerate(values)
    ]
