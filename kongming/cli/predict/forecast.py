"""Predictions for named nodes or by a server: request and output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.cli.fleet.serving import Server, asks_server, prediction_service
from kongming.cli.predict.prediction_view import median_text, slowdown_text
from kongming.records.errors import InputError, KongmingError
from kongming.records.questions import ColocationQuestion, Question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kongming.cli.predict.job import Job
    from kongming.learning.model_file import ModelFile
    from kongming.records.answers import Colocation, Forecast
    from kongming.records.fingerprint import Fingerprint
    from kongming.store import Store


def forecast_on(
    server: Server,
    store_url: str | None,
    question: Question,
    as_json: bool,
    job: Job | None = None,
) -> None:
    """Predict for one node, or a whole job, and print the answer. Raises the error of the
    question."""
    scale_files = None if job is None else job.scale_files(server)
    with prediction_service(server, store_url, scale_files) as service:
        (answer,) = service.predict([question])
    if isinstance(answer, KongmingError):
        raise answer
    if answer.model_version and not asks_server(server):
        answer = _warned(answer, _age_warnings(store_url, answer))
    if as_json:
        output.emit_json(answer.to_dict())
    else:
        where = question.node if job is None else f"{len(question.nodes)} nodes"
        _show(answer, f"{answer.app} on {where}", ())


def _age_warnings(store_url: str | None, answer: Forecast) -> tuple[str, ...]:
    """Return what ``age_warnings`` says of the model that answered."""
    from kongming.cli.trained import age_warnings
    from kongming.store import Store

    with Store.open(store_url, create=False) as store:
        for entry in store.models(app=answer.app):
            if (entry.placement, entry.version) == (answer.placement, answer.model_version):
                return age_warnings(store, entry)
    return ()


def forecast_colocated(
    server: Server, store_url: str | None, question: ColocationQuestion, as_json: bool
) -> None:
    """Predict next to neighbours on an idle node, and print the answer; from a store as
    ``colocated_here``."""
    if asks_server(server):
        with prediction_service(server, store_url) as service:
            answer = service.predict_colocation(question)
    else:
        from kongming.cli.trained import model_of, placement_for
        from kongming.store import Store

        with Store.open(store_url, create=False) as store:
            where = placement_for(store, question.app, question.placement)
            trained = model_of(store, question.app, where)
            answer = colocated_here(store, trained, replace(question, placement=where))
    show_colocated(answer, as_json)


def forecast_here(store: Store, file: ModelFile, question: Question, live: Fingerprint) -> Forecast:
    """Predict in the environment of a fingerprint, with a warning about the age of ``file``, the
    model in service. Raises as ``predict_measured``."""
    from kongming.cli.trained import age_warnings
    from kongming.engine.load.measured import predict_measured

    return _warned(predict_measured(store, live, question), age_warnings(store, file))


def colocated_here(
    store: Store, file: ModelFile, question: ColocationQuestion, live: Fingerprint | None = None
) -> Colocation:
    """Predict next to neighbours: on the idle node, or added to a fingerprint; as
    ``forecast_here``.

    Raises:
        UnknownNameError: a neighbour was never profiled.
        UntrainedError: a neighbour has no signature, or one of runs that were too short.
        ExtrapolationError: under ``strict``.
    """
    from kongming.cli.trained import age_warnings, naming_short, signatures_of
    from kongming.engine.load.measured import colocate_measured
    from kongming.local_service import LocalService

    signatures = {other: signatures_of(store, other, file) for other in question.neighbours}
    with naming_short(store, file, signatures):
        if live is None:
            answer = LocalService(store).predict_colocation(question)
        else:
            answer = colocate_measured(store, live, question)
    return replace(answer, prediction=_warned(answer.prediction, age_warnings(store, file)))


def _warned(forecast: Forecast, warnings: tuple[str, ...]) -> Forecast:
    return replace(forecast, warnings=(*forecast.warnings, *warnings))


def show_here(forecast: Forecast, as_json: bool) -> None:
    """Print a prediction for this node, or for a fingerprint's."""
    if as_json:
        output.emit_json(forecast.to_dict())
    else:
        _show(forecast, forecast.app, ())


def show_colocated(answer: Colocation, as_json: bool) -> None:
    """Print a prediction next to neighbours, and what each of these meets."""
    if as_json:
        output.emit_json(colocation_document(answer))
        return
    names = ", ".join(neighbour.app for neighbour in answer.neighbours)
    _show(answer.prediction, f"{answer.prediction.app} next to {names}", _neighbours(answer))


def colocation_document(answer: Colocation) -> dict[str, Any]:
    """Return the prediction as JSON, with what each neighbour meets."""
    neighbours = [neighbour.to_dict() for neighbour in answer.neighbours]
    return {**answer.prediction.to_dict(), "neighbours": neighbours}


def refuse_measuring(measuring: Mapping[str, bool], why: str) -> None:
    """Raise InputError for an option that measures this node, if another node is asked about."""
    for name, given in measuring.items():
        if given:
            raise InputError(
                f"cannot be given with {why}.",
                field=name,
                hint="Such a prediction uses stored fingerprints and measures nothing.",
            )


def _neighbours(answer: Colocation) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            neighbour.app,
            "unknown" if neighbour.slowdown is None else slowdown_text(neighbour.slowdown),
        )
        for neighbour in answer.neighbours
    )


def _show(forecast: Forecast, title: str, slows: tuple[tuple[str, str], ...]) -> None:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from kongming.cli.predict.job import add_scaled
    from kongming.cli.predict.prediction_view import add_drivers, add_runtime, add_slowdown

    grid = Table.grid(padding=(0, 2))
    if forecast.runtime_s is not None:
        add_runtime(grid, forecast.runtime_s, forecast.metric_unit)
    add_slowdown(grid, forecast.slowdown, forecast.solo_s, forecast.metric_unit)
    if forecast.scaled is not None:
        add_scaled(grid, forecast.scaled)
    add_drivers(grid, forecast.drivers, forecast.slowdown)
    residents: list[tuple[Any, str]] = [
        (
            impact.app,
            f"{slowdown_text(impact.slowdown_then)}, now {median_text(impact.slowdown_now)}",
        )
        for impact in forecast.residents.values()
    ]
    for name, slowdown in (*residents, *slows):
        grid.add_row("slows", name, slowdown)
    if forecast.fingerprint_age_s is not None:
        age = output.format_duration(forecast.fingerprint_age_s)
        grid.add_row("as of", f"{age} ago", "stale" if forecast.stale else "")
    model = f"{forecast.model} version {forecast.model_version}" if forecast.model else "none"
    console = output.console()
    console.print(
        Panel(
            grid,
            title=Text(f"{title}, {forecast.placement}"),
            title_align="left",
            subtitle=f"model {model}",
            subtitle_align="left",
            expand=False,
        )
    )
    for reason in () if forecast.scaled is None else forecast.scaled.reasons:
        console.print(Text(f"extrapolating: {reason}"))
    for remark in forecast.notes:
        console.print(Text(remark))
    for warning in forecast.warnings:
        console.print(Text(f"! {warning}"))
