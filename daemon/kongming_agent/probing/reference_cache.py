"""What is known of each last-level cache domain: its newest fingerprint, its idle reference, and
what passive signals say of it in between."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from kongming.records import moments
from kongming.records.errors import StoreError
from kongming.records.fingerprint import Fingerprint
from kongming_agent.probing import references
from kongming_agent.probing.estimate import Errors, Estimator
from kongming_agent.probing.features import Lately, features
from kongming_agent.reporting.spool import Spool

_log = logging.getLogger(__name__)

_ESTIMATE_CHANGE = 0.05
_SAMPLES = 5


class Knowledge:
    """By place in ``NodeFacts.llc_cpus``. Every method may be called from any thread."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._lock = threading.Lock()
        self._lately = Lately(_SAMPLES)
        self._latest: dict[int, Fingerprint] = {}
        self._estimated: dict[int, Mapping[str, float]] = {}
        self._estimators: dict[int, Estimator] = {}
        self._references: dict[int, Fingerprint] = {}

    # What comes in

    def sampled(self, system: Mapping[str, float]) -> None:
        """The system's passive signals now."""
        with self._lock:
            self._lately.add(features(system))

    def learn(self, place: int, fingerprint: Fingerprint) -> None:
        """A live fingerprint."""
        # Readings that were repeated teach nothing.
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
        """The reference that this reading and earlier ones make."""
        name = _kept_as(place)
        earlier = [Fingerprint.from_dict(each) for each in self._spool.get(name) or []]
        readings = references.kept(earlier, fingerprint)
        made = references.reference(readings) or fingerprint
        with self._lock:
            self._references[place] = made
        try:
            self._spool.put(name, [each.to_dict() for each in readings])
        except StoreError as error:
            _log.warning("%s", error)
        return made

    def kept_reference(self, place: int, suite_version: str) -> tuple[Fingerprint, int] | None:
        """The reference that an earlier life of the agent made, known from now on, and of how
        many readings; None where there is none of this suite."""
        kept = self._spool.get(_kept_as(place)) or []
        readings = [Fingerprint.from_dict(each) for each in kept]
        readings = [each for each in readings if each.suite_version == suite_version]
        made = references.reference(readings)
        if made is None:
            return None
        with self._lock:
            self._references[place] = made
        return made, len(readings)

    def only(self, places: Collection[int]) -> None:
        """Nothing can be said any more of other domains, which the agent may not run on."""
        with self._lock:
            for known in (self._latest, self._estimated, self._references):
                for place in set(known) - set(places):
                    known.pop(place)

    # What is known

    def latest(self) -> dict[int, Fingerprint]:
        with self._lock:
            return dict(self._latest)

    def references(self) -> dict[int, Fingerprint]:
        with self._lock:
            return {place: self._references[place] for place in sorted(self._references)}

    def estimates(self) -> dict[int, dict[str, float]]:
        """Seconds per operation now, of what is told better by signals than by the last probe."""
        with self._lock:
            return self._estimates()

    def errors(self) -> dict[int, Mapping[str, Errors]]:
        with self._lock:
            return {place: each.errors() for place, each in self._estimators.items()}

    def news(self) -> dict[int, Fingerprint]:
        """Estimates that differ from what was told last, from now on told."""
        found = {}
        with self._lock:
            for place, times in self._estimates().items():
                told = self._estimated.get(place) or self._latest[place].times()
                if any(abs(s / told.get(n, s) - 1.0) > _ESTIMATE_CHANGE for n, s in times.items()):
                    self._estimated[place] = {**self._latest[place].times(), **times}
                    found[place] = _as_fingerprint(self._latest[place], times)
        return found

    def _estimates(self) -> dict[int, dict[str, float]]:
        values = self._lately.values
        if values is None:
            return {}
        found = {
            place: self._estimators[place].estimate(values)
            for place in self._latest
            if place in self._estimators
        }
        return {place: times for place, times in found.items() if times}

    # What outlives a restart

    def to_document(self) -> dict[str, Any]:
        with self._lock:
            return {str(place): each.to_dict() for place, each in self._estimators.items()}

    def restore(self, document: Mapping[str, Any]) -> None:
        """Take over what ``to_document`` gave."""
        with self._lock:
            for place, estimator in document.items():
                self._estimators[int(place)] = Estimator.from_dict(estimator)


def _kept_as(place: int) -> str:
    return f"idle:{place}"


def _as_fingerprint(latest: Fingerprint, times: Mapping[str, float]) -> Fingerprint:
    """The latest fingerprint with estimates in place of what was read; they say so."""
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
