"""Links between pages lead somewhere, and every page of docs/ has its place in the site."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.tables import ROOT

PAGES = [
    ROOT / "README.md",
    *(
        path
        for folder in ("docs", "benchmarks", "daemon/deploy", "examples")
        for path in sorted((ROOT / folder).rglob("*.md"))
    ),
]
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"""(?:\]\(|src=")(?!\w+:)([^)"\s]+)""")


@cache
def anchors(path: Path) -> set[str]:
    """What the headings of a page are called in addresses, as repositories show them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", path.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(_FENCED.sub("", page.read_text())):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_has_its_place_in_the_site() -> None:
    placed = re.findall(r"^ +- [^:]+: ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(placed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
