"""Arbitrary bytes, arbitrary messages, arbitrary model files: refused or read, never anything
else."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kongming.learning import model_file as persist
from kongming.learning.training import train_application
from kongming.records.errors import InputError
from kongming.rpc import bounds
from kongming.rpc import record_codec as records
from kongming.rpc.v1 import records_pb2
from tests.models import synthetic
from tests.server.messages import messages
from tests.server.stand import Stand, call, message_class, rpcs

FUZZ = settings(
    max_examples=settings.default.max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
DECODERS: list[tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (records_pb2.NodeFacts, records.node_from_message, records.node_to_message),
    (records_pb2.Fingerprint, records.fingerprint_from_message, records.fingerprint_to_message),
    (records_pb2.Run, records.run_from_message, records.run_to_message),
    (records_pb2.Signature, records.signature_from_message, records.signature_to_message),
]


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with Stand() as running:
        yield running


@pytest.fixture(scope="module")
def channel(stand: Stand) -> Iterator[grpc.Channel]:
    with stand.channel() as opened:
        yield opened


def refused(send: Callable[[], object]) -> str | None:
    """Why the call was the caller's fault, or None. Fails where it was the server's."""
    try:
        send()
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            return str(error.details())
        raise
    return None


def within_bounds(message: Any) -> bool:
    """Whether nothing of it is larger than the contract allows."""
    try:
        bounds.check(message)
    except InputError:
        return False
    return True


@FUZZ
@given(method=st.sampled_from(sorted(rpcs())), content=st.binary(max_size=300))
def test_any_bytes_are_a_message_or_the_callers_fault(
    channel: grpc.Channel, method: str, content: bytes
) -> None:
    try:
        message_class(rpcs()[method].input_type).FromString(content)
        readable = True
    except DecodeError:
        readable = False
    refusal = refused(lambda: _send(channel, method, content))
    # A request id that is refused can be read, and so can what is too large.
    if readable:
        message = message_class(rpcs()[method].input_type).FromString(content)
        assert refusal is None or "request_id" in refusal or not within_bounds(message)
    else:
        assert refusal is not None


@FUZZ
@given(data=st.data(), method=st.sampled_from(sorted(rpcs())))
def test_any_message_passes_the_gate_unchanged(
    stand: Stand, channel: grpc.Channel, data: st.DataObject, method: str
) -> None:
    described = rpcs()[method]
    message = data.draw(messages(described.input_type))
    before = len(stand.calls)
    refusal = refused(lambda: call(channel, method, message))
    if refusal is not None:
        assert "request_id" in refusal or not within_bounds(message)
        return
    if not described.client_streaming:
        assert within_bounds(message)
    (_, seen), *_ = stand.calls[before:]
    seen = seen[0] if described.client_streaming else seen
    if getattr(message, "request_id", None) == "":
        assert seen.request_id
        seen.request_id = ""
    assert seen.SerializeToString(deterministic=True) == message.SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize(
    ("kind", "read", "write"), DECODERS, ids=lambda parameter: parameter.__name__
)
def test_any_record_is_read_or_names_what_is_wrong(
    kind: Any, read: Callable[[Any], Any], write: Callable[[Any], Any]
) -> None:
    # Drawing a run is expensive; the fingerprints in it are drawn by themselves too.
    share = 2 if kind.DESCRIPTOR.name == "Run" else 5

    @settings(FUZZ, max_examples=share * settings.default.max_examples // 5)
    @given(message=messages(kind.DESCRIPTOR))
    def check(message: Any) -> None:
        record, error = _attempt(lambda: read(message), InputError)
        if error is None:
            # What was accepted can be written and read again.
            assert read(write(record)) == record
        else:
            assert error.field
            assert len(str(error)) < 3000

    check()


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    runs = synthetic.campaign("program", {"memory.random.128M": 0.6})
    trained = train_application(runs, models=("NNLS",))
    return json.loads(json.dumps(trained))  # type: ignore[no-any-return]


def _places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values, containers included."""
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inner:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*at, key))


_JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
    st.lists(st.floats(), max_size=3),
    st.dictionaries(st.text(max_size=4), st.floats(), max_size=2),
)


@settings(FUZZ, max_examples=2 * settings.default.max_examples)
@given(data=st.data())
def test_a_model_that_was_tampered_with_is_refused(
    document: dict[str, Any], data: st.DataObject
) -> None:
    changed = _tampered(document, data)
    if changed == document:
        return
    with pytest.raises(InputError):
        persist.read(changed)


@settings(FUZZ, max_examples=3 * settings.default.max_examples)
@given(data=st.data())
def test_a_model_that_was_sealed_again_is_valid_or_refused(
    document: dict[str, Any], data: st.DataObject
) -> None:
    """Who can write a checksum can write any number, but never make reading do anything else."""
    changed = _tampered(document, data)
    for key in ("format", "version", "checksum"):
        changed.pop(key, None)
    file, error = _attempt(lambda: persist.read(persist.seal(changed)), InputError, ValueError)
    if error is not None:
        # A number that is not finite cannot even be sealed.
        assert isinstance(error, InputError) or _has_odd_number(changed)
        return
    for variant in file.variants.values():
        assert (variant.idle > 0).all()
        assert variant.chosen in variant.models


@pytest.mark.parametrize("key", ["metric_unit", "app", "node_id", "unknown"])
def test_half_a_surrogate_pair_is_in_no_model(document: dict[str, Any], key: str) -> None:
    """No answer could hold it, nor could the batch in which another asks for another model."""
    payload = {k: v for k, v in document.items() if k not in ("format", "version", "checksum")}
    # A backslash, and a complete pair, are text as any other.
    persist.read(persist.seal(payload | {key: "\\ud800 \U0001f600"}))
    with pytest.raises(InputError, match="no Unicode"):
        persist.read(persist.seal(payload | {key: "\ud800"}))


@settings(FUZZ, max_examples=2 * settings.default.max_examples)
@given(st.recursive(_JUNK, lambda inner: st.dictionaries(st.text(max_size=8), inner, max_size=4)))
def test_anything_else_is_no_model(junk: Any) -> None:
    with pytest.raises(InputError):
        persist.read(junk)


def _send(channel: grpc.Channel, method: str, content: bytes) -> None:
    described = rpcs()[method]
    if described.client_streaming:
        channel.stream_unary(method)(iter([content]), timeout=100)
    elif described.server_streaming:
        list(channel.unary_stream(method)(content, timeout=100))
    else:
        channel.unary_unary(method)(content, timeout=100)


def _attempt(act: Callable[[], Any], *expected: type[Exception]) -> tuple[Any, Any]:
    """The result and None, or None and the expected error that was raised."""
    try:
        return act(), None
    except expected as error:
        return None, error


def _tampered(document: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """The document with one value changed or left out."""
    changed = copy.deepcopy(document)
    *path, last = data.draw(st.sampled_from(list(_places(document))))
    inner: Any = changed
    for key in path:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[last] = data.draw(_JUNK)
    else:
        del inner[last]
    return changed


def _has_odd_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_odd_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_odd_number, value))
    return isinstance(value, float) and not math.isfinite(value)
