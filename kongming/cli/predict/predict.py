"""``kongming predict``: predict an application's runtime, now or next to others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, asks_server, server_options
from kongming.cli.help_groups import GroupedCommand
from kongming.cli.predict.job import Job, job_options
from kongming.cli.trained import placement_of_model
from kongming.records.questions import STALE_POLICIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kongming.learning.model_file import ModelFile
    from kongming.records.fingerprint import Fingerprint


class _PredictCommand(GroupedCommand):
    """Answers a second APP with the option that a neighbour is given by."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        more = super().parse_args(ctx, args)
        if more and not ctx.resilient_parsing:
            from kongming.records.errors import InputError

            others = " ".join(f"--with {name}" for name in more)
            raise InputError(
                "takes one application.",
                field="APP",
                value=" ".join([ctx.params["app"], *more]),
                hint=f"Next to others: kongming predict {ctx.params['app']} {others}",
            )
        return more


@click.command(
    "predict",
    cls=_PredictCommand,
    short_help="Predict an application's runtime, now or next to others.",
    epilog=examples("kongming predict xz", "kongming predict xz --with redis"),
)
@click.argument("app", metavar="APP")
@click.option(
    "--now", is_flag=True, help="Predict for this node as it is now (default without --with)."
)
@click.option(
    "--fingerprint",
    "file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Predict for the environment of an earlier fingerprint (JSON file; - for stdin).",
)
@click.option(
    "--with",
    "others",
    metavar="OTHER",
    multiple=True,
    help="Predict next to this profiled application, on the idle node unless --now is "
    "given. Repeatable.",
)
@click.option(
    "--node",
    metavar="NODE",
    help="Predict for this node (id or name), from its newest fingerprint. With --server "
    "the default is the local node.",
)
@click.option(
    "--stale",
    type=click.Choice(STALE_POLICIES),
    default="widen",
    show_default=True,
    help="With --node or --server, and without --with: what to do with a fingerprint that is too "
    "old.",
)
@job_options(named=True)
@placement_of_model
@click.option(
    "--model", default=None, metavar="NAME", help="Model to use. Default: the chosen one."
)
@click.option("--strict", is_flag=True, help="Exit with status 3 where the model extrapolates.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder for the files of a measurement.",
)
@server_options
@options.store_option
@options.json_option
def command(
    app: str,
    now: bool,
    file: Path | None,
    others: tuple[str, ...],
    node: str | None,
    stale: Any,
    placement: str | None,
    model: str | None,
    strict: bool,
    directory: Path | None,
    job: Job,
    server: Server,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Predict the runtime of APP: median, 90 % interval, and the resources that drive it.

    --now measures the smallest suite that the model needs. With --now or --fingerprint, an OTHER of
    --with must not already run on the node: it would be counted twice.

    --node measures nothing: it uses the node's newest fingerprint, from the local store or from the
    server. A server also takes into account the jobs that were placed on the node since then.

    --machines and --nodes predict the runtime of a whole job: the prediction of its scale model for
    idle machines, multiplied by the slowdown of the slowest node (for the serial part, of the
    driver's node).
    """
    job.check()
    measuring_here = {"--now": now, "--fingerprint": file is not None, "--dir": bool(directory)}
    # KONGMING_SERVER alone does not prevent a measurement of this node.
    on_server = asks_server(server) and (server.named or not any(measuring_here.values()))
    if job.is_asked:
        _job(
            job,
            {"--node": node is not None, "--with": bool(others)} | measuring_here,
            server,
            store_url,
            as_json,
            app=app,
            placement=placement,
            model=None if model == "auto" else model,
            strict=strict,
            stale_policy=stale,
        )
        return
    is_elsewhere = node is not None or on_server
    if options.is_typed("stale") and not (is_elsewhere and not others):
        _refuse_ignored("--stale", "no fingerprint is too old for this question.")
    if directory is not None and not is_elsewhere and (file is not None or (others and not now)):
        _refuse_ignored("--dir", "nothing is measured.")
    if is_elsewhere:
        _elsewhere(
            app,
            node,
            others,
            measuring_here,
            server,
            store_url,
            as_json,
            on_server=on_server,
            placement=placement,
            model=model,
            strict=strict,
            stale=stale,
        )
        return
    from kongming.cli.predict.forecast import (
        colocated_here,
        forecast_here,
        show_colocated,
        show_here,
    )
    from kongming.cli.trained import model_of, placement_for
    from kongming.files.fingerprint_file import read_fingerprint
    from kongming.records.errors import InputError
    from kongming.records.questions import ColocationQuestion, Question
    from kongming.store import Store

    check_model(model)
    if now and file is not None:
        raise InputError(
            "cannot be given with --fingerprint.",
            field="--now",
            hint="Choose the current environment (--now) or the earlier one (--fingerprint).",
        )
    kind = None if model == "auto" else model
    with Store.open(store_url, create=False) as store:
        where = placement_for(store, app, placement)
        trained = model_of(store, app, where)
        live: Fingerprint | None = None
        if file is not None:
            live = read_fingerprint(file, field="--fingerprint")
        elif now or not others:
            live = measure(trained, model, directory)
        if others:
            company = ColocationQuestion(app, others, placement=where, model=kind, strict=strict)
            show_colocated(colocated_here(store, trained, company, live), as_json)
        else:
            assert live is not None
            question = Question(app, live.node.id, where, model=kind, strict=strict)
            show_here(forecast_here(store, trained, question, live), as_json)


def _refuse_ignored(option: str, why: str) -> None:
    """Raise InputError for an option that was typed, and would have no effect."""
    from kongming.records.errors import InputError

    raise InputError(
        f"has no effect here: {why}",
        field=option,
        hint="See 'kongming predict --help' for what it is for.",
    )


def _elsewhere(
    app: str,
    node: str | None,
    others: tuple[str, ...],
    measuring: Mapping[str, bool],
    server: Server,
    store_url: str | None,
    as_json: bool,
    *,
    on_server: bool,
    placement: str | None,
    model: str | None,
    strict: bool,
    stale: Any,
) -> None:
    """Predict for a node that the store or a server knows, without measuring."""
    from kongming.cli.predict.forecast import forecast_colocated, forecast_on, refuse_measuring
    from kongming.records.questions import ColocationQuestion, Question

    refuse_measuring(measuring, "--server" if on_server else "--node")
    if not others:
        question = Question(
            app=app,
            node=node or _this_node(),
            placement=placement,
            stale_policy=stale,
            model=None if model == "auto" else model,
            strict=strict,
        )
        forecast_on(server, store_url, question, as_json)
        return
    company = ColocationQuestion(
        app=app,
        neighbours=others,
        node=node,
        placement=placement,
        model=None if model == "auto" else model,
        strict=strict,
    )
    forecast_colocated(server, store_url, company, as_json)


def _job(
    job: Job,
    others: Mapping[str, bool],
    server: Server,
    store_url: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Predict a whole job on several machines."""
    from kongming.cli.predict.forecast import forecast_on, refuse_measuring
    from kongming.records.errors import InputError
    from kongming.records.questions import Question

    refuse_measuring(others, "--machines")
    if not job.nodes:
        raise InputError(
            "is missing.",
            field="--nodes",
            hint=f"Find the best: kongming rank {fields['app']} --machines {job.machines}. On idle "
            "machines: kongming scale predict",
        )
    question = Question(scaling=job.scaling(), nodes=job.nodes, driver=job.driver, **fields)
    forecast_on(server, store_url, question, as_json, job)


def check_model(model: str | None) -> None:
    """Raise UnknownNameError for a model that does not exist."""
    from kongming.learning.registry import AUTO, model_kind

    if model not in (None, AUTO):
        model_kind(str(model))


def _this_node() -> str:
    from kongming.probes.node import node_facts

    return node_facts().id


def measure(file: ModelFile, model: str | None, directory: Path | None) -> Fingerprint:
    """Measure the surrogates that the model needs, on the CPU of its training runs."""
    from kongming.learning.predict import columns_needed, live_variant
    from kongming.probes.fingerprinting import take_fingerprint
    from kongming.probes.suite import load_suite
    from kongming.records.errors import IncompatibleError

    # Checked first: on another node the columns may have other names.
    version = load_suite(directory=directory).version
    if version != file.suite_version:
        raise IncompatibleError(
            f"This node's suite is version {version}; the model of {file.app} was trained on "
            f"{file.suite_version}.",
            hint="Profile and train on this node: kongming profile APPS.toml",
        )
    variant = live_variant(file, model)
    with output.progress("Measuring this node") as shown:
        return take_fingerprint(
            suite="quick" if variant == "quick" else "standard",
            names=columns_needed(file, variant),
            cpu=file.cpu,
            directory=directory,
            on_progress=lambda p: shown.update(p.done, total=p.total),
            shared_core=file.placement == "same-core",
        )
