"""The tables of docs/kubernetes.md, generated from the extender's declarations.

python -m tests.kubernetes.tables    writes them into the page
"""

from __future__ import annotations

import json
from pathlib import Path

from kongming_extender import extender_config as config
from kongming_extender import metrics, pods

from kongming import settings as declared
from tests.docs.marked_tables import replaced, table

PAGE = Path(__file__).resolve().parents[2] / "docs/kubernetes.md"


def tables() -> dict[str, str]:
    """The text of each table, by its name in the page."""
    return {
        "annotations": table(
            ("annotation", "meaning"),
            ((f"`{name}`", meaning) for name, meaning in pods.ANNOTATIONS.items()),
        ),
        "settings of kongming-extender": table(
            ("setting", "default", "allowed", "unit", "what it does"),
            (
                (f"`{row.key}`", f"`{json.dumps(row.default)}`", row.allowed, row.unit, row.help)
                for row in declared.table(config.Config)
            ),
        ),
        "metrics of kongming-extender": table(
            ("metric", "kind", "labels", "meaning"),
            (
                (f"`{metrics.PREFIX}{row.name}`", row.kind, ", ".join(row.labels), row.help)
                for row in metrics.DECLARED
            ),
        ),
    }


def with_tables(page: str) -> str:
    return replaced(page, tables())


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
