"""Names say what a thing is: not that it was found, made or kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EMPTY = frozenset({"one", "found", "made", "asked", "told", "whole", "said", "kept"})
"""Words that fit anything. docs/glossary.md has the field's."""
FOLDERS = ("kongming", "daemon", "benchmarks", "examples", "docs", "tests")
CHOSEN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def chosen_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the name of whatever a module gives a name to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, CHOSEN):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs) and node.name:
            yield node.lineno, node.name
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname


LITERALS = re.compile(
    r"""(\"{3}|'{3})(?:\\.|[^\\])*?\1|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*""", re.DOTALL
)
IDENTIFIERS = re.compile(r"[^\W\d]\w*")


def may_name(source: str) -> bool:
    """Return whether such a word is an identifier, which is cheaper to see than what is named."""
    identifiers = set(IDENTIFIERS.findall(LITERALS.sub(" ", source)))
    return any(identifier.strip("_").lower() in EMPTY for identifier in identifiers)


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    return {
        path.relative_to(ROOT): path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "site-packages" not in path.parts
    }


def test_what_is_named() -> None:
    source = "class Said:\n def f(self, *, kept: int):\n  for one in x: self.found = 1\n"
    names = {name for _, name in chosen_names(ast.parse(source))}
    assert names == {"Said", "f", "self", "kept", "one", "found"}


@pytest.mark.parametrize(
    "template",
    [
        "class {}:\n pass",
        "class {}(object):\n pass",
        "def {}():\n pass",
        "def f({}):\n pass",
        "def f({}, b):\n pass",
        "def f(a, *{}):\n pass",
        "def f({}: int):\n pass",
        "def f(\n    {}\n):\n pass",
        "def f({}=1):\n pass",
        "lambda {}: 1",
        "{} = 1",
        "{} += 1",
        "{}: int",
        "{}, b = 1, 2",
        "[{}, b] = 1, 2",
        "[*b, {}] = 1, 2",
        "x.{} = 1",
        "(a := 1, {} := 2)",
        "for {} in ():\n pass",
        "for a, {} in ():\n pass",
        "with open(a) as {}:\n pass",
        "with (\n    open(a) as {}\n):\n pass",
        "import a as {}",
        "from a import b as {}",
        "try:\n pass\nexcept A as {}:\n pass",
        "match a:\n case 1 as {}:\n  pass",
        "match a:\n case [{}, b]:\n  pass",
    ],
)
@pytest.mark.parametrize("word", ["kept", "_Found_"])
def test_every_name_is_looked_at(template: str, word: str) -> None:
    source = template.format(word)
    assert may_name(source)
    assert word in {name for _, name in chosen_names(ast.parse(source))}


def test_words_in_strings_and_comments_name_nothing() -> None:
    source = '\'one\'; f"{a} \'found\'" # kept\n"""made \\" \'\n asked"""\nmaker = \'\\\' told\'\n'
    assert not may_name(source)
    assert may_name(source + "kept = 1")


def test_names_say_what_a_thing_is(sources: dict[Path, str]) -> None:
    assert len(sources) > 1000
    empty = [
        f"{path}:{line} {name}"
        for path, source in sources.items()
        if may_name(source)
        for line, name in chosen_names(ast.parse(source))
        if name.strip("_").lower() in EMPTY
    ]
    assert empty == []


OPENINGS = frozenset(
    (
        *("what", "whether", "how", "which", "who", "whose", "where", "when", "why"),
        *("is", "are", "does"),
        *("of", "by", "as", "in", "from", "to", "for", "with", "on", "at"),
        *("into", "since", "after", "without", "once", "so", "over", "that", "it"),
    )
)
"""Words that no docstring of a public name begins with: it says what is returned, done or held."""


def public_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the docstring of the module and of what others may use of it."""
    waiting: list[ast.Module | ast.ClassDef] = [tree]
    while waiting:
        parent = waiting.pop()
        if docstring := ast.get_docstring(parent):
            yield getattr(parent, "lineno", 1), docstring
        for node in parent.body:
            if isinstance(node, CHOSEN) and not node.name.startswith("_"):
                if isinstance(node, ast.ClassDef):
                    waiting.append(node)
                elif docstring := ast.get_docstring(node):
                    yield node.lineno, docstring


def test_which_docstrings_are_public() -> None:
    source = '"""M."""\nclass C:\n "C."\n def f(): "F."\n def _g(): "G."\nclass _D:\n "D."\n'
    assert {text for _, text in public_docstrings(ast.parse(source))} == {"M.", "C.", "F."}


@pytest.mark.parametrize(
    "source",
    [
        '"""Whether it is."""',
        "def f():\n    r'''\n    what it is.'''",
        "def f(): 'Is it?'",
        'class C:\n\n    """How it is."""\n',
    ],
)
def test_every_docstring_is_looked_at(source: str) -> None:
    assert list(public_docstrings(ast.parse(source)))


def test_public_docstrings_begin_with_a_verb_or_a_noun(sources: dict[Path, str]) -> None:
    others = [
        f"{path}:{line} {docstring.splitlines()[0]}"
        for path, source in sources.items()
        if path.parts[0] in ("kongming", "daemon") and "_pb2" not in path.name
        for line, docstring in public_docstrings(ast.parse(source))
        if docstring.split(maxsplit=1)[0].lower() in OPENINGS
    ]
    assert others == []


def test_what_returns_nothing_does_not_say_that_it_returns(sources: dict[Path, str]) -> None:
    empty = [
        f"{path}:{node.lineno} {node.name}"
        for path, source in sources.items()
        if path.parts[0] in ("kongming", "daemon") and "_pb2" not in path.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(node.returns, ast.Constant)
        and node.returns.value is None
        and (ast.get_docstring(node) or "").startswith("Return")
    ]
    assert empty == []
