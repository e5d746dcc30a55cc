"""Tables between two marks of a page, made of what the programs declare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def replaced(page: str, tables: Mapping[str, str]) -> str:
    """``page`` with each table between its two marks as it has to be now."""
    for name, text in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise ValueError(f"The page needs '{begin}' and '{end}' once each.")
        block = f"{begin}\n\n{text}\n{end}"
        page = pattern.sub(lambda _, block=block: block, page)
    return page


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    # A bar would end the cell.
    cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "".join(f"| {line} |\n" for line in cells)
