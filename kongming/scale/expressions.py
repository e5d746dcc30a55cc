"""Terms that a user writes, as ``scale*log(machines)``: parsed into a tree of arithmetic.

Never ``eval``: the text is parsed to Python's syntax tree, of which only numbers, the names of
variables, arithmetic, comparisons and a few functions are let through, and that tree is walked.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.dataset import Floats
from kongming.errors import InputError

__all__ = ["FUNCTIONS", "VARIABLES", "Expression", "parse"]

VARIABLES = ("scale", "machines", "n")
LONGEST = 300

_Unary = Callable[[Floats], Floats]

_ONE: dict[str, _Unary] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
}
_MANY: dict[str, Callable[..., Floats]] = {"min": np.minimum, "max": np.maximum}
FUNCTIONS = (*_ONE, *_MANY)

_BINARY: dict[type[ast.operator], Callable[..., Floats]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
_COMPARED: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. ``names`` are the variables that it uses."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def __call__(self, values: Mapping[str, Floats]) -> Floats:
        """(n,) for the variables' values (n,); not finite where it has no value."""
        with np.errstate(all="ignore"):
            found = _value(self.tree, values)
        size = len(next(iter(values.values())))
        return np.array(np.broadcast_to(found, (size,)), dtype=np.float64)


def parse(text: str, *, field: str = "--terms") -> Expression:
    """An expression in scale, machines and n.

    Raises:
        InputError: it is none, or uses more than arithmetic (with what was found).
    """
    stripped = text.strip()
    if not stripped or len(stripped) > LONGEST:
        raise InputError(
            "is no expression." if not stripped else f"is longer than {LONGEST} characters.",
            field=field,
            found=stripped[:40],
            allowed=_ALLOWED,
        )
    try:
        tree = ast.parse(stripped, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(
            "cannot be read as a term or an expression.",
            field=field,
            found=stripped,
            allowed=_ALLOWED,
        ) from error
    names: set[str] = set()
    _check(tree, names, stripped, field)
    if not names:
        raise InputError(
            "is a constant; the intercept is one already.", field=field, found=stripped
        )
    return Expression(stripped, tree, frozenset(names))


_ALLOWED = f"numbers, {', '.join(VARIABLES)}, + - * / ** < <= > >= and {', '.join(FUNCTIONS)}"


def _check(node: ast.expr, names: set[str], text: str, field: str) -> None:
    """Let through what ``_value`` knows, and nothing else."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            # A huge whole number has no place among floats.
            if abs(value) > 1e300:
                raise _refused(ast.unparse(node), text, field)
        case ast.Name(id=name) if name in VARIABLES:
            names.add(name)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, names, text, field)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            _check(left, names, text, field)
            _check(right, names, text, field)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            _check(left, names, text, field)
            _check(right, names, text, field)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
            name in _ONE and len(args) == 1
        ) or (name in _MANY and len(args) >= 2):
            for arg in args:
                _check(arg, names, text, field)
        case _:
            raise _refused(ast.unparse(node), text, field)


def _refused(found: str, text: str, field: str) -> InputError:
    return InputError(
        f"{text!r} is no term, nor an expression that can be used.",
        field=field,
        found=found,
        allowed=_ALLOWED,
    )


def _value(node: ast.expr, values: Mapping[str, Floats]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            # Floats overflow to infinity; whole numbers would grow until memory ends.
            return np.float64(value)
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            inner = _value(operand, values)
            return -inner if isinstance(op, ast.USub) else inner
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.Compare(left=left, ops=[op_], comparators=[right]):
            held = _COMPARED[type(op_)](_value(left, values), _value(right, values))
            return np.asarray(held, dtype=np.float64)
        case ast.Call(func=ast.Name(id=name), args=args):
            found = [_value(arg, values) for arg in args]
            if name in _ONE:
                return _ONE[name](found[0])
            first, *rest = found
            for other in rest:
                first = _MANY[name](first, other)
            return first
    raise AssertionError(ast.dump(node))
