"""State of each last-level cache domain: its newest fingerprint, its idle reference, and the
estimates from passive signals."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from kongming.records import moments
from kongming.records.errors import InputError, StoreError
from kongming.records.fingerprint import Fingerprint
from kongming_agent.probing import references
from kongming_agent.probing.estimate import Errors, Estimator
from kongming_agent.probing.features import Lately, features
from kongming_agent.reporting.spool import Spool

_log = logging.getLogger(__name__)

_ESTIMATE_CHANGE = 0.05
_SAMPLES = 5


class DomainStates:
    """State by index in ``NodeFacts.llc_cpus``. Every method may be called from any thread."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._lock = threading.Lock()
        self._lately = Lately(_SAMPLES)
        self._latest: dict[int, Fingerprint] = {}
        self._estimated: dict[int, Mapping[str, float]] = {}
        self._estimators: dict[int, Estimator] = {}
        self._references: dict[int, Fingerprint] = {}

    # Inputs

    def sampled(self, system: Mapping[str, float]) -> None:
        """Record the system's current passive signals."""
        with self._lock:
            self._lately.add(features(system))

    def learn(self, place: int, fingerprint: Fingerprint) -> None:
        """Record a live fingerprint."""
        # Repeated readings carry no information.
        fresh = {
            name: seconds
            for name, seconds in fingerprint.times().items()
            if fingerprint.surrogates[name].n > 0
        }
        with self._lock:
            self._latest[place] = fingerprint
            self._estimated.pop(place, None)
            values = self._lately.values
            if values is not None:
                self._estimators.setdefault(place, Estimator()).learn(values, fresh)

    def keep_reference(self, place: int, fingerprint: Fingerprint) -> Fingerprint:
        """Return the reference from this reading and earlier ones."""
        readings = references.retain(self._readings(place), fingerprint)
        reference = references.reference(readings) or fingerprint
        with self._lock:
            self._references[place] = reference
        try:
            self._spool.put(_kept_as(place), [each.to_dict() for each in readings])
        except StoreError as error:
            _log.warning("%s", error)
        return reference

    def kept_reference(
        self, place: int, suite_version: str, node_id: str
    ) -> tuple[Fingerprint, int] | None:
        """Restore the reference of an earlier process; return it with its number of readings, or
        None without one of this suite and node."""
        readings = references.alike(self._readings(place), suite_version, node_id)
        reference = references.reference(readings)
        if reference is None:
            return None
        with self._lock:
            self._references[place] = reference
        return reference, len(readings)

    def _readings(self, place: int) -> list[Fingerprint]:
        """Return the readings of the idle node that are kept. One that another version wrote and
        this one cannot read is left out: the next ones take its place."""
        readings = []
        for document in self._spool.get(_kept_as(place)) or []:
            try:
                readings.append(Fingerprint.from_dict(document))
            except InputError as error:
                _log.warning("a reading of the idle node is left out: %s", error)
        return readings

    def only(self, places: Collection[int]) -> None:
        """Forget all other domains, on which the agent may no longer run."""
        with self._lock:
            for known in (self._latest, self._estimated, self._references):
                for place in set(known) - set(places):
                    known.pop(place)

    # State

    def latest(self) -> dict[int, Fingerprint]:
        with self._lock:
            return dict(self._latest)

    def references(self) -> dict[int, Fingerprint]:
        with self._lock:
            return {place: self._references[place] for place in sorted(self._references)}

    def estimates(self) -> dict[int, dict[str, float]]:
        """Return the current seconds per operation of surrogates that signals estimate better than
        the last probe.
        """
        with self._lock:
            return self._estimates()

    def errors(self) -> dict[int, Mapping[str, Errors]]:
        with self._lock:
            return {place: each.errors() for place, each in self._estimators.items()}

    def news(self) -> dict[int, Fingerprint]:
        """Return the estimates that differ from the last reported ones, and mark them as
        reported.
        """
        changed = {}
        with self._lock:
            for place, times in self._estimates().items():
                reported = self._estimated.get(place) or self._latest[place].times()
                if any(
                    abs(s / reported.get(n, s) - 1.0) > _ESTIMATE_CHANGE for n, s in times.items()
                ):
                    self._estimated[place] = {**self._latest[place].times(), **times}
                    changed[place] = _as_fingerprint(self._latest[place], times)
        return changed

    def _estimates(self) -> dict[int, dict[str, float]]:
        values = self._lately.values
        if values is None:
            return {}
        estimates = {
            place: self._estimators[place].estimate(values)
            for place in self._latest
            if place in self._estimators
        }
        return {place: times for place, times in estimates.items() if times}

    # State that survives a restart

    def to_document(self) -> dict[str, Any]:
        with self._lock:
            return {str(place): each.to_dict() for place, each in self._estimators.items()}

    def restore(self, document: Mapping[str, Any]) -> None:
        """Restore the state from ``to_document``."""
        with self._lock:
            for place, estimator in document.items():
                self._estimators[int(place)] = Estimator.from_dict(estimator)


def _kept_as(place: int) -> str:
    return f"idle:{place}"


def _as_fingerprint(latest: Fingerprint, times: Mapping[str, float]) -> Fingerprint:
    """Return the latest fingerprint with estimates instead of readings, marked as such."""
    readings = dict(latest.surrogates)
    for name, seconds in times.items():
        if name not in readings:
            continue
        readings[name] = replace(
            readings[name],
            error=None,
            seconds_per_op=seconds,
            median=seconds,
            p90=seconds,
            n=0,
            ops=0,
            elapsed_s=0.0,
        )
    words = f"Estimated from passive signals: {', '.join(sorted(times))}."
    return replace(
        latest,
        id=uuid.uuid4().hex,
        started_at=moments.now(),
        elapsed_s=0.0,
        surrogates=readings,
        warnings=(words,),
    )
