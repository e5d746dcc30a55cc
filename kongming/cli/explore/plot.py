"""``kongming explore plot``: a model and its runs in figures."""

from __future__ import annotations

from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.explore import options as explore_options


@click.command(
    "plot",
    short_help="Draw a model and its runs.",
    epilog=examples("kongming explore plot sort.json --out figures"),
)
@click.argument("model", metavar="MODEL.json", type=explore_options.PATH)
@click.option(
    "--out",
    "folder",
    metavar="FOLDER",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the figures here, as SVG and PNG, for light and for dark pages.",
)
@click.option(
    "--over",
    "pair",
    metavar="NAME,NAME",
    help="Parameters of the surface [default: the two that matter most].",
)
@options.json_option
def command(model: Path, folder: Path, pair: str | None, as_json: bool) -> None:
    """Draw the tree, the surface of the predictions with runs and cuts, and the error as runs were
    added.

    Parameters that the surface does not show are fixed at their median, and choices without an
    order at their most frequent value, among the runs in which the two parameters that it shows
    exist.
    """
    from kongming.cli.extras import require

    require("kongming explore plot", "predict", "sklearn")

    from kongming.explore.figures import draw
    from kongming.explore.model_file import read_model

    names = None if pair is None else tuple(name.strip() for name in pair.split(","))
    drawn = draw(read_model(model), folder, names)
    written = [str(path) for path in drawn.written]
    if as_json:
        output.emit_json({"written": written, "left_out": list(drawn.left_out)})
        return
    for path in written:
        output.console().print(path, markup=False)
    output.print_warnings(drawn.left_out, label="note")
