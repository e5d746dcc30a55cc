"""Every text, list and map of the contract has a bound, and what is larger is refused by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import FieldDescriptor

from kongming.records.errors import InputError
from kongming.rpc import bounds
from kongming.rpc.v1 import (
    assignments_pb2,
    fleet_pb2,
    predictor_pb2,
    profiles_pb2,
    records_pb2,
)
from tests.server.stand import message_class

FILES = (assignments_pb2, fleet_pb2, predictor_pb2, profiles_pb2, records_pb2)


def fields() -> Iterator[FieldDescriptor]:
    for file in FILES:
        for message in file.DESCRIPTOR.message_types_by_name.values():
            yield from message.fields


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def holds_text(field: FieldDescriptor) -> bool:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        return FieldDescriptor.TYPE_STRING in (key.type, value.type)
    struct = field.message_type is not None and field.message_type.name == "Struct"
    return field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES) or struct


def test_every_text_list_and_map_has_a_bound() -> None:
    without = [
        field.full_name
        for field in fields()
        if (holds_text(field) and not bounds.longest_of(field))
        or (field.is_repeated and not bounds.most_of(field))
    ]
    assert without == []


TEXTS = [
    field
    for field in fields()
    if field.type == FieldDescriptor.TYPE_STRING and bounds.longest_of(field) <= 1 << 16
]


@pytest.mark.parametrize("text", ["x", "é", "字"])
def test_each_text_may_be_as_long_as_its_bound_and_not_longer(text: str) -> None:
    size = len(text.encode())
    for field in TEXTS:
        message = message_class(field.containing_type)()
        longest = bounds.longest_of(field)
        for count in (longest // size, longest // size + 1):
            if field.is_repeated:
                del getattr(message, field.name)[:]
                getattr(message, field.name).append(text * count)
            else:
                setattr(message, field.name, text * count)
            if count * size <= longest:
                bounds.check(message)
                continue
            with pytest.raises(InputError) as refused:
                bounds.check(message)
            assert refused.value.field == field.name


def test_what_is_too_large_is_named_by_its_path() -> None:
    request = fleet_pb2.ReportRunsRequest(node_id="node-1")
    for _ in range(3):
        run = request.runs.add().run
        run.app = "sort"
        run.fingerprint.readings.add(name="memory.random.8M", seconds_per_op=1e-9)
        run.passive["load1"] = 1.0
    bounds.check(request)

    def refused() -> str | None:
        with pytest.raises(InputError) as error:
            bounds.check(request)
        return error.value.field

    request.runs[2].run.fingerprint.readings.add(name="x" * 300)
    assert refused() == "runs[2].run.fingerprint.readings[1].name"
    request.runs[1].run.config["deep"] = {"inner": ["x" * (1 << 17)]}
    assert refused() == "runs[1].run.config"
    request.runs[0].run.warnings.extend(["doubt"] * 1000)
    assert refused() == "runs[0].run.warnings"
    request.runs[0].run.passive["y" * 5000] = 1.0
    del request.runs[0].run.warnings[:]
    assert refused() == "runs[0].run.passive, a key"
    request.node_id = "z" * 129
    assert refused() == "node_id"


def test_lists_and_maps_have_an_end() -> None:
    node = records_pb2.NodeFacts(id="n", cpus=range(5000))
    with pytest.raises(InputError, match="cpus"):
        bounds.check(node)
    beat = fleet_pb2.Heartbeat(passive={f"signal-{number}": 1.0 for number in range(1025)})
    with pytest.raises(InputError, match="passive"):
        bounds.check(fleet_pb2.ReportRequest(heartbeat=beat))
