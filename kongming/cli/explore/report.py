"""What commands of ``kongming explore`` print of a fitted model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kongming.cli import output

if TYPE_CHECKING:
    from kongming.explore.model_file import ExploreModel


def print_report(model: ExploreModel, report: Mapping[str, Any]) -> None:
    """Print the runs, the kind of model and its errors, one fact a line."""
    console = output.console()
    console.print(
        f"{report['runs']} runs, {model.target}: model {model.profiler.model_name}", markup=False
    )
    rows = [
        (name.replace("_", " "), text)
        for name, value in report.items()
        if name not in ("runs", "model", "importances") and (text := _text(value)) is not None
    ]
    console.print(output.table(("fact", "value"), rows))


def _text(value: object) -> str | None:
    if isinstance(value, bool) or value is None:
        return None if value is None else ("yes" if value else "no")
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, Mapping):
        parts = [f"{key} {text}" for key, each in value.items() if (text := _text(each))]
        return ", ".join(parts) or None
    return None
