"""``kongming scale predict``, ``curve`` and ``recommend``: predictions of a scale model, which is a
file or a name in the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.float_range import FloatRange
from kongming.cli.scale import options as scale_options
from kongming.cli.shares import FRACTION, RISK
from kongming.quantities import count, exact_percent, per_cent
from kongming.records.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from kongming.scale.decide.recommendation import Offer, Prices
    from kongming.scale.fit.model import ScaleModel, ScalePrediction
    from kongming.scale.fit.scale_file import ScaleFile


def load(model: str, store_url: str | None) -> ScaleFile:
    """Return the model in a file, or of a name in the store.

    Raises:
        InputError: the file is not a scale model.
        UnknownNameError: there is no such file and no such name.
    """
    from kongming.files.missing_file import did_you_mean
    from kongming.scale.fit.model_file import read, read_file

    if Path(model).is_file():
        return read_file(model)
    if Path(file := f"{model}.json").is_file():
        near: str | None = f"Did you mean the file {file}?"
    else:
        near = did_you_mean(Path(model) if Path(model).suffix else Path(file))
    from kongming.store import Store
    from kongming.store.models import SCALE, SCALE_PREFIX
    from kongming.store.urls import default_url, missing_file, own_url, without_mode

    url, _ = without_mode(store_url or default_url())
    lost = missing_file(url)
    names: set[str] = set()
    if lost is None:
        with Store.open(store_url, create=False) as store:
            document = store.model(SCALE_PREFIX + model, SCALE)
            if document is not None:
                return read(document)
            models = store.models(placement=SCALE)
            names = {entry.app.removeprefix(SCALE_PREFIX) for entry in models}
    fit_it = (
        "Fit it: kongming scale fit RUNS.csv --save FILE, or --name NAME; of Spark: "
        "kongming spark estimate LOG, with the same"
    )
    if lost is not None and url != own_url():
        fit_it += f". The store {lost} does not exist."
    unknown = UnknownNameError("scale model in a file or the store", model, names, hint=fit_it)
    if near and (Path(model).suffix or Path(file).is_file() or not unknown.suggestions):
        raise InputError(f"There is no scale model {model!r}.", hint=near)
    raise unknown


def at_context(
    file: ScaleFile, texts: Sequence[str], group: str | None, machine_type: str | None = None
) -> ScaleFile:
    """Return the models of ``--group`` at the context of ``--context COLUMN=VALUE`` and ``--type``.

    Raises:
        InputError: a value of the context is missing or wrong, the machine type is given twice and
            not alike, the model has no contexts, or the job is missing.
        UnknownNameError: the model has no such column or no such job.
    """
    file = file.of_job(group)
    given = scale_options.context_values(texts)
    columns = {of_job.type_column for of_job in file.contexts} - {None}
    if machine_type is not None:
        for column in columns:
            assert column is not None
            if given.setdefault(column, machine_type) != machine_type:
                raise InputError(
                    f"contradicts --context {column}={given[column]}.",
                    field="--type",
                    value=machine_type,
                    hint=f"Leave out --type, or {column} in --context.",
                )
    return file.at_context(given)


def _never_run(file: ScaleFile, models: Sequence[ScaleModel]) -> list[str]:
    from kongming.scale.fit.contexts.context_model import never_run

    return never_run(file.contexts, models) if file.contexts else []


def interval(runtime_s: Mapping[str, float]) -> str:
    """``12.3 s (11.0 s to 13.9 s)``."""
    low, high = (output.format_seconds(runtime_s[key]) for key in ("lower", "upper"))
    return f"{output.format_seconds(runtime_s['median'])} ({low} to {high})"


@click.command(
    "predict",
    short_help="Predict a runtime at a scale and a number of machines.",
    epilog=examples(
        "kongming scale predict sort.json --machines 64 --scale 0.5 --strict",
        "kongming scale predict kmeans --machines 12 --context size_gb=40,k=9 --type m5.xlarge",
    ),
)
@scale_options.model_argument
@click.option("--machines", type=click.IntRange(min=1), required=True, help="Number of machines.")
@scale_options.question_options
@scale_options.group_option
@scale_options.context_option
@click.option(
    "--type", "machine_type", metavar="TYPE", help="The machine type, for a model of several."
)
@click.option("--strict", is_flag=True, help="Exit with status 3 instead of extrapolating.")
@options.store_option
@options.wide_option
@options.json_option
def predict(
    model: str,
    machines: int,
    scale: float,
    iterations: float | None,
    level: float,
    group: str | None,
    context: Sequence[str],
    machine_type: str | None,
    strict: bool,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Predict the runtime of a job: its median and an interval.

    Exit status 3 beyond a memory cliff, where the model has no runs. A model over contexts also
    predicts contexts without runs, and says so.
    """
    from kongming.records.errors import ExtrapolationError
    from kongming.scale.fit.model import warnings_of
    from kongming.scale.fit.tracked_files import changes as changes_of
    from kongming.scale.points import Configuration

    file = load(model, store_url)
    chosen = at_context(file, context, group, machine_type).single(group, machine_type)
    prediction = chosen.predict(
        Configuration(float(machines), scale), iterations=iterations, level=level
    )
    if strict and prediction.extrapolating:
        raise ExtrapolationError(
            f"This lies outside the range of the runs: {'; '.join(prediction.reasons)}.",
            hint="Run experiments nearer to it, or predict without --strict.",
        )
    stale, changes = changes_of(file.tracked)
    document = _answer(chosen, prediction)
    document["stale"] = stale
    document["warnings"] = [*changes, *_never_run(file, [chosen]), *warnings_of([chosen])]
    if as_json:
        output.emit_json(document)
        return
    console = output.console()
    console.print(
        f"{prediction.at}: {interval(prediction.runtime_s)}, {exact_percent(level)} interval, "
        f"{chosen.fit.kind}",
        markup=False,
    )
    for reason in prediction.reasons:
        console.print(f"extrapolating: {reason}", markup=False)
    output.print_warnings(document["warnings"])


