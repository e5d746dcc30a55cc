"""Messages on the wire: counted as they are, bounded before they are decoded."""

from __future__ import annotations

import asyncio
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kongming_server.calls.decoding import OFF_LOOP_BYTES, PARTS_PER_MIB, Decoder, count_parts

from kongming.records.errors import InputError, OverloadedError
from kongming.rpc.v1 import fleet_pb2, predictor_pb2, profiles_pb2
from tests.server.messages import messages
from tests.server.stand import message_class, rpcs

MIB = 1 << 20
EVERYTHING = 1 << 40


def parts_of(message: Any) -> int:
    """Texts, byte strings and messages in it, as they are in memory."""
    parts = 0
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            key = field.message_type.fields_by_name["key"]
            for entry in value:
                parts += 1 + (key.type == key.TYPE_STRING)
                if inner.type == inner.TYPE_MESSAGE:
                    parts += 1 + parts_of(value[entry])
                else:
                    parts += inner.type in (inner.TYPE_STRING, inner.TYPE_BYTES)
            continue
        values = value if field.is_repeated else [value]
        if field.type == field.TYPE_MESSAGE:
            parts += sum(1 + parts_of(nested) for nested in values)
        elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            parts += len(values)
        elif field.is_repeated:
            parts += 1  # packed
    return parts


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), method=st.sampled_from(sorted(rpcs())))
def test_every_part_is_counted(data: st.DataObject, method: str) -> None:
    described = rpcs()[method].input_type
    message = data.draw(messages(described))
    kind = message_class(described)
    content = message.SerializeToString()
    assert count_parts(content, kind.DESCRIPTOR, EVERYTHING) >= parts_of(message)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_make_counting_fail(content: bytes) -> None:
    count = count_parts(content, predictor_pb2.PredictRequest.DESCRIPTOR, EVERYTHING)
    assert 0 <= count <= len(content)


def _within(number: int, content: bytes) -> bytes:
    """A field of this number that holds ``content``, of less than 2 MiB."""
    size = len(content)
    return (
        bytes([number << 3 | 2, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + content
    )


def decoded(content: bytes, kind: Any, most_bytes: int) -> Any:
    with ThreadPoolExecutor(1) as executor:
        return asyncio.run(Decoder(kind.FromString, most_bytes, executor).message(content))


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (predictor_pb2.PredictRequest, b"\x12\x00" * (MIB // 2)),
        # Within one another: a report of one fingerprint of so many readings.
        (
            fleet_pb2.ReportRequest,
            _within(2, _within(2, b"\x42\x00" * (MIB // 2 - 10))),
        ),
        # An empty group of the field 1000, which the decoder passes over.
        (predictor_pb2.PredictRequest, b"\xc3\x3e\xc4\x3e" + b"\x12\x00" * (MIB // 2 - 10)),
        # What the decoder refuses, but only after it has made the readings.
        (
            fleet_pb2.ReportRequest,
            _within(2, _within(2, b"\x42\x00" * (MIB // 2 - 20))) + b"\x07",
        ),
        (
            fleet_pb2.ReportRequest,
            _within(2, _within(2, b"\x42\x00" * (MIB // 2 - 20)) + b"\x0a\x7f") + b"\x80",
        ),
    ],
    ids=["questions", "readings", "group", "kind", "end"],
)
def test_many_small_parts_are_refused_before_they_take_memory(kind: Any, content: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((InputError, DecodeError)) as refused:
            decoded(content, kind, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(refused.value, InputError)
    assert refused.value.field == "message"
    # Python's own objects: what protobuf would allocate is not counted here.
    assert peak < 4 * MIB


def test_a_large_message_of_the_usual_kind_passes() -> None:
    questions = [predictor_pb2.PredictQuestion(app="application", node="node-1", level=0.5)]
    request = predictor_pb2.PredictRequest(questions=questions * 10_000)
    content = request.SerializeToString()
    assert len(content) > OFF_LOOP_BYTES
    assert count_parts(content, request.DESCRIPTOR, EVERYTHING) < PARTS_PER_MIB
    assert decoded(content, predictor_pb2.PredictRequest, 4 * MIB) == request


def test_a_message_that_is_too_large_or_none_is_refused() -> None:
    with pytest.raises(OverloadedError, match="2000"):
        decoded(bytes(2000), predictor_pb2.PredictRequest, 1000)
    for content in (b"\xff\xff", b"\xff" * (OFF_LOOP_BYTES + 1)):
        with pytest.raises(DecodeError):
            decoded(content, predictor_pb2.PredictRequest, 4 * MIB)


def test_one_callers_large_messages_do_not_wait_before_anothers() -> None:
    """They are decoded one at a time: each caller has one in the queue, and its others wait."""
    request = fleet_pb2.ReportRequest(node_id="node-1")
    request.fingerprints.add().fingerprint.warnings.extend(["w" * 1000] * 64)
    large = request.SerializeToString() * 2
    order: list[str] = []

    async def decode(decoder: Decoder, who: str) -> None:
        await decoder.message(large, who)
        order.append(who)

    async def test() -> None:
        with ThreadPoolExecutor(1) as executor:
            decoder = Decoder(fleet_pb2.ReportRequest.FromString, 4 * MIB, executor)
            many = [asyncio.create_task(decode(decoder, "thief")) for _ in range(20)]
            await asyncio.sleep(0)
            await asyncio.gather(decode(decoder, "honest"), *many)

    assert len(large) > OFF_LOOP_BYTES
    asyncio.run(test())
    assert order.index("honest") <= 2


@pytest.mark.parametrize("copies", [1, 500], ids=["small", "large"])
def test_every_message_is_within_its_bounds_once_it_is_decoded(copies: int) -> None:
    record = profiles_pb2.ImportRunsRequest()
    record.run.app = "x" * 1000
    record.run.neighbours.extend(["neighbour"] * copies * 20)
    with pytest.raises(InputError, match=r"run\.app"):
        decoded(record.SerializeToString(), profiles_pb2.ImportRunsRequest, 4 * MIB)
