"""Inputs of a placement study: pairs and predictions, from files or from the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

from kongming.records.errors import InputError, UntrainedError
from kongming.records.questions import DEFAULT_PLACEMENT

if TYPE_CHECKING:
    from kongming.engine.load.models import Site
    from kongming.simulate import Beliefs, PairFile, PairTable
    from kongming.simulate.pair_files import Predicted
    from kongming.store import Store

STORE = "store"


@dataclass(frozen=True, slots=True)
class Source:
    """The source of pairs and predictions; ``pairs`` is a file or ``store``."""

    pairs: str
    predicted: str | None
    prediction_error: float | None
    model: str
    placement: str | None
    estimate_missing: bool
    store_url: str | None
    seed: int


def pairs_of(source: Source, warn: Callable[[str], object] = lambda text: None) -> PairFile:
    """Return the measured pairs, and their predictions; ``warn`` is called for pairs that are left
    out."""
    if source.pairs != STORE:
        from kongming.simulate import read_pairs

        return read_pairs(Path(source.pairs), source.model)
    from kongming.store import Store

    with Store.open(source.store_url, create=False) as store:
        return _pairs_of_store(store, source.placement or DEFAULT_PLACEMENT, warn)


def beliefs_for(source: Source, file: PairFile, table: PairTable) -> Beliefs | None:
    """Return KONGMING's predictions for the pairs of ``table``; None without any. Raises:
    InputError: the table of pairs has no predictions, but they were requested.
        UntrainedError: a pair has none.
    """
    from kongming.simulate import beliefs_of, made_up

    if source.prediction_error is not None:
        return made_up(table, source.prediction_error, source.seed)
    if source.predicted == STORE:
        from kongming.store import Store

        with Store.open(source.store_url, create=False) as store:
            placement = source.placement or file.placement or DEFAULT_PLACEMENT
            predicted, bounds = _predictions(store, table.apps, placement, source.model)
        where = f"stored models, {placement}" + (f", {source.model}" * (source.model != "auto"))
        return beliefs_of(
            predicted, table, source=where, everything=source.estimate_missing, at_least=bounds
        )
    if file.predicted:
        return beliefs_of(
            file.predicted,
            table,
            source=file.source,
            everything=source.estimate_missing,
            at_least=file.at_least,
        )
    if source.predicted == "table":
        raise InputError(
            f"{file.source} has no prediction.",
            field="--predicted",
            hint="Give it a column 'predicted', or use stored models: --predicted store",
        )
    return None


def _pairs_of_store(store: Store, placement: str, warn: Callable[[str], object]) -> PairFile:
    """Return all co-runs of the node that was measured last, over the solo runs around them."""
    from kongming.evaluate.predicted_pairs import Scale, measured_pairs
    from kongming.records.run import geometric_mean
    from kongming.simulate import MeasuredPair, PairFile, PairTable

    coruns = [
        run
        for run in store.runs(
            placement=placement, kind="corun", ok=True, requested=True, fingerprints=False
        )
        if len(run.neighbours) == 1
    ]
    if not coruns:
        raise UntrainedError(
            f"The store has no measured pair, {placement}.",
            hint="Measure some: kongming evaluate APPS.toml --pairs; or name a table: --pairs FILE",
        )
    nodes = Counter(run.node_id for run in coruns)
    node = max(coruns, key=lambda run: run.started_at).node_id
    if len(nodes) > 1:
        warn(f"Pairs of {len(nodes)} nodes are in the store; only those of {node} are used.")
    coruns = [run for run in coruns if run.node_id == node]
    campaigns = {run.campaign for run in coruns}
    solos = [
        run
        for run in store.runs(
            node_id=node,
            placement=placement,
            kind="solo",
            ok=True,
            requested=True,
            fingerprints=False,
        )
        if run.campaign in campaigns
    ]
    apps = sorted({run.app for run in coruns})
    measured = measured_pairs(
        [*solos, *coruns], permutations(sorted(apps), 2), Scale("bracketed", {})
    )
    walls: dict[str, list[float]] = {}
    for run in solos:
        walls.setdefault(run.app, []).append(run.wall_s)
    table = PairTable.of(
        [MeasuredPair(pair.app, pair.neighbour, pair.values) for pair in measured],
        {app: geometric_mean(values) for app, values in walls.items()},
    )
    return PairFile(table, {}, f"store, node {node}", placement)


def _predictions(
    store: Store, apps: Sequence[str], placement: str, model: str
) -> tuple[Predicted, set[tuple[str, str]]]:
    """Predict every ordered pair with the models in service, including an application with itself;
    return the predictions, and the pairs whose predictions are lower bounds.

    Raises:
        UntrainedError: an application has no model at the placement.
    """
    from kongming.engine.catalog import untrained
    from kongming.engine.load.models import ModelFiles, newest_signatures, site_of
    from kongming.learning.calibration import Calibration
    from kongming.learning.predict import predict_colocated

    chosen = None if model == "auto" else model
    models = ModelFiles(store)
    calibrations: dict[Site, Calibration] = {}
    predicted: Predicted = {}
    at_least: set[tuple[str, str]] = set()
    for app in apps:
        file = models.serving(app, placement)
        if file is None:
            trained = sorted({entry.placement for entry in models.entries(app)})
            raise untrained(app, placement, trained)
        site = site_of(file)
        if site not in calibrations:
            calibrations[site] = models.calibration(site, chosen)
        widening = calibrations[site].widening(app)
        for other in apps:
            interval = predict_colocated(
                file,
                {other: newest_signatures(store, other, site)},
                model=chosen,
                widening=widening,
            ).slowdown
            predicted[app, other] = (interval.median, interval.upper)
            if interval.at_least:
                at_least.add((app, other))
    return predicted, at_least
