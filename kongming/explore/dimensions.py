"""One parameter of a program: the values that it may take, as codes that are numbers.

The code of a number is the number; that of a choice is its place in the list. A dimension whose
condition does not hold is absent: NaN as a code, and missing from a point.
"""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from kongming.arrays import Floats
from kongming.explore.errors import ExploreError
from kongming.files.sealed_document import is_unicode

Kind = Literal["numbers", "integer", "real", "ordered", "choice", "boolean"]
Value = bool | int | float | str

_KEYS = ("from", "to", "log", "type", "choices", "ordered", "values", "when")
_FORMS = 'a list, {"from", "to"} or {"choices"}'
MOST_INTEGERS = 2**53
_LONGEST = 60
"""Characters of a value that a message shows."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a space. ``values`` are those of a list; a range has ``low`` and ``high``.
    ``when``: the condition under which it exists, as it was written; ``optional``: of a table of
    which some rows have no value of it, for whatever reason."""

    name: str
    kind: Kind
    values: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    when: str | None = None
    optional: bool = False
    _codes: dict[Value, float] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for place, value in enumerate(self.values):
            code = value if self.kind == "numbers" else place
            self._codes[value] = float(code)

    @property
    def count(self) -> int | None:
        """Return how many values there are; None for a real range."""
        if self.kind == "real" and self.low < self.high:
            return None
        return len(self.values) if self.values else int(self.high - self.low) + 1

    @property
    def is_text(self) -> bool:
        return any(isinstance(value, str) for value in self.values)

    @property
    def unordered(self) -> bool:
        return self.kind == "choice" and len(self.values) > 2

    @property
    def may_be_absent(self) -> bool:
        return self.optional or self.when is not None

    def grid(self) -> Floats:
        """The codes of all values of a dimension that is no real range."""
        if self.values:
            return np.array(list(self._codes.values()))
        return (
            np.arange(self.low, self.high + 0.5) if self.kind == "integer" else np.array([self.low])
        )

    def code_at(self) -> Callable[[np.ndarray], Floats]:
        """Return what gives the codes at (n,) places of ``grid``; of a range without a list of
        them, which may take a gigabyte."""
        return self.grid().__getitem__ if self.values else lambda places: self.low + places

    def weights(self, codes: Floats) -> Floats:
        """Return how likely (n,) codes of ``grid`` are drawn: equally, or by width in logarithm."""
        if not self.log or self.count == 1:
            return np.full(len(codes), 1.0 / (self.count or 1))
        width = np.log((codes + 0.5) / (codes - 0.5))
        return np.asarray(width / math.log((self.high + 0.5) / (self.low - 0.5)))

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """``count`` codes, uniform on the dimension's scale."""
        if self.values:
            return self.grid()[rng.integers(len(self.values), size=count)]
        margin = 0.5 if self.kind == "integer" else 0.0
        low, high = self.low - margin, self.high + margin
        if self.log:
            drawn = np.exp(rng.uniform(math.log(low), math.log(high), size=count))
        else:
            drawn = rng.uniform(low, high, size=count)
        if self.kind == "integer":
            drawn = np.rint(drawn)
        return np.clip(drawn, self.low, self.high)

    def ends(self) -> tuple[float, float]:
        """The least and the largest code of a range, the first and the last of a list."""
        if not self.values:
            return self.low, self.high
        grid = self.grid()
        return float(grid[0]), float(grid[-1])

    def middle(self, first: float, second: float) -> float:
        """The code of the value nearest to the middle of two, on the dimension's scale: of choices
        without an order the first, of two of which one is absent the other, and of two that are
        both absent that of the whole dimension."""
        if math.isnan(first) and math.isnan(second):
            # It may exist in between.
            return self.middle(*self.ends())
        if math.isnan(first) or math.isnan(second) or self.unordered:
            return second if math.isnan(first) else first
        middle = math.sqrt(first) * math.sqrt(second) if self.log else first / 2.0 + second / 2.0
        if self.values:
            grid = self.grid()
            return float(grid[np.argmin(np.abs(grid - middle))])
        middle = min(max(middle, self.low), self.high)
        return float(np.rint(middle)) if self.kind == "integer" else middle

    def encode(self, value: object) -> float:
        """The code of a value.

        Raises:
            ExploreError: the dimension has no such value.
        """
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool) and self.kind != "boolean":
            raise self._no_value(value)
        if self.values:
            try:
                code = self._codes.get(value)  # type: ignore[call-overload]
            except TypeError:
                code = None
            if code is None or (self.kind == "boolean" and not isinstance(value, bool)):
                raise self._no_value(value)
            return float(code)
        if not isinstance(value, numbers.Real):
            raise self._no_value(value)
        try:
            number = float(value)
        except OverflowError:
            raise self._no_value(_shown(value)) from None
        if not self.low <= number <= self.high or (self.kind == "integer" and number % 1.0):
            raise self._no_value(value)
        return number

    def decode(self, code: float) -> Value:
        if self.kind == "integer":
            return int(code)
        if self.kind == "real":
            return float(code)
        if self.kind == "numbers":
            return self.values[list(self._codes.values()).index(code)]
        return self.values[int(code)]

    def decoder(self) -> Mapping[float, Value] | None:
        """The value of each code of a list; None for a range."""
        return {code: value for value, code in self._codes.items()} if self.values else None

    def column(self, codes: Floats) -> Any:
        """Return what an expression sees: numbers, or texts (None where absent)."""
        if self.kind in ("numbers", "integer", "real"):
            return codes
        absent = np.isnan(codes)
        places = np.where(absent, 0, codes).astype(np.intp)
        if self.is_text:
            texts = np.array([str(value) for value in self.values], dtype=object)[places]
            texts[absent] = None
            return texts
        column = np.array([float(value) for value in self.values])[places]
        column[absent] = np.nan
        return column

    def to_dict(self) -> dict[str, Any]:
        """Return what ``read`` reads."""
        document: dict[str, Any] = {"type": self.kind}
        if self.values:
            document["values"] = list(self.values)
        else:
            is_integer = self.kind == "integer"
            document |= {
                "from": int(self.low) if is_integer else self.low,
                "to": int(self.high) if is_integer else self.high,
                "log": self.log,
            }
        if self.when is not None:
            document["when"] = self.when
        return document

    @property
    def allowed(self) -> str:
        """The values, in words."""
        if self.values:
            shown = ", ".join(
                str(value) if str(value).strip() == str(value) != "" else repr(value)
                for value in self.values[:12]
            )
            return shown if len(self.values) <= 12 else f"{shown}, ..."
        kind = "a whole number" if self.kind == "integer" else "a number"
        # Every digit: a value next to an end is allowed or not by the last of them.
        low, high = (f"{end:.15g}" for end in (self.low, self.high))
        return f"{kind} from {low} to {high}"

    def _no_value(self, value: object) -> ExploreError:
        return ExploreError(
            "is not a value of this dimension.",
            field=self.name,
            value=value if isinstance(value, bool | int | float | str) else repr(value),
            allowed=self.allowed,
        )


