"""Expressions of users, parsed and evaluated safely: terms such as ``scale*log(machines)``, and
conditions such as ``codec == "xz" and level > 6``.

Never ``eval``: the text is parsed to Python's syntax tree. Only numbers, variable names,
arithmetic, comparisons and a few functions are accepted, and the tree is evaluated here.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
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
_ARITHMETIC: dict[type[ast.operator], Callable[..., Floats]] = {
    **_BINARY,
    ast.Mod: np.mod,
    ast.FloorDiv: np.floor_divide,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
_OF_RANKS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_NONE: Floats = np.zeros(())
"""What is among no values."""
_EQUALITIES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


@dataclass(frozen=True, slots=True)
class _Grammar:
    """Grammar of an expression. ``texts``: the values of each variable that holds texts, of
    ``ordered`` ones in their order; ``logic``: it is a condition."""

    field: str
    text: str
    variables: Collection[str]
    texts: Mapping[str, Sequence[str]]
    ordered: Collection[str] = ()
    logic: bool = False

    @property
    def allowed(self) -> str:
        logic = " == != in and or not % //" if self.logic else ""
        names = ", ".join(self.variables)
        return f"numbers, {names}, + - * / ** < <= > >={logic} and {', '.join(FUNCTIONS)}"

    def refused(self, part: str) -> InputError:
        return InputError(
            f"{self.text!r} is neither a term nor a supported expression.",
            field=self.field,
            value=part,
            allowed=self.allowed,
        )


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. ``names`` are the variables that it uses."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def __call__(self, values: Mapping[str, Any]) -> Floats:
        """(n,) values for the variables' values (n,); not finite where undefined."""
        with np.errstate(all="ignore"):
            result = _value(self.tree, values)
        size = len(next(iter(values.values())))
        return np.array(np.broadcast_to(result, (size,)), dtype=np.float64)


def parse(
    text: str,
    *,
    field: str = "--terms",
    variables: Collection[str] = VARIABLES,
    constant: str = "is a constant, which the intercept already covers.",
) -> Expression:
    """Parse an arithmetic expression in some variables; by default scale, machines and n.
    ``constant`` is what is wrong with one in none of them.

    Raises:
        InputError: the text is not an expression, or uses more than arithmetic.
    """
    expression = _parse(_Grammar(field, text.strip(), variables, {}))
    if not expression.names:
        raise InputError(constant, field=field, value=text.strip())
    return expression


def parse_condition(
    text: str,
    *,
    field: str,
    variables: Collection[str],
    texts: Mapping[str, Sequence[str]] | None = None,
    ordered: Collection[str] = (),
) -> Expression:
    """Parse a condition: besides arithmetic it has ``and``, ``or``, ``not``, ``==``, ``!=``,
    ``in``, ``%`` and ``//``, and texts where a variable that holds texts is compared.

    Its value is 1 where the condition holds; comparisons with what is missing (NaN, None) do not.

    Args:
        texts: by variable that holds texts, the texts that there are.
        ordered: those of them whose texts are in their order, and are compared by size as well.

    Raises:
        InputError: the text is no condition, or names no variable.
    """
    expression = _parse(_Grammar(field, text.strip(), variables, texts or {}, ordered, logic=True))
    if not expression.names:
        raise InputError(
            "names none of the dimensions.",
            field=field,
            value=text.strip(),
            allowed=", ".join(variables),
        )
    return expression


def _parse(grammar: _Grammar) -> Expression:
    stripped = grammar.text
    if not stripped or len(stripped) > MAX_LENGTH:
        raise InputError(
            "is empty." if not stripped else f"is longer than {MAX_LENGTH} characters.",
            field=grammar.field,
            value=stripped[:40],
            allowed=grammar.allowed,
        )
    try:
        with warnings.catch_warnings():
            # What Python thinks of "1if" is no message of ours.
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(stripped, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(
            "cannot be read as a term or an expression.",
            field=grammar.field,
            value=stripped,
            allowed=grammar.allowed,
        ) from error
    names: set[str] = set()
    _check(tree, names, grammar)
    ordered = {name: grammar.texts[name] for name in names.intersection(grammar.ordered)}
    if ordered:
        tree = _ByRank(ordered).visit(tree)
    return Expression(stripped, tree, frozenset(names))


def _check(node: ast.expr, names: set[str], grammar: _Grammar) -> None:
    """Accept only the nodes that ``_value`` evaluates, and collect variable names."""
    inner: Sequence[ast.expr]
    match node:
        case ast.Constant(value=bool()) if grammar.logic:
            return
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            # A huge integer does not fit into a float.
            if abs(value) > 1e300:
                raise grammar.refused(ast.unparse(node))
            return
        case ast.Name(id=name) if name in grammar.variables and name not in grammar.texts:
            names.add(name)
            return
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            inner = [operand]
        case ast.UnaryOp(op=ast.Not(), operand=operand) if grammar.logic:
            inner = [operand]
        case ast.BoolOp(values=inner) if grammar.logic:
            pass
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            inner = [left, right]
        case ast.BinOp(left=left, op=ast.Mod() | ast.FloorDiv(), right=right) if grammar.logic:
            inner = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=others) if grammar.logic:
            _check_comparison([left, *others], ops, names, grammar)
            return
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            inner = [left, right]
        case ast.Call(func=ast.Name(id=name), args=inner, keywords=[]) if (
            name in _UNARY_FUNCTIONS and len(inner) == 1
        ) or (name in _VARIADIC_FUNCTIONS and len(inner) >= 2):
            pass
        case _:
            raise grammar.refused(ast.unparse(node))
    for part in inner:
        _check(part, names, grammar)


