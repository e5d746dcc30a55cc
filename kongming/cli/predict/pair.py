"""``kongming pair``: predict two co-located applications."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.predict.trained import placement_of_model

if TYPE_CHECKING:
    from kongming.engine.load.models import Widenings
    from kongming.records.prediction import Prediction
    from kongming.store import Store


@click.command(
    "pair",
    short_help="Predict two applications that run next to each other.",
    epilog=examples(
        "kongming pair xz redis", "kongming pair xz redis --placement same-core --json"
    ),
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@placement_of_model
@click.option(
    "--model", default=None, metavar="NAME", help="Model to use. Default: the chosen one of each."
)
@click.option("--strict", is_flag=True, help="Exit with status 3 where a model extrapolates.")
@options.store_option
@options.json_option
def command(
    first: str,
    second: str,
    placement: str | None,
    model: str | None,
    strict: bool,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Predict A next to B, and B next to A, on an otherwise idle node.

    Co-runs of other applications widen the intervals (or, with enough applications, narrow them)
    to their nominal coverage. If only one direction is known, it is shown, and the exit status
    is 3.
    """
    from kongming.cli.predict.predict import check_model
    from kongming.cli.predict.prediction_view import show
    from kongming.cli.predict.trained import placement_for
    from kongming.engine.load.models import Widenings
    from kongming.records.errors import CannotAnswerError
    from kongming.store import Store

    check_model(model)
    with Store.open(store_url, create=False) as store:
        where = placement_for(store, first, placement)
        widenings = Widenings(store, model)
        predictions: list[Prediction] = []
        refused: list[tuple[str, str, CannotAnswerError]] = []
        for app, other in ((first, second), (second, first)):
            try:
                predictions.append(
                    predict_pair_member(
                        store, app, other, where, widenings, model=model, strict=strict
                    )
                )
            except CannotAnswerError as error:
                refused.append((app, other, error))
    if not predictions:
        raise refused[0][2]
    if as_json:
        output.emit_json(
            {
                "placement": where,
                "predictions": [prediction.to_dict() for prediction in predictions],
                "refused": [
                    {"app": app, "neighbours": [other], "message": why.message, "hint": why.hint}
                    for app, other, why in refused
                ],
            }
        )
    else:
        for prediction in predictions:
            show(prediction)
    if refused:
        raise refused[0][2]


def predict_pair_member(
    store: Store,
    app: str,
    other: str,
    placement: str,
    widenings: Widenings,
    *,
    model: str | None = None,
    strict: bool = False,
) -> Prediction:
    """Predict ``app`` next to ``other`` on an otherwise idle node, from the store.

    Raises:
        UnknownNameError: one of them was never profiled.
        UntrainedError: ``app`` has no model, or ``other`` no signature, or one that is too short.
        ExtrapolationError: under ``strict``.
    """
    from kongming.cli.predict.trained import model_of, naming_short, signatures_of
    from kongming.cli.predict.widening import note
    from kongming.learning.predict import predict_colocated

    file, warnings = model_of(store, app, placement)
    signatures = signatures_of(store, other, file)
    widening = widenings.of(file)
    with naming_short(store, file, {other: signatures}):
        prediction = predict_colocated(
            file,
            {other: signatures},
            model=model,
            strict=strict,
            widening=widening.factor,
            widening_groups=widening.groups,
        )
    return replace(prediction, warnings=(*prediction.warnings, *warnings), notes=note(widening))
