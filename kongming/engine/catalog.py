"""Models and signatures by application and placement: which is in service, and what each inflicts.

Versions are kept: the one in service answers unless another is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kongming.arrays import Floats
from kongming.engine import scoring
from kongming.engine.columns import Columns, fitted
from kongming.engine.environment import LARGEST_LOG
from kongming.engine.row_numbers import RowNumbers
from kongming.engine.scoring import Served
from kongming.engine.slots import ANY_SUITE
from kongming.engine.trainings import Place, Trainings
from kongming.learning import colocation
from kongming.learning.awake import awake_share
from kongming.learning.intervals import UNWIDENED, Widening
from kongming.learning.model_file import ModelFile
from kongming.records.errors import UnknownNameError, UntrainedError
from kongming.records.questions import placement_or_default
from kongming.records.run import Signature
from kongming.records.scaling import profiled_at

Key = tuple[str, str]
"""Application and placement."""

Site = tuple[str, str]
"""Where a signature was taken: the node (id), and the suite version."""

IdleOf = Callable[[str, int], Floats | None]
"""Log idle reference (C,) of a node (id) by a suite (code); None without one."""


_MOST_REMEMBERED = 10_000
"""Applications of which it is remembered at which placement they are asked for."""


@dataclass(frozen=True, eq=False, slots=True)
class Basis:
    """Basis of a pressure: ``signatures`` of one site, over the idle times of the training
    of ``file``, or without it over the reference that the node had by then."""

    signatures: tuple[Signature, ...]
    file: ModelFile | None

    def equals(self, other: Basis | None) -> bool:
        return other is not None and self.file is other.file and self.signatures == other.signatures


@dataclass(frozen=True, eq=False, slots=True)
class Pressure:
    """Effect of an application on a neighbour: ``slowed`` (C,), log slowdown of each surrogate
    over the idle node, 0 or more, NaN where its signature has no reading; ``spread`` (C,), in logs,
    that of readings on the idle node by a training there, 0 where none says it. ``row`` is its
    place in the table of harm; ``awake`` the share of time in which it keeps a CPU awake; ``known``
    is False for what merely stands in, which has no ``basis``."""

    row: int
    slowed: Floats
    spread: Floats
    awake: float = 0.0
    known: bool = True
    basis: Basis | None = None

    def is_of(self, node_id: str) -> bool:
        """Return whether its signatures were taken on this node."""
        return self.basis is not None and self.basis.signatures[0].node_id == node_id


class Catalog:
    """``generation`` counts every change of a model or a signature, ``moves`` those by which some
    application is taken to press otherwise than before."""

    def __init__(self, columns: Columns, idle_of: IdleOf, unknown_pressure: float) -> None:
        self._columns = columns
        self._idle_of = idle_of
        self._unknown_pressure = unknown_pressure
        self._versions: dict[Key, dict[int, ModelFile]] = {}
        self._served: dict[Key, Served] = {}
        self._by_row: dict[int, Served] = {}
        self._requested: dict[tuple[Key, int, str | None], Served] = {}
        self._signatures: dict[Key, dict[Site, tuple[Signature, ...]]] = {}
        # By the code of the suite, those of the newest signatures first.
        self._pressures: dict[Key, dict[int, Pressure]] = {}
        self._unsettled: set[Key] = set()
        # By the node that signatures were taken on.
        self._signed: dict[str, set[Key]] = {}
        self._trainings = Trainings()
        self._rows = RowNumbers()
        self._pressure_rows = RowNumbers()
        self._suites: dict[str, int] = {}
        self._widenings: dict[Key, Widening] = {}
        self._typical: dict[tuple[str, int], Pressure] = {}
        self._placement_of: dict[str, str] = {}
        self.generation = 0
        self.moves = 0
        self._applications: set[str] = set()

    def suite(self, version: str) -> int:
        """A small number for a suite version."""
        return self._suites.setdefault(version, len(self._suites))

    def suite_name(self, code: int) -> str:
        """The suite version of a code."""
        return next((name for name, known in self._suites.items() if known == code), "")

    def put_model(self, file: ModelFile, version: int, *, in_service: bool) -> Served | None:
        """Keep a version; returns what is now served in its place where that changed."""
        key = (file.app, file.placement)
        before = self._served.get(key)
        if not in_service:
            self._versions.setdefault(key, {})[version] = file
            self._forget(key)
            return None
        row = self._rows.take(key)
        served = scoring.served(row, file, version, self.suite(file.suite_version), self._columns)
        self._versions.setdefault(key, {})[version] = file
        self._served[key] = self._by_row[row] = served
        self._forget(key)
        self._model_changed(key, self._trainings.replace(before, served))
        return served

    def promote(self, app: str, placement: str, version: int) -> Served | None:
        """Raises UnknownNameError for a version that is not there."""
        return self.put_model(self.version(app, placement, version), version, in_service=True)

    def drop_model(self, app: str, placement: str, version: int = 0) -> int | None:
        """Drop one version, or all for 0; returns the row that serves no more, if any. Where the
        one in service is dropped, the newest that is left takes its place."""
        key = (app, placement)
        versions = self._versions.get(key, {})
        served = self._served.get(key)
        for dropped in [version] if version else list(versions):
            versions.pop(dropped, None)
        self._forget(key)
        if served is None or served.version in versions:
            return None
        if versions:
            newest = max(versions)
            self.put_model(versions[newest], newest, in_service=True)
            return None
        del self._versions[key]
        del self._by_row[self._served.pop(key).row]
        self._model_changed(key, self._trainings.replace(served, None))
        return self._rows.give_back(key)

    def version(self, app: str, placement: str, version: int) -> ModelFile:
        """A version of a model. Raises UnknownNameError or UntrainedError."""
        versions = self._versions.get((app, placement))
        if not versions:
            raise untrained(app, placement, self.placements(app))
        if version not in versions:
            raise UnknownNameError(
                f"version of the model of {app} at {placement}", str(version), map(str, versions)
            )
        return versions[version]

    def served(self, app: str, placement: str) -> Served | None:
        return self._served.get((app, placement))

    def all_served(self) -> Iterable[Served]:
        return self._served.values()

    def at(self, row: int) -> Served | None:
        """The model in service whose row in the matrix this is."""
        return self._by_row.get(row)

    @property
    def rows(self) -> int:
        """The greatest row that a model in service has, or had."""
        return self._rows.greatest

    def requested(self, app: str, placement: str, version: int, model: str | None) -> Served:
        """A model as a question names it; version 0 is the one in service, model None the chosen.

        Raises:
            UntrainedError: the application has no model at this placement.
            UnknownNameError: no such version, or no model of that name in it.
        """
        key = (app, placement)
        current = self._served.get(key)
        if current is None and version == 0:
            raise untrained(app, placement, self.placements(app))
        wanted = version or (current.version if current else 0)
        if current is not None and wanted == current.version and model in (None, "auto"):
            return current
        served = self._requested.get((key, wanted, model))
        if served is None:
            file = self.version(app, placement, wanted)
            suite = self.suite(file.suite_version)
            served = scoring.served(-1, file, wanted, suite, self._columns, model)
            self._requested[(key, wanted, model)] = served
        return served

    def placements(self, app: str) -> list[str]:
        """Those at which the application has a model in service."""
        return sorted(place for name, place in self._served if name == app)

    def placement(self, app: str, wanted: str | None) -> str:
        """The placement that is meant, by where the application is trained, or profiled."""
        if wanted is not None:
            return wanted
        placement = self._placement_of.get(app)
        if placement is None:
            trained = self.placements(app) or sorted(p for a, p in self._signatures if a == app)
            placement = placement_or_default(None, trained)
            if len(self._placement_of) >= _MOST_REMEMBERED:
                # Names of unknown applications come from outside, and there is no end to them.
                self._placement_of.clear()
            self._placement_of[app] = placement
        return placement

    def profiles(self, job: str, wanted: str | None) -> dict[tuple[int, float], tuple[str, str]]:
        """Return the profiles of a job at configurations of its own: application and placement by
        machines and scale."""
        by_placement: dict[str, dict[tuple[int, float], tuple[str, str]]] = {}
        for app, placement in self._served:
            place = profiled_at(app, job)
            if place is not None:
                by_placement.setdefault(placement, {})[place] = (app, placement)
        trained = self.placements(job)
        meant = (
            self.placement(job, wanted) if trained else placement_or_default(wanted, by_placement)
        )
        return by_placement.get(meant, {})

    def put_applications(self, names: Iterable[str]) -> None:
        """Names of applications that are known, trained or not."""
        self._applications.update(names)
        self.generation += 1

    def knows_application(self, name: str) -> bool:
        return name in self._applications or bool(self.placements(name))

    def why_untrained(self, app: str) -> str:
        """Return why an application has no model, with names that are meant perhaps."""
        known = self._applications | {name for name, _ in self._served}
        if app in known:
            return f"{app} has no model (kongming train {app})"
        near = UnknownNameError("application", app, known)
        meant = f"; did you mean {' or '.join(near.suggestions)}?" if near.suggestions else ""
        return f"Nobody profiled {app}{meant}"

    def put_signatures(self, signatures: Iterable[Signature]) -> set[Key]:
        """Learn of signatures, of whatever applications; returns those that are concerned.

        Those of each node and suite version are kept by themselves, and their repeats averaged
        (``learning.colocation.newest_repeats``).
        """
        concerned: dict[Key, dict[Site, dict[str, Signature]]] = {}
        for signature in signatures:
            key, site = (signature.app, signature.placement), _site(signature)
            sites = concerned.setdefault(key, {})
            if site not in sites:
                known = self._signatures.get(key, {}).get(site, ())
                sites[site] = {repeat.id: repeat for repeat in known}
            sites[site][signature.id] = signature
        self._changed()
        for key, sites in concerned.items():
            repeats = {site: colocation.newest_repeats(new.values()) for site, new in sites.items()}
            self._signatures.setdefault(key, {}).update(repeats)
            for node_id, _ in repeats:
                self._signed.setdefault(node_id, set()).add(key)
            self._resolve(key)
        return set(concerned)

    def drop_signatures(self, app: str, placement: str) -> None:
        self._changed()
        key = (app, placement)
        for node_id in {node_id for node_id, _ in self._signatures.pop(key, {})}:
            self._signed[node_id].remove(key)
            if not self._signed[node_id]:
                del self._signed[node_id]
        self._resolve(key)

    def reference_changed(self, node_id: str) -> None:
        """A node has a new idle reference: a signature that waited for one is known now."""
        self._resolve_again(node_id)

    def pressure(self, app: str, placement: str, suite: int) -> Pressure:
        """Return what it inflicts, over the idle node, by the newest signature of this suite of
        which that is known; a typical application's where it is not."""
        pressure = _of_suite(self._pressures.get((app, placement), {}), suite)
        return self.typical(placement, suite) if pressure is None else pressure

    def pressure_at_home(self, app: str, placement: str, model: Served) -> Pressure | None:
        """Return what it inflicts on a program next to it on the idle node of ``model``, by
        signatures that were taken there: over the model's own idle times, as
        ``learning.colocation`` composes them. None where it has none that were taken there."""
        signatures = self.signatures_at_home(app, placement, model)
        if not signatures:
            return None
        basis = Basis(signatures, model.file)
        return self._pressure(basis, self._model_idle(model), self._spread(model), 0)

    def signatures_at_home(self, app: str, placement: str, model: Served) -> tuple[Signature, ...]:
        """The signatures of an application that were taken on a model's node with its suite."""
        site = (model.file.node_id, model.file.suite_version)
        return self._signatures.get((app, placement), {}).get(site, ())

    def is_outdated(self, signature: Signature) -> bool:
        """Return whether its application was signed since, at any site, with another identity."""
        sites = self._signatures.get((signature.app, signature.placement), {}).values()
        newest = max((repeats[-1] for repeats in sites), key=_taken, default=signature)
        return newest.identity != signature.identity

    def pressures(self) -> Mapping[Key, Mapping[int, Pressure]]:
        """The known ones, by the code of the suite, those of the newest signatures first."""
        return self._pressures

    def typical(self, placement: str, suite: int) -> Pressure:
        """The mean over the signatures that are known at this placement, by column; without any the
        ``flat`` one.

        Not the median: most programs press on few resources, and the median of them on none. Not
        over other placements: on a shared core a signature has the loss of the processor itself.
        """
        pressure = self._typical.get((placement, suite))
        if pressure is None or len(pressure.slowed) < len(self._columns):
            known = self._known(placement, suite)
            if not known:
                return self.flat()
            row = self._pressure_rows.take((placement, suite))
            pressure = self._mean(row, known)
            self._typical[placement, suite] = pressure
        return pressure

    def flat(self) -> Pressure:
        """Pressure of an application at a placement where no signature is known: the same on all
        columns. Awake it is never: with no evidence nobody makes others faster, or slower by
        presence."""
        width = len(self._columns)
        slowed = np.full(width, self._unknown_pressure)
        return Pressure(0, slowed, np.zeros(width), known=False)

    def typicals(self) -> list[Pressure]:
        """The typical ones of every placement and suite that signatures are known of."""
        places = {
            (placement, suite)
            for (_, placement), pressures in self._pressures.items()
            for suite in pressures
        }
        return [self.typical(placement, suite) for placement, suite in sorted(places)]

    def put_widening(self, app: str, placement: str, widening: Widening) -> None:
        """Put what intervals of this application have to be widened by
        (``learning.calibration``)."""
        self._widenings[(app, placement)] = widening
        self.generation += 1

    def widening(self, app: str, placement: str) -> Widening:
        return self._widenings.get((app, placement), UNWIDENED)

    def _mean(self, row: int, known: Sequence[Pressure]) -> Pressure:
        """The mean of ``known``, by column; where none of them has a reading, as ``flat``."""
        mean = self.flat()
        width = len(mean.slowed)
        slowed = np.array([fitted(pressure.slowed, width) for pressure in known])
        spreads = np.array([fitted(pressure.spread, width) for pressure in known])
        there = ~np.isnan(slowed).all(axis=0)
        mean.slowed[there] = np.nanmean(slowed[:, there], axis=0)
        mean.spread[there] = np.nanmean(spreads[:, there], axis=0)
        return Pressure(row, mean.slowed, mean.spread, _mean_awake(known), known=False)

    def _known(self, placement: str, suite: int) -> list[Pressure]:
        """One of each application whose signature at this placement by this suite is known."""
        known = [
            _of_suite(pressures, suite)
            for (_, at), pressures in self._pressures.items()
            if at == placement
        ]
        return [pressure for pressure in known if pressure is not None]

    def _model_changed(self, key: Key, places: Iterable[Place]) -> None:
        """A model came into service or went, by which others are the first of their ``places``. Its
        own idle times are those that signatures of its application are over, whichever of the two
        came first."""
        if key in self._signatures:
            self._resolve(key)
        for place in places:
            self._resolve_again(place[0])
            self._spread_again(place)

    def _resolve_again(self, node_id: str) -> None:
        for key in self._unsettled.intersection(self._signed.get(node_id, ())):
            self._resolve(key)

    def _spread_again(self, place: Place) -> None:
        """The readings of a node have the spread that another training says: that alone changes
        what is signed there by programs that have none of their own there."""
        node_id, suite = place
        spread = self._spread(self._trainings.first(place))
        changed = False
        for key in self._signed.get(node_id, ()):
            pressures = self._pressures.get(key, {})
            known = pressures.get(suite)
            if known is None or not known.is_of(node_id) or self._own(key, place) is not None:
                continue
            pressures[suite] = _with_spread(known, spread)
            changed |= pressures[suite] is not known
        if changed:
            self._pressures_moved()

    def _resolve(self, key: Key) -> None:
        """Work out what an application inflicts, by its signatures, and over which idle node."""
        before = self._pressures.get(key, {})
        self._unsettled.discard(key)
        after = self._over_idle(key, before)
        if after:
            self._pressures[key] = after
        else:
            self._pressures.pop(key, None)
        for suite in before.keys() - after.keys():
            self._pressure_rows.give_back((*key, suite))
        if not _same(before, after):
            self._pressures_moved()

    def _pressures_moved(self) -> None:
        self._changed()
        self._typical.clear()
        self.moves += 1

    def _over_idle(self, key: Key, before: Mapping[int, Pressure]) -> dict[int, Pressure]:
        """The pressures of an application by the code of the suite: by the signatures of the site
        with the newest of that suite, and while the idle node that these are over is not known, by
        those of the one with the newest before. It is ``_unsettled`` where a reference or a model
        that comes may say better.

        What follows from the same as ``before`` stays: a signature was taken over the reference of
        its own time, and all that follows from it would be worked out again.
        """
        sites = sorted(
            self._signatures.get(key, {}).items(),
            key=lambda item: (item[1][-1].fingerprint.started_at, item[0]),
            reverse=True,
        )
        pressures: dict[int, Pressure] = {}
        for (node_id, suite_version), signatures in sites:
            suite = self.suite(suite_version)
            if suite in pressures:
                continue
            idle, trained, is_near = self._idle(key, (node_id, suite))
            if not is_near:
                self._unsettled.add(key)
            if idle is None:
                continue
            # Without a training of its own there, the spread of readings is another's.
            spread = self._spread(trained or self._trainings.first((node_id, suite)))
            basis = Basis(signatures, None if trained is None else trained.file)
            known = before.get(suite)
            if known is None or not basis.equals(known.basis):
                row = self._pressure_rows.take((*key, suite))
                pressures[suite] = self._pressure(basis, idle, spread, row)
            else:
                pressures[suite] = _with_spread(known, spread)
        return pressures

    def _pressure(self, basis: Basis, idle: Floats, spread: Floats, row: int) -> Pressure:
        """The pressure of repeated signatures over log idle times (C,)."""
        first = basis.signatures[0]
        surrogates = first.fingerprint.surrogates
        families = {name: reading.family for name, reading in surrogates.items()}
        times = colocation.mean_signature(basis.signatures)
        logs = self._columns.signature(times, families, first.node_id)
        slowed = np.clip(logs - fitted(idle, len(logs)), 0.0, LARGEST_LOG)
        spread = np.nan_to_num(fitted(spread, len(logs)))
        return Pressure(row, slowed, spread, awake_share(basis.signatures), basis=basis)

    def _idle(self, key: Key, place: Place) -> tuple[Floats | None, Served | None, bool]:
        """The idle reference that a signature is over, the training that it is of, if it is of one,
        and whether it is near: that of the application's own training runs, which were of the same
        days; else the node's; else, and then it is not near, of another's training there (of
        several the first by name, in whatever order they came)."""
        own = self._own(key, place)
        if own is not None:
            return self._model_idle(own), own, True
        idle = self._idle_of(*place)
        if idle is not None:
            return idle, None, True
        other = self._trainings.first(place)
        return (None if other is None else self._model_idle(other)), other, False

    def _own(self, key: Key, place: Place) -> Served | None:
        """The application's own model, where it is of a training at this place."""
        own = self._served.get(key)
        return own if own is not None and (own.file.node_id, own.suite) == place else None

    def _model_idle(self, model: Served) -> Floats:
        idle = np.full(len(self._columns), math.nan)
        for code in sorted(model.scorers, reverse=True):
            idle[model.scorers[code].places] = model.scorers[code].log_idle
        return idle

    def _spread(self, model: Served | None) -> Floats:
        """(C,) of the readings on the idle node of a model, 0 where it has no column."""
        spread = np.zeros(len(self._columns))
        if model is None:
            return spread
        for code in sorted(model.scorers, reverse=True):
            spread[model.scorers[code].places] = model.scorers[code].variant.spread
        return spread

    def _changed(self) -> None:
        self.generation += 1
        # Names of unknown applications come from outside: what is remembered of them must end.
        self._placement_of.clear()

    def _forget(self, key: Key) -> None:
        self._changed()
        for outdated in [request for request in self._requested if request[0] == key]:
            del self._requested[outdated]


