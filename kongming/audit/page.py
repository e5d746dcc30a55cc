"""An audit as one HTML page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from kongming.audit.analysis import Audit
from kongming.audit.findings import findings
from kongming.audit.markup import Markup, join, tag
from kongming.audit.page_effects import (
    cost_section,
    drop_section,
    explain_section,
    order_section,
    time_section,
)
from kongming.audit.page_parts import grid
from kongming.audit.page_spread import machine_section, repetition_section, spread_section
from kongming.audit.page_style import STYLE

__all__ = ["to_html"]

Row = Mapping[str, Any]

_WARN = ("slow machine", "change", "missing", "drift")

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Even if something slipped through, the browser runs and loads nothing."""

WORDS = (
    (
        "median and its interval",
        "Half of the readings are below the median. The interval holds the median of what was "
        "sampled with the stated confidence, whatever the distribution; it is between two of the "
        "sorted readings. Readings that resemble their neighbours in time count as fewer. Over a "
        "type, machines are what was sampled: the interval says where further machines would lie, "
        "and with one machine there is none.",
    ),
    (
        "longest/shortest, p95/p5",
        "Ratios of the extreme readings, and of the quantiles that leave 5 % out on either side. "
        "The first grows with the number of readings; compare the second.",
    ),
    (
        "CV, robust CV",
        "Standard deviation over mean; and 1.48 times the median distance from the median, over "
        "the median, which a few outliers do not move.",
    ),
    (
        "repetitions needed",
        "Independent repetitions until the interval of the median is within the stated precision "
        "of the median, averaged over all subsets of that size (CONFIRM). In a row: the same if "
        "they are taken one after the other, as here. A tilde marks a number beyond what was "
        "measured, by the square-root law.",
    ),
    (
        "claimed",
        "A test whose p, adjusted for all tests of its kind (Benjamini and Hochberg), is below 1 - "
        "confidence. What is not claimed may still be there: there were too few readings to tell.",
    ),
    (
        "explains",
        "Rank correlation of a program's runs with the fingerprint before each, within machines. "
        "Of those that say the same the strongest is framed, and what it leaves is explained next. "
        "To go together is not to cause.",
    ),
)


def to_html(audit: Audit, title: str = "Audit of instances") -> str:
    """The whole page."""
    document = audit.document
    types = [row["type"] for row in document["machines"]]
    labels = list(dict.fromkeys(types))
    body = [
        _head(document, title, labels),
        tag(
            "main",
            _findings(document),
            *(_type(audit, label, k) for k, label in enumerate(labels)),
            cost_section(document),
            _machines(document),
            _missing(document),
            _words(document),
        ),
        tag(
            "footer",
            tag(
                "p",
                "Written by kongming audit report. The same numbers are in its JSON document "
                "(--json) and tables (--csv).",
                class_="faint",
            ),
        ),
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", *body), lang="en") + "\n"


def _head(document: Mapping[str, Any], title: str, labels: Sequence[str]) -> Markup:
    counts = document["counts"]
    begin, end = counts["from"], counts["to"]
    numbers = [
        ("machines", counts["machines"], ""),
        ("types", counts["types"], ""),
        ("recordings", counts["sessions"], ""),
        ("programs", counts["programs"], ""),
        ("surrogates", counts["surrogates"], ""),
        ("good readings", counts["good"], ""),
        ("missing", counts["failed"], "alarm" if counts["failed"] else ""),
    ]
    links = [tag("a", "What stands out", href="#findings")]
    links += [tag("a", label, href=f"#type-{k}") for k, label in enumerate(labels)]
    links += [
        tag("a", "Machines", href="#machines"),
        tag("a", "Missing readings", href="#missing"),
        tag("a", "What the words mean", href="#words"),
    ]
    return tag(
        "header",
        tag("h1", title),
        tag(
            "p",
            f"{begin.replace('T', ' ').rstrip('Z')} to {end.replace('T', ' ').rstrip('Z')} UTC, "
            f"confidence {100.0 * document['confidence']:g} %.",
            class_="faint",
        ),
        tag("nav", *links, aria_label="Sections"),
        tag(
            "dl",
            *(
                tag("div", tag("dt", name), tag("dd", f"{value:,}"), class_=style or None)
                for name, value, style in numbers
            ),
            class_="numbers",
        ),
    )


def _findings(document: Mapping[str, Any]) -> Markup:
    found = findings(document)
    items = [
        tag(
            "li",
            tag("b", one["kind"]),
            one["text"],
            class_="warn" if one["kind"] in _WARN else None,
        )
        for one in found
    ]
    return join(
        tag("h2", "What stands out", id="findings"),
        tag("ul", *items, class_="findings") if items else tag("p", "Nothing does."),
    )


def _type(audit: Audit, label: str, number: int) -> Markup:
    document = {
        key: [row for row in rows if row.get("type") == label] if _typed(rows) else rows
        for key, rows in audit.document.items()
    }
    members = document["machines"]
    models = ", ".join(sorted({str(row["cpu_model"] or "CPU unknown") for row in members}))
    return join(
        tag("h2", label, id=f"type-{number}"),
        tag(
            "p",
            f"{len(members)} machine{'' if len(members) == 1 else 's'}: {models}.",
            class_="faint",
        ),
        spread_section(document),
        machine_section(document),
        drop_section(document),
        time_section(audit, document),
        explain_section(document),
        order_section(document),
        repetition_section(document),
    )


def _typed(rows: object) -> bool:
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict)


def _machines(document: Mapping[str, Any]) -> Markup:
    columns = ("machine", "type", "CPU", "kernel", "hypervisor", "zone", "tags")
    rows = [
        [
            *(
                row[key]
                for key in ("machine", "type", "cpu_model", "kernel", "hypervisor", "zone", "tags")
            ),
            row["sessions"],
            row["hours"] and f"{row['hours']:.1f}",
            f"{row['good']:,}",
            f"{row['failed']:,}",
        ]
        for row in document["machines"]
    ]
    return join(
        tag("h2", "Machines", id="machines"),
        grid((*columns, "recordings", "hours", "good", "missing"), rows, left=columns),
    )


def _missing(document: Mapping[str, Any]) -> Markup:
    heading = tag("h2", "Missing readings", id="missing")
    if not document["failures"]:
        return join(heading, tag("p", "None is missing."))
    merged: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in document["failures"]:
        own = merged[row["name"], row["reason"]]
        own[0] += row["count"]
        own[1] += 1
    rows = [
        (name, reason, f"{count:,}", machines)
        for (name, reason), (count, machines) in sorted(merged.items(), key=lambda one: -one[1][0])
    ]
    columns = ("name", "reason", "missing", "machines")
    return join(heading, grid(columns, rows, left=("name", "reason")))


def _words(document: Mapping[str, Any]) -> Markup:
    return join(
        tag("h2", "What the words mean", id="words"),
        tag("dl", *((tag("dt", word), tag("dd", text)) for word, text in WORDS), class_="words"),
    )