@click.command(
    "curve",
    short_help="Show runtime and cost over the number of machines.",
    epilog=examples(
        "kongming scale curve sort --machines 1..64",
        "kongming scale curve sort --prices prices.csv --plot curve.svg",
    ),
)
@scale_options.curve_options
@options.wide_option
def show_curve(request: scale_options.CurveOptions) -> None:
    """Show the runtime of the job for each number of machines of each type."""
    from kongming.records.errors import CannotAnswerError
    from kongming.scale.decide.recommendation import read_prices
    from kongming.scale.fit.model import warnings_of
    from kongming.scale.fit.tracked_files import changes as changes_of

    file = load(request.model, request.store_url)
    models = at_context(file, request.context, request.group).of_group(request.group)
    types = [model.machine_type for model in models]
    prices = None if request.prices_file is None else read_prices(request.prices_file, types)
    offers, refused = _offers(request, models, prices)
    if not offers:
        raise CannotAnswerError(refused[-1])
    stale, changes = changes_of(file.tracked)
    warnings = [*changes, *_never_run(file, models), *warnings_of(models), *refused[-1:]]
    if request.plot is not None:
        from kongming.scale.decide.figure import draw

        draw(request.plot, f"Runtime at scale {request.scale:g}", offers)
    if request.as_json:
        output.emit_json(
            {
                "scale": request.scale,
                "curve": [_row(offer) for offer in offers],
                "stale": stale,
                "warnings": warnings,
            }
        )
        return
    _show(offers)
    output.print_warnings(warnings)


