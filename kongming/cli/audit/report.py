"""``kongming audit report``: an HTML page and tables from observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.scale.options import prices_option
from kongming.cli.shares import FRACTION
from kongming.files.atomic_file import replace_text
from kongming.quantities import count, per_cent
from kongming.records.errors import InputError


@click.command(
    "report",
    short_help="Variability, slow machines, causes: an HTML page and tables.",
    epilog=examples(
        "kongming audit report a.parquet b.parquet --out audit.html",
        "kongming audit report a.parquet b.parquet --prices prices.csv --csv tables",
    ),
)
@click.argument(
    "files",
    metavar="FILES...",
    nargs=-1,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
)
@click.option(
    "--out",
    metavar="FILE.html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the HTML page: one self-contained file.",
)
@click.option(
    "--csv",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write each table as a CSV file.",
)
@prices_option
@click.option(
    "--confidence",
    type=FRACTION,
    default="95%",
    show_default=True,
    help="Confidence of intervals and of claims.",
)
@click.option(
    "--precision",
    "precisions",
    type=FRACTION,
    multiple=True,
    default=("1%", "5%"),
    show_default=True,
    help="Precision of the median for the number of repetitions (repeatable).",
)
@click.option("--title", default="Audit of instances", show_default=True, help="Page title.")
@options.wide_option
@options.json_option
def command(
    files: Sequence[Path],
    out: Path | None,
    folder: Path | None,
    prices_file: Path | None,
    confidence: float,
    precisions: tuple[float, ...],
    title: str,
    as_json: bool,
) -> None:
    """Report the variability of machines, slow machines, changes, and what explains programs.

    FILES are observations of any number of machines, each recording once. The findings are printed;
    --out, --csv and --json write a page and all tables.
    """
    from kongming.cli.extras import require

    for module in ("numpy", "scipy", "pyarrow"):
        require("kongming audit report", "predict", module)
    if out is not None:
        for module in ("jinja2", "matplotlib"):
            require("kongming audit report --out", "plots", module)
    from kongming.audit.analysis.document import analyse
    from kongming.audit.analysis.findings import findings
    from kongming.audit.analysis.settings import Settings
    from kongming.audit.anonymising import apart
    from kongming.audit.readings import read_observations
    from kongming.audit.report.tables import write_tables
    from kongming.scale.decide.recommendation import read_prices

    options.refuse_to_replace(out, {"recording": files, "file of prices": prices_file})
    prices = None if prices_file is None else read_prices(prices_file)
    settings = Settings(confidence=confidence, precisions=tuple(sorted(dict.fromkeys(precisions))))
    with output.progress("reading the files"):
        observations = read_observations(files)
    if (text := apart(observations)) is not None:
        output.error_console().print(f"note: {text}", markup=False)
    price_of = _by_type(prices)
    audit = analyse(observations, settings, price_of)
    unpriced = [] if price_of is None else [t for t in audit.series.types if t not in price_of]
    if len(unpriced) == len(audit.series.types):
        raise InputError(
            "has a price of none of the types.", field="--prices", allowed=", ".join(unpriced)
        )
    if out is not None:
        from kongming.audit.report.page import to_html

        replace_text(out, to_html(audit, title), field="--out")
    if folder is not None:
        write_tables(audit.document, folder)
    if unpriced:
        text = f"note: {prices_file} has no price of {', '.join(unpriced)}."
        output.error_console().print(text, markup=False)
    if as_json:
        output.emit_json({**audit.document, "findings": findings(audit.document)})
        return
    _show(audit.document, findings(audit.document))
    for path in (out, folder):
        if path is not None:
            output.error_console().print(f"written: {path}", markup=False)


def _by_type(prices: Mapping[Any, float] | None) -> dict[str, float] | None:
    if prices is None:
        return None
    if None in prices:
        raise InputError(
            "has no column of types.", field="--prices", allowed="columns type and price"
        )
    return {str(name): price for name, price in prices.items()}


def _show(document: Mapping[str, Any], items: Sequence[Mapping[str, str]]) -> None:
    console = output.console()
    counts = document["counts"]
    console.print(
        f"{count(counts['good'], 'reading')} of {count(counts['machines'], 'machine')} of "
        f"{count(counts['types'], 'type')}, "
        f"{counts['failed']} missing; {counts['from']} to {counts['to']}.",
        markup=False,
    )
    rows = [
        (
            row["type"],
            row["name"],
            row["n"],
            _value(row["median"], row["unit"]),
            _ratio(row["p95_over_p5"]),
            _ratio(row["longest_over_shortest"]),
            None if row["robust_cv"] is None else per_cent(100.0 * row["robust_cv"]),
        )
        for row in document["summaries"]
        if row["machine"] is None and row["kind"] != "passive"
    ]
    columns = ("type", "name", "n", "median", "p95/p5", "longest/shortest", "robust CV")
    console.print(
        output.table(
            columns, rows, right=columns[2:], minor=("type", "n", "longest/shortest", "robust CV")
        )
    )
    console.print(
        output.table(("kind", "finding"), [(item["kind"], item["text"]) for item in items])
    )


def _value(value: float, unit: str) -> str:
    return output.format_seconds(value) if unit == "s" else f"{value:.3g} {unit}"


def _ratio(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"
