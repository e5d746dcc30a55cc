"""An audit as one HTML page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kongming.audit.analysis.document import Audit
from kongming.audit.analysis.findings import findings
from kongming.audit.analysis.series import Row
from kongming.audit.report.figures import (
    day_figures,
    gain_figure,
    histograms,
    repetition_figure,
    timelines,
)
from kongming.audit.report.sections import (
    explanation_matrix,
    machine_matrix,
    movement_rows,
    negative_results,
    order_effects,
    repetition_table,
)
from kongming.web.environment import environment
from kongming.web.svg import drawing_style

MAX_ROWS = 1500
"""Maximum number of rows of a table of the page."""


def to_html(audit: Audit, title: str = "Audit of instances") -> str:
    """Render the page."""
    document = audit.document
    labels = dict.fromkeys(row["type"] for row in document["machines"])
    template = environment("kongming.audit.report").get_template("report.html.j2")
    with drawing_style():
        return template.render(
            title=title,
            document=document,
            findings=findings(document),
            types=[_type_view(audit, label) for label in labels],
            prices=_prices(document),
            missing=_missing(document),
        )


def _type_view(audit: Audit, label: str) -> Mapping[str, Any]:
    """The rows and figures of one type of machine."""
    document = {
        key: [row for row in rows if row.get("type") == label] if _is_table(rows) else rows
        for key, rows in audit.document.items()
    }
    machines = document["machines"]
    of_machines = [row for row in document["summaries"] if row["machine"] is not None]
    models = sorted({str(row["cpu_model"] or "CPU unknown") for row in machines})
    return {
        "label": label,
        "machines": machines,
        "cpu_models": ", ".join(models),
        "histograms": histograms(document),
        "summaries": _summaries(document["summaries"]),
        "no_interval": _no_interval(len(machines)),
        "machine_summaries": of_machines[:MAX_ROWS],
        "machine_summary_count": len(of_machines),
        "matrix": machine_matrix(document),
        "dropping": document["dropping"],
        "gain_figure": gain_figure(document),
        "extra_machines": document["extra_machines"],
        "movements": movement_rows(document)[:MAX_ROWS],
        "negative_results": negative_results(document),
        "timelines": timelines(audit, document),
        "day_figures": day_figures(audit, document),
        "explanations": explanation_matrix(document),
        "order_effects": order_effects(document),
        "order_tests": len(document["place"]) + len(document["predecessor"]),
        "repetitions": repetition_table(document),
        "repetition_figure": repetition_figure(document),
    }


def _summaries(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of the type by kind, with a title each: what a machine does apart from what is read
    next to it, since a signal that changes is no machine that varies."""
    of_type = [row for row in rows if row["machine"] is None]
    kinds = {
        "program": "Programs",
        "surrogate": "Surrogates",
        "passive": "Passive signals (what ran on the machine, not how fast it is)",
    }
    parts = [(title, [row for row in of_type if row["kind"] == k]) for k, title in kinds.items()]
    return [(title, part) for title, part in parts if part]


def _no_interval(machines: int) -> str:
    if machines == 1:
        return (
            "An interval would be that of further machines of the type, and there is one: "
            "the table of each machine has the intervals on it."
        )
    return "There are too few machines of the type for an interval of the median."


def _is_table(rows: object) -> bool:
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict)


def _prices(document: Mapping[str, Any]) -> list[Row]:
    rows = [row for row in document["prices"] if row["kind"] == "program" or not row["name"]]
    rows.sort(key=lambda row: (row["kind"], row["name"] or "", row["over_cheapest"]))
    return rows


def _missing(document: Mapping[str, Any]) -> list[Row]:
    """Missing readings by name and reason, the most frequent first."""
    merged: dict[tuple[str, str], Row] = defaultdict(lambda: {"missing": 0, "machines": 0})
    for row in document["failures"]:
        total = merged[row["name"], row["reason"]]
        total["missing"] += row["count"]
        total["machines"] += 1
    rows = [{"name": name, "reason": reason, **total} for (name, reason), total in merged.items()]
    rows.sort(key=lambda row: -row["missing"])
    return rows