@click.command(
    "recommend",
    short_help="Choose the cheapest by a deadline, or the fastest within a budget.",
    epilog=examples(
        "kongming scale recommend sort --budget 20 --prices prices.csv",
        "kongming scale recommend kmeans --context size_gb=40 --deadline 10m --prices prices.csv",
    ),
)
@click.option(
    "--deadline",
    type=DURATION,
    metavar="TIME",
    help="Choose the cheapest that ends within this time.",
)
@click.option(
    "--budget",
    type=FloatRange(min=0.0, min_open=True),
    metavar="MONEY",
    help="Choose the fastest that costs at most this.",
)
@click.option(
    "--risk",
    type=FRACTION,
    default=RISK,
    show_default=True,
    help="Required probability of keeping the limit.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Show every count, not only those around the advice."
)
@scale_options.curve_options
@options.wide_option
def recommend_machines(
    request: scale_options.CurveOptions,
    everything: bool,
    deadline: float | None,
    budget: float | None,
    risk: float,
) -> int:
    """Recommend a number of machines and their type.

    Without --prices a machine of the only type costs 1 an hour, so that costs are machine-hours;
    several types need prices. Fewer machines than were run are not advised. If nothing keeps
    the limit, the most likely choice is shown, with exit status 3. The advice is followed by the
    counts around it. A model over contexts ranks every machine type that was run with any input;
    of a type that was never run with this one it says so.
    """
    from kongming.records.errors import CannotAnswerError
    from kongming.scale.decide.recommendation import read_prices, recommend
    from kongming.scale.fit.model import warnings_of
    from kongming.scale.fit.tracked_files import changes as changes_of

    if deadline is None and budget is None:
        raise InputError("Give a deadline or a budget: --deadline TIME or --budget MONEY.")
    if deadline is not None and budget is not None:
        raise InputError(
            "cannot be given with --deadline.",
            field="--budget",
            hint="With --deadline the cheapest is chosen, and its cost is shown.",
        )
    file = load(request.model, request.store_url)
    models = at_context(file, request.context, request.group).of_group(request.group)
    warnings: list[str] = []
    if request.prices_file is not None:
        prices = read_prices(request.prices_file, [model.machine_type for model in models])
    elif len(models) > 1:
        raise InputError(
            "The prices of the machine types are unknown.",
            field="--prices",
            hint="Give a CSV with columns type and price: --prices FILE",
        )
    else:
        prices = {models[0].machine_type: 1.0}
        warnings.append("without --prices a machine costs 1 an hour: costs are machine-hours")
    offers, refused = _offers(request, models, prices)
    best, likeliest, judged = recommend(
        models, offers, prices=prices, deadline_s=deadline, budget=budget, risk=risk
    )
    if likeliest is None:
        raise CannotAnswerError(refused[-1])
    stale, changes = changes_of(file.tracked)
    warnings = [
        *changes,
        *_never_run(file, models),
        *warnings,
        *warnings_of(models),
        *refused[-1:],
    ]
    if request.plot is not None:
        from kongming.scale.decide.figure import draw

        draw(request.plot, f"Runtime at scale {request.scale:g}", judged, deadline)
    if request.as_json:
        document: dict[str, Any] = {
            "goal": {
                "deadline_s": deadline,
                "budget": budget,
                "risk": risk,
                "scale": request.scale,
            },
            "recommendation": None if best is None else _row(best),
            "likeliest": _row(likeliest),
            "curve": [_row(offer) for offer in judged],
            "stale": stale,
            "warnings": warnings,
        }
        if best is not None:
            document.update(_row(best))
        output.emit_json(document)
    else:
        file_name = None if request.prices_file is None else request.prices_file.name
        unit = "machine-hours" if file_name is None else f"(money of {file_name})"
        if deadline is None:
            goal = f"costs up to {budget:g} {unit}"
        elif deadline < 60:
            goal = f"ends within {output.format_seconds(deadline)}"
        else:
            goal = f"ends within {output.format_duration(deadline)}"
        offer = best or likeliest
        of = f" of type {offer.machine_type}" if offer.machine_type is not None else ""
        advice = "Take"
        if best is None:
            # What keeps the limit and is not the best has fewer machines than were ever run.
            advice = (
                f"Nothing {goal} with the required probability. The likeliest is"
                if (offer.probability or 0.0) < risk
                else "Fewer machines than were run are not advised. The likeliest is"
            )
        console = output.console()
        console.print(
            f"{advice} {count(offer.machines, 'machine')}{of}: "
            f"{interval(offer.prediction.runtime_s)}, cost {offer.cost:.4g} {unit}; "
            f"{goal} with probability {per_cent(100 * (offer.probability or 0.0))} (required: "
            f"{exact_percent(risk)})."
            + "".join(f" It extrapolates: {reason}." for reason in offer.prediction.reasons),
            markup=False,
        )
        shown = judged if everything else _around(judged, offer)
        _show(shown, best, "machine-hours" if request.prices_file is None else "cost")
        if len(shown) < len(judged):
            console.print(f"{len(shown)} of {len(judged)} counts; --all shows every one.")
        output.print_warnings(warnings)
    return 0 if best is not None else 3


