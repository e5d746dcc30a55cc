"""Output of evaluations: progress of training, the cost of measuring, tables on the terminal, and
tables, all numbers and figures in files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.quantities import count

if TYPE_CHECKING:
    from rich.console import Console

    from kongming.evaluate.training import Task, Trained
    from kongming.store import Store

Document = Mapping[str, Any]

_MARGIN = 3
"""Spaces between two cells of a table."""


_ERRORS = "error in %, median / IQR"

_COMPARED = ("auto", "MEAN", "SOLO", "PAIRMEDIAN")
"""Columns of the table of errors by application, without ``--wide``."""


def report(document: Document, folder: Path | None, *, as_json: bool) -> None:
    """Print the document, and write it to ``folder`` if there is one.

    Raises:
        InputError: ``folder`` is a file.
    """
    notes = [] if folder is None else write(document, folder)
    if as_json:
        output.emit_json(document)
        console = output.error_console()
    else:
        console = output.console()
        show(document, console)
        if folder is None:
            console.print("table.md of --out says what each column is.")
    for note in notes:
        console.print(note, markup=False)


def show(document: Document, console: Console) -> None:
    """Print what it comes to, the figures over all cases with a row for each model, then errors by
    application, then notes."""
    from kongming.cli.tables import is_wide
    from kongming.evaluate.tables import accuracy, conclusion, overall, remarks, title

    def block(part: Document, heading: str) -> None:
        if sentence := conclusion(part):
            console.print(sentence, markup=False)
        columns, rows = overall(part, document["kind"])
        for these, cells in fitting(columns, rows, console.width):
            console.print(output.table(these, cells, title=heading, right=these[1:]))
        models = list(part["geomean_pct"])
        shown = models if is_wide() else [name for name in models if name in _COMPARED]
        columns, rows = accuracy(part, shown)
        for these, cells in fitting(columns, rows, console.width, ends=1):
            console.print(output.table(these, cells, title=_ERRORS, right=these[1:]))
        if hidden := len(models) - len(shown):
            console.print(f"{count(hidden, 'more model')}: --wide or table.md of --out.")
        for line in remarks(part):
            console.print(line, markup=False)

    block(document, title(document))
    if document.get("synthetic"):
        block(document["synthetic"], "Synthetic environments")
    for line in _words(document):
        console.print(line, markup=False)


def fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, ends: int = 0
) -> list[tuple[list[str], list[list[str]]]]:
    """Split a wide table into several that fit, each with the first and the last ``ends``
    columns.
    """
    widths = [
        max(len(column), *(len(row[i]) for row in rows)) + _MARGIN
        for i, column in enumerate(columns)
    ]
    every = range(len(columns))
    middle, last = every[1 : len(columns) - ends], every[len(columns) - ends :]
    room = width - widths[0] - sum(widths[i] for i in last)
    parts: list[list[int]] = [[]]
    for i in middle:
        if parts[-1] and sum(widths[j] for j in parts[-1]) + widths[i] > room:
            parts.append([])
        parts[-1].append(i)
    picked = [[0, *part, *last] for part in parts]
    return [([columns[i] for i in p], [[row[i] for i in p] for row in rows]) for p in picked]


def _words(document: Document) -> list[str]:
    """Return notes on how the figures were computed."""
    words = []
    if document["scored"] == "bracketed":
        words.append("Scored: costs relative to the solo runs around each run.")
    else:
        words.append("Scored: measured costs, unchanged.")
    cut = [
        app
        for app, profile in document.get("profiles", {}).items()
        if profile["levels"] is not None
    ]
    if cut:
        words.append(f"Profiled at few load levels only (--levels): {', '.join(cut)}.")
    if trained := document.get("trained_on"):
        words.append(
            "Not scored, since the second was a load of the first one's profile: "
            + ", ".join(f"{app} next to {other}" for app, other in trained)
            + "."
        )
    for app, reason in document["dropped"].items():
        words.append(f"{app} is left out: {reason}")
    if document["failed"]:
        words.append(f"{document['failed']} runs failed: " + "; ".join(document["reasons"]))
    for name, reason in document.get("unavailable", {}).items():
        words.append(f"Not possible here: {name}: {reason}")
    words += [f"Not predicted: {reason}" for reason in document["not_predicted"]]
    if not document["complete"]:
        words.append(
            "Incomplete: only the runs measured so far are scored. The same command "
            "continues where this one stopped."
        )
    return words


def write(document: Document, folder: Path) -> list[str]:
    """Write document.json, table.md, a CSV of every case, and figures; return a message.

    Raises:
        InputError: ``folder`` is a file.
    """
    from kongming.evaluate import to_csv, to_markdown
    from kongming.files.atomic_file import replace_text
    from kongming.records.errors import InputError, MissingExtraError

    if folder.exists() and not folder.is_dir():
        raise InputError("is a file.", field="--out", value=str(folder), allowed="a folder")
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=2, allow_nan=False)
    replace_text(folder / "document.json", f"{text}\n", field="--out")
    replace_text(folder / "table.md", to_markdown(document), field="--out")
    cases = "pairs.csv" if document["kind"] == "pairs" else "runs.csv"
    replace_text(folder / cases, to_csv(document), field="--out")
    notes = [f"Written to {folder}: document.json, table.md, {cases}, figures."]
    try:
        _draw(document, folder)
    except MissingExtraError as error:
        notes = [f"Written to {folder}: document.json, table.md, {cases}. No figures: {error}"]
    return notes


def _draw(document: Document, folder: Path) -> None:
    """Write the paper's figures, for light and for dark pages.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    from kongming.evaluate import figures, pressures
    from kongming.learning.registry import AUTO

    figures.error_cdf(document, folder)
    for model, selections in document["selected"].items():
        figures.selection(selections, folder, model=model)
    if document["kind"] != "pairs":
        return
    if AUTO in document["geomean_pct"]:
        figures.heat_map(document, folder)
    if document["minutes"]["SOLO"] and document["minutes"]["ROW+COL"]:
        figures.error_minutes(document, folder)
    pressure = pressures(document)
    sensitivity = document["sensitivity"]
    if sensitivity.keys() & pressure.keys():
        figures.sensitivity_pressure(sensitivity, pressure, folder)


