"""The tables of docs/kubernetes.md, generated from the extender's declarations.

python -m tests.kubernetes.tables    writes them into the page
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from kongming_extender import config, metrics, pods

from kongming import settings as declared

PAGE = Path(__file__).resolve().parents[2] / "docs/kubernetes.md"


def tables() -> dict[str, str]:
    """The text of each table, by its name in the page."""
    return {
        "annotations": _table(
            ("annotation", "meaning"),
            ((f"`{name}`", meaning) for name, meaning in pods.ANNOTATIONS.items()),
        ),
        "settings of kongming-extender": _table(
            ("setting", "default", "allowed", "unit", "what it does"),
            (
                (f"`{row.key}`", f"`{json.dumps(row.default)}`", row.allowed, row.unit, row.help)
                for row in declared.table(config.Config)
            ),
        ),
        "metrics of kongming-extender": _table(
            ("metric", "kind", "labels", "meaning"),
            (
                (f"`{metrics.PREFIX}{row.name}`", row.kind, ", ".join(row.labels), row.help)
                for row in metrics.DECLARED
            ),
        ),
    }


def with_tables(page: str) -> str:
    """``page`` with each table between its two marks replaced by the current one."""
    for name, text in tables().items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise ValueError(f"{PAGE.name} needs '{begin}' and '{end}' once each.")
        replacement = f"{begin}\n\n{text}\n{end}"
        page = pattern.sub(lambda _, text=replacement: text, page)
    return page


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "".join(f"| {line} |\n" for line in cells)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
