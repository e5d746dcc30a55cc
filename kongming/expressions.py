"""User-defined terms such as ``scale*log(machines)``: parsed and evaluated safely.

Never ``eval``: the text is parsed to Python's syntax tree. Only numbers, variable names,
arithmetic, comparisons and a few functions are accepted, and the tree is evaluated here.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.records.errors import InputError

VARIABLES = ("scale", "machines", "n")
MAX_LENGTH = 300

_Unary = Callable[[Floats], Floats]

_UNARY_FUNCTIONS: dict[str, _Unary] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
}
_VARIADIC_FUNCTIONS: dict[str, Callable[..., Floats]] = {"min": np.minimum, "max": np.maximum}
FUNCTIONS = (*_UNARY_FUNCTIONS, *_VARIADIC_FUNCTIONS)

_BINARY: dict[type[ast.operator], Callable[..., Floats]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[..., Any]] = {
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
        """(n,) values for the variables' values (n,); not finite where undefined."""
        with np.errstate(all="ignore"):
            result = _value(self.tree, values)
        size = len(next(iter(values.values())))
        return np.array(np.broadcast_to(result, (size,)), dtype=np.float64)


def parse(text: str, *, field: str = "--terms") -> Expression:
    """Parse an expression in scale, machines and n.

    Raises:
        InputError: the text is not an expression, or uses more than arithmetic.
    """
    stripped = text.strip()
    if not stripped or len(stripped) > MAX_LENGTH:
        raise InputError(
            "is empty." if not stripped else f"is longer than {MAX_LENGTH} characters.",
            field=field,
            found=stripped[:40],
            allowed=_ALLOWED,
        )
    try:
        with warnings.catch_warnings():
            # What Python thinks of "1if" is no message of ours.
            warnings.simplefilter("ignore", SyntaxWarning)
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
            "is a constant, which the intercept already covers.", field=field, found=stripped
        )
    return Expression(stripped, tree, frozenset(names))


_ALLOWED = f"numbers, {', '.join(VARIABLES)}, + - * / ** < <= > >= and {', '.join(FUNCTIONS)}"


def _check(node: ast.expr, names: set[str], text: str, field: str) -> None:
    """Accept only the nodes that ``_value`` evaluates, and collect variable names."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            # A huge integer does not fit into a float.
            if abs(value) > 1e300:
                raise _refused(ast.unparse(node), text, field)
        case ast.Name(id=name) if name in VARIABLES:
            names.add(name)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, names, text, field)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            _check(left, names, text, field)
            _check(right, names, text, field)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            _check(left, names, text, field)
            _check(right, names, text, field)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
            name in _UNARY_FUNCTIONS and len(args) == 1
        ) or (name in _VARIADIC_FUNCTIONS and len(args) >= 2):
            for arg in args:
                _check(arg, names, text, field)
        case _:
            raise _refused(ast.unparse(node), text, field)


def _refused(found: str, text: str, field: str) -> InputError:
    return InputError(
        f"{text!r} is neither a term nor a supported expression.",
        field=field,
        found=found,
        allowed=_ALLOWED,
    )


def _value(node: ast.expr, values: Mapping[str, Floats]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            # Floats overflow to infinity; integers would grow until memory is exhausted.
            return np.float64(value)
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            inner = _value(operand, values)
            return -inner if isinstance(op, ast.USub) else inner
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.Compare(left=left, ops=[op_], comparators=[right]):
            holds = _COMPARISONS[type(op_)](_value(left, values), _value(right, values))
            return np.asarray(holds, dtype=np.float64)
        case ast.Call(func=ast.Name(id=name), args=args):
            arguments = [_value(arg, values) for arg in args]
            if name in _UNARY_FUNCTIONS:
                return _UNARY_FUNCTIONS[name](arguments[0])
            result, *rest = arguments
            for other in rest:
                result = _VARIADIC_FUNCTIONS[name](result, other)
            return result
    raise AssertionError(ast.dump(node))
