"""``kongming simulate``: simulate placement policies on a trace of jobs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.float_range import FloatRange
from kongming.cli.shares import Share
from kongming.quantities import DECIMAL_MARK, parse_share, with_point
from kongming.records.fingerprint import PLACEMENTS
from kongming.simulate.study_inputs import STORE, Source

if TYPE_CHECKING:
    from kongming.simulate import Beliefs, Fleet, PairFile, PairTable, Study, Trace

_GENERATED = ("jobs", "load", "zipf", "burst")
_PLACED = (
    *("apps", "fleet", "pairs", "placement", "predicted", "model", "prediction_error"),
    *("estimate_missing", "policies", "limit", "patience", "best_fit", "pack", "quality", "plot"),
)


@dataclass(frozen=True, slots=True)
class Jobs:
    """A trace, or the parameters of a synthetic one."""

    trace: Path | None
    synthetic: str | None
    jobs: int
    load: float
    zipf: float
    burst: float
    apps: tuple[str, ...]
    limit: float
    seed: int


@click.command(
    "simulate",
    short_help="Replay a trace of jobs under several placement policies.",
    epilog=examples(
        "kongming simulate --synthetic poisson --nodes 100 --load 0.8 --predicted store",
        "kongming simulate --limits all --synthetic daily --load 0.9",
    ),
)
@click.option(
    "--trace",
    metavar="FILE.csv",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Jobs: columns arrival_s and app, optionally limit and work (seconds).",
)
@click.option(
    "--synthetic",
    type=click.Choice(["poisson", "bursty", "daily"]),
    help="Generate jobs instead (default: poisson; daily only with --limits).",
)
@click.option(
    "--limits",
    metavar="NAME,NAME|all",
    help="Replay a queue with EASY backfill under several kinds of time limits instead: user, "
    "median, q95, time-min, time-min-late. Jobs are generated, or a --trace in the Standard "
    "Workload Format (.swf) or a CSV with arrival_s, app, processors, run_s, limit_s.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=None,
    help="With --limits: traces to generate, for intervals.  [default: 10]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Number of generated jobs.",
)
@click.option(
    "--load",
    type=Share(1.5),
    default=0.7,
    show_default=True,
    help="Offered load of generated jobs: their solo work over the capacity of all slots.",
)
@click.option(
    "--zipf",
    type=FloatRange(min=0.0),
    default=1.0,
    show_default=True,
    help="Exponent of the frequencies of applications in generated jobs; 0 is uniform.",
)
@click.option(
    "--burst",
    type=FloatRange(min=1.0),
    default=10.0,
    show_default=True,
    help="Mean number of jobs per burst.",
)
@click.option("--app", "apps", metavar="NAME", multiple=True, help="Only this one (repeatable).")
@click.option("--nodes", type=click.IntRange(1, 1_000_000), default=100, show_default=True)
@click.option(
    "--slots",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Number of jobs that run together on a node.",
)
@click.option(
    "--fleet",
    metavar="FILE.csv",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Fleet of different nodes, instead of --nodes: columns name, nodes, slots, speed, weight.",
)
@click.option(
    "--pairs",
    metavar="FILE|store",
    default=STORE,
    show_default=True,
    help="Measured slowdowns: a CSV (app, neighbour, slowdown, solo_s, predicted, "
    "predicted_upper), the JSON of 'kongming evaluate --pairs', or the store's co-runs.",
)
@click.option(
    "--placement",
    type=click.Choice(PLACEMENTS),
    default=None,
    help="Placement of the store's pairs and models.  [default: cross-core]",
)
@click.option(
    "--predicted",
    type=click.Choice(["table", "store"]),
    default=None,
    help="Source of KONGMING's predictions: the table of pairs, or stored models (default: "
    "the table, if it has any).",
)
@click.option("--model", default="auto", metavar="NAME", help="Model of the predictions.")
@click.option(
    "--prediction-error",
    type=FloatRange(min=0.0),
    default=None,
    metavar="E",
    help="Use no model, but measured slowdowns with random errors of this standard "
    "deviation (of the log). The result says so.",
)
@click.option(
    "--estimate-missing",
    is_flag=True,
    help="Estimate all pairs that were not measured; by default only those of an "
    "application with itself.",
)
@click.option(
    "--policy",
    "policies",
    metavar="NAME,NAME|all",
    multiple=True,
    help="random, least-loaded, first-fit, slurm, exclusive, kongming, kongming-upper, oracle "
    "(default: random, least-loaded, slurm, kongming, oracle).",
)
@click.option(
    "--limit",
    type=FloatRange(min=1.0),
    default=1.2,
    show_default=True,
    help="Slowdown limit of jobs without one in the trace; inf for none.",
)
@click.option(
    "--patience",
    type=FloatRange(min=0.0),
    default=1.0,
    show_default=True,
    help="After waiting this multiple of its own work, a job takes the best free slot "
    "regardless of limits; inf for never.",
)
@click.option(
    "--best-fit",
    is_flag=True,
    help="Start the waiting job that fits a freed slot best, not the first one.",
)
@click.option(
    "--pack",
    is_flag=True,
    help="kongming and oracle: prefer places next to other jobs while limits hold to an idle node.",
)
@click.option(
    "--quality",
    metavar="Q,Q",
    help="Also replay with every limit at 1/Q, packed, and show the gain of utilisation (as "
    "0.90,0.95,0.99).",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw slowdowns, and utilisation against quality: SVG or PNG.",
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the JSON document to this file.",
)
@options.store_option
@options.wide_option
@options.json_option
def command(
    trace: Path | None,
    synthetic: str | None,
    limits: str | None,
    seeds: int | None,
    jobs: int,
    load: float,
    zipf: float,
    burst: float,
    apps: tuple[str, ...],
    nodes: int,
    slots: int,
    fleet: Path | None,
    pairs: str,
    placement: str | None,
    predicted: str | None,
    model: str,
    prediction_error: float | None,
    estimate_missing: bool,
    policies: Sequence[str],
    limit: float,
    patience: float,
    best_fit: bool,
    pack: bool,
    quality: str | None,
    seed: int,
    plot: Path | None,
    out: Path | None,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Replay jobs over a fleet whose slowdowns were measured, and compare placement policies.

    Each policy is compared with random placement and with an oracle that knows every measured
    slowdown. The same seed gives the same numbers on every machine.
    """
    from kongming.cli.extras import require
    from kongming.files.atomic_file import replace_text
    from kongming.files.missing_file import unwritable
    from kongming.records.errors import InputError
    from kongming.simulate.study_inputs import beliefs_for, pairs_of

    require("kongming simulate", "predict", "numpy")
    options.refuse_to_replace(
        out,
        {
            "trace": trace,
            "fleet": fleet,
            "table of pairs": Path(pairs),
            "predictions": None if predicted is None else Path(predicted),
        },
    )
    # Before minutes of work, not after.
    for field, file_path in (("--out", out), ("--plot", plot)):
        if file_path is not None and not file_path.parent.is_dir():
            raise unwritable(file_path, FileNotFoundError(), field=field)
    if trace is not None and synthetic is not None:
        raise InputError(
            "cannot be given with --trace.", field="--synthetic", allowed="one of them"
        )
    if trace is not None:
        _refuse(_GENERATED, "is an option of generated jobs.")
    if limits is not None:
        _refuse(_PLACED, "cannot be given with --limits.")
        from kongming.cli.simulate import limits as time_limits

        queue = time_limits.Queue(
            trace, synthetic, jobs, load, zipf, burst, _processors(nodes, slots), seeds, seed
        )
        time_limits.study(limits, queue, out, as_json=as_json)
        return
    if seeds is not None or synthetic == "daily":
        raise InputError(
            "is an option of --limits.",
            field="--seeds" if seeds is not None else "--synthetic daily",
            hint="Leave it out, or give --limits.",
        )
    if predicted is not None and prediction_error is not None:
        raise InputError(
            "cannot be given with --predicted.", field="--prediction-error", allowed="one of them"
        )
    if trace is not None:
        _refuse(("apps",), "is an option of generated jobs.")
    if fleet is not None:
        _refuse(("nodes", "slots"), "cannot be given with --fleet.")
    _check_plot(plot)
    targets = _targets(quality)
    from kongming.simulate import Queueing, Rules, Study, alike, documented, read_fleet

    source = Source(
        pairs, predicted, prediction_error, model, placement, estimate_missing, store_url, seed
    )
    machines = alike(nodes, slots) if fleet is None else read_fleet(fleet)
    workload = Jobs(trace, synthetic, jobs, load, zipf, burst, apps, limit, seed)
    file = pairs_of(source, lambda text: output.error_console().print(text, markup=False))
    arriving = _trace(workload, file, machines)
    table = file.table.filled(arriving.apps, everything=estimate_missing)
    beliefs = beliefs_for(source, file, table)
    names = _policies(policies, beliefs is not None)
    study = Study(
        arriving,
        machines,
        table,
        beliefs,
        Rules(pack=pack),
        Queueing(patience, best_fit),
        seed,
    )
    if quality is None and plot is not None:
        targets = study.default_targets(names)
    with output.progress("simulating", float(len(arriving))) as bar:
        results = documented(
            study, names, targets, lambda text, started: bar.update(float(started), text=text)
        )
    document = _document(study, file, workload) | results
    if out is not None:
        text = json.dumps(document, indent=2, allow_nan=False)
        replace_text(out, f"{text}\n", field="--out")
    if plot is not None:
        from kongming.cli.simulate.plot import draw

        draw(plot, document)
    if as_json:
        output.emit_json(document)
        return
    from kongming.cli.simulate.view import show

    show(document)


