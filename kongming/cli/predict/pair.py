"""``kongming pair``: predict two co-located applications."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.trained import placement_of_model

if TYPE_CHECKING:
    from kongming.records.answers import Colocation
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
    from kongming.cli.predict.forecast import colocation_document, show_colocated
    from kongming.cli.predict.predict import check_model
    from kongming.cli.trained import placement_for
    from kongming.records.errors import CannotAnswerError
    from kongming.store import Store

    check_model(model)
    with Store.open(store_url, create=False) as store:
        where = placement_for(store, first, placement, second)
        answers: list[Colocation] = []
        refused: list[tuple[str, str, CannotAnswerError]] = []
        # An application next to itself is one direction, not two.
        for app, other in dict.fromkeys(((first, second), (second, first))):
            try:
                answers.append(predict_next_to(store, app, other, where, model, strict=strict))
            except CannotAnswerError as error:
                refused.append((app, other, error))
    if not answers:
        raise refused[0][2]
    if as_json:
        output.emit_json(
            {
                "placement": where,
                "predictions": [colocation_document(answer) for answer in answers],
                "refused": [
                    {"app": app, "neighbour": other, "message": why.message, "hint": why.hint}
                    for app, other, why in refused
                ],
            }
        )
    else:
        for answer in answers:
            show_colocated(answer, as_json=False)
    if refused:
        raise refused[0][2]


def predict_next_to(
    store: Store,
    app: str,
    other: str,
    placement: str,
    model: str | None = None,
    *,
    strict: bool = False,
) -> Colocation:
    """Predict ``app`` next to ``other`` on an otherwise idle node, from the store.

    Raises: as ``colocated_here``, and UntrainedError where ``app`` has no model.
    """
    from kongming.cli.predict.forecast import colocated_here
    from kongming.cli.trained import model_of
    from kongming.records.questions import ColocationQuestion

    question = ColocationQuestion(
        app,
        (other,),
        placement=placement,
        model=None if model == "auto" else model,
        strict=strict,
    )
    return colocated_here(store, model_of(store, app, placement), question)