def _check_comparison(
    terms: Sequence[ast.expr], ops: Sequence[ast.cmpop], names: set[str], grammar: _Grammar
) -> None:
    """Check a chain of comparisons, in which a text is compared with texts alone."""
    for left, op, right in zip(terms, ops, terms[1:], strict=False):
        members = isinstance(op, ast.In | ast.NotIn)
        if members and not isinstance(right, ast.Tuple | ast.List):
            raise grammar.refused(ast.unparse(right))
        if not members and not isinstance(op, ast.Eq | ast.NotEq) and type(op) not in _COMPARISONS:
            # "is" and "is not", which compare objects in Python.
            raise grammar.refused(ast.unparse(ast.Compare(left, [op], [right])))
        rights = right.elts if isinstance(right, ast.Tuple | ast.List) and members else [right]
        named = [
            side.id
            for side in (left, *rights)
            if isinstance(side, ast.Name) and side.id in grammar.texts
        ]
        if not named:
            for side in (left, *rights):
                _check(side, names, grammar)
            continue
        for side in (left, *rights):
            match side:
                case ast.Name(id=name) if name in grammar.texts:
                    names.add(name)
                case ast.Constant(value=str() as value):
                    if value not in grammar.texts[named[0]]:
                        raise InputError(
                            f"{value!r} is no value of {named[0]}.",
                            field=grammar.field,
                            value=grammar.text,
                            allowed=", ".join(grammar.texts[named[0]]),
                        )
                case _:
                    raise grammar.refused(ast.unparse(side))
        by_rank = len(named) == 1 and named[0] in grammar.ordered
        if not isinstance(op, _EQUALITIES) and not by_rank:
            raise InputError(
                f"compares {named[0]} by size.",
                field=grammar.field,
                value=grammar.text,
                allowed="== != in of names; < <= > >= with a name of a list that is ordered",
            )


class _ByRank(ast.NodeTransformer):
    """Replaces ``size >= "mid"`` by ``size in ("mid", "big")`` for variables whose ``texts`` are in
    their order: it compares as everything else then where a value is missing."""

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._texts = texts

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        terms = [node.left, *node.comparators]
        pairs = [
            self._pair(left, op, right)
            for left, op, right in zip(terms, node.ops, terms[1:], strict=False)
        ]
        return pairs[0] if len(pairs) == 1 else ast.BoolOp(ast.And(), pairs)

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.expr:
        match left, right:
            case (ast.Name(id=name), ast.Constant(value=text)) if name in self._texts:
                variable, on_left = left, True
            case (ast.Constant(value=text), ast.Name(id=name)) if name in self._texts:
                variable, on_left = right, False
            case _:
                return ast.Compare(left, [op], [right])
        if type(op) not in _OF_RANKS:
            return ast.Compare(left, [op], [right])
        holds, texts = _OF_RANKS[type(op)], self._texts[name]
        rank = texts.index(text)
        among: list[ast.expr] = [
            ast.Constant(other)
            for place, other in enumerate(texts)
            if (holds(place, rank) if on_left else holds(rank, place))
        ]
        return ast.Compare(variable, [ast.In()], [ast.Tuple(among)])


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Constant(value=int() | float() as value):
            # Floats overflow to infinity; integers would grow until memory is exhausted.
            return np.float64(value)
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            inner = _value(operand, values)
            if isinstance(op, ast.Not):
                return 1.0 - _truth(inner)
            return -inner if isinstance(op, ast.USub) else inner
        case ast.BoolOp(op=op, values=parts):
            truths = [_truth(_value(part, values)) for part in parts]
            return reduce(np.minimum if isinstance(op, ast.And) else np.maximum, truths)
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_value(left, values), _value(right, values))
        case ast.Compare(left=left, ops=ops, comparators=others):
            holds: Any = 1.0
            for first, op_, second in zip([left, *others], ops, others, strict=False):
                holds = holds * _holds(first, op_, second, values)
            return holds
        case ast.Call(func=ast.Name(id=name), args=args):
            arguments = [_value(arg, values) for arg in args]
            if name in _UNARY_FUNCTIONS:
                return _UNARY_FUNCTIONS[name](arguments[0])
            result, *rest = arguments
            for other in rest:
                result = _VARIADIC_FUNCTIONS[name](result, other)
            return result
    raise AssertionError(ast.dump(node))


def _truth(value: Any) -> Floats:
    number = np.asarray(value, dtype=np.float64)
    return np.asarray((number != 0.0) & ~np.isnan(number), dtype=np.float64)


def _holds(left: ast.expr, op: ast.cmpop, right: ast.expr, values: Mapping[str, Any]) -> Floats:
    """1 where a comparison holds; 0 where a side of it is missing."""
    first = _value(left, values)
    if isinstance(op, ast.In | ast.NotIn):
        assert isinstance(right, ast.Tuple | ast.List)
        seconds = [_value(side, values) for side in right.elts]
        among = reduce(np.maximum, [_equal(first, second) for second in seconds], _NONE)
        return _present(first) * (1.0 - among) if isinstance(op, ast.NotIn) else among
    second = _value(right, values)
    if isinstance(op, ast.Eq):
        return _equal(first, second)
    if isinstance(op, ast.NotEq):
        return _present(first) * _present(second) * (1.0 - _equal(first, second))
    return np.asarray(_COMPARISONS[type(op)](first, second), dtype=np.float64)


def _equal(first: Any, second: Any) -> Floats:
    return np.asarray(np.asarray(first) == np.asarray(second), dtype=np.float64) * _present(first)


def _present(value: Any) -> Floats:
    held = np.asarray(value)
    if held.dtype.kind == "f":
        return np.asarray(~np.isnan(held), dtype=np.float64)
    return np.array([each is not None for each in held.ravel()], dtype=np.float64).reshape(
        held.shape
    )
