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
_WORD = rf"\b_*(?:{'|'.join(EMPTY)})_*\b"
MAY_NAME = re.compile(rf"{_WORD}\s*(?:[^\w\s.\"'`;?!]|in\b)|\bas\s+{_WORD}", re.IGNORECASE)
"""Such a word as it stands where it is a name that is given: before a sign as = , : ) or (, before
``in``, or after ``as``. To look at the syntax of files without it would take ten times as long."""
PROSE = re.compile(
    r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|' + r"'''[\s\S]*?'''|'(?:\\.|[^'\\\n])*'|#.*"
)
"""Texts and comments, in which such words are no names."""
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


def may_name(source: str) -> bool:
    """Tell whether a module has to be parsed to know that it gives no name of ``EMPTY``."""
    return bool(MAY_NAME.search(source) and MAY_NAME.search(PROSE.sub("", source)))


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
    assert word in {name for _, name in chosen_names(ast.parse(source))}
    text = f'"""Nothing."""\n# Don\'t.\na = "\\\\" + r"\\\\" + "#"  # "\n{source}\nb = ""'
    assert may_name(text)
    assert word in {name for _, name in chosen_names(ast.parse(text))}


def test_names_say_what_a_thing_is() -> None:
    files = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "site-packages" not in path.parts
    ]
    assert len(files) > 1000
    empty = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files
        if may_name(source := path.read_text(encoding="utf-8"))
        for line, name in chosen_names(ast.parse(source))
        if name.strip("_").lower() in EMPTY
    ]
    assert empty == []


QUESTIONS = frozenset(
    ("what", "whether", "how", "which", "who", "whose", "where", "when", "why", "is", "are", "does")
)
"""Words that no docstring of a public name begins with: it says what is returned, done or held."""
MAY_ASK = re.compile(
    rf"(?:^|[:;])[ \t]*[ru]?[\"']+\s*(?:{'|'.join(QUESTIONS)})\b", re.IGNORECASE | re.MULTILINE
)
"""A text that begins with such a word, and stands where a docstring may."""


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
    assert MAY_ASK.search(source)


def test_public_docstrings_begin_with_a_verb_or_a_noun() -> None:
    questions = [
        f"{path.relative_to(ROOT)}:{line} {docstring.splitlines()[0]}"
        for folder in ("kongming", "daemon")
        for path in (ROOT / folder).rglob("*.py")
        if "_pb2" not in path.name
        if MAY_ASK.search(source := path.read_text(encoding="utf-8"))
        for line, docstring in public_docstrings(ast.parse(source))
        if docstring.split(maxsplit=1)[0].lower() in QUESTIONS
    ]
    assert questions == []
