"""``kongming train``: train models on profiles, and show their errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, changes_server, remote, server_options
from kongming.cli.help_groups import GroupedCommand
from kongming.cli.predict.errors_view import chosen_lines, distinct, errors_table, label, percent
from kongming.learning.registry import AUTO, model_kind, model_names
from kongming.quantities import count
from kongming.records.errors import InputError

if TYPE_CHECKING:
    from kongming.records.run import Run
    from kongming.store import Store


_OPTIONAL = tuple(name for name in model_names(optional=True) if name not in model_names())


@click.command(
    "train",
    cls=GroupedCommand,
    short_help="Train models on profiled applications.",
    epilog=examples("kongming train", "kongming train xz --placement cross-core"),
)
@click.argument("apps", metavar="[APP]...", nargs=-1)
@click.option(
    "--model",
    default=AUTO,
    show_default=True,
    metavar="NAME",
    help=f"The default model of predictions: {', '.join(model_names())}, or auto, the mean of the "
    f"penalised models. All of them are trained, but {' and '.join(_OPTIONAL)}, which are slow, "
    "only if named here.",
)
@options.placement_filter
@click.option(
    "--seed",
    type=options.MODEL_SEED,
    default=0,
    show_default=True,
    help="Seed of the random models.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of applications to train at once. Default: one for each CPU. A server uses "
    "its own setting training.workers.",
)
@click.option(
    "--no-wait",
    is_flag=True,
    help="With --server: start the training, print its operation, and do not wait.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also show the errors of every model.")
@server_options
@options.store_option
@options.wide_option
@options.json_option
def command(
    apps: tuple[str, ...],
    model: str,
    placement: str | None,
    seed: int,
    jobs: int | None,
    no_wait: bool,
    verbose: bool,
    server: Server,
    store_url: str | None,
    as_json: bool,
) -> int:
    """Train and validate every model on the profile of each APP (default: all).

    Validation leaves out one resource family of inducers at a time; the error of a model is the
    mean over the runs under load that were left out. With -v compare it with that of MEAN, which
    ignores the environment, and with the noise floor, the difference between repeats of the same
    run.

    Runs of a profile that was spoiled are left out if it was measured again. Runs of several nodes
    give a model for each; that of the node with the newest runs goes into service. A server puts it
    there only if it has none yet, and another node's in its place if that validates clearly better.

    With --server (KONGMING_SERVER is not enough) the server trains on its own data; Ctrl-C does not
    stop it.
    """
    if changes_server(server):
        if jobs is not None:
            raise InputError(
                "cannot be given with --server.",
                field="--jobs",
                hint="The server's own setting training.workers limits it.",
            )
        return _train_there(server, apps, model, placement, seed, as_json, wait=not no_wait)
    if no_wait:
        raise InputError(
            "needs --server.", field="--no-wait", hint="A local training always runs to its end."
        )
    from kongming.cli.extras import require
    from kongming.processes.pool import available_cpus, in_order
    from kongming.records.errors import UntrainedError
    from kongming.store import Store

    if model != AUTO:
        model_kind(model)
    for module in ("numpy", "scipy", "sklearn", "lightgbm", "deap", "loky"):
        require("kongming train", "predict", module)
    from kongming.learning import usefulness
    from kongming.learning.model_file import read

    trained: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    notes: list[str] = []
    with Store.open(store_url, create=False, write=True) as store:
        names = _names(store, apps)
        tasks = _tasks(store, names, placement, model, seed, notes, failed)
        shared = closing(in_order(_train, tasks, jobs or available_cpus()))
        with shared as answers, output.progress("Training", len(names)) as shown:
            shown.update(0)
            for task, answer in answers:
                shown.update(names.index(task.app) + 1, text=f"Trained {task.app}")
                if isinstance(answer, str):
                    failed.append({"app": task.app, "error": answer})
                    continue
                version = store.put_model(
                    task.app, answer["identity"], task.node_id, task.placement, answer
                )
                file = read(answer)
                assert file.profile is not None
                full = file.variants["full"].model()
                remarks = (
                    file.profile.remark(file.app),
                    usefulness.remark(file.app, full.name, full.not_better_than),
                )
                warnings = {"warnings": list(filter(None, remarks))}
                trained.append(summary(answer, version) | warnings)
        notes += _in_service(store, trained)
    failed.sort(key=lambda failure: names.index(failure["app"]))
    if not trained:
        raise UntrainedError(
            failed[0]["error"] if failed else "No application is profiled yet.",
            hint=None if failed else "Profile first: kongming profile APPS.toml",
        )
    if as_json:
        output.emit_json({"models": trained, "failed": failed, "notes": notes})
    else:
        for entry in trained:
            _show(entry, verbose=verbose)
        for line in notes:
            output.error_console().print(f"Note: {line}.", markup=False)
        output.console().print(f"Next: kongming predict {trained[0]['app']}", markup=False)
    for failure in failed:
        output.error_console().print(
            f"Not trained: {failure['app']}: {failure['error']}", markup=False
        )
    # An application that was named on the command line must be trained.
    return UntrainedError.exit_status if failed and apps else 0


def _train_there(
    server: Server,
    apps: tuple[str, ...],
    model: str,
    placement: str | None,
    seed: int,
    as_json: bool,
    *,
    wait: bool,
) -> int:
    from kongming.cli.fleet.operations import followed, print_outcome

    with remote(server) as service:
        operation = service.train(
            apps,
            placement=placement,
            model=None if model == AUTO else model,
            random_state=seed,
        )
        if wait:
            return print_outcome(followed(service, operation.id), as_json, apps)
    if as_json:
        output.emit_json(operation.to_dict())
    else:
        output.console().print(
            f"{operation.id}: {operation.state}. Follow it: kongming operations follow "
            f"{operation.id}",
            markup=False,
        )
    return 0


def _names(store: Store, apps: tuple[str, ...]) -> list[str]:
    from kongming.cli.trained import check_known

    if not apps:
        return list(dict.fromkeys(entry.name for entry in store.applications()))
    for name in apps:
        check_known(store, name)
    return list(dict.fromkeys(apps))


@dataclass(frozen=True, slots=True)
class _Task:
    """The training runs of one application on one node at one placement."""

    app: str
    node_id: str
    placement: str
    runs: tuple[Run, ...]
    model: str
    seed: int


def _tasks(
    store: Store,
    names: list[str],
    placement: str | None,
    model: str,
    seed: int,
    notes: list[str],
    failed: list[dict[str, str]],
) -> Iterator[_Task]:
    """Return a task for each node and placement at which an application has runs."""
    from kongming.learning.training import training_sets

    for app in names:
        sets, left_out = training_sets(store.runs(app=app, placement=placement, requested=True))
        notes += left_out
        if not sets:
            at = f" at {placement}" if placement else ""
            where = f" --placement {placement}" if placement else ""
            way_out = f"kongming profile APPS.toml --app {app}{where}"
            error = f"{app} has no runs{at}. Profile it: {way_out}"
            failed.append({"app": app, "error": error})
        # The newest version goes into service: that of the node that was measured last.
        for (node_id, where), runs in sets.items():
            yield _Task(app, node_id, where, tuple(runs), model, seed)


def _in_service(store: Store, trained: list[dict[str, Any]]) -> list[str]:
    """Return a note for each application and placement that was trained on several nodes: which of
    them the model in service is of."""
    nodes: dict[tuple[str, str], set[str]] = {}
    for entry in trained:
        nodes.setdefault((entry["app"], entry["placement"]), set()).add(entry["node_id"])
    notes = []
    for (app, placement), node_ids in nodes.items():
        if len(node_ids) > 1:
            served = store.in_service(app, placement)
            entries = store.models(app=app)
            its = next(e for e in entries if (e.placement, e.version) == (placement, served))
            notes.append(
                f"{app} at {placement} was trained on {len(node_ids)} nodes; version {served} is "
                f"in service, of node {its.node_id}"
            )
    return notes


def _train(task: _Task) -> dict[str, Any] | str:
    """Return the model document, or the error. May run in a worker process."""
    from kongming.learning.training import train_application
    from kongming.records.errors import CannotAnswerError

    try:
        return train_application(
            task.runs, placement=task.placement, model=task.model, random_state=task.seed
        )
    except CannotAnswerError as error:
        return str(error)


def summary(document: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return the description of a model: its errors, its choice and its training data."""
    return {
        "app": document["app"],
        "placement": document["placement"],
        "node_id": document["node_id"],
        "version": version,
        "chosen": document["chosen"],
        "solo_s": document["solo"]["median"]
        if document["better"] == "lower"
        else 1.0 / document["solo"]["median"],
        "metric_unit": document["metric_unit"],
        "solo_noise_pct": document["solo"]["noise_pct"],
        "runs": document["runs"],
        "profile": document["profile"],
        "dropped_columns": document["dropped_columns"],
        "variants": {
            name: {
                "columns": len(variant["columns"]),
                "chosen": variant["chosen"],
                "reason": variant["reason"],
                "noise_floor_pct": variant["noise_floor_pct"],
                "left_out": variant["groups"],
                "errors": {key: model["scores"] for key, model in variant["models"].items()},
                "evaluations": _evaluations(variant["models"]),
            }
            for name, variant in document["variants"].items()
        },
    }


