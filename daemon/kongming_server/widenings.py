"""What intervals have to be widened by, from the co-runs that the store holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kongming.calibration import Calibration, calibrate, coruns_of
from kongming.models.intervals import Widening
from kongming.models.persist import ModelFile
from kongming.run import Run, Signature
from kongming.store import Store

Site = tuple[str, str, str]
"""Node, placement and version of the suite: what a calibration is of."""


@dataclass(frozen=True, slots=True)
class AppWidening:
    """The widening of one application's intervals at one placement."""

    app: str
    placement: str
    widening: Widening


def widenings(store: Store, files: Iterable[ModelFile]) -> list[AppWidening]:
    """Of the models in service. Reads runs and predicts each co-run: call it in a thread.

    Raises:
        StoreError: the store cannot be read.
    """
    sites: dict[Site, dict[str, ModelFile]] = {}
    for file in files:
        site = (file.node_id, file.placement, file.suite_version)
        sites.setdefault(site, {})[file.app] = file
    return [
        AppWidening(app, site[1], calibration.widening(app))
        for site, of_site in sites.items()
        for calibration in [_calibration(store, site, of_site)]
        for app in of_site
    ]


def _calibration(store: Store, site: Site, files: Mapping[str, ModelFile]) -> Calibration:
    node_id, placement, suite_version = site

    def kept(kind: str) -> list[Run]:
        return store.runs(
            node_id=node_id, placement=placement, kind=kind, ok=True, fingerprints=False
        )

    runs = kept("corun")
    if not runs:
        return Calibration()
    neighbours = sorted({name for run in runs for name in run.neighbours})
    signatures = {
        name: _newest(
            one
            for one in store.signatures(app=name, node_id=node_id, placement=placement)
            if one.fingerprint.suite_version == suite_version
        )
        for name in neighbours
    }
    campaigns = {run.campaign for run in runs}
    solos = [run for run in kept("solo") if run.campaign in campaigns]
    return calibrate(files, signatures, coruns_of([*solos, *runs], files))


def _newest(signatures: Iterable[Signature]) -> Sequence[Signature]:
    """Those of the newest campaign; they come newest first."""
    found = list(signatures)
    return [
        one
        for one in found
        if (one.identity, one.campaign) == (found[0].identity, found[0].campaign)
    ]