def read(name: str, spec: object) -> Dimension:
    """Read a dimension: a list of values, or a table with ``from`` and ``to`` (optionally ``log``
    and ``type``: integer or real), or with ``choices`` (optionally ``ordered``), and ``when``.

    A range is one of integers if both ends are written as integers.

    Raises:
        ExploreError: it is neither, or has no values.
    """
    if isinstance(spec, str) and spec == "boolean":
        spec = {"type": "boolean"}
    if isinstance(spec, Sequence | np.ndarray | range) and not isinstance(spec, str):
        return _listed(name, "", list(spec), None)
    if not isinstance(spec, Mapping):
        raise ExploreError("is not a dimension.", field=name, value=repr(spec), allowed=_FORMS)
    for key in spec:
        if key not in _KEYS:
            raise ExploreError(
                "is not known.", field=f"{name}.{key}", allowed=", ".join(_KEYS), value=spec[key]
            )
    when = spec.get("when")
    if when is not None and not isinstance(when, str):
        raise ExploreError(
            "is not a condition.", field=f"{name}.when", value=when, allowed="a text"
        )
    kind = spec.get("type", "")
    kinds = ("", "numbers", "integer", "real", "ordered", "choice", "boolean")
    if kind not in kinds:
        raise ExploreError(
            "is not known.", field=f"{name}.type", value=kind, allowed=", ".join(kinds[1:])
        )
    for key in ("ordered", "log"):
        if not isinstance(spec.get(key, False), bool):
            raise ExploreError("is neither true nor false.", field=f"{name}.{key}", value=spec[key])
    if spec.get("ordered"):
        kind = "ordered"
    values = spec.get("choices", spec.get("values"))
    if values is None and kind == "boolean":
        values = [False, True]
    if values is not None:
        if "from" in spec or "to" in spec:
            raise ExploreError("has both a range and a list.", field=name, allowed=_FORMS)
        if spec.get("log"):
            raise ExploreError(
                "is of ranges: the values of a list lie as they are listed.",
                field=f"{name}.log",
                value=True,
                allowed='with "from" and "to"',
            )
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
            raise ExploreError("is not a list.", field=name, value=values, allowed=_FORMS)
        if not kind and "choices" in spec:
            kind = "choice"
        return _listed(name, kind, list(values), when)
    return _range(name, kind, spec, when)


