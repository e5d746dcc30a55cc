"""Parts that the sections of a report are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kongming.audit.markup import NOTHING, Markup, quantity, tag

__all__ = [
    "DETAILS",
    "Document",
    "Row",
    "folded",
    "grid",
    "interval",
    "levels_of",
    "share",
    "signed",
    "with_interval",
]

Row = Mapping[str, Any]
Document = Mapping[str, Any]

DETAILS = 1500
"""Rows of the longest table of a page."""


def grid(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    left: Collection[str] = (),
    caption: str | None = None,
) -> Markup:
    """A table that scrolls; the first cell of a row is its heading. A cell may be markup."""
    head = tag(
        "tr",
        *(
            tag("th", name, scope="col", class_="left" if k == 0 or name in left else None)
            for k, name in enumerate(columns)
        ),
    )
    body = [
        tag(
            "tr",
            *(_cell(cell, k, columns[k] in left) for k, cell in enumerate(row)),
        )
        for row in rows
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption) if caption else None,
            tag("thead", head),
            tag("tbody", *body),
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption or ", ".join(columns[:4]),
    )


def folded(title: str, content: Markup, opened: bool = False) -> Markup:
    return tag("details", tag("summary", title), content, open="open" if opened else None)


def levels_of(document: Document) -> dict[tuple[str, str], float]:
    return {
        (row["machine"], row["name"]): row["median"]
        for row in document["summaries"]
        if row["machine"] is not None
    }


def with_interval(row: Row, what: str) -> str:
    inside = interval(row, what)
    return quantity(row[what], row["unit"]) + (f" ({inside})" if inside else "")


def interval(row: Row, what: str) -> str | None:
    low, high = row[f"{what}_lower"], row[f"{what}_upper"]
    if low is None:
        return None
    return f"{quantity(low, row['unit'])} to {quantity(high, row['unit'])}"


def share(value: float | None) -> str | None:
    return None if value is None else f"{100.0 * value:.1f} %"


def signed(value: float | None) -> str | None:
    return None if value is None else f"{value:+.1f} %"


def _cell(cell: object, place: int, left: bool) -> Markup:
    if isinstance(cell, Markup) and cell.startswith("<td"):
        return cell
    shown = NOTHING if cell is None or cell == "" else cell
    if place == 0:
        return tag("th", shown, scope="row", title=shown)
    return tag("td", shown, class_="left" if left else None)