def train_all(tasks: Sequence[Task]) -> Trained:
    """Train on every set of runs, with one process per CPU, and show progress."""
    from kongming.evaluate.training import collect, train
    from kongming.processes.pool import available_cpus, in_order

    with output.progress("Training", len(tasks)) as shown:
        shown.update(0)

        def answers() -> Iterator[tuple[Task, dict[str, Any] | str]]:
            for done, (task, answer) in enumerate(in_order(train, tasks, available_cpus())):
                shown.update(done + 1, text=f"Trained {', '.join(task.key)}")
                yield task, answer

        return collect(answers())


def keep(store: Store, document: Mapping[str, Any]) -> None:
    """Store a model unless the newest stored one is the same."""
    app, placement, node_id = (str(document[key]) for key in ("app", "placement", "node_id"))
    newest = store.model(app, placement, node_id=node_id)
    if newest is None or newest.get("variants") != document["variants"]:
        store.put_model(app, str(document["identity"]), node_id, placement, document)


def print_cost(
    document: dict[str, Any],
    sentences: Sequence[str],
    unchecked: tuple[int, int] | None,
    *,
    as_json: bool,
) -> int:
    """Print the cost of an evaluation, and the CPUs that are measured first (``unchecked``); return
    the exit status."""
    from kongming.campaigns.cost import ASSUMED_APP_S
    from kongming.campaigns.this_node import unchecked_text

    document = {**document, "unchecked_cpus": list(unchecked or ())}
    if as_json:
        output.emit_json(document)
        return 0
    console = output.console()
    for sentence in sentences:
        console.print(sentence, markup=False)
    if document["assumed_seconds"]:
        console.print(
            f"Not yet run here, assumed to take {ASSUMED_APP_S:g} s: "
            f"{', '.join(sorted(document['assumed_seconds']))}."
        )
    if unchecked is not None:
        console.print(unchecked_text(unchecked))
    return 0
