"""What a design needs: the candidates, what they cost, and what was done already."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.errors import InputError

if TYPE_CHECKING:
    from kongming.dataset import Floats
    from kongming.scale.design import Experiments
    from kongming.scale.points import Configuration, Points, Runs

FORMAT = "kongming-scale-design"
VERSION = 1
ASSUMED_S = 1000.0
"""Seconds of the whole input on one machine where nothing at all is known."""


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """Experiments, and what each costs in machine-seconds (None where it was not asked)."""

    experiments: Experiments
    costs: Floats | None
    runs: Runs | None


def configuration(text: str, field: str) -> Configuration:
    """``64@1.0``. Raises InputError."""
    from kongming.scale.points import Configuration

    machines, at, scale = text.partition("@")
    try:
        found = Configuration(float(int(machines)), float(scale) if at else 1.0)
    except ValueError:
        found = Configuration(math.nan)
    if not (found.machines >= 1.0 and math.isfinite(found.scale) and found.scale > 0.0):
        raise InputError(
            "is no configuration.", field=field, found=text, allowed="MACHINES@SCALE, as 64@1.0"
        )
    return found


def experiments_of(
    *,
    machines: str,
    scales_text: str,
    in_seconds: bool,
    cost_file: Path | None,
    model: str | None,
    done: Path | None,
    terms: str,
    items: float | None,
    at_least: Mapping[Configuration, int] | None = None,
    repeats: int = 1,
    store_url: str | None = None,
) -> tuple[Plan, list[str]]:
    """The candidates and their costs, and what is to be said of them.

    Costs come from the cost file, else from a model's predictions, else from a model of the runs
    that were done. With ``in_seconds`` and none of these, every experiment is taken to do its
    share of ``ASSUMED_S``.

    Raises:
        InputError: a range, a term, the cost file or the table of runs is wrong.
    """
    import numpy as np

    from kongming.scale.design import Experiments, candidates
    from kongming.scale.ranges import machine_counts, scales
    from kongming.scale.table import read_table
    from kongming.scale.terms import read_terms

    warnings: list[str] = []
    points = candidates(machine_counts(machines), scales(scales_text))
    chosen = read_terms(terms, items=items)
    if chosen.auto:
        raise InputError(
            "A design is for terms that are known.",
            field="--terms",
            found=terms,
            hint="Name the terms that the model will have.",
        )
    runs = None
    if done is not None:
        table = read_table(done)
        if len(table.parts) != 1:
            raise InputError("A design is of one job.", field="--done", found=str(done))
        runs = next(iter(table.parts.values()))
    seconds = done_seconds = None
    if model is not None:
        from kongming.cli.scale_models import load

        fitted = load(model, store_url).one()
        seconds = fitted.seconds(points)
        done_seconds = None if runs is None else fitted.seconds(runs.points)
    elif runs is not None and runs.count >= len(chosen.terms):
        from kongming.scale.ernest import fit_ernest

        fit = fit_ernest(runs, chosen.terms, items, relative=True)
        seconds, done_seconds = fit.predict(points), fit.predict(runs.points)
    costs: Floats | None = None
    if cost_file is not None:
        costs = read_costs(cost_file, points, items)
    elif seconds is not None:
        costs = seconds * points.machines
    elif in_seconds:
        costs = ASSUMED_S * points.scale
        warnings.append(
            "nothing is known of what a run costs: the whole input is taken to cost "
            f"{ASSUMED_S:g} machine-seconds, whatever the machines; give --cost, --model or --done"
        )
    experiments = Experiments(
        points=points,
        cost=costs if in_seconds and costs is not None else np.ones(len(points)),
        terms=chosen.terms,
        items=items,
        seconds=seconds,
        at_least=at_least,
        done=None if runs is None else runs.points,
        done_seconds=done_seconds,
        repeats=repeats,
    )
    return Plan(experiments, costs, runs), warnings


def read_costs(file: Path, points: Points, items: float | None) -> Floats:
    """(n,) machine-seconds: from a CSV with machines, scale and cost (a row for each candidate),
    or from a file that holds one expression in scale, machines and n.

    Raises:
        InputError: it is neither, misses a candidate, or says a cost that is not above 0.
    """
    import csv

    import numpy as np

    from kongming.scale.expressions import parse

    try:
        text = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}.", field="--cost") from error
    lines = text.splitlines()
    if len(lines) == 1:
        expression = parse(text, field="--cost")
        n = points.scale * (1.0 if items is None else items)
        costs = expression({"scale": points.scale, "machines": points.machines, "n": n})
        bad = ~(np.isfinite(costs) & (costs > 0.0))
        if bad.any():
            at = int(np.argmax(bad))
            raise InputError(
                f"The cost of {points.configurations()[at]} is not above 0.",
                field="--cost",
                found=str(costs[at]),
            )
        return costs
    known: dict[tuple[float, float], float] = {}
    for number, row in enumerate(csv.DictReader(lines), 1):
        values = []
        for column in ("machines", "scale", "cost"):
            cell = (row.get(column) or "").strip()
            try:
                value = float(cell)
            except ValueError:
                value = math.nan
            if not (math.isfinite(value) and value > 0.0):
                raise InputError(
                    "is no number above 0.",
                    field=f"{file}: row {number}, column {column!r}",
                    found=cell,
                )
            values.append(value)
        known[values[0], float(f"{values[1]:.12g}")] = values[2]
    found = []
    for one in points.configurations():
        key = (one.machines, float(f"{one.scale:.12g}"))
        if key not in known:
            raise InputError(
                f"has no cost of {one}.",
                field=f"--cost {file}",
                hint="A row for each candidate, or one expression, as machines*(10+500*scale)",
            )
        found.append(known[key])
    return np.array(found, dtype=np.float64)


def write_design(file: Path, document: Mapping[str, Any]) -> None:
    """Write a design for 'scale run'. Raises OSError."""
    partial = file.with_name(file.name + ".partial")
    whole = {"format": FORMAT, "version": VERSION, **document}
    partial.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(file)


def read_design(file: Path) -> list[tuple[Configuration, int]]:
    """Configurations and how often each is run: of a design file, or of what ``--json`` printed.

    Raises:
        InputError: it is no design (with the entry).
    """
    from kongming.scale.points import Configuration

    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.", field="--design") from error
    except ValueError as error:
        raise InputError(f"{file} is no JSON.", field="--design") from error
    entries = document.get("experiments") if isinstance(document, dict) else None
    if isinstance(document, dict) and document.get("version", VERSION) != VERSION:
        raise InputError(
            "is of a version that is not known.", field="version", found=document["version"]
        )
    if not isinstance(entries, list) or not entries:
        raise InputError(
            f"{file} has no experiments.",
            field="--design",
            hint="Write one: kongming scale design ... --out FILE",
        )
    found = []
    for number, one in enumerate(entries, 1):
        try:
            at = Configuration(float(int(one["machines"])), float(one["scale"]))
            count = int(one.get("runs", 1))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                "is no experiment.",
                field=f"experiments[{number}]",
                found=str(one)[:80],
                allowed='{"machines": 4, "scale": 0.1, "runs": 1}',
            ) from error
        if at.machines < 1 or not at.scale > 0.0 or count < 1:
            raise InputError(
                "is out of range.", field=f"experiments[{number}]", found=str(one)[:80]
            )
        found.append((at, count))
    return found
