"""Documents of records in which one value is of another kind, or gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kongming.records.application import Application
from kongming.records.errors import InputError
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run, Signature
from tests import builders

TIMES = {"memory.random.8M": 2e-8}
PRINT = builders.fingerprint(TIMES).to_dict()
RUN = builders.run("sort", 1.0).to_dict()
SIGNATURE = builders.signature("sort", TIMES).to_dict()

APPLICATION = Application("sort", "sort input").to_dict()


@pytest.mark.parametrize(
    ("read", "document", "changes"),
    [
        (Fingerprint.from_dict, PRINT, {"surrogates": {"memory.random.8M": None}}),
        (Fingerprint.from_dict, PRINT, {"surrogates": {"a": {**PRINT["surrogates"], "n": None}}}),
        (Fingerprint.from_dict, PRINT, {"passive": {"load1": None}}),
        (Fingerprint.from_dict, PRINT, {"passive": []}),
        (Fingerprint.from_dict, PRINT, {"warnings": None}),
        (Fingerprint.from_dict, PRINT, {"elapsed_s": None}),
        (Fingerprint.from_dict, PRINT, {"elapsed_s": 10**400}),
        (Run.from_dict, RUN, {"passive": []}),
        (Run.from_dict, RUN, {"usage": None}),
        (Run.from_dict, RUN, {"wall_s": 10**400}),
        (Run.from_dict, RUN, {"better": "less"}),
        (Application.from_dict, APPLICATION, {"metric": {"pattern": "x"}}),
        (Application.from_dict, APPLICATION, {"metric": "x"}),
        (Signature.from_dict, SIGNATURE, {"iterations": float("inf")}),
    ],
)
def test_what_is_malformed_is_refused_by_name(
    read: Callable[[Any], object], document: dict[str, Any], changes: dict[str, Any]
) -> None:
    read(document)
    with pytest.raises(InputError):
        read(document | changes)
