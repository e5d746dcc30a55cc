"""Sizes of texts, lists and maps in messages, checked against what the contract declares.

The options ``longest`` and ``most`` of each field (proto/kongming/rpc/v1/bounds.proto) are looked
up once for each type of message. What is small as a whole is not looked into.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kongming.records.errors import InputError
from kongming.rpc.v1 import bounds_pb2

Check = Callable[[Any], None]

_STRUCT = "google.protobuf.Struct"


def check(message: Any) -> None:
    """Check that all of a message is within its bounds.

    Raises:
        InputError: a text, a list or a map is too large; the field is named by its path.
    """
    for check_field in _checks(message.DESCRIPTOR):
        check_field(message)


def longest_of(field: FieldDescriptor) -> int:
    """Bytes of a text, or of a JSON object; 0 where the contract says nothing."""
    return int(field.GetOptions().Extensions[bounds_pb2.longest])


def most_of(field: FieldDescriptor) -> int:
    """Entries of a list or a map; 0 where the contract says nothing."""
    return int(field.GetOptions().Extensions[bounds_pb2.most])


@cache
def _checks(descriptor: Descriptor) -> tuple[Check, ...]:
    """Return what to look at in a message of this type; nothing for one that cannot be too
    large."""
    if not descriptor.file.package.startswith("kongming."):
        # Times, and messages of gRPC's own services; a JSON object is looked at as a whole, where
        # it stands.
        return ()
    checks = (_check_of(field) for field in descriptor.fields)
    return tuple(check_field for check_field in checks if check_field is not None)


@cache
def harmless_bytes(descriptor: Descriptor) -> int:
    """A message of up to so many bytes exceeds no bound, whatever it holds: the least bound of
    its texts. A list of so few bytes is within every bound of lists."""
    bounds = [longest_of(field) for field in descriptor.fields if longest_of(field)]
    bounds += [most_of(field) for field in descriptor.fields if most_of(field)]
    nested = (_inner(field) for field in descriptor.fields)
    bounds += [harmless_bytes(inner) for inner in nested if inner is not None and _checks(inner)]
    return min(bounds, default=0)


def _check_of(field: FieldDescriptor) -> Check | None:
    if _is_map(field):
        return _map(field)
    if field.is_repeated:
        return _list(field)
    if field.message_type is not None:
        if field.message_type.full_name == _STRUCT:
            return _object(field)
        return _nested(field) if _checks(field.message_type) else None
    return _text(field) if field.type == FieldDescriptor.TYPE_STRING else None


def _text(field: FieldDescriptor) -> Check:
    name, longest = field.name, longest_of(field)

    def look(message: Any) -> None:
        _length(getattr(message, name), longest, name)

    return look


def _object(field: FieldDescriptor) -> Check:
    name, longest = field.name, longest_of(field)

    def look(message: Any) -> None:
        size = getattr(message, name).ByteSize() if message.HasField(name) else 0
        if size > longest:
            raise _too_long(name, size, longest)

    return look


def _nested(field: FieldDescriptor) -> Check:
    name, checks = field.name, _checks(field.message_type)

    def look(message: Any) -> None:
        if message.HasField(name):
            _inside(getattr(message, name), checks, name)

    return look


def _list(field: FieldDescriptor) -> Check:
    name, most, longest = field.name, most_of(field), longest_of(field)
    is_text = field.type == FieldDescriptor.TYPE_STRING
    checks = _checks(field.message_type) if field.message_type is not None else ()
    harmless = harmless_bytes(field.message_type) if checks else 0

    def look(message: Any) -> None:
        values = getattr(message, name)
        _entries(len(values), most, name)
        if is_text:
            for value in values:
                _length(value, longest, name)
        elif checks:
            for number, value in enumerate(values):
                if value.ByteSize() > harmless:
                    _inside(value, checks, f"{name}[{number}]")

    return look


def _map(field: FieldDescriptor) -> Check:
    name, most, longest = field.name, most_of(field), longest_of(field)
    assert field.message_type is not None
    key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
    keys, texts = (part.type == FieldDescriptor.TYPE_STRING for part in (key, value))
    checks = _checks(value.message_type) if value.message_type is not None else ()

    def look(message: Any) -> None:
        values = getattr(message, name)
        _entries(len(values), most, name)
        if keys:
            for text in values:
                _length(text, longest, f"{name}, a key")
        if texts:
            for text in values:
                _length(values[text], longest, f"{name}, a value")
        for entry in values if checks else ():
            _inside(values[entry], checks, f"{name}.{entry}")

    return look


def _inside(message: Any, checks: tuple[Check, ...], place: str) -> None:
    try:
        for check_field in checks:
            check_field(message)
    except InputError as error:
        raise error.at(f"{place}.{error.field}") from None


def _length(text: str, longest: int, name: str) -> None:
    # A character has one byte at the least, and four at the most.
    if len(text) * 4 <= longest:
        return
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    if size > longest:
        raise _too_long(name, size, longest)


def _entries(count: int, most: int, name: str) -> None:
    if count > most:
        raise InputError(
            "has too many entries.", field=name, value=count, allowed=f"up to {most} in one request"
        )


def _too_long(name: str, size: int, longest: int) -> InputError:
    return InputError(
        "is too long.", field=name, value=f"{size} bytes", allowed=f"up to {longest} bytes"
    )


def _is_map(field: FieldDescriptor) -> bool:
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)


def _inner(field: FieldDescriptor) -> Descriptor | None:
    """The type of the messages that a field, a list or a map holds."""
    message = field.message_type
    return message.fields_by_name["value"].message_type if _is_map(field) and message else message
