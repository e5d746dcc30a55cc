"""Values that no application can have."""

from __future__ import annotations

from typing import Any

import pytest

from kongming.records.application import Application
from kongming.records.errors import InputError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timeout_s", 10**400),
        ("timeout_s", float("nan")),
        ("timeout_s", 0.0),
        ("warmup_s", -1.0),
        ("cpus", True),
        ("load_cpu", -1),
        ("cache", "hot"),
        ("env", {"A": 1}),
        ("setup", ()),
    ],
)
def test_it_is_refused_by_its_key(field: str, value: Any) -> None:
    with pytest.raises(InputError) as refused:
        Application(**{"name": "sort", "command": "sort", field: value})
    assert refused.value.field == field
