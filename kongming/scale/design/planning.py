"""Inputs of a design: candidates, their costs, and existing runs; and design files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.files.atomic_file import replacing
from kongming.files.csv_rows import read_rows
from kongming.files.missing_file import unreadable, unwritable
from kongming.quantities import DECIMAL_MARK, THOUSANDS, has_thousands, parse_share, with_point
from kongming.records.errors import MALFORMED, InputError

if TYPE_CHECKING:
    from kongming.arrays import Floats
    from kongming.scale.design.candidates import Design, Experiments
    from kongming.scale.fit.model import ScaleModel
    from kongming.scale.points import Configuration, Points, Runs

FORMAT = "kongming-scale-design"
VERSION = 1
ASSUMED_S = 1000.0
"""Machine-seconds of the entire input if nothing is known about the job."""
_COSTS = "It is a CSV of machines, scale and cost, or one expression, as machines*(10+400*scale)."
_DESIGN_IT = "Write one: kongming scale design --out FILE"


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """Experiments, and their costs in machine-seconds (None if unknown)."""

    experiments: Experiments
    costs: Floats | None
    runs: Runs | None


def configuration(text: str, field: str) -> Configuration:
    """Parse ``MACHINES@SCALE``, such as ``64@1.0``. Raises InputError."""
    from kongming.scale.points import MACHINES, SCALES, Configuration, check_within

    machines, at, scale = text.partition("@")
    # What Python takes for numbers besides: 1_000 and the digits of other scripts.
    number = float(machines) if machines.strip().isascii() and machines.strip().isdigit() else 0.0
    parsed = Configuration(number, parse_share(scale.strip()) if at else 1.0)
    if not (parsed.machines >= 1.0 and math.isfinite(parsed.scale) and parsed.scale > 0.0):
        raise InputError(
            "is not a configuration.",
            field=field,
            value=text,
            allowed="MACHINES@SCALE, as 64@1.0 or 64@100%",
            hint=_with_commas(machines.strip()) or _with_commas(scale.strip()),
        )
    check_within(f"{field} machines", parsed.machines, MACHINES)
    check_within(f"{field} scale", parsed.scale, SCALES)
    return parsed


def _with_commas(text: str) -> str | None:
    """Return what a number with commas stands for, if it is any."""
    if has_thousands(text):
        return THOUSANDS
    return DECIMAL_MARK if with_point(text) else None


def experiments_of(
    *,
    machines: str,
    scales_text: str,
    in_seconds: bool,
    cost_file: Path | None,
    model: ScaleModel | None,
    done: Path | None,
    terms: str,
    items: float | None,
    target: Configuration | None = None,
    at_least: Mapping[Configuration, int] | None = None,
    repeats: int = 1,
) -> tuple[Plan, list[str]]:
    """Build the candidates with their costs, and warnings.

    Costs come from the cost file, else from a model's predictions, else from a model fitted to the
    existing runs. With ``in_seconds`` and none of these, an experiment is assumed to cost its share
    of ``ASSUMED_S``.

    Raises:
        InputError: a range, a term, the cost file or the table of runs is not valid.
    """
    import numpy as np

    from kongming.scale.design.candidates import Experiments, candidates
    from kongming.scale.fit.terms import read_terms
    from kongming.scale.points import Points
    from kongming.scale.ranges import machine_counts, scales
    from kongming.scale.table import read_table

    warnings: list[str] = []
    points = candidates(machine_counts(machines), scales(scales_text))
    chosen = read_terms(terms, items=items)
    if chosen.auto:
        raise InputError(
            "A design needs a fixed set of terms.",
            field="--terms",
            value=terms,
            hint="List the terms of the model.",
        )
    runs = None
    if done is not None:
        table = read_table(done)
        if len(table.parts) != 1:
            raise InputError("A design covers one job only.", field="--done", value=str(done))
        runs = next(iter(table.parts.values()))
    predict: Callable[[Points], Floats] | None = None
    if model is not None:
        predict = model.seconds
        if model.iterated and cost_file is None:
            warnings.append("the model is of one iteration: costs are those of one iteration")
    elif runs is not None and runs.count >= len(chosen.terms):
        from kongming.scale.fit.ernest import fit_ernest

        predict = fit_ernest(runs, chosen.terms, items, relative=True).predict
    seconds = done_seconds = None
    target_seconds = 1.0
    if predict is not None:
        seconds = predict(points)
        done_seconds = None if runs is None else predict(runs.points)
        if target is not None:
            target_seconds = float(predict(Points.of([target]))[0])
    costs: Floats | None = None
    if cost_file is not None:
        costs = read_costs(cost_file, points, items)
    elif seconds is not None:
        costs = seconds * points.machines
    elif in_seconds:
        costs = ASSUMED_S * points.scale
        give = "--cost, --model or --done" if runs is None else "--cost, or run more"
        warnings.append(
            "the cost of a run is unknown: the entire input is assumed to cost "
            f"{ASSUMED_S:g} machine-seconds on any machine count; give {give}"
        )
    experiments = Experiments(
        points=points,
        cost=costs if in_seconds and costs is not None else np.ones(len(points)),
        terms=chosen.terms,
        items=items,
        seconds=seconds,
        target_seconds=target_seconds,
        at_least=at_least,
        done=None if runs is None else runs.points,
        done_seconds=done_seconds,
        repeats=repeats,
        limit="--budget-machine-seconds" if in_seconds else "--experiments",
    )
    return Plan(experiments, costs, runs), warnings


def read_costs(file: Path, points: Points, items: float | None) -> Floats:
    """Read (n,) machine-seconds from a CSV with machines, scale and cost (a row per candidate), or
    from a file with one expression in scale, machines and n.

    Raises:
        InputError: the file is neither, lacks a candidate, or has a cost that is not above 0.
    """
    import numpy as np

    from kongming.expressions import parse

    try:
        text = file.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise unreadable(file, error, _COSTS, field="--cost") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text.", field="--cost", hint=_COSTS) from error
    if len(text.splitlines()) == 1:
        expression = parse(text, field="--cost")
        n = points.scale * (1.0 if items is None else items)
        costs = expression({"scale": points.scale, "machines": points.machines, "n": n})
        bad = ~(np.isfinite(costs) & (costs > 0.0))
        if bad.any():
            at = int(np.argmax(bad))
            raise InputError(
                f"The cost of {points.configurations()[at]} is not above 0.",
                field="--cost",
                value=str(costs[at]),
            )
        return costs
    known: dict[tuple[float, float], float] = {}
    for row in read_rows(file, ("machines", "scale", "cost")):
        machines, scale, cost = (
            row.number_in(column, above=True) for column in ("machines", "scale", "cost")
        )
        known[machines, float(f"{scale:.12g}")] = cost
    candidate_costs = []
    for candidate in points.configurations():
        key = (candidate.machines, float(f"{candidate.scale:.12g}"))
        if key not in known:
            raise InputError(
                f"has no cost of {candidate}.",
                field=f"--cost {file}",
                hint="A row for each candidate, or one expression, as machines*(10+500*scale)",
            )
        candidate_costs.append(known[key])
    return np.array(candidate_costs, dtype=np.float64)


def design_document(
    plan: Plan, best: Design, target: Configuration | None, warnings: Sequence[str]
) -> dict[str, Any]:
    """Return a design as JSON, its experiments by machines and scale."""
    experiments = plan.experiments.points.configurations()
    chosen = [
        {
            "machines": int(at.machines),
            "scale": at.scale,
            "runs": int(best.counts[i]),
            "weight": float(best.relaxed.weights[i]),
            "machine_seconds": None if plan.costs is None else float(plan.costs[i]),
        }
        for i, at in enumerate(experiments)
        if best.counts[i] > 0
    ]
    return {
        "optimality": best.criterion,
        "target": None
        if target is None
        else {"machines": int(target.machines), "scale": target.scale},
        "experiments": sorted(chosen, key=lambda each: (each["machines"], each["scale"])),
        "count": int(best.counts.sum()),
        "machine_seconds": None if plan.costs is None else float(plan.costs @ best.counts),
        "candidates": len(experiments),
        "relaxation": {
            "value": best.relaxed.value,
            "gap": best.relaxed.gap,
            "steps": best.relaxed.steps,
        },
        "value": best.value,
        "efficiency": best.efficiency,
        "predicted_variance": dict(best.variances) or None,
        "terms": [term.key for term in plan.experiments.terms],
        "done": 0 if plan.experiments.done is None else len(plan.experiments.done),
        "warnings": list(warnings),
    }


def write_design(file: Path, document: Mapping[str, Any]) -> None:
    """Write a design for 'scale run'. Raises InputError where that is not possible, StoreError
    where the disk is full."""
    versioned = {"format": FORMAT, "version": VERSION, **document}
    try:
        with replacing(file) as stream:
            stream.write(json.dumps(versioned, indent=1, allow_nan=False).encode() + b"\n")
    except OSError as error:
        raise unwritable(file, error) from error


def read_design(file: Path) -> list[tuple[Configuration, int]]:
    """Read configurations and their number of runs from a design file or ``--json`` output.

    Raises:
        InputError: the file is not a design (with the entry).
    """
    from kongming.scale.points import MACHINES, SCALES, Configuration

    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(file, error, _DESIGN_IT, field="--design") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON.", field="--design") from error
    entries = document.get("experiments") if isinstance(document, dict) else None
    if isinstance(document, dict) and document.get("version", VERSION) != VERSION:
        raise InputError("is not a known version.", field="version", value=document["version"])
    if not isinstance(entries, list) or not entries:
        raise InputError(
            f"{file} has no experiments.",
            field="--design",
            hint="Write one: kongming scale design ... --out FILE",
        )
    design = []
    for number, entry in enumerate(entries, 1):
        try:
            if entry.get("context"):
                raise InputError(
                    "is of a context, which 'scale run' cannot set.",
                    field=f"experiments[{number}]",
                    value=str(entry["context"])[:80],
                    hint="Run it by hand and add the row to the table.",
                )
            at = Configuration(float(entry["machines"]), float(entry["scale"]))
            count = float(entry.get("runs", 1))
        except MALFORMED as error:
            raise InputError(
                "is not an experiment.",
                field=f"experiments[{number}]",
                value=str(entry)[:80],
                allowed='{"machines": 4, "scale": 0.1, "runs": 1}',
            ) from error
        inside = MACHINES[0] <= at.machines <= MACHINES[1] and SCALES[0] <= at.scale <= SCALES[1]
        if not (inside and at.machines.is_integer() and count.is_integer() and count >= 1.0):
            raise InputError(
                "is out of range.", field=f"experiments[{number}]", value=str(entry)[:80]
            )
        design.append((at, int(count)))
    return design
