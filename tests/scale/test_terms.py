"""Terms and the expressions of users: what is read, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from kongming.expressions import parse
from kongming.records.errors import InputError
from kongming.scale.fit.terms import DEFAULT, read_terms

VALUES = {
    "scale": np.array([0.1, 1.0]),
    "machines": np.array([2.0, 4.0]),
    "n": np.array([100.0, 1000.0]),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scale*machines", [0.2, 4.0]),
        ("n*log2(n)/machines", [50 * np.log2(100), 250 * np.log2(1000)]),
        ("max(scale, machines/8, 0.5)", [0.5, 1.0]),
        ("-(-machines)**2 + 2*machines**2", [4.0, 16.0]),
        ("(scale/machines > 0.1)*scale", [0.0, 1.0]),
    ],
)
def test_expressions(text: str, expected: list[float]) -> None:
    assert parse(text)(VALUES) == pytest.approx(np.array(expected))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "machines.__class__",
        "(lambda: 1)()",
        "[scale]",
        "'a'*n",
        "scale if n else 1",
        "open(n)",
        "eval(n)",
        "cores",
        "log(n, 2)",
        "max(n)",
        "scale and n",
        "True*n",
        "scale +",
        "1 < n < 2",
        "n" * 400,
        "(" * 150 + "n" + ")" * 150,
        "7",
        "",
    ],
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


def test_what_python_thinks_of_it_is_not_shown() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises(InputError):
            parse("1if machines else 2")
    assert not shown


def test_huge_powers_end_at_once() -> None:
    assert not np.isfinite(parse("n*9**9**9**9")(VALUES)).any()


def test_lists() -> None:
    assert [term.key for term in read_terms("default", items=None).terms] == list(DEFAULT)
    keys = [term.key for term in read_terms("sqrt,max(scale, n)", items=None).terms]
    assert keys == [*DEFAULT, "sqrt", "max(scale, n)"]
    exact = read_terms("intercept, scale / machines,square", items=None)
    assert [term.key for term in exact.terms] == ["intercept", "scale/machines", "square"]
    auto = read_terms("auto,machines**2", items=None)
    assert [term.key for term in auto.candidates] == ["sqrt", "square", "machines**2"]
    assert len(read_terms("auto", items=1e6).candidates) == 4


def test_logarithms_need_items() -> None:
    with pytest.raises(InputError, match="--items"):
        read_terms("nlogn", items=None)
