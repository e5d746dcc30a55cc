"""``kongming scale design`` and ``next`` over contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.cli.scale.predict import interval

if TYPE_CHECKING:
    from kongming.scale.design.in_contexts import ContextExperiment
    from kongming.scale.fit.context_model import ContextModel
    from kongming.scale.fit.model import ScalePrediction


def model_of(runs: Path, given: Mapping[str, str], terms: str, items: float | None) -> ContextModel:
    """Fit the runs over the columns of the target's context.

    Raises:
        InputError: the table has no such columns, or does not suffice.
    """
    from kongming.scale.fit.context_fitting import fit_contexts
    from kongming.scale.fit.fitting import Settings
    from kongming.scale.fit.terms import read_terms
    from kongming.scale.table import Columns, read_context_table

    (table,) = read_context_table(runs, Columns(), tuple(given))
    return fit_contexts(table, Settings(read_terms(terms, items=items), items=items))


def choose(
    model: ContextModel,
    given: Mapping[str, str],
    machines: str,
    scales_text: str,
    target: str,
    *,
    count: int | None = None,
    budget: float | None = None,
    per_cost: bool = True,
) -> list[ContextExperiment]:
    """Choose experiments for a target in the context ``given``. Raises InputError."""
    from kongming.scale.design.candidates import candidates
    from kongming.scale.design.in_contexts import choose_in_contexts
    from kongming.scale.design.planning import configuration
    from kongming.scale.ranges import machine_counts, scales

    return choose_in_contexts(
        model,
        candidates(machine_counts(machines), scales(scales_text)).configurations(),
        model.complete(given),
        configuration(target, "--target"),
        count=count,
        budget=budget,
        per_cost=per_cost,
    )


def rows(model: ContextModel, chosen: Sequence[ContextExperiment]) -> list[dict[str, Any]]:
    """Return experiments as JSON."""
    names = [column.name for column in model.columns]
    return [
        {
            "machines": int(each.at.machines),
            "scale": each.at.scale,
            "runs": 1,
            "context": dict(zip(names, each.context, strict=True)),
            "machine_seconds": each.machine_seconds,
            "variance_now": each.variance_now,
            "variance_after": each.variance_after,
        }
        for each in chosen
    ]


def design(
    given: Mapping[str, str],
    machines: str,
    scales_text: str,
    limits: tuple[float | None, int],
    target: str | None,
    done: Path | None,
    terms: str,
    items: float | None,
) -> dict[str, Any]:
    """Return a design over contexts; ``limits``: machine-seconds, or else a number of experiments.

    Raises:
        InputError: an input is missing or not valid.
    """
    from kongming.records.errors import InputError

    if done is None or target is None:
        raise InputError(
            "A design over contexts needs the runs so far and a target.",
            field="--context",
            hint="Add --done RUNS.csv and --target M@S.",
        )
    model = model_of(done, given, terms, items)
    budget, count = limits
    chosen = choose(
        model,
        given,
        machines,
        scales_text,
        target,
        count=count if budget is None else None,
        budget=budget,
    )
    return {
        "optimality": "I",
        "experiments": rows(model, chosen),
        "count": len(chosen),
        "machine_seconds": sum(each.machine_seconds for each in chosen),
        "done": len(model.points),
        "warnings": [],
    }


def show_next(
    prediction: ScalePrediction, chosen: Mapping[str, Any], stop_at: float, as_json: bool
) -> None:
    """Print whether the interval at the target is narrow enough, and else the experiment."""
    reach = prediction.upper / prediction.median - 1.0
    enough = reach <= stop_at
    if as_json:
        output.emit_json(
            {
                "stop": enough,
                "runtime_s": prediction.runtime_s,
                "reach_pct": 100.0 * reach,
                "stop_at_pct": 100.0 * stop_at,
                "next": None if enough else dict(chosen),
                "warnings": list(prediction.reasons),
            }
        )
        return
    output.console().print(
        f"{prediction.at}: {interval(prediction.runtime_s)}; the interval reaches "
        f"{100 * reach:.1f}% above the median, the limit is {100 * stop_at:g}%.",
        markup=False,
    )
    if not enough:
        show([chosen])


def show(experiments: Sequence[Mapping[str, Any]]) -> None:
    """Print experiments in the order of their choice."""
    from kongming.scale.fit.context_columns import show as shown

    columns = ("context", "machines", "scale", "machine-seconds", "variance at the target")
    cells = [
        (
            ", ".join(f"{name}={shown(value)}" for name, value in each["context"].items()),
            each["machines"],
            f"{each['scale']:g}",
            f"{each['machine_seconds']:.4g}",
            f"{each['variance_now']:.3g} to {each['variance_after']:.3g}",
        )
        for each in experiments
    ]
    output.console().print(output.table(columns, cells, right=columns[1:]))
