"""Messages with arbitrary content, for fuzzing: every field of every type may be set."""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

from tests.server.stand import message_class

_F = FieldDescriptor
_BITS = {
    _F.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    _F.CPPTYPE_UINT32: (0, 2**32 - 1),
    _F.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    _F.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_ODD_NUMBERS = [0.0, -0.0, -1.0, 1e-12, 1e300, 5e-324, math.nan, math.inf, -math.inf, 0.5, 1.0]
_NAMES = ["", "node-1", "fft", "STACK", "memory.random.8M", "a\nb", "\x00", "../..", "x" * 300]


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 4) -> Any:
    """A message of this type in which some fields are set, to likely and unlikely values."""
    message = message_class(descriptor)()
    for field in descriptor.fields:
        if draw(st.integers(0, 3)) == 0:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(draw, message, field, depth)
        elif field.message_type is not None:
            if depth > 0:
                count = draw(st.integers(0, 2)) if field.is_repeated else 1
                for _ in range(count):
                    inner = draw(messages(field.message_type, depth - 1))
                    target = getattr(message, field.name)
                    (target.append if field.is_repeated else target.CopyFrom)(inner)
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(_scalars(field), max_size=3)))
        else:
            setattr(message, field.name, draw(_scalars(field)))
    return message


def _fill_map(draw: st.DrawFn, message: Any, field: FieldDescriptor, depth: int) -> None:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    entries = getattr(message, field.name)
    for name in draw(st.lists(_scalars(key), max_size=2, unique=True)):
        if value.message_type is None:
            entries[name] = draw(_scalars(value))
        elif depth > 0:
            entries[name].CopyFrom(draw(messages(value.message_type, depth - 1)))


def _scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    kind = field.cpp_type
    if kind in _BITS:
        low, high = _BITS[kind]
        return st.sampled_from([0, 1, low, high]) | st.integers(low, high)
    if kind in (_F.CPPTYPE_DOUBLE, _F.CPPTYPE_FLOAT):
        return st.sampled_from(_ODD_NUMBERS) | st.floats()
    if kind == _F.CPPTYPE_BOOL:
        return st.booleans()
    if kind == _F.CPPTYPE_ENUM:
        return st.integers(0, 6) | st.sampled_from([-1, 2**31 - 1])
    if field.type == _F.TYPE_BYTES:
        return st.binary(max_size=20)
    return st.sampled_from(_NAMES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
