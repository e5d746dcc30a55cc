"""Terms of a scale model: Ernest's default terms, the paper's extensions, and user expressions.

Ernest (NSDI 2016), equation 1 and sections 3.1, 3.4 and 6.6. Logarithms are natural.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kongming.arrays import Floats
from kongming.expressions import Expression, parse
from kongming.records.errors import InputError
from kongming.scale.points import Points

_Feature = Callable[[Points, Floats], Floats]


@dataclass(frozen=True, slots=True)
class Term:
    """A feature of a configuration; ``key`` is its name in a model. ``needs_items``: it takes the
    logarithm of n = scale x items, so the number of items must be known. ``own``: it is a user's
    expression."""

    key: str
    feature: _Feature
    needs_items: bool = False
    own: bool = False


SETUP = "setup/iterations"
"""One-time cost of a run, divided by its iterations: only used if runs differ in iterations."""

_KNOWN: dict[str, Term] = {
    known.key: known
    for known in (
        Term("intercept", lambda p, n: np.ones(len(p))),
        Term("scale/machines", lambda p, n: p.scale / p.machines),
        Term("log(machines)", lambda p, n: np.log(p.machines)),
        Term("machines", lambda p, n: p.machines.copy()),
        Term("sqrt", lambda p, n: np.sqrt(n)),
        Term("square", lambda p, n: p.scale**2 / p.machines),
        Term("nlogn", lambda p, n: n * np.log(n) / p.machines, needs_items=True),
        Term("nlog2n", lambda p, n: n * np.log(n) ** 2 / p.machines, needs_items=True),
        Term(SETUP, lambda p, n: 1.0 / p.iterations),
    )
}

DEFAULT = ("intercept", "scale/machines", "log(machines)", "machines")
EXTENSIONS = ("sqrt", "square", "nlogn", "nlog2n")


@dataclass(frozen=True, slots=True)
class Terms:
    """Requested terms, and candidates that are added if they reduce the error."""

    terms: tuple[Term, ...]
    candidates: tuple[Term, ...] = ()

    @property
    def auto(self) -> bool:
        return bool(self.candidates)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(term.key for term in self.terms)


@lru_cache(maxsize=64)
def term(key: str) -> Term:
    """Return the term of a key or an expression. Raises InputError."""
    plain = key.replace(" ", "")
    return _KNOWN[plain] if plain in _KNOWN else _own(parse(key))


def read_terms(text: str, *, items: float | None) -> Terms:
    """Parse ``default``, ``auto``, or a comma-separated list of terms and expressions.

    Extensions and expressions are added to the default terms; a list that names any default term is
    used as it is. With ``auto``, all other listed terms become candidates.

    Raises:
        InputError: a term needs ``items`` and they are unknown, or an expression is not valid.
    """
    names = [name for name in _split(text) if name]
    if not names:
        raise InputError("names no term.", field="--terms", value=text, allowed=_ALLOWED)
    auto = "auto" in names
    listed = [term(name) for name in names if name not in ("auto", "default")]
    listed = list({item.key: item for item in listed}.values())
    for item in listed:
        if item.needs_items and items is None:
            raise InputError(
                f"{item.key} depends on the number of items, which is unknown.",
                field="--items",
                hint="Give the number of items that the input has at scale 1: --items N",
            )
    default = [_KNOWN[key] for key in DEFAULT]
    if auto:
        pool = [_KNOWN[key] for key in EXTENSIONS if items is not None or key in ("sqrt", "square")]
        candidates = {item.key: item for item in (*pool, *listed) if item.key not in DEFAULT}
        return Terms(tuple(default), tuple(candidates.values()))
    exact = "default" not in names and any(item.key in DEFAULT for item in listed)
    terms = listed if exact else [*default, *(t for t in listed if t.key not in DEFAULT)]
    return Terms(tuple(terms))


def matrix(terms: Sequence[Term], points: Points, items: float | None) -> Floats:
    """Compute the (n, p) features.

    Raises:
        InputError: a term is undefined or negative at a point (which is named).
    """
    n = points.scale * (1.0 if items is None else items)
    A = np.empty((len(points), len(terms)))
    with np.errstate(all="ignore"):
        for i, item in enumerate(terms):
            A[:, i] = item.feature(points, n)
    bad = ~(np.isfinite(A) & (A >= 0.0))
    if bad.any():
        i = int(np.argmax(bad.any(axis=0)))
        raise _no_feature(terms[i], points, n, int(np.argmax(bad[:, i])), A[:, i])
    return A


def _no_feature(item: Term, points: Points, n: Floats, at: int, column: Floats) -> InputError:
    where = Points.configurations(points)[at]
    value = column[at]
    hint = "Leave the term out."
    if item.needs_items or (item.own and n[at] < 1.0):
        hint = "Is --items the number of items at scale 1? A logarithm needs at least one item."
    return InputError(
        f"has {'no value' if not np.isfinite(value) else 'a value below 0'} at {where}"
        f" (n = {n[at]:g}).",
        field=f"term {item.key}",
        value=float(value) if np.isfinite(value) else str(value),
        hint=hint,
    )


def _own(expression: Expression) -> Term:
    def feature(points: Points, n: Floats) -> Floats:
        return expression({"scale": points.scale, "machines": points.machines, "n": n})

    return Term(expression.text, feature, own=True)


def _split(text: str) -> list[str]:
    """Split at commas outside of parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


_ALLOWED = f"default, auto, {', '.join((*DEFAULT, *EXTENSIONS))}, or an expression"
