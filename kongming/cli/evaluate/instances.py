"""``kongming evaluate --instances``: single-task accuracy over machines (paper, Table IV)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.cli import output

if TYPE_CHECKING:
    from kongming.audit.instances.leave_out import Leave

WORDS = {
    "instance": "each machine left out in turn",
    "session": "each session left out in turn: a machine may have been seen in another one",
    "block": "FALLBACK, NOT TABLE IV: blocks of time left out; the models knew the machine",
}
"""Title of the errors, by what was left out."""

PAPER = ("MEAN", "LM", "LM.GA", "CART", "CART.GA", "SVM", "GBM")
"""The columns of Table IV, in its order, followed by auto and the others by their errors."""


def evaluate_instances(
    files: Sequence[Path],
    leave: Leave,
    *,
    programs: Sequence[str],
    models: Sequence[str] | None,
    seed: int | None,
    jobs: int,
    as_json: bool,
) -> int:
    """Score the models on observations, print the result, and return 0.

    Raises:
        CannotAnswerError: there is only one machine (or session).
        InputError: a file is not an observation, or a name is unknown.
    """
    from kongming.audit.instances.accuracy import Task, accuracy
    from kongming.audit.readings import read_observations
    from kongming.process_pool import in_order

    observations = read_observations(files)
    with output.progress("leaving out") as bar:

        def mapper(
            function: Callable[[Task], dict[str, Any]], tasks: Iterable[Task]
        ) -> Iterable[tuple[Task, dict[str, Any]]]:
            listed = list(tasks)
            with closing(in_order(function, listed, jobs)) as shared:
                for k, (task, scores) in enumerate(shared):
                    bar.update(k + 1, total=len(listed), text=f"{task[0].program} is done")
                    yield task, scores

        document = accuracy(
            observations,
            leave,
            programs=programs,
            models=models,
            random_state=seed or 0,
            mapper=mapper,
        )
    if as_json:
        output.emit_json(document)
    else:
        _show(document)
    return 0


def _show(document: dict[str, Any]) -> None:
    from kongming.cli.evaluate.report import fitting

    console = output.console()
    geomeans, programs = document["geomean_pct"], document["programs"]
    others = sorted((m for m in geomeans if m not in PAPER), key=lambda m: geomeans[m])
    models = [m for m in PAPER if m in geomeans] + others
    columns = ["program", *models, "noise", "runs"]
    rows = [
        [
            name,
            *(f"{program['error_pct'][m]:.1f} / {program['iqr_pct'][m]:.1f}" for m in models),
            "-" if program["floor_pct"] is None else f"{program['floor_pct']:.1f}",
            str(program["runs"]),
        ]
        for name, program in programs.items()
    ]
    spreads, floor = document["geomean_iqr_pct"], document["noise_floor_pct"]
    rows.append(
        [
            "geo.mean",
            *(f"{geomeans[m]:.1f} / {spreads[m]:.1f}" for m in models),
            "-" if floor is None else f"{floor:.1f}",
            "",
        ]
    )
    machines = document["machines"]
    title = (
        f"{len(programs)} programs on {machines} machine{'' if machines == 1 else 's'}; error in "
        "%, median / IQR"
    )
    for these, cells in fitting(columns, rows, console.width, ends=2):
        console.print(output.table(these, cells, title=title, right=these[1:]))
    console.print(f"{WORDS[document['leave']][:1].upper()}{WORDS[document['leave']][1:]}.")
    console.print(
        "Noise: the difference between consecutive runs. auto is chosen separately for each "
        "left-out part:",
        highlight=False,
    )
    for name, program in programs.items():
        chosen = sorted(program["auto"].items(), key=lambda item: -item[1])
        console.print(f"  {name}: {'; '.join(f'{c} ({n})' for c, n in chosen)}", markup=False)
    if document["left_out"]:
        console.print(f"Too few runs: {', '.join(document['left_out'])}.", markup=False)
    mixed = [name for name, program in programs.items() if program["identities"] > 1]
    if mixed:
        console.print(
            f"Not the same program everywhere (another executable or command): {', '.join(mixed)}.",
            markup=False,
        )
