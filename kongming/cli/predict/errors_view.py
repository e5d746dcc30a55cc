"""The errors of all models as a table, the same in ``train`` and in ``model``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kongming.cli import output
from kongming.cli.tables import Table
from kongming.quantities import count, per_cent

Variants = Mapping[str, Mapping[str, Any]]
"""By suite: ``columns`` (number or names), ``chosen``, ``reason``, ``errors``, noise floor."""


def distinct(variants: Variants) -> dict[str, Mapping[str, Any]]:
    """Return the variants without a quick one of the same surrogates as the full one."""
    full = size(variants["full"])
    return {
        name: variant
        for name, variant in variants.items()
        if name == "full" or size(variant) != full
    }


def size(variant: Mapping[str, Any]) -> int:
    """Return the number of surrogates that the models of a variant read."""
    columns = variant["columns"]
    return columns if isinstance(columns, int) else len(columns)


def label(name: str) -> str:
    """Return what a variant reads: all surrogates of the profile, or those of the quick suite."""
    return "quick suite" if name == "quick" else "all measured"


def errors_table(variants: Variants) -> Table:
    """Return a row for each model, with its median and mean error on left-out families by
    variant, and one for the noise floor."""
    columns = ["model"]
    for name, variant in variants.items():
        surrogates = f"{label(name)}, {count(size(variant), 'surrogate')}"
        columns += [f"{surrogates}: median", f"{label(name)}: mean"]
    rows = []
    for model in dict.fromkeys(key for variant in variants.values() for key in variant["errors"]):
        cells = [model]
        for variant in variants.values():
            scores = variant["errors"].get(model, {})
            mark = " *" if model == variant["chosen"] else "  "
            cells += [percent(scores.get("median_pct")), percent(scores.get("mean_pct")) + mark]
        rows.append(cells)
    floors = [percent(variant["noise_floor_pct"]) for variant in variants.values()]
    rows.append(["noise floor", *[cell for floor in floors for cell in (floor, "  ")]])
    return output.table(
        columns, rows, title="Errors on resource families left out in turn", right=columns[1:]
    )


def chosen_lines(variants: Variants) -> list[str]:
    """Return why each variant's model was chosen, and what the noise floor is."""
    return [
        *(
            f"* {label(name)}: {variant['chosen']}, because {variant['reason']}."
            for name, variant in variants.items()
        ),
        "The noise floor is the repeat noise of the runs alone and of loads that were repeated, "
        "widened where there are few repeats.",
    ]


def percent(value: float | None) -> str:
    return "-" if value is None else per_cent(value)
