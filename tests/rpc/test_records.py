"""Records survive the wire, and what is implausible is refused with its field named."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kongming import Fingerprint, Interval, NodeFacts, Reading, Run
from kongming.records.errors import InputError
from kongming.records.fingerprint import PLACEMENTS
from kongming.records.run import Usage
from kongming.rpc import record_codec as records
from kongming.rpc import value_codec as values
from kongming.rpc.message_codec import to_message
from kongming.rpc.v1 import predictor_pb2, records_pb2
from tests import builders
from tests.records.test_round_trips import fingerprints, runs

TIMES = {"memory.random.1K": 1e-9, "os.switch": 2e-6}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
counts = st.integers(0, 2**40)


def through_bytes(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


@st.composite
def nodes(draw: st.DrawFn) -> NodeFacts:
    cpus = tuple(draw(st.lists(st.integers(0, 1000), unique=True, max_size=4)))
    return builders.node(
        cpus=cpus,
        cores={str(cpu): draw(st.integers(-1, 1000)) for cpu in cpus},
        sockets={str(cpu): draw(st.integers(0, 7)) for cpu in cpus},
        llc_cpus=tuple((cpu,) for cpu in cpus),
        memory_bytes=draw(counts),
        llc_bytes=draw(counts),
        hypervisor=draw(st.none() | st.text(max_size=5)),
        cgroup=draw(st.dictionaries(st.text(max_size=5), json_values, max_size=3)),
        siblings={"0,1": {"shares_core": draw(st.booleans()), "ratio": draw(st.floats(0, 9))}},
    )


@given(nodes())
def test_node_survives(node: NodeFacts) -> None:
    assert records.node_from_message(through_bytes(records.node_to_message(node))) == node


@given(fingerprints())
def test_fingerprint_survives(fingerprint: Fingerprint) -> None:
    message = through_bytes(records.fingerprint_to_message(fingerprint))
    assert records.fingerprint_from_message(message) == fingerprint


@given(runs(), st.builds(Usage, st.floats(0, 1e6), counts, counts, counts, counts, counts))
def test_run_survives(run: Run, usage: Usage) -> None:
    run = builders.run(run.app, run.metric, **_fields(run) | {"usage": usage})
    assert records.run_from_message(through_bytes(records.run_to_message(run))) == run


def _fields(run: Run) -> dict[str, Any]:
    return {
        name: getattr(run, name)
        for name in Run.__dataclass_fields__
        if name not in ("app", "metric")
    }


@given(fingerprints(), st.integers(1, 100), st.sampled_from(PLACEMENTS))
def test_signature_survives(fingerprint: Fingerprint, iterations: int, placement: str) -> None:
    signature = builders.signature(
        "app", {}, fingerprint=fingerprint, iterations=iterations, placement=placement, step=7
    )
    message = through_bytes(records.signature_to_message(signature))
    assert records.signature_from_message(message) == signature


@given(st.floats(1e-6, 1e6), st.floats(1, 3), st.floats(1, 3), st.floats(0.01, 0.99))
def test_interval_survives(median: float, below: float, above: float, level: float) -> None:
    interval = Interval(median, median / below, median * above, level, calibrated=False)
    surer = replace(interval, expected_lower=median / below**0.5, expected_upper=median)
    by_others = replace(surer, calibrated=True, calibrated_by="applications", calibrated_groups=7)
    for original in (interval, surer, by_others):
        message = through_bytes(to_message(original, predictor_pb2.Interval))
        assert values.interval_from_message(message) == original


@pytest.mark.parametrize("placement", [*PLACEMENTS, None])
def test_placement_survives(placement: str | None) -> None:
    assert values.placement_from_message(values.placement_to_message(placement)) == placement


def test_placement_of_a_newer_peer_is_refused_by_its_number() -> None:
    message = records_pb2.Run(placement=99)  # type: ignore[arg-type]  # proto3 enums are open
    with pytest.raises(InputError, match=r"placement.*99.*PLACEMENT_SAME_CORE"):
        values.placement_from_message(message.placement)
    with pytest.raises(InputError, match=r"placement.*Found 'same-cor'"):
        values.placement_to_message("same-cor")


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)))
def test_time_survives_to_the_microsecond(moment: datetime) -> None:
    text = moment.isoformat() + "Z"
    back = values.iso(values.timestamp(text))
    assert datetime.fromisoformat(back).replace(tzinfo=None) == moment


def test_time_is_unix_seconds_or_iso_with_or_without_a_zone() -> None:
    expected = values.timestamp(1767225600.25)
    for text in (
        "2026-01-01T00:00:00.250Z",
        "2026-01-01T01:00:00.250+01:00",
        "2026-01-01T00:00:00.25",
    ):
        assert values.timestamp(text) == expected
    assert values.unix(expected) == 1767225600.25
    assert values.iso(expected) == "2026-01-01T00:00:00.250Z"
    assert values.iso(values.timestamp("2026-01-01T00:00:00Z")) == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("moment", ["yesterday", "", math.nan, math.inf, 1e300])
def test_what_is_no_time_is_refused(moment: str | float) -> None:
    with pytest.raises(InputError, match="taken_at: is not a time"):
        values.timestamp(moment, "taken_at")


@given(st.floats(-1e9, 1e9))
def test_duration_survives_to_the_microsecond(seconds: float) -> None:
    assert values.seconds(values.duration(seconds)) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}])
def test_what_json_has_no_word_for_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"document\.a\[1\]"):
        values.struct({"a": [0, value]}, "document")


def test_object_that_is_nested_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises(InputError, match="nested too deep"):
        values.struct({"a": deep}, "document")


def _fingerprint(change: Callable[[records_pb2.Fingerprint], None]) -> records_pb2.Fingerprint:
    message = records.fingerprint_to_message(builders.fingerprint(TIMES))
    change(message)
    return message


IMPOSSIBLE = [0.0, -1e-9, math.nan, math.inf]


@pytest.mark.parametrize("value", IMPOSSIBLE)
@pytest.mark.parametrize("key", ["seconds_per_op", "median_seconds_per_op", "p90_seconds_per_op"])
def test_reading_that_cannot_be_true_is_refused(key: str, value: float) -> None:
    message = _fingerprint(lambda m: setattr(m.readings[1], key, value))
    with pytest.raises(InputError) as caught:
        records.fingerprint_from_message(message)
    assert caught.value.field == f"fingerprint.readings.os.switch.{key}"


CHANGES: list[tuple[str, Callable[[Any], None]]] = [
    ("fingerprint.id", lambda m: m.ClearField("id")),
    ("fingerprint.node", lambda m: m.ClearField("node")),
    ("fingerprint.node.id", lambda m: m.node.ClearField("id")),
    ("fingerprint.node.memory_bytes", lambda m: setattr(m.node, "memory_bytes", -1)),
    ("fingerprint.node.cpus", lambda m: m.node.cpus.append(-3)),
    ("fingerprint.suite", lambda m: m.ClearField("suite")),
    ("fingerprint.suite_version", lambda m: m.ClearField("suite_version")),
    ("fingerprint.cpu", lambda m: setattr(m, "cpu", -1)),
    ("fingerprint.started_at", lambda m: m.ClearField("started_at")),
    ("fingerprint.started_at", lambda m: setattr(m.started_at, "seconds", 2**62)),
    ("fingerprint.elapsed_seconds", lambda m: setattr(m, "elapsed_seconds", math.nan)),
    ("fingerprint.readings[0].name", lambda m: m.readings[0].ClearField("name")),
    ("fingerprint.readings.os.switch", lambda m: m.readings.append(m.readings[1])),
    ("fingerprint.readings.os.switch.batches", lambda m: setattr(m.readings[1], "batches", -1)),
    ("fingerprint.passive.load1", lambda m: m.passive.update({"load1": math.inf})),
    (
        "fingerprint.node.siblings.0,1",
        lambda m: setattr(m.node.siblings.fields["0,1"], "number_value", 1.0),
    ),
    (
        "fingerprint.node.cgroup.cpu_quota",
        lambda m: setattr(m.node.cgroup.fields["cpu_quota"], "number_value", math.nan),
    ),
]


@pytest.mark.parametrize(("field", "change"), CHANGES)
def test_fingerprint_that_is_not_valid_names_the_field(
    field: str, change: Callable[[Any], None]
) -> None:
    with pytest.raises(InputError) as caught:
        records.fingerprint_from_message(_fingerprint(change))
    assert caught.value.field == field


RUN_CHANGES: list[tuple[str, Callable[[Any], None]]] = [
    ("run.id", lambda m: m.ClearField("id")),
    ("run.placement", lambda m: m.ClearField("placement")),
    ("run.placement", lambda m: setattr(m, "placement", 42)),
    ("run.kind", lambda m: setattr(m, "kind", "solitary")),
    ("run.better", lambda m: setattr(m, "better", "")),
    ("run.started_at", lambda m: m.ClearField("started_at")),
    ("run.wall_seconds", lambda m: setattr(m, "wall_seconds", -1.0)),
    ("run.metric", lambda m: setattr(m, "metric", math.nan)),
    ("run.usage.page_faults", lambda m: setattr(m.usage, "page_faults", -1)),
    ("run.usage.cpu_seconds", lambda m: setattr(m.usage, "cpu_seconds", math.inf)),
    ("run.parts.load", lambda m: m.parts.update({"load": math.nan})),
    ("run.before.id", lambda m: m.before.ClearField("id")),
    ("intensity", lambda m: setattr(m.levels[0], "intensity", 1.5)),
    ("copies", lambda m: setattr(m.levels[0], "copies", 0)),
]


@pytest.mark.parametrize(("field", "change"), RUN_CHANGES)
def test_run_that_is_not_valid_names_the_field(field: str, change: Callable[[Any], None]) -> None:
    run = builders.run("app", 1.0, TIMES, levels=(builders.level(),))
    message = records.run_to_message(
        builders.run("app", 1.0, **_fields(run) | {"before": builders.fingerprint(TIMES)})
    )
    change(message)
    with pytest.raises(InputError) as caught:
        records.run_from_message(message)
    assert caught.value.field == field


def test_failed_reading_keeps_its_reason_alone() -> None:
    failed = Reading(name="os.switch", family="os", error="no such device")
    fingerprint = builders.fingerprint({}, surrogates={"os.switch": failed})
    message = through_bytes(records.fingerprint_to_message(fingerprint))
    assert records.fingerprint_from_message(message).surrogates["os.switch"] == failed


@pytest.mark.parametrize(
    "bounds", [(2.0, 1.0, 3.0), (1.0, 3.0, 2.0), (math.nan, 1.0, 2.0), (-1.0, 1.0, 2.0)]
)
def test_interval_that_cannot_be_true_is_refused(bounds: tuple[float, float, float]) -> None:
    lower, median, upper = bounds
    message = predictor_pb2.Interval(lower=lower, median=median, upper=upper, level=0.9)
    with pytest.raises(InputError, match="slowdown"):
        values.interval_from_message(message, "slowdown")


@pytest.mark.parametrize(
    "expected",
    [
        {"expected_lower": 1.0},
        {"expected_lower": 2.5, "expected_upper": 3.0},
        {"expected_lower": 1.0, "expected_upper": math.nan},
    ],
)
def test_expected_interval_that_cannot_be_true_is_refused(expected: dict[str, float]) -> None:
    message = predictor_pb2.Interval(lower=1.0, median=2.0, upper=3.0, level=0.9, **expected)
    with pytest.raises(InputError, match="expected"):
        values.interval_from_message(message, "slowdown")


READERS: list[tuple[Any, Callable[[Any], object]]] = [
    (records_pb2.Fingerprint, records.fingerprint_from_message),
    (records_pb2.Run, records.run_from_message),
    (records_pb2.Signature, records.signature_from_message),
    (records_pb2.NodeFacts, records.node_from_message),
]


@pytest.mark.parametrize(("message", "read"), READERS)
@given(data=st.binary(max_size=300))
def test_bytes_of_anyone_become_a_record_or_an_error(
    message: Any, read: Callable[[Any], object], data: bytes
) -> None:
    refused: Exception | None = None
    try:
        record = read(message.FromString(data))
        assert record is not None
    except (DecodeError, InputError) as error:
        refused = error
    # Whatever the bytes were, nothing else was raised.
    assert refused is None or str(refused)