def _processors(nodes: int, slots: int) -> int | None:
    """Processors of the machine, as far as they were given: a trace may have its own."""
    return nodes * slots if any(map(_given, ("nodes", "slots"))) else None


def _given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source != click.core.ParameterSource.DEFAULT


def _refuse(names: Sequence[str], why: str) -> None:
    """Raise InputError where an option was given that would do nothing."""
    from kongming.records.errors import InputError

    for parameter in click.get_current_context().command.params:
        if parameter.name in names and _given(parameter.name):
            raise InputError(why, field=parameter.opts[0], hint="Leave it out.")


def _trace(workload: Jobs, file: PairFile, fleet: Fleet) -> Trace:
    from kongming.simulate import Synthetic, read_trace

    table = file.table.only(workload.apps) if workload.apps else file.table
    if workload.trace is not None:
        return read_trace(workload.trace, table.apps, table.solo_s, workload.limit).used()
    generator = Synthetic(
        workload.synthetic or "poisson",
        workload.jobs,
        workload.load,
        workload.zipf,
        workload.burst,
        workload.seed,
    )
    return generator.generate(table.apps, table.solo_s, fleet.capacity, workload.limit).used()


def _policies(given: Sequence[str], predicting: bool) -> tuple[str, ...]:
    """Return the selected policies, each once; by default KONGMING's only if it has predictions."""
    from kongming.records.errors import UnknownNameError
    from kongming.simulate import DEFAULT, NAMES

    names = tuple(dict.fromkeys(n.strip() for text in given for n in text.split(",") if n.strip()))
    wanted = NAMES if names == ("all",) else names or DEFAULT
    for name in wanted:
        if name not in NAMES:
            raise UnknownNameError("policy", name, NAMES)
    if names in ((), ("all",)) and not predicting:
        output.error_console().print(
            "There are no predictions, so kongming is left out: --predicted store, a column "
            "'predicted' in the table of pairs, or --prediction-error E.",
            markup=False,
        )
        wanted = tuple(name for name in wanted if not name.startswith("kongming"))
    return wanted