_AROUND = 3
"""Counts of machines that are shown below and above the advice."""


def _around(offers: Sequence[Offer], chosen: Offer) -> list[Offer]:
    """Return the offers next to the chosen one, of its type."""
    same = [offer for offer in offers if offer.machine_type == chosen.machine_type]
    machines = [offer.machines for offer in same]
    place = machines.index(chosen.machines)
    return same[max(0, place - _AROUND) : place + _AROUND + 1]


def _answer(model: ScaleModel, prediction: ScalePrediction) -> dict[str, Any]:
    """Return a prediction as JSON."""
    document: dict[str, Any] = {
        "machines": int(prediction.at.machines),
        "scale": prediction.at.scale,
        "runtime_s": prediction.runtime_s,
        "extrapolating": prediction.extrapolating,
        "reasons": list(prediction.reasons),
        "model": model.fit.kind,
    }
    if model.iterated:
        document["iterations"] = prediction.iterations
    for key, value in (
        ("group", model.group),
        ("type", model.machine_type),
        ("context", model.context),
    ):
        if value is not None:
            document[key] = value
    return document


def _offers(
    request: scale_options.CurveOptions,
    models: Sequence[ScaleModel],
    prices: Prices | None,
) -> tuple[list[Offer], list[str]]:
    """Return an offer for each machine type and count, and a message for each that is refused."""
    from kongming.scale.decide.recommendation import curve

    return curve(
        models,
        request.counts(models),
        scale=request.scale,
        iterations=request.iterations,
        prices=prices,
        level=request.level,
    )


def _row(offer: Offer) -> dict[str, Any]:
    """Return one machine count as JSON."""
    document: dict[str, Any] = {
        "machines": offer.machines,
        "type": offer.machine_type,
        "runtime_s": offer.prediction.runtime_s,
        "extrapolating": offer.prediction.extrapolating,
        "reasons": list(offer.prediction.reasons),
        "cost": offer.cost,
    }
    if offer.probability is not None:
        document["probability"] = offer.probability
    return document


def _show(offers: Sequence[Offer], best: Offer | None = None, costs: str = "cost") -> None:
    """Print a table; the best offer is marked. ``costs`` is the heading of their column."""
    several = any(offer.machine_type is not None for offer in offers)
    judged = any(offer.probability is not None for offer in offers)
    priced = any(offer.cost is not None for offer in offers)
    columns = ["machines", "runtime", "from", "to", ""]
    columns[:0] = ["type"] if several else []
    columns += ([costs] if priced else []) + (["probability"] if judged else [])
    rows = []
    for offer in offers:
        runtime: Mapping[str, float] = offer.prediction.runtime_s
        marks = ("extrapolating " if offer.prediction.extrapolating else "") + (
            "<-- best" if offer == best else ""
        )
        cells: list[object] = [offer.machine_type] if several else []
        cells += [offer.machines]
        cells += [output.format_seconds(runtime[key]) for key in ("median", "lower", "upper")]
        cells += [marks]
        cells += [None if offer.cost is None else f"{offer.cost:.4g}"] if priced else []
        cells += (
            [None if offer.probability is None else per_cent(100 * offer.probability)]
            if judged
            else []
        )
        rows.append(cells)
    right = ("machines", "runtime", "from", "to", costs, "probability")
    output.console().print(output.table(columns, rows, right=right, minor=("from", "to")))