def _evaluations(models: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return how many selections each genetic model tried for its fit and for its validation."""
    return {
        name: {"fit": model["evaluations"], "validation": model["validation_evaluations"]}
        for name, model in models.items()
        if "evaluations" in model
    }


def _show(entry: Mapping[str, Any], *, verbose: bool) -> None:
    """Print the result in a line, what to think of it, and with ``verbose`` every model's error."""
    console = output.console()
    full, runs = entry["variants"]["full"], entry["runs"]
    error = full["errors"][full["chosen"]].get("mean_pct")
    noise = entry["solo_noise_pct"]
    console.print(
        f"{entry['app']}, {entry['placement']}: {full['chosen']}, mean error "
        f"{percent(error)} on loads that were left out, repeat noise {percent(noise)}; "
        f"{runs['total']} runs ({runs['solo']} solo, {runs['induced']} induced), model version "
        f"{entry['version']}",
        markup=False,
    )
    for warning in entry["warnings"]:
        console.print(f"! {warning}", markup=False)
    if runs["dropped"]:
        console.print(
            f"{count(len(runs['dropped']), 'run')} left out of training; --json shows the reasons.",
            markup=False,
        )
    if not verbose:
        return
    variants = distinct(entry["variants"])
    console.print(errors_table(variants))
    for line in chosen_lines(variants):
        console.print(line, markup=False)
    for name, variant in variants.items():
        for model, tried in variant["evaluations"].items():
            console.print(
                f"{label(name)}: {model} is the best of {tried['fit']} selections; "
                f"{tried['validation']} more were tried to validate it.",
                markup=False,
            )
    console.print()
