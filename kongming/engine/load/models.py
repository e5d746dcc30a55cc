"""Read models from a store: those in service, matching signatures, and the widening of intervals
by co-runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from kongming.learning.calibration import Calibration, calibrate, coruns_of
from kongming.learning.colocation import newest_repeats
from kongming.learning.intervals import Widening
from kongming.learning.model_file import ModelFile, read
from kongming.learning.neighbour_identities import as_signed
from kongming.learning.repeat_noise import Variance
from kongming.records.errors import KongmingError, StoreError
from kongming.records.run import Run, Signature, trained_on
from kongming.store import Store
from kongming.store.models import SCALE, SCALE_PREFIX, ModelEntry

if TYPE_CHECKING:
    from kongming.scale.fit.scale_file import ScaleFile

Key = tuple[str, str]
"""Application and placement."""


class Site(NamedTuple):
    """Place where runs and signatures are alike enough to be held against each other."""

    node_id: str
    placement: str
    suite_version: str


def site_of(file: ModelFile) -> Site:
    return Site(file.node_id, file.placement, file.suite_version)


class ModelFiles:
    """The model files of a store. What is read is kept: one object serves many questions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files: dict[tuple[Key, int, str], ModelFile] = {}

    def entries(self, app: str) -> list[ModelEntry]:
        """Versions of an application's models, newest first."""
        return self._store.models(app=app)

    def in_service(self) -> dict[Key, int]:
        """The version that answers, by application and placement."""
        return {
            key: version
            for key, version in self._store.models_in_service().items()
            if key[1] != SCALE
        }

    def read(self, app: str, placement: str, version: int) -> ModelFile:
        """Raises KongmingError for a file that is damaged or too new."""
        # The number of a version that was deleted may have been given again.
        trained_at = next(
            (
                entry.trained_at
                for entry in self._store.models(app=app)
                if (entry.placement, entry.version) == (placement, version)
            ),
            "",
        )
        key = ((app, placement), version, trained_at)
        if key not in self._files:
            self._files[key] = read(self._store.model(app, placement, version=version))
        return self._files[key]

    def serving(self, app: str, placement: str) -> ModelFile | None:
        """The model in service; None without one that can be read."""
        version = self._store.in_service(app, placement)
        if version is None:
            return None
        try:
            return self.read(app, placement, version)
        except StoreError:
            raise
        except KongmingError:
            # A model that is damaged or too new is no reason to withhold another's prediction.
            return None

    def widenings(self, keys: Iterable[Key]) -> dict[Key, Widening]:
        """Return what co-runs of other applications say of the intervals of models in service, as
        far as there are any."""
        files = {key: file for key in keys if (file := self.serving(*key)) is not None}
        return _widenings(files, self.calibration)

    def calibration(self, site: Site, model: str | None = None) -> Calibration:
        """Calibrate by the co-runs of a site and the models in service there: the chosen one of
        each, or ``model``."""
        return calibration(
            self._store, site, lambda app: self.serving(app, site.placement), model=model
        )


def put_into_service(store: Store, app: str, placement: str, version: int, reason: str) -> int:
    """Put a version of a model into service, 0 for the one before, and return its number.

    Raises:
        KongmingError: there is no such version, or it is damaged and could not answer: it is not
            in service then.
    """
    version = version or store.version_before(app, placement)
    document = store.model(app, placement, version=version)
    if document is not None:
        read(document)
    return store.roll_back(app, placement, version, reason)


def widenings(store: Store, files: Collection[ModelFile]) -> dict[Key, Widening]:
    """Learn the widenings of all models in service. It reads runs and predicts each co-run: call it
    in a thread.

    Raises:
        StoreError: the store cannot be read.
    """
    by_key = {(file.app, file.placement): file for file in files}
    return _widenings(
        by_key,
        lambda site: calibration(store, site, lambda app: by_key.get((app, site.placement))),
    )


def _widenings(
    files: Mapping[Key, ModelFile], calibration_of: Callable[[Site], Calibration]
) -> dict[Key, Widening]:
    """Return the widening of each model; what a site says is learned once."""
    sites = {site: calibration_of(site) for site in dict.fromkeys(map(site_of, files.values()))}
    return {key: sites[site_of(file)].widening(file.app) for key, file in files.items()}


