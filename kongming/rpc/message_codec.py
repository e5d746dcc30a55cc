"""Records as messages and back, by the names of their fields: no field is listed here.

A record's field stands in the message under its own name, or without its unit (``runtime_s`` as
``runtime``, ``since_at`` as ``since``) or with it written out (``elapsed_s`` as
``elapsed_seconds``). Then the types of both
say how it is translated: a record is a message, a tuple is repeated, seconds are a Duration and
unix seconds a Timestamp, and a literal is an enum's name without its prefix ("node-only" is
BASIS_NODE_ONLY). What is unset in a message has the record's default.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from kongming.records.errors import InputError
from kongming.records.prediction import Driver, Interval
from kongming.rpc import value_codec as values
from kongming.rpc.record_codec import node_from_message, node_to_message

R = TypeVar("R")
M = TypeVar("M", bound=Message)

_Encode = Callable[[Any], Any]
_Decode = Callable[[Any, str], Any]


def to_message(record: object, kind: type[M], **given: Message) -> M:
    """A record as a message of this type; ``given`` fields are messages already."""
    encode = _encoder(type(record), kind.DESCRIPTOR, frozenset(given))  # type: ignore[arg-type]
    return kind(**encode(record), **given)


def as_fields(record: object, kind: type[Message]) -> dict[str, Any]:
    """Return what ``to_message`` makes its message of, to be put into a larger one: a message that
    is built within another one is copied there."""
    return _encoder(type(record), kind.DESCRIPTOR)(record)  # type: ignore[arg-type]  # types hash


def from_message(kind: type[R], message: Message, path: str = "", **given: Any) -> R:
    """A message as a record of this type; ``given`` fields are not taken from the message.

    Raises:
        InputError: a value is not one that the record can have. It names the field, by its place
            below ``path``.
    """
    parts = _parts(kind, message.DESCRIPTOR)  # type: ignore[arg-type]  # types hash
    values = dict(given)
    # Questions leave most fields unset: those are not even looked at.
    for wire, value in message.ListFields():
        part = parts.get(wire.name)
        if part is not None and part.name not in given:
            values[part.name] = part.decode(value, f"{path}{part.name}")
    for part in _without_default(kind, message.DESCRIPTOR):  # type: ignore[arg-type]
        if part.name in values:
            continue
        if part.may_be_none:
            values[part.name] = None
        elif part.has_presence:
            raise InputError("is missing.", field=f"{path}{part.name}")
        else:
            unset = getattr(message, part.wire_name)
            values[part.name] = part.decode(unset, f"{path}{part.name}")
    return kind(**values)


@dataclass(frozen=True, slots=True)
class _Part:
    """Translation of one field of a record."""

    name: str
    wire_name: str
    has_presence: bool
    has_default: bool
    may_be_none: bool
    encode: _Encode
    decode: _Decode


@lru_cache(maxsize=256)
def _encoder(
    kind: type, descriptor: Descriptor, left_out: frozenset[str] = frozenset()
) -> Callable[[Any], dict[str, Any]]:
    """Return the encoder of records of this type: to fields of the message, without empty ones."""
    parts = [part for part in _parts(kind, descriptor).values() if part.name not in left_out]
    plan = [(p.wire_name, p.has_presence, None if p.encode is _same else p.encode) for p in parts]
    get = attrgetter(*(part.name for part in parts))
    values_of = get if len(plan) > 1 else lambda record: (get(record),)

    def encode(record: Any) -> dict[str, Any]:
        encoded = {}
        for (name, has_presence, encode_value), value in zip(plan, values_of(record), strict=True):
            if value or (has_presence and value is not None):
                encoded[name] = value if encode_value is None else encode_value(value)
        return encoded

    return encode


@lru_cache(maxsize=256)
def _parts(kind: type, descriptor: Descriptor) -> Mapping[str, _Part]:
    """Map the names of the message's fields to their parts."""
    hints = get_type_hints(kind)
    parts = {}
    for record_field in fields(kind):
        wire = _wire_field(record_field.name, descriptor)
        encode, decode = _codec(_without_none(hints[record_field.name]), wire)
        parts[wire.name] = _Part(
            record_field.name,
            wire.name,
            wire.has_presence,
            _has_default(record_field),
            type(None) in get_args(hints[record_field.name]),
            encode,
            decode,
        )
    return parts