def _targets(quality: str | None) -> tuple[float, ...]:
    from kongming.records.errors import InputError

    if quality is None:
        return ()
    targets = []
    for text in quality.split(","):
        target = parse_share(text.strip())
        if not 0.0 < target <= 1.0:
            raise InputError(
                "is not a quality.",
                field="--quality",
                value=text,
                allowed="shares above 0, up to 1, as 0.9 or 90%, with commas between them",
                hint=DECIMAL_MARK if with_point(quality) else None,
            )
        targets.append(target)
    return tuple(sorted(set(targets)))


def _check_plot(plot: Path | None) -> None:
    """Checked before minutes of work, not after."""
    if plot is None:
        return
    from kongming.cli.extras import require
    from kongming.records.errors import InputError

    if plot.suffix.lower() not in (".svg", ".png"):
        raise InputError(
            "is not an image file.", field="--plot", value=plot.name, allowed=".svg or .png"
        )
    require("Drawing figures", "plots", "matplotlib")


def _document(study: Study, file: PairFile, workload: Jobs) -> dict[str, Any]:
    trace, fleet, queueing = study.trace, study.fleet, study.queueing
    span = float(trace.arrival_s[-1] - trace.arrival_s[0])
    work = float(trace.work_s.sum())
    counts = [int((trace.app_of == place).sum()) for place in range(len(trace.apps))]
    return {
        "kind": "simulation",
        "seed": study.seed,
        "trace": {
            "source": trace.source,
            "jobs": len(trace),
            "apps": dict(zip(trace.apps, counts, strict=True)),
            "span_s": span,
            "work_s": work,
            "offered_load": work / (span * fleet.capacity) if span > 0.0 else 0.0,
        },
        "fleet": {
            "nodes": fleet.nodes,
            "slots": fleet.slots,
            "kinds": [
                {
                    "name": kind.name,
                    "nodes": kind.nodes,
                    "slots": kind.slots,
                    "speed": kind.speed,
                    "weight": kind.weight,
                }
                for kind in fleet.kinds
            ],
        },
        "pairs": _told_pairs(study.table, file),
        "predictions": _told_beliefs(study.beliefs, study.table),
        "settings": {
            "limit": workload.limit if math.isfinite(workload.limit) else None,
            "patience": queueing.patience if math.isfinite(queueing.patience) else None,
            "best_fit": queueing.best_fit,
            "pack": study.rules.pack,
            "tie_share": study.rules.tie_share,
        },
    }


def _told_pairs(table: PairTable, file: PairFile) -> dict[str, Any]:
    return {
        "source": file.source,
        "placement": file.placement,
        "measured": len(table.apps) ** 2 - len(table.estimated),
        "repeats": table.repeats,
        "noise_pct": table.noise_pct,
        "estimated": [list(pair) for pair in table.estimated],
        "faster_than_alone": table.faster,
        "slowdown": {
            app: {other: math.exp(table.logs[i, j]) for j, other in enumerate(table.apps)}
            for i, app in enumerate(table.apps)
        },
        "solo_s": {
            app: None if math.isnan(solo) else solo
            for app, solo in zip(table.apps, table.solo_s.tolist(), strict=True)
        },
    }


def _told_beliefs(beliefs: Beliefs | None, table: PairTable) -> dict[str, Any] | None:
    if beliefs is None:
        return None
    return {
        "source": beliefs.source,
        "made_up": beliefs.made_up,
        "error_pct": beliefs.error_pct(table),
        "estimated": beliefs.estimated,
        "at_least": 0 if beliefs.at_least is None else int(beliefs.at_least.sum()),
    }
