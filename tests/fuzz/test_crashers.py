"""Inputs that once ended in an error that was not ours."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from tests.fuzz import studies, targets
from tests.fuzz.target import attempt

HUGE = 10**400
"""A number of JSON and TOML that no float holds."""


def _report(**changes: Any) -> bytes:
    report = {"format": 3, "kind": "run", "assignment_id": "1", "app": "xz", "at": 1.0}
    return json.dumps(report | changes).encode()


def _model() -> Any:
    document = dict(targets._model())
    return document | {"solo": document["solo"] | {"noise_pct": HUGE}}


def _step() -> bytes:
    header, *steps = studies._observed().splitlines()
    step = json.loads(steps[0]) | {"elapsed_s": HUGE}
    return header + b"\n" + json.dumps(step).encode() + b"\n"


def _pairs() -> bytes:
    pair = dict(studies.PAIRS["pairs"][0])
    return json.dumps(studies.PAIRS | {"pairs": [pair | {"measured": HUGE}]}).encode()


INPUTS: dict[str, tuple[str, Any]] = {
    "a report at no time": ("reports", _report(at=HUGE)),
    "a report of a run without end": ("reports", _report(wall_s=HUGE)),
    "a model with huge noise": ("models", _model()),
    "a timeout of an application": ("apps", f'[apps.a]\ncommand = "a"\ntimeout_s = {HUGE}\n'),
    "a setting": ("settings", f"[limits]\nidle_s = {HUGE}\n"),
    "a step of an observation": ("observation journals", _step()),
    "a measured pair": ("studies", ("pairs", _pairs())),
    "no pairs": ("studies", ("pairs", b'{"kind": "pairs", "pairs": null}')),
}


@pytest.mark.parametrize(("name", "drawn"), INPUTS.values(), ids=INPUTS)
def test_what_broke_it_once_is_taken_or_refused(name: str, drawn: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attempt(targets.TARGETS[name], drawn)