@lru_cache(maxsize=256)
def _without_default(kind: type, descriptor: Descriptor) -> tuple[_Part, ...]:
    return tuple(part for part in _parts(kind, descriptor).values() if not part.has_default)


def _wire_field(name: str, descriptor: Descriptor) -> FieldDescriptor:
    bare = name.removesuffix("_s")
    for candidate in (name, bare, f"{bare}_seconds", name.removesuffix("_at")):
        if candidate in descriptor.fields_by_name:
            return descriptor.fields_by_name[candidate]
    raise TypeError(f"{descriptor.name} has no field for {name}.")


def _has_default(record_field: Field[Any]) -> bool:
    return record_field.default is not MISSING or record_field.default_factory is not MISSING


def _without_none(hint: Any) -> Any:
    """The type of a value that is there."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (member for member in get_args(hint) if member is not type(None))
    return hint


def _codec(hint: Any, wire: FieldDescriptor) -> tuple[_Encode, _Decode]:
    message = wire.message_type
    if message is not None and message.GetOptions().map_entry:
        encode, decode = _codec(get_args(hint)[1], message.fields_by_name["value"])
        return (
            # Numbers by name are what most answers are made of.
            _same if encode is _same else lambda value: {k: encode(v) for k, v in value.items()},
            lambda value, path: _decoded_map(value, path, decode),
        )
    if wire.is_repeated:
        encode, decode = _single(get_args(hint)[0], wire)
        return (
            lambda value: [encode(inner) for inner in value],
            lambda value, path: tuple(decode(inner, path) for inner in value),
        )
    return _single(hint, wire)


def _decoded_map(value: Mapping[Any, Any], path: str, decode: _Decode) -> dict[Any, Any]:
    return {key: decode(value[key], f"{path}.{key}") for key in sorted(value)}


def _single(hint: Any, wire: FieldDescriptor) -> tuple[_Encode, _Decode]:
    if wire.enum_type is not None:
        return _enum(wire.enum_type, may_be_unset=hint is str)
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        return _same, lambda value, path: values.one_of(value, path, allowed)
    if wire.message_type is None:
        return _same, lambda value, path: value
    known = _KNOWN.get(wire.message_type.full_name)
    if known is not None:
        return known
    descriptor = wire.message_type
    assert is_dataclass(hint), hint
    return (
        _encoder(hint, descriptor),  # type: ignore[arg-type]  # types hash
        lambda value, path: from_message(hint, value, f"{path}."),  # type: ignore[arg-type]
    )


def _enum(enum: EnumDescriptor, *, may_be_unset: bool) -> tuple[_Encode, _Decode]:
    unset = enum.values_by_number[0].name
    prefix = unset.removesuffix("UNSPECIFIED")
    names = {
        number: value.name.removeprefix(prefix).lower().replace("_", "-")
        for number, value in enum.values_by_number.items()
        if number
    }
    numbers = {name: number for number, name in names.items()}

    def encode(name: str) -> int:
        number = numbers.get(name)
        if number is None and name:
            values.one_of(name, prefix.lower().rstrip("_"), numbers)
        return number or 0

    def decode(number: int, path: str) -> str:
        if not number and may_be_unset:
            return ""
        if number not in names:
            raise InputError(
                "is unknown.", field=path, value=number, allowed=", ".join(enum.values_by_name)
            )
        return names[number]

    return encode, decode


def _same(value: Any) -> Any:
    return value


_KNOWN: Mapping[str, tuple[_Encode, _Decode]] = {
    "kongming.rpc.v1.NodeFacts": (node_to_message, lambda value, path: node_from_message(value)),
    "kongming.rpc.v1.Driver": (
        Driver.to_dict,
        lambda value, path: Driver(value.family, value.share),
    ),
    "kongming.rpc.v1.Interval": (Interval.to_dict, values.interval_from_message),
    "google.protobuf.Duration": (values.duration_fields, lambda value, path: values.seconds(value)),
    "google.protobuf.Struct": (
        lambda value: values.struct(value, "document"),
        lambda value, path: values.json_object(value, path),
    ),
    "google.protobuf.Timestamp": (values.timestamp_fields, lambda value, path: values.unix(value)),
}
"""Messages that stand for one value."""
