"""What agents report, decoded: the class of an error decides on quarantine, not its words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from kongming_server.ingest import decode
from kongming_server.nodes.registry import Agent

from kongming.records import errors
from kongming.records.errors import ImplausibleError, InputError
from kongming.rpc import record_codec as records
from tests import builders

IDLE = {"stream.triad": 1e-9, "iobench.read.4M": 1e-3}
NODE = builders.node()
LATER = 1e12

Change = Callable[[Any], None]

IMPLAUSIBLE: dict[str, Change] = {
    "a time of 0": lambda m: setattr(m.readings[0], "seconds_per_op", 0.0),
    "a median that is NaN": lambda m: setattr(m.readings[0], "median_seconds_per_op", math.nan),
    "faster than any processor": lambda m: setattr(m.readings[0], "seconds_per_op", 1e-13),
    "longer than any probe": lambda m: setattr(m.readings[0], "seconds_per_op", 1e4),
    "faster than idle": lambda m: setattr(m.readings[0], "seconds_per_op", 9e-12),
    "a device far faster than idle": lambda m: setattr(m.readings[1], "seconds_per_op", 9e-9),
    "batches below 0": lambda m: setattr(m.readings[0], "batches", -1),
    "a CPU below 0": lambda m: setattr(m, "cpu", -1),
    "a window below 0": lambda m: setattr(m, "elapsed_seconds", -1.0),
    "an infinite signal": lambda m: m.passive.update({"load1": math.inf}),
    "a window of years": lambda m: setattr(m, "elapsed_seconds", 1e12),
    "a window without an end": lambda m: setattr(m, "elapsed_seconds", math.inf),
    "no reading at all": lambda m: m.ClearField("readings"),
}
MALFORMED: dict[str, Change] = {
    "a CPU that the node has not": lambda m: setattr(m, "cpu", 99),
    "another node": lambda m: setattr(m.node, "id", "node-2"),
    "no id": lambda m: m.ClearField("id"),
    "no time": lambda m: m.ClearField("started_at"),
    "a surrogate twice": lambda m: m.readings.append(m.readings[0]),
}
RUNS: dict[str, tuple[Change, bool]] = {
    "a metric that is NaN": (lambda m: setattr(m, "metric", math.nan), True),
    "a time below 0": (lambda m: setattr(m, "wall_seconds", -1.0), True),
    "a time of years": (lambda m: setattr(m, "wall_seconds", 1e12), True),
    "faults below 0": (lambda m: setattr(m.usage, "page_faults", -1), True),
    "a fingerprint of time 0": (
        lambda m: setattr(m.before.readings[0], "seconds_per_op", 0.0),
        True,
    ),
    "an infinite signal": (lambda m: m.passive.update({"load1": math.inf}), False),
    "no name": (lambda m: setattr(m, "app", ""), False),
    "a name with a line's end": (lambda m: setattr(m, "app", "sort\nERROR"), False),
    "a name that colours a terminal": (lambda m: setattr(m, "app", "\x1b[31msort"), False),
    "an unknown kind": (lambda m: setattr(m, "kind", "solitary"), False),
}


@pytest.fixture(params=["as it is", "reworded"])
def worded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors as they are, and with other words."""
    if request.param == "reworded":
        init = errors.KongmingError.__init__
        monkeypatch.setattr(
            errors.KongmingError,
            "__init__",
            lambda self, message, *, hint=None: init(self, "Otherwise worded.", hint=hint),
        )


def fingerprint_error(change: Change) -> InputError:
    message = records.fingerprint_to_message(builders.fingerprint(IDLE))
    change(message)
    with pytest.raises(InputError) as refused:
        decode.fingerprint_of(message, Agent(NODE), lambda domain: IDLE, now=LATER, skew_s=1.0)
    return refused.value


@pytest.mark.usefixtures("worded")
@pytest.mark.parametrize("change", IMPLAUSIBLE.values(), ids=IMPLAUSIBLE)
def test_a_fingerprint_that_cannot_be_true_is_implausible(change: Change) -> None:
    assert isinstance(fingerprint_error(change), ImplausibleError)


@pytest.mark.usefixtures("worded")
@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED)
def test_a_fingerprint_that_is_malformed_is_not(change: Change) -> None:
    assert not isinstance(fingerprint_error(change), ImplausibleError)


@pytest.mark.usefixtures("worded")
@pytest.mark.parametrize(("change", "implausible"), RUNS.values(), ids=RUNS)
def test_runs_are_told_apart_alike(change: Change, implausible: bool) -> None:
    run = builders.run("sort", 1.0, before=builders.fingerprint(IDLE))
    message = records.run_to_message(run)
    change(message)
    with pytest.raises(InputError) as refused:
        decode.run_of(message, Agent(NODE), lambda domain: IDLE, now=LATER, skew_s=1.0)
    assert isinstance(refused.value, ImplausibleError) is implausible


def test_a_device_that_a_cache_sped_up_is_plausible() -> None:
    message = records.fingerprint_to_message(builders.fingerprint(IDLE))
    message.readings[1].seconds_per_op = 2e-8
    decode.fingerprint_of(message, Agent(NODE), lambda domain: IDLE, now=LATER, skew_s=1.0)


@pytest.mark.parametrize("sequence", [2**53 + 1, 2**63 - 1, 2**64 - 1])
def test_no_agent_has_counted_so_far(sequence: int) -> None:
    with pytest.raises(InputError, match="sequence"):
        decode.sequence_of(sequence, "sequence")
    assert decode.sequence_of(2**53, "sequence") == 2**53
