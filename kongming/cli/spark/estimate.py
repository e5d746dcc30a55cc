"""``kongming spark estimate``: one run, any number of executors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.scale import storing
from kongming.cli.shares import FRACTION, RISK, Share
from kongming.cli.spark import options as spark_options
from kongming.cli.spark.estimate_table import show
from kongming.cli.spark.prices import pricing_of
from kongming.cli.spark.refusals import refuse_for_a_part, refuse_risk, refuse_with_paper
from kongming.cli.spark.runs import residual_of
from kongming.quantities import count as counted

if TYPE_CHECKING:
    from kongming.spark.application import Application
    from kongming.spark.estimation import Estimator, Size
    from kongming.spark.model.cluster import Dynamic
    from kongming.spark.model.corrections.input_growth import InputGrowth

_path = click.Path(path_type=Path)
_file = click.Path(dir_okay=False, path_type=Path)


@click.command(
    "estimate",
    short_help="Estimate the runtime on other numbers of executors.",
    epilog=examples(
        "kongming spark estimate LOG --executors 2..64",
        "kongming spark estimate LOG --executors 2,4,8 --cores 2,4 --prices FILE",
    ),
)
@spark_options.log_argument
@click.option(
    "--executors",
    metavar="RANGE",
    help="As 2..64 or 2,4,8 [default: up to four times the recorded number].",
)
@click.option("--cores", metavar="LIST", help="Cores of an executor [default: as recorded].")
@click.option(
    "--memory", metavar="SIZE", help="Memory of an executor, as 8g [default: as recorded]."
)
@click.option(
    "--dynamic",
    metavar="MIN..MAX",
    help="Estimate dynamic allocation between these numbers of executors instead.",
)
@click.option(
    "--by", type=click.Choice(["execution"]), help="Estimate each SQL execution (query) as well."
)
@click.option(
    "--model",
    type=click.Choice(["replay", "paper"]),
    default="replay",
    show_default=True,
    help="paper: constant task lengths, job groups one after the other, and no correction; "
    "options that need one are refused.",
)
@click.option(
    "--without",
    metavar="NAME",
    multiple=True,
    help="Leave a correction out: task-counts, first-tasks, warm-up, input, memory, spill, "
    "shuffle, contention, launch-rate, history (repeatable).",
)
@click.option(
    "--history",
    metavar="LOG",
    multiple=True,
    type=_path,
    help="Logs of other applications on this cluster, at two sizes or more (repeatable).",
)
@click.option(
    "--runs",
    metavar="LOG|CSV",
    multiple=True,
    type=_path,
    help="Further runs of this application: logs, or a CSV with executors and seconds "
    "(repeatable).",
)
@click.option(
    "--like",
    metavar="LOG",
    type=_path,
    help="The log of an earlier run, for a LOG of a run that has not ended: what is left of it.",
)
@click.option(
    "--deadline",
    type=DURATION,
    metavar="TIME",
    help="Find the number of executors that ends within this time of the start.",
)
@click.option(
    "--risk",
    type=FRACTION,
    metavar="SHARE",
    help=f"Required probability of keeping --deadline [default: {RISK:g}].",
)
@click.option(
    "--input-scale",
    type=Share(math.inf),
    metavar="SHARE",
    help="Estimate this share of the input, where LOG is of a sample: needs --ratio and --sample.",
)
@click.option(
    "--ratio",
    type=Share(math.inf),
    metavar="SHARE",
    help="The share of the input that LOG had: alone, the answer is the curve of that sample "
    "[default: as 'kongming spark sample' had it set].",
)
@click.option(
    "--sample",
    "other_sample",
    nargs=2,
    type=(_path, Share(math.inf)),
    metavar="LOG SHARE",
    help="The run on another sample, and its share of the input.",
)
@click.option(
    "--level",
    type=FRACTION,
    default=0.9,
    show_default=True,
    help="Probability that the interval holds the runtime.",
)
@click.option(
    "--strict", is_flag=True, help="Refuse to extrapolate beyond the log (exit status 3)."
)
@click.option(
    "--prices",
    "prices_file",
    metavar="FILE",
    type=_file,
    help="CSV with columns type and price, money per executor and hour: one row, the row "
    "'executor', or a row for each number of cores of an executor, as 4.",
)
@spark_options.plot_option
@click.option(
    "--save",
    metavar="FILE",
    type=_file,
    help="Write a scale model for 'kongming scale' and 'kongming predict --machines'.",
)
@click.option(
    "--name",
    metavar="APP",
    callback=options.refuse_empty,
    help="Keep that scale model in the store under this name, for a server too.",
)
@options.store_option
@spark_options.choice_options
@options.wide_option
@options.json_option
def command(
    log: Path,
    executors: str | None,
    cores: str | None,
    memory: str | None,
    dynamic: str | None,
    by: str | None,
    model: str,
    without: Sequence[str],
    history: Sequence[Path],
    runs: Sequence[Path],
    like: Path | None,
    deadline: float | None,
    risk: float | None,
    input_scale: float | None,
    ratio: float | None,
    other_sample: tuple[Path, float] | None,
    level: float,
    strict: bool,
    prices_file: Path | None,
    plot: Path | None,
    save: Path | None,
    name: str | None,
    store_url: str | None,
    app: str | None,
    attempt: str | None,
    missing: float,
    as_json: bool,
) -> None:
    """Estimate how long an application takes on other numbers of executors, from one run.

    The tasks of the log are replayed on other slots, as Spark would schedule them. Their lengths
    are corrected for what changes with the slots; 'constant' next to the answer is without that.
    Without --prices an executor costs 1 an hour, so that costs are executor-hours; with several
    --cores a core costs 1 an hour.
    """
    from kongming.cli.extras import require

    for module in ("numpy", "scipy", "msgspec"):
        require("kongming spark estimate", "spark", module)

    from kongming.records.errors import InputError
    from kongming.spark.estimate_document import deadline_document, document
    from kongming.spark.estimation import Estimator, warnings_of
    from kongming.spark.finished_runs import findings_of
    from kongming.spark.history import learn_growth
    from kongming.spark.reading import read, read_all
    from kongming.spark.recommendation import recommend

    options.refuse_to_replace(
        save,
        {
            "log": log,
            "log of an earlier run": like,
            "log of the other sample": None if other_sample is None else other_sample[0],
            "log of another run": runs,
            "log of another application": history,
            "file of prices": prices_file,
        },
        field="--save",
    )
    if input_scale is None and other_sample is not None:
        raise InputError("--sample tells nothing without --input-scale.")
    refuse_risk(risk, deadline, like)
    saving = [option for option, given in (("--save", save), ("--name", name)) if given is not None]
    if saving and dynamic is not None:
        raise InputError(
            f"{saving[0]} and --dynamic cannot be given together: a scale model's machines are "
            "paid for from start to end, and under dynamic allocation executors come and go, so "
            "that its costs would be too high.",
            hint="Save the model of constant numbers of executors, without --dynamic.",
        )
    if model == "paper":
        refuse_with_paper(
            {
                "--input-scale": input_scale is not None,
                "--runs": runs,
                "--history": history,
                "--without": without,
                "--like": like is not None,
                "--memory": memory is not None,
                "--dynamic": dynamic is not None,
            }
        )
    application = read(log, app, attempt, missing)
    if not application.complete:
        refuse_for_a_part(
            {
                "--deadline": deadline is not None and like is None,
                "--runs": runs,
                "--input-scale": input_scale is not None,
                # With --like too: what is left of the run is no model of it.
                **dict.fromkeys(saving, True),
            }
        )
    others: list[Application] = []
    growth = None
    if history:
        with _logs_of("--history"):
            others += (applications := read_all(history))
        growth = learn_growth(applications, without)
    settings: dict[str, Any] = {
        "paper": model == "paper",
        "without": without,
        "growth": growth,
        "ratio": ratio,
        "level": level,
        "strict": strict,
    }
    if input_scale is not None:
        settings["inputs"], sample = _inputs(application, input_scale, ratio, other_sample)
        others.append(sample)
    left = None
    if like is not None:
        with _logs_of("--like"):
            others.append(read(like))
        earlier = Estimator(others[-1], **settings)
        from kongming.spark.progress import progress

        left = progress(earlier, application, _sizes(earlier, executors, cores, memory, dynamic))
    estimator = Estimator(application, **settings)
    if runs:
        estimator.residual, applications = residual_of(estimator, runs)
        others += applications
    sizes = _sizes(estimator, executors, cores, memory, dynamic)
    recorded = estimator.workload.cluster.cores
    pricing = pricing_of(prices_file, sorted({size.cores or recorded for size in sizes}))
    price = pricing.price
    estimates = estimator.estimates(sizes)
    warnings = [*warnings_of(estimator, estimates), *findings_of(others), *pricing.warnings]
    destinations: dict[str, Any] = {}
    if saving:
        from kongming.spark.saving import scale_file

        file = scale_file(estimator, estimates, name)
        destinations = storing.leave(file, save=save, name=name, store_url=store_url)
    chosen = recommend(estimates, price)
    if plot is not None:
        from kongming.spark.figure import draw

        cluster = estimator.workload.cluster
        measured = cluster.executors, estimator.workload.measured_s
        draw(plot, application.name or application.id, estimates, chosen, measured, price)
    answer = document(
        estimator,
        estimates,
        price_per_hour=price,
        by_execution=by == "execution",
        warnings=warnings,
    )
    if left is not None:
        answer["progress"] = left.document(deadline)
    if deadline is not None and left is None:
        answer["deadline"] = deadline_document(estimates, deadline, RISK if risk is None else risk)
    elif deadline is not None:
        # What the log of an unfinished run holds ends before the run does.
        meets = answer["progress"]["meets_deadline"]
        answer["deadline"] = {"seconds": deadline, "risk": None, "meets": meets}
        answer["warnings"].append(
            "what is left of a run is a median without an interval: a size whose median just keeps "
            "the deadline misses it about every second time"
        )
    if as_json:
        output.emit_json({**answer, **destinations})
        return
    show(answer, estimates, chosen, pricing)
    storing.show(destinations)


def _sizes(
    estimator: Estimator,
    executors: str | None,
    cores: str | None,
    memory: str | None,
    dynamic: str | None,
) -> list[Size]:
    from kongming.records.errors import InputError
    from kongming.scale.ranges import machine_counts
    from kongming.spark.estimation import FAR, MOST_CORES, Size
    from kongming.spark.model.cluster import LEAST_MEMORY
    from kongming.spark.written_values import size_bytes

    recorded = estimator.workload.cluster
    each: list[int | None] = [None]
    if cores is not None:
        each = list(machine_counts(cores, field="--cores", most=MOST_CORES))
    room = None
    if memory is not None:
        room = size_bytes(memory)
        if room is not None and not math.isfinite(room):
            room = None
        if room is None or room < LEAST_MEMORY:
            raise InputError(
                "is not a size."
                if room is None
                else "is less than Spark starts an executor with (a number alone is MiB).",
                field="--memory",
                value=memory,
                allowed="450m or more, as 8g or 512m",
            )
    if dynamic is not None:
        if executors is not None:
            raise InputError("Give --executors or --dynamic, not both.")
        allocation = _dynamic(dynamic, estimator)
        _refuse_too_many(f"--dynamic {dynamic}", cores, allocation.most, each, recorded.cores)
        return [Size(allocation.most, count, room, allocation) for count in each]
    counts = range(1, int(FAR * recorded.executors) + 1)
    if executors is not None:
        counts = machine_counts(  # type: ignore[assignment]
            executors, field="--executors", most=MOST_CORES
        )
        _refuse_too_many(f"--executors {executors}", cores, max(counts), each, recorded.cores)
    return [Size(count, core, room) for core in each for count in counts]


def _refuse_too_many(
    given: str, cores: str | None, executors: int, each: Sequence[int | None], recorded: int
) -> None:
    """Raise InputError, which names the options as ``given``, for more cores than are estimated."""
    from kongming.records.errors import InputError
    from kongming.spark.estimation import MOST_CORES

    most = max(count or recorded for count in each)
    if executors * most > MOST_CORES:
        of = f"--cores {cores}" if cores is not None else f"{counted(recorded, 'core')} each"
        raise InputError(
            f"{given} with {of} are up to {executors * most} cores in all.",
            allowed=f"up to {MOST_CORES} cores in all, here {MOST_CORES // most} executors",
        )


@contextmanager
def _logs_of(option: str) -> Iterator[None]:
    """Name the option whose logs cannot be read in what is raised within."""
    from kongming.records.errors import InputError

    try:
        yield
    except InputError as error:
        raise (error.at(option) if error.field == "LOG" else error) from error


def _inputs(
    application: Application,
    input_scale: float,
    ratio: float | None,
    other: tuple[Path, float] | None,
) -> tuple[InputGrowth, Application]:
    """Return how the time grows with the input, and the other sample's run, which it is learned
    from."""
    from kongming.records.errors import CannotAnswerError, InputError
    from kongming.spark.finished_runs import require_finished, require_same_application
    from kongming.spark.model.corrections.input_growth import learn_input_growth
    from kongming.spark.model.workload import workload_of
    from kongming.spark.reading import read
    from kongming.spark.sample_ratio import recorded_ratio

    ratio = recorded_ratio(application) if ratio is None else ratio
    if ratio is None or other is None:
        raise CannotAnswerError(
            "One sample does not tell how the time grows with the input.",
            hint="Run it on two samples of different ratio: --ratio SHARE --sample LOG SHARE",
        )
    path, other_ratio = other
    with _logs_of("--sample"):
        sample = read(path)
    require_finished([sample], "--sample")
    if sample.run == application.run:
        raise InputError(
            "is LOG itself, which does not tell how the time grows.",
            field="--sample",
            value=str(path),
            allowed="the run on a sample of another ratio",
        )
    require_same_application(sample, application, "--sample")
    work, other_work = workload_of(application), workload_of(sample)
    return learn_input_growth(work, ratio, other_work, other_ratio, input_scale), sample


def _dynamic(text: str, estimator: Estimator) -> Dynamic:
    from kongming.records.errors import InputError
    from kongming.spark.model.cluster import dynamic_allocation

    low, dots, high = (part.strip() for part in text.partition(".."))
    # No more digits than a number of executors can have.
    numbers = all(each.isdecimal() and len(each) < 10 for each in (low, high))
    if not (dots and numbers and int(high) >= 1):
        raise InputError("is not a range.", field="--dynamic", value=text, allowed="as 2..16")
    if int(low) > int(high):
        raise InputError("counts down.", field="--dynamic", value=text, allowed="as 2..16")
    return dynamic_allocation(estimator.workload.application, int(low), int(high))
