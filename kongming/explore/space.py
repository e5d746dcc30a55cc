"""The points at which a program may be run: dimensions, conditions and forbidden regions."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from kongming.arrays import Floats
from kongming.explore.dimensions import Dimension, Value, read
from kongming.explore.errors import ExploreError
from kongming.explore.refusals import refuse_absent, refuse_inexact, refuse_unwritable
from kongming.explore.sampling import (
    FEW,
    MOST_LISTED,
    Group,
    Judge,
    combined,
    first_of_each,
    groups,
)
from kongming.explore.table_columns import read_columns
from kongming.expressions import Expression, parse_condition
from kongming.files.missing_file import did_you_mean
from kongming.records.errors import InputError

Point = Mapping[str, Value]

POOL = FEW
"""Points that stand for a space that is too large to be listed."""
_POOL_TRIES = 1 << 21


class Space:
    """Allowed points: those of the product of the dimensions that no ``forbid`` clause holds for;
    of a table, its rows.

    Internally a point is a row of codes (see ``dimensions``), NaN where a dimension is absent.
    """

    def __init__(
        self,
        dimensions: Sequence[Dimension],
        forbid: Sequence[str] = (),
        *,
        rows: Floats | None = None,
    ) -> None:
        """``rows`` (n, d): codes of the only points that there are. A dimension without a condition
        may be absent where it is so in one of them.

        Raises:
            ExploreError: no dimension, an expression that is not valid, or no allowed point.
        """
        if not dimensions:
            raise ExploreError("has no dimensions.", field="space", allowed="one or more")
        if rows is not None:
            dimensions = [
                replace(dimension, optional=dimension.when is None and bool(np.isnan(codes).any()))
                for dimension, codes in zip(dimensions, rows.T, strict=True)
            ]
        self.dimensions = tuple(dimensions)
        self.names = tuple(dimension.name for dimension in self.dimensions)
        self.forbid = tuple(forbid)
        texts = {
            dimension.name: tuple(map(str, dimension.values))
            for dimension in self.dimensions
            if dimension.is_text
        }
        ordered = [
            dimension.name
            for dimension in self.dimensions
            if dimension.is_text and dimension.kind == "ordered"
        ]

        def parsed(text: str, field: str) -> Expression:
            try:
                return parse_condition(
                    text, field=field, variables=self.names, texts=texts, ordered=ordered
                )
            except InputError as error:
                raise ExploreError(error.message) from error

        self._clauses = tuple(
            parsed(text, f"forbid[{place}]") for place, text in enumerate(self.forbid)
        )
        self._conditions = {
            dimension.name: parsed(dimension.when, f"{dimension.name}.when")
            for dimension in self.dimensions
            if dimension.when is not None
        }
        self._order = self._condition_order()
        if rows is not None:
            codes, allowed = self.judged(rows)
            rows = codes[allowed][first_of_each(codes[allowed])]
        self._rows = rows
        linked = [clause.names for clause in self._clauses]
        linked += [when.names | {name} for name, when in self._conditions.items()]
        self._groups = groups(self.dimensions, linked, self._judge)
        self._refuse_empty()

    @classmethod
    def from_dict(cls, dimensions: Mapping[str, object], forbid: Iterable[str] = ()) -> Self:
        """A space of named dimensions, each a list of values, ``{"from", "to", "log", "type"}`` or
        ``{"choices", "ordered"}``; ``when`` is a condition under which it exists.

        Raises:
            ExploreError: a dimension or clause is not valid, or everything is forbidden.
        """
        if not isinstance(dimensions, Mapping):
            raise ExploreError(
                "is not a table of dimensions.", field="space", value=repr(dimensions)
            )
        for name in dimensions:
            if not isinstance(name, str) or not name.isidentifier():
                raise ExploreError(
                    "is not a name.",
                    field="space",
                    value=repr(name),
                    allowed="letters, digits and _",
                )
            if name == "forbid":
                # Below a header TOML puts it there, and forbidden points would be run.
                raise ExploreError(
                    "is no name of a parameter: it lists what no point may be.",
                    field=name,
                    value=repr(dimensions[name]),
                    hint="In a TOML file, write it above the first header in brackets.",
                )
        clauses = _clauses(forbid)
        space = cls([read(name, spec) for name, spec in dimensions.items()], clauses)
        # Not of a space that was saved: it does no harm to a campaign under way.
        refuse_absent(space._groups)
        refuse_unwritable(space.dimensions)
        refuse_inexact(space.dimensions)
        return space

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """A space of a TOML file: a key or table for each dimension (or all of them within
        ``[dimensions]``), and ``forbid``, a list of expressions.

        Raises:
            ExploreError: the file cannot be read, or is no space.
        """
        try:
            document = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        except FileNotFoundError as error:
            raise ExploreError(
                f"There is no file {path}.", hint=did_you_mean(Path(path))
            ) from error
        except (OSError, ValueError) as error:
            raise ExploreError(
                f"{path} cannot be read as a space: {error}.",
                hint="Give a TOML file of parameters, SPACE.toml, before the table of runs.",
            ) from error
        forbid = document.pop("forbid", [])
        inner = document.get("dimensions")
        if isinstance(inner, Mapping) and len(document) == 1:
            document = dict(inner)
        try:
            return cls.from_dict(document, forbid)
        except ExploreError as error:
            raise ExploreError(f"{path}: {error.message}", hint=error.hint) from error

    @classmethod
    def from_table(
        cls,
        table: str | Path | Sequence[Mapping[str, object]],
        columns: Sequence[str] | None = None,
        forbid: Sequence[str] = (),
        choices: Sequence[str] = (),
        optional: Sequence[str] = (),
    ) -> Self:
        """A space of which only the rows of a table are allowed: a CSV file or a list of dicts.

        Args:
            columns: those that are dimensions; by default all, which each row then has.
            choices: columns of numbers that are unordered choices.
            optional: columns with cells that may be empty (None): dimensions that exist under a
                condition, which the table does not tell.

        Raises:
            ExploreError: the table has no rows, a column is missing somewhere, or a cell is empty.
        """
        where, values = read_columns(table, columns, choices, optional)
        for name in (*choices, *optional, *(columns or ())):
            if name not in values or list(columns or ()).count(name) > 1:
                raise ExploreError(
                    "is there twice." if name in values else "is missing.",
                    field=f"{where}: column {name!r}",
                    allowed=f"each once of {', '.join(map(str, values))}",
                )
        dimensions, codes = [], []
        for name in values:
            distinct = list(dict.fromkeys(value for value in values[name] if value is not None))
            spec: object = {"choices": distinct} if name in choices else distinct
            dimension = read(name, spec)
            dimensions.append(dimension)
            code = {None: math.nan} | {value: dimension.encode(value) for value in distinct}
            codes.append([code[value] for value in values[name]])
        return cls(dimensions, _clauses(forbid), rows=np.array(codes).T)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_document`` reads: JSON values alone."""
        document: dict[str, Any] = {
            "dimensions": {dimension.name: dimension.to_dict() for dimension in self.dimensions},
            "forbid": list(self.forbid),
        }
        if self._rows is not None:
            document["rows"] = [
                [None if math.isnan(code) else code for code in row] for row in self._rows.tolist()
            ]
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        rows = document.get("rows")
        return cls(
            [read(name, spec) for name, spec in document["dimensions"].items()],
            document["forbid"],
            rows=None if rows is None else np.array(rows, dtype=np.float64),
        )

    # Codes

    def encode(self, points: Iterable[Point]) -> Floats:
        """The (n, d) codes of allowed points.

        Raises:
            ExploreError: a parameter is unknown or missing, a value is none of its dimension, or a
                point is forbidden (the clause is named). Of several points, the error has the
                number of the wrong one, from 0.
        """
        points = list(points)
        rows = []
        for number, point in enumerate(points):
            try:
                rows.append(self._encode(point))
            except ExploreError as error:
                raise error.in_list(number, len(points)) from error
        codes = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.names))
        columns = self.columns(codes)
        for place, dimension in enumerate(self.dimensions):
            if dimension.name not in self._conditions:
                continue
            exists = self._conditions[dimension.name](columns) != 0.0
            wrong = exists == np.isnan(codes[:, place])
            if wrong.any():
                row = int(np.argmax(wrong))
                refused = ExploreError(
                    "is missing."
                    if exists[row]
                    else "exists only under a condition, which does not hold.",
                    field=dimension.name,
                    value=self.decode(codes[[row]])[0],
                    allowed=dimension.allowed if exists[row] else dimension.when,
                )
                raise refused.in_list(row, len(points))
        _, allowed = self.judged(codes)
        if not allowed.all():
            row = int(np.argmin(allowed))
            raise self._forbidden(codes[row]).in_list(row, len(points))
        return codes

    def _encode(self, point: Point) -> list[float]:
        if not isinstance(point, Mapping):
            raise ExploreError(
                "is not a point.", field="point", value=repr(point), allowed="a dict"
            )
        for name in point:
            if name not in self.names:
                raise ExploreError(
                    "is not a dimension.", field=str(name), allowed=", ".join(self.names)
                )
        row = []
        for dimension in self.dimensions:
            value = point.get(dimension.name)
            if value is None and not dimension.may_be_absent:
                raise ExploreError("is missing.", field=dimension.name, allowed=dimension.allowed)
            row.append(math.nan if value is None else dimension.encode(value))
        return row

    def _forbidden(self, codes: Floats) -> ExploreError:
        point = self.decode(codes[None])[0]
        columns = self.columns(codes[None])
        message, allowed, dimensions = "is not a row of the table.", "one of its rows", self.names
        for place, clause in enumerate(self._clauses):
            if _holds(clause, columns)[0]:
                message = f"is forbidden by forbid[{place}]: {clause.text}."
                allowed = f"points without {clause.text}"
                dimensions = tuple(name for name in self.names if name in clause.names)
                break
        error = ExploreError(message, field="point", value=point, allowed=allowed)
        error.dimensions = dimensions
        return error

    def decode(self, codes: Floats) -> list[dict[str, Value]]:
        """The points of (n, d) codes; absent dimensions are left out."""
        decoders = self._decoders
        return [
            {
                dimension.name: dimension.decode(code) if known is None else known[code]
                for dimension, known, code in zip(self.dimensions, decoders, row, strict=True)
                if not math.isnan(code)
            }
            for row in codes.tolist()
        ]

    @cached_property
    def _decoders(self) -> list[Mapping[float, Value] | None]:
        return [dimension.decoder() for dimension in self.dimensions]

    def contains(self, point: Point) -> bool:
        """Return whether a point is allowed."""
        try:
            self.encode([point])
        except ExploreError:
            return False
        return True

    def judged(self, codes: Floats) -> tuple[Floats, np.ndarray]:
        """The codes with NaN where a condition does not hold, and which (n,) are allowed."""
        masked, allowed = self._judge(tuple(range(len(self.names))))(codes)
        rows = getattr(self, "_rows", None)
        if rows is not None and len(codes):
            known = self._known_rows
            allowed = allowed & np.array([row.tobytes() in known for row in masked + 0.0])
        return masked, allowed

    @cached_property
    def _known_rows(self) -> set[bytes]:
        assert self._rows is not None
        return {row.tobytes() for row in self._rows + 0.0}

    # Draws

    @cached_property
    def size(self) -> int | None:
        """Return how many allowed points there are; None where they are too many to be counted."""
        if self._rows is not None:
            return len(self._rows)
        size = 1
        for group in self._groups:
            if group.listed is not None:
                size *= len(group.listed[0])
            elif group.judge is None and group.product is not None:
                size *= group.product
            else:
                return None
        return size

    def draw(self, count: int, rng: np.random.Generator, most_tries: int | None = None) -> Floats:
        """``count`` codes drawn uniformly from the allowed points (of log ranges uniformly in the
        logarithm); ``most_tries`` bounds the work, and may leave fewer."""
        if self._rows is not None:
            return self._rows[rng.integers(len(self._rows), size=count)]
        parts = [group.draw(count, rng, most_tries) for group in self._groups]
        have = min(len(part) for part in parts)
        codes = np.empty((have, len(self.names)))
        for group, part in zip(self._groups, parts, strict=True):
            codes[:, group.places] = part[:have]
        return codes

    def pool(self, rng: np.random.Generator) -> tuple[Floats, bool]:
        """All allowed points if they can be listed, else distinct draws; and whether it is all."""
        if self._rows is not None:
            return self._rows, True
        if self.size is not None and self.size <= MOST_LISTED:
            listed = self._all()
            if listed is not None:
                return listed, True
        codes = self.draw(POOL, rng, most_tries=_POOL_TRIES)
        if len(codes) < 64:
            codes = np.concatenate([codes, self.draw(64, rng)])
        return codes[first_of_each(codes)], False

    def _all(self) -> Floats | None:
        parts: list[Floats] = []
        for group in self._groups:
            if group.listed is None:
                return None
            parts.append(group.listed[0])
        codes = combined(parts)
        columns = [place for group in self._groups for place in group.places]
        codes[:, columns] = codes.copy()
        return codes

    # Construction

    def columns(self, codes: Floats, places: Sequence[int] | None = None) -> dict[str, Any]:
        """Return what expressions see of codes of all dimensions, or of those at some places."""
        places = range(len(self.names)) if places is None else places
        return {
            self.names[place]: self.dimensions[place].column(codes[:, at])
            for at, place in enumerate(places)
        }

    def _judge(self, places: tuple[int, ...]) -> Judge:
        """Judge codes of some dimensions, to which clauses link no other."""
        names = {self.names[place] for place in places}
        order = [name for name in self._order if name in names]
        clauses = [clause for clause in self._clauses if clause.names <= names]
        at = {self.names[place]: column for column, place in enumerate(places)}

        def judge(codes: Floats) -> tuple[Floats, np.ndarray]:
            if not len(codes):
                return codes, np.zeros(0, dtype=bool)
            masked = codes
            columns = self.columns(codes, places)
            for name in order:
                absent = self._conditions[name](columns) == 0.0
                if absent.any():
                    masked = masked.copy() if masked is codes else masked
                    masked[absent, at[name]] = np.nan
                    columns[name] = self.dimensions[places[at[name]]].column(masked[:, at[name]])
            allowed = np.ones(len(codes), dtype=bool)
            for clause in clauses:
                allowed &= ~_holds(clause, columns)
            return masked, allowed

        return judge

    def _condition_order(self) -> list[str]:
        """Dimensions under conditions, each after those that its condition names."""
        order: list[str] = []
        waiting = dict(self._conditions)
        while waiting:
            ready = [n for n, when in waiting.items() if not when.names & waiting.keys()]
            if not ready:
                name = next(iter(waiting))
                raise ExploreError(
                    "is a condition that depends on itself.",
                    field=f"{name}.when",
                    value=waiting[name].text,
                )
            order += ready
            for name in ready:
                del waiting[name]
        return order

    def _refuse_empty(self) -> None:
        if self._rows is not None:
            if not len(self._rows):
                raise ExploreError(
                    "leaves no row of the table.", field="forbid", value=" or ".join(self.forbid)
                )
            return
        rng = np.random.default_rng(0)
        for group in self._groups:
            if group.judge is not None and not len(group.draw(1, rng)):
                raise self._contradiction(group, rng)

    def _contradiction(self, group: Group, rng: np.random.Generator) -> ExploreError:
        """Name the clauses that together forbid everything; none of them can be left out."""
        names = {self.names[place] for place in group.places}
        places = [place for place, clause in enumerate(self._clauses) if clause.names <= names]
        codes = np.stack([dimension.draw(20_000, rng) for dimension in group.dimensions], axis=1)
        columns = self.columns(codes, group.places)
        holds = {place: _holds(self._clauses[place], columns) for place in places}
        for place in list(places):
            rest = [holds[other] for other in places if other != place]
            if rest and np.any(rest, axis=0).all():
                places.remove(place)
        return ExploreError(
            "every point is forbidden."
            if group.listed is not None
            else "every point that was tried is forbidden.",
            field=", ".join(f"forbid[{place}]" for place in places),
            value=" or ".join(self.forbid[place] for place in places),
            allowed="clauses that leave a point",
        )


def _holds(clause: Expression, columns: Mapping[str, Any]) -> np.ndarray:
    value = clause(columns)
    return np.asarray((value != 0.0) & ~np.isnan(value))


def _clauses(forbid: object) -> list[str]:
    """Expressions: one, or a list of them."""
    clauses = [forbid] if isinstance(forbid, str) else forbid
    if not isinstance(clauses, Iterable) or isinstance(clauses, Mapping):
        raise ExploreError(
            "is no list of expressions.", field="forbid", value=repr(forbid), allowed="texts"
        )
    listed = list(clauses)
    for clause in listed:
        if not isinstance(clause, str):
            raise ExploreError("is not text.", field="forbid", value=repr(clause))
    return listed