def _listed(name: str, kind: str, values: list[Any], when: str | None) -> Dimension:
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if not values:
        raise ExploreError("has no values.", field=name, value="[]", allowed="one value or more")
    for value in values:
        if not isinstance(value, bool | int | float | str) or (
            isinstance(value, int | float) and not _is_finite(value)
        ):
            raise ExploreError(
                "is no value.",
                field=name,
                value=_shown(value),
                allowed="finite numbers and texts",
            )
    if len(set(values)) < len(values):
        twice = next(value for value, count in Counter(values).items() if count > 1)
        raise ExploreError("is listed twice.", field=name, value=twice)
    texts = sum(isinstance(value, str) for value in values)
    booleans = sum(isinstance(value, bool) for value in values)
    if 0 < texts < len(values) or 0 < booleans < len(values):
        raise ExploreError(
            "mixes kinds of values.", field=name, value=repr(values[:5]), allowed="one kind"
        )
    for value in values:
        if kind == "boolean" and not isinstance(value, bool):
            raise ExploreError(
                "is no boolean.", field=name, value=_shown(value), allowed="false, true"
            )
        if isinstance(value, str) and not is_unicode(value):
            raise ExploreError("is no Unicode text.", field=name, value=_shown(value))
    if booleans:
        return Dimension(name, "boolean", tuple(sorted(values)), when=when)
    if texts:
        return Dimension(
            name, "ordered" if kind == "ordered" else "choice", tuple(values), when=when
        )
    if kind in ("ordered", "choice"):
        return Dimension(name, kind, tuple(values), when=when)  # type: ignore[arg-type]
    return Dimension(name, "numbers", tuple(sorted(values)), when=when)


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _shown(value: object) -> str:
    """A value as it was written, unless it is endless."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _range(name: str, kind: str, spec: Mapping[str, Any], when: str | None) -> Dimension:
    ends = []
    for key in ("from", "to"):
        end = spec.get(key)
        if isinstance(end, np.generic):
            end = end.item()
        if isinstance(end, bool) or not isinstance(end, int | float) or not _is_finite(end):
            raise ExploreError(
                "is not a number." if key in spec else "is missing.",
                field=f"{name}.{key}",
                value=None if key not in spec else _shown(end),
                allowed=_FORMS if key not in spec else "a finite number",
            )
        ends.append(end)
    low, high = ends
    if low > high:
        raise ExploreError("is an empty range.", field=name, value=f"from {low} to {high}")
    if not kind:
        kind = "integer" if isinstance(low, int) and isinstance(high, int) else "real"
    if kind not in ("integer", "real"):
        raise ExploreError("is no type of a range.", field=f"{name}.type", value=kind)
    if kind == "integer" and (low % 1 or high % 1 or max(abs(low), abs(high)) > MOST_INTEGERS):
        raise ExploreError(
            "has an end that is no whole number within 2^53.",
            field=name,
            value=f"from {low} to {high}",
            allowed="whole numbers within 2^53, or type = real",
        )
    log = spec.get("log", False)
    if log and low <= 0:
        raise ExploreError(
            "has no logarithm.", field=f"{name}.from", value=low, allowed="a number above 0"
        )
    return Dimension(
        name,
        kind,  # type: ignore[arg-type]
        low=float(low),
        high=float(high),
        log=log,
        when=when,
    )
