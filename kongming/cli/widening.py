"""What the store's co-runs say about the intervals of a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kongming.calibration import Calibration
    from kongming.models.intervals import Widening
    from kongming.models.persist import ModelFile
    from kongming.run import Run
    from kongming.store import Store


class Widenings:
    """The widening of each application's intervals, by the co-runs of all others.

    What is read from the store is kept: one object serves all predictions of a command.
    ``model`` is the one that predictions are asked of (None for each application's choice).
    """

    def __init__(self, store: Store, model: str | None = None) -> None:
        self._store = store
        self._model = model
        self._known: dict[tuple[str, str, str], Calibration] = {}

    def of(self, file: ModelFile) -> Widening:
        """The widening for the intervals of a model, learnt on its node, at its placement and
        with its suite."""
        key = (file.node_id, file.placement, file.suite_version)
        if key not in self._known:
            self._known[key] = _calibration(self._store, file, self._model)
        return self._known[key].widening(file.app)


def note(widening: Widening) -> tuple[str, ...]:
    """A sentence on how intervals were widened; none where there was nothing to learn from."""
    if not widening.groups:
        return ()
    runs = f"{widening.pairs} co-run{'' if widening.pairs == 1 else 's'}"
    apps = f"{widening.groups} other application{'' if widening.groups == 1 else 's'}"
    if abs(widening.factor - 1.0) < 0.005:
        return (f"The interval needed no widening, by {runs} of {apps}.",)
    how = "widened" if widening.factor > 1.0 else "narrowed"
    return (f"The interval is {how} by {widening.factor:.2f}, learnt from {runs} of {apps}.",)


def _calibration(store: Store, file: ModelFile, model: str | None) -> Calibration:
    from kongming.calibration import Calibration, calibrate, coruns_of
    from kongming.cli.trained import signatures_of
    from kongming.errors import KongmingError
    from kongming.models.persist import read

    def kept(kind: str) -> list[Run]:
        return store.runs(
            node_id=file.node_id, placement=file.placement, kind=kind, ok=True, fingerprints=False
        )

    runs = kept("corun")
    if not runs:
        return Calibration()
    files = {}
    for app in sorted({run.app for run in runs}):
        document = store.model(app, file.placement, node_id=file.node_id)
        if document is None:
            continue
        try:
            other = read(document)
        except KongmingError:
            # A model that is damaged or too new is no reason to withhold another's prediction.
            continue
        if other.suite_version == file.suite_version:
            files[app] = other
    signatures = {}
    for name in sorted({name for run in runs for name in run.neighbours}):
        try:
            signatures[name] = signatures_of(store, name, file)
        except KongmingError:
            continue
    campaigns = {run.campaign for run in runs}
    solos = [run for run in kept("solo") if run.campaign in campaigns]
    return calibrate(files, signatures, coruns_of([*solos, *runs], files), model=model)