def _of_suite(pressures: Mapping[int, Pressure], suite: int) -> Pressure | None:
    """Return the pressure by this suite; of any suite the newest."""
    return next(iter(pressures.values()), None) if suite == ANY_SUITE else pressures.get(suite)


def _with_spread(pressure: Pressure, spread: Floats) -> Pressure:
    """Return the pressure with this ``spread`` (C,): itself where it has that."""
    its = fitted(spread, len(pressure.spread))
    same = np.array_equal(pressure.spread, its)
    return pressure if same else replace(pressure, spread=its)


def _mean_awake(known: Sequence[Pressure]) -> float:
    return math.fsum(pressure.awake for pressure in known) / len(known)


def _same(before: Mapping[int, Pressure], after: Mapping[int, Pressure]) -> bool:
    return list(before) == list(after) and all(
        old is new
        or (
            old.awake == new.awake
            and np.array_equal(old.slowed, new.slowed, equal_nan=True)
            and np.array_equal(old.spread, new.spread)
        )
        for old, new in zip(before.values(), after.values(), strict=True)
    )


def _taken(signature: Signature) -> tuple[str, str]:
    return signature.fingerprint.started_at, signature.id


def _site(signature: Signature) -> Site:
    return signature.node_id, signature.fingerprint.suite_version


def untrained(app: str, placement: str, trained: Sequence[str]) -> UntrainedError:
    """The error for an application without a model."""
    where = f" (it has one at {', '.join(trained)})" if trained else ""
    return UntrainedError(
        f"{app} has no model at {placement}{where}.",
        hint=f"Profile it, then train it: kongming train {app}",
    )