def calibration(
    store: Store,
    site: Site,
    file_of: Callable[[str], ModelFile | None],
    *,
    model: str | None = None,
) -> Calibration:
    """Return what the co-runs and solo runs of a site say of intervals there; ``file_of`` gives an
    application's model.

    Raises:
        StoreError: the store cannot be read.
    """

    def runs_of(kind: str) -> list[Run]:
        return store.runs(
            node_id=site.node_id,
            placement=site.placement,
            kind=kind,
            ok=True,
            requested=True,
            fingerprints=False,
        )

    runs, every_solo = runs_of("corun"), runs_of("solo")
    repeats = solo_repeats(every_solo)
    if not runs:
        return Calibration(repeats=repeats)
    files: dict[str, ModelFile] = {}
    for app in sorted({run.app for run in runs}):
        file = file_of(app)
        if file is not None and site_of(file) == site:
            files[app] = file
    seen = trained_on(
        run
        for run in runs_of("induced")
        if run.app in files and run.identity == files[run.app].identity
    )
    every_corun = runs
    runs = [run for run in runs if seen.isdisjoint((run.app, other) for other in run.neighbours)]
    neighbours = sorted({name for run in runs for name in run.neighbours})
    signed = {name: _signatures(store, name, site) for name in neighbours}
    signatures = {name: _newest_at(site, signed[name]) for name in neighbours}
    runs = as_signed(
        runs, signatures, chain(every_solo, every_corun, chain.from_iterable(signed.values()))
    )
    campaigns = {run.campaign for run in runs}
    solos = [run for run in every_solo if run.campaign in campaigns]
    coruns = coruns_of([*solos, *runs], files)
    return calibrate(files, signatures, coruns, model=model, repeats=repeats)


def solo_repeats(solos: Iterable[Run]) -> dict[str, Variance]:
    """Return the variance of the log cost of each application's solo runs, from those that followed
    each other in a campaign, so that slow drift is not counted."""
    costs: dict[tuple[str, str, str], list[float]] = {}
    for run in sorted(solos, key=lambda run: run.started_at):
        costs.setdefault((run.app, run.identity, run.campaign), []).append(math.log(run.cost))
    sums: dict[str, tuple[float, int]] = {}
    for (app, _, _), logs in costs.items():
        squares, degrees = sums.get(app, (0.0, 0))
        squares += math.fsum((later - earlier) ** 2 for earlier, later in pairwise(logs)) / 2.0
        sums[app] = squares, degrees + len(logs) - 1
    return {
        app: Variance(squares / degrees, float(degrees))
        for app, (squares, degrees) in sums.items()
        if degrees
    }


def newest_signatures(store: Store, app: str, site: Site) -> list[Signature]:
    """The signatures at a site that predictions there average, newest first; empty without any."""
    return _newest_at(site, _signatures(store, app, site))


def _signatures(store: Store, app: str, site: Site) -> list[Signature]:
    """Those of a node and placement, by any suite."""
    return store.signatures(app=app, node_id=site.node_id, placement=site.placement, requested=True)


def _newest_at(site: Site, signatures: Iterable[Signature]) -> list[Signature]:
    at_site = [s for s in signatures if s.fingerprint.suite_version == site.suite_version]
    return list(reversed(newest_repeats(at_site)))


def scale_files(store: Store, names: Collection[str]) -> Iterator[tuple[str, ScaleFile]]:
    """The newest scale models of these names, with the names; where one of them is not there, all
    that are, so that an error can name them."""
    if not names:
        return
    from kongming.scale.fit.model_file import read as read_scale

    entries = store.models(placement=SCALE)
    known = dict.fromkeys(entry.app.removeprefix(SCALE_PREFIX) for entry in entries)
    for name in known if set(names) - known.keys() else names:
        document = store.model(SCALE_PREFIX + name, SCALE)
        if document is not None:
            yield name, read_scale(document)


def names_of_applications(store: Store) -> set[str]:
    """Those that were registered, profiled or trained."""
    return {app.name for app in store.applications()} | {model.app for model in store.models()}
