"""``kongming scale predict``: a runtime at a scale and a number of machines."""

from __future__ import annotations

import click

from kongming.cli import options, output, scale_options


@click.command("predict", short_help="Predict a runtime at a scale and a number of machines.")
@scale_options.model_argument
@click.option("--machines", type=click.IntRange(min=1), required=True, help="Number of machines.")
@scale_options.question_options
@scale_options.group_option
@click.option("--type", "machine_type", metavar="TYPE", help="Which machine type, of several.")
@click.option("--strict", is_flag=True, help="Exit status 3 rather than extrapolate.")
@options.store_option
@options.json_option
def command(
    model: str,
    machines: int,
    scale: float,
    iterations: float | None,
    level: float,
    group: str | None,
    machine_type: str | None,
    strict: bool,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Predict the runtime of a job: its median and an interval.

    Exit status 3 beyond a memory cliff that the model knows nothing behind.
    """
    from kongming.cli import scale_models
    from kongming.errors import ExtrapolationError
    from kongming.scale.model import warnings_of
    from kongming.scale.points import Configuration

    file = scale_models.load(model, store_url)
    chosen = file.one(group, machine_type)
    prediction = chosen.predict(
        Configuration(float(machines), scale), iterations=iterations, level=level
    )
    if strict and prediction.extrapolating:
        raise ExtrapolationError(
            f"This lies outside what was run: {'; '.join(prediction.reasons)}.",
            hint="Run experiments nearer to it, or ask without --strict.",
        )
    stale, said = scale_models.staleness(file)
    document = scale_models.answer(chosen, prediction)
    document["stale"] = stale
    document["warnings"] = [*said, *warnings_of([chosen])]
    if as_json:
        output.emit_json(document)
        return
    console = output.console()
    console.print(
        f"{prediction.at}: {scale_models.interval(prediction.runtime_s)}, {100 * level:g}% "
        f"interval, {chosen.fit.kind}",
        markup=False,
    )
    for reason in prediction.reasons:
        console.print(f"extrapolating: {reason}", markup=False)
    scale_models.print_warnings(document["warnings"])
