"""Values that several messages hold: assignments, intervals, times, JSON objects and numbers.

What comes in is checked as the records' JSON form is: InputError names the field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from kongming.records import moments
from kongming.records.errors import InputError
from kongming.records.fingerprint import PLACEMENTS
from kongming.records.prediction import Interval
from kongming.rpc.v1 import predictor_pb2, records_pb2

_PLACEMENTS: dict[str, records_pb2.Placement.ValueType] = {
    "same-core": records_pb2.PLACEMENT_SAME_CORE,
    "smt-sibling": records_pb2.PLACEMENT_SMT_SIBLING,
    "cross-core": records_pb2.PLACEMENT_CROSS_CORE,
    "cross-socket": records_pb2.PLACEMENT_CROSS_SOCKET,
}
_NAMES = {value: name for name, value in _PLACEMENTS.items()}

_EXACT = float(2**63)
"""Whole numbers below this come back from a JSON object as int, which Struct cannot tell."""

_FIRST_S, _END_S = -62135596800, 253402300800
"""The first second that a Timestamp and a datetime can hold, and that after the last."""

_DEEPEST = 32
"""Levels of lists and objects in a JSON object."""


# -- numbers -----------------------------------------------------------------------------------


def not_negative(value: float, field: str) -> float:
    """A finite number, 0 or more. Raises InputError."""
    if not 0.0 <= value < math.inf:
        raise InputError("is implausible.", field=field, value=value, allowed="finite, 0 or more")
    return value


def count(value: int, field: str) -> int:
    """A whole number, 0 or more. Raises InputError."""
    if value < 0:
        raise InputError("is implausible.", field=field, value=value, allowed="0 or more")
    return value


def named(value: str, field: str) -> str:
    """A text that is not empty. Raises InputError."""
    if not value:
        raise InputError("is missing.", field=field)
    return value


def one_of(value: str, field: str, allowed: Iterable[str]) -> str:
    """One of these texts. Raises InputError."""
    names = tuple(allowed)
    if value not in names:
        raise InputError("is unknown.", field=field, value=value, allowed=", ".join(names))
    return value


# -- assignments --------------------------------------------------------------------------------


def placement_to_message(placement: str | None) -> records_pb2.Placement.ValueType:
    """None is PLACEMENT_UNSPECIFIED. Raises InputError for what is no placement."""
    if placement is None:
        return records_pb2.PLACEMENT_UNSPECIFIED
    one_of(placement, "placement", PLACEMENTS)
    return _PLACEMENTS[placement]


def placement_from_message(
    placement: records_pb2.Placement.ValueType, field: str = "placement"
) -> str | None:
    """None for PLACEMENT_UNSPECIFIED. Raises InputError for a number that stands for none."""
    if placement == records_pb2.PLACEMENT_UNSPECIFIED:
        return None
    name = _NAMES.get(placement)
    if name is None:
        raise InputError(
            "is unknown.",
            field=field,
            value=int(placement),
            allowed=", ".join(records_pb2.Placement.keys()),
        )
    return name


def known_placement(placement: records_pb2.Placement.ValueType, field: str) -> str:
    """A placement that must be said. Raises InputError without it."""
    name = placement_from_message(placement, field)
    if name is None:
        raise InputError("is missing.", field=field, allowed=", ".join(PLACEMENTS))
    return name


# -- intervals ---------------------------------------------------------------------------------


def interval_from_message(message: predictor_pb2.Interval, field: str = "interval") -> Interval:
    """Raises InputError for bounds that are not finite or not in order, or an impossible level."""
    for name in ("lower", "median", "upper"):
        not_negative(getattr(message, name), f"{field}.{name}")
    if not message.lower <= message.median <= message.upper:
        raise InputError(
            "is not in order.",
            field=field,
            value=(message.lower, message.median, message.upper),
            allowed="lower, median, upper",
        )
    if not 0.0 < message.level < 1.0:
        raise InputError(
            "is out of range.",
            field=f"{field}.level",
            value=message.level,
            allowed="above 0, below 1",
        )
    low, high = _expected(message, field)
    return Interval(
        message.median,
        message.lower,
        message.upper,
        message.level,
        message.calibrated,
        message.at_least,
        low,
        high,
        message.calibrated_by,
        message.calibrated_groups,
    )


def _expected(
    message: predictor_pb2.Interval, field: str
) -> tuple[float, float] | tuple[None, None]:
    ends = tuple(
        not_negative(getattr(message, name), f"{field}.{name}")
        for name in ("expected_lower", "expected_upper")
        if message.HasField(name)
    )
    if not ends:
        return None, None
    if len(ends) != 2 or not ends[0] <= message.median <= ends[1]:
        raise InputError(
            "is not in order.",
            field=f"{field}.expected",
            value=(*ends, message.median),
            allowed="expected_lower, median, expected_upper, or neither bound",
        )
    return ends[0], ends[1]


# -- times -------------------------------------------------------------------------------------


def timestamp(moment: float | str, field: str = "started_at") -> Timestamp:
    """Convert unix seconds, or ISO 8601 (UTC where it names no zone), to the microsecond.

    Raises:
        InputError: it is no time, or one outside the years 1 to 9999.
    """
    if isinstance(moment, str):
        message = Timestamp()
        message.FromDatetime(moments.parse(moment, field))
        return message
    return Timestamp(**timestamp_fields(moment, field))


def timestamp_fields(moment: float, field: str = "started_at") -> dict[str, int]:
    """Return what ``timestamp`` of unix seconds is made of, to be put into a larger message.

    Raises:
        InputError: it lies outside the years 1 to 9999.
    """
    if not _FIRST_S <= moment < _END_S:
        raise InputError(
            "is not a time.",
            field=field,
            value=moment,
            allowed="unix seconds within the years 1 to 9999",
        )
    # Rounded as datetime does: a moment is one text, whether or not it came over the wire.
    fraction, full_seconds = math.modf(moment)
    seconds, micros = divmod(int(full_seconds) * 1_000_000 + round(fraction * 1e6), 1_000_000)
    return {"seconds": seconds, "nanos": micros * 1000}


def unix(message: Timestamp) -> float:
    """Unix seconds."""
    return message.seconds + message.nanos * 1e-9


def iso(message: Timestamp, field: str = "started_at") -> str:
    """UTC in ISO 8601 with a final Z, with as many digits as the time has: none, 3 or 6.

    Raises:
        InputError: it lies outside the years 1 to 9999.
    """
    micros = message.nanos // 1000
    digits: moments.Digits
    digits = "seconds" if micros == 0 else "milliseconds" if micros % 1000 == 0 else "microseconds"
    try:
        moment = message.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InputError("is not a time.", field=field, value=message.seconds) from error
    return moments.format(moment, digits)


def duration(seconds: float) -> Duration:
    """Convert seconds to a message, to the microsecond."""
    return Duration(**duration_fields(seconds))


def duration_fields(seconds: float) -> dict[str, int]:
    """Return what ``duration`` is made of, to be put into a larger message."""
    micros = round(seconds * 1e6)
    full_seconds, rest = divmod(abs(micros), 1_000_000)
    sign = -1 if micros < 0 else 1
    return {"seconds": sign * full_seconds, "nanos": sign * rest * 1000}


def seconds(message: Duration) -> float:
    """Return the seconds of a duration."""
    return message.seconds + message.nanos * 1e-9


# -- JSON objects ------------------------------------------------------------------------------


def struct(document: Mapping[str, Any], field: str) -> Struct:
    """A JSON object. Raises InputError for what JSON has no word for, and for keys that are no
    texts."""
    message = Struct()
    for key, value in document.items():
        if not isinstance(key, str):
            raise InputError("is not text.", field=f"{field}, a key", value=key)
        _set(message.fields[key], value, f"{field}.{key}", 1)
    return message


def json_object(message: Struct, field: str) -> dict[str, Any]:
    """A JSON object; whole numbers come back as int. Raises InputError for NaN and infinity."""
    return {key: _json(value, f"{field}.{key}", 1) for key, value in message.fields.items()}


def _set(message: Value, value: object, field: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise InputError("is nested too deep.", field=field, allowed=f"{_DEEPEST} levels")
    if value is None:
        message.null_value = 0  # type: ignore[assignment]  # NULL_VALUE, the only one
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int | float):
        if not math.isfinite(value):
            raise InputError("is not finite.", field=field, value=value)
        message.number_value = value
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, Mapping):
        message.struct_value.SetInParent()
        for key, inner in value.items():
            _set(message.struct_value.fields[str(key)], inner, f"{field}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        message.list_value.SetInParent()
        for index, inner in enumerate(value):
            _set(message.list_value.values.add(), inner, f"{field}[{index}]", depth + 1)
    else:
        raise InputError("is nothing that JSON can hold.", field=field, value=type(value).__name__)


def _json(value: Value, field: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise InputError("is nested too deep.", field=field, allowed=f"{_DEEPEST} levels")
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        if not math.isfinite(number):
            raise InputError("is not finite.", field=field, value=number)
        return int(number) if number.is_integer() and abs(number) < _EXACT else number
    if kind == "struct_value":
        return {
            key: _json(inner, f"{field}.{key}", depth + 1)
            for key, inner in value.struct_value.fields.items()
        }
    if kind == "list_value":
        return _list(value.list_value, field, depth)
    return None if kind in (None, "null_value") else getattr(value, kind)


def _list(message: ListValue, field: str, depth: int) -> list[Any]:
    return [_json(v, f"{field}[{i}]", depth + 1) for i, v in enumerate(message.values)]
