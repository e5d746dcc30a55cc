"""Profiles become what peers learn from: slowdowns of programs, and of probes next to loads.

All slowdowns are natural logs of ratios over the idle node, whose time of a surrogate is the
median over the fingerprints of all solo runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.peer import Profile
from kongming.learning.colocation import mean_signature
from kongming.records.errors import IncompatibleError, UnknownNameError, UntrainedError
from kongming.records.run import LoadLevel, Run, Signature, solo_time

Readings = Mapping[str, float]
"""Log slowdown by surrogate."""

SOLO = ""
"""The level of a run without any load."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One run: how much slower than solo (log), at which level, and what probes read there."""

    app: str
    level: str
    slowdown: float
    readings: Readings


@dataclass(frozen=True, slots=True)
class Observations:
    """Everything that the profiles of one node and placement show.

    ``levels`` are the load levels' readings, each the median over the runs at it, in order of
    name; ``memory_levels`` those that load nothing but caches and memory; ``signatures`` the
    readings next to each application that has a signature.
    """

    runs: tuple[Observation, ...]
    levels: Mapping[str, Readings]
    memory_levels: frozenset[str]
    signatures: Mapping[str, Readings]
    apps: tuple[str, ...]

    def response(self, app: str) -> dict[str, float]:
        """The median log slowdown of ``app`` at each load level that it ran under."""
        slowdowns: dict[str, list[float]] = {}
        for run in self.runs:
            if run.app == app and run.level != SOLO:
                slowdowns.setdefault(run.level, []).append(run.slowdown)
        return {level: statistics.median(values) for level, values in sorted(slowdowns.items())}

    def solo_runs(self, app: str) -> int:
        return sum(run.app == app and run.level == SOLO for run in self.runs)

    def memory_probes(self) -> tuple[str, ...]:
        """Surrogates of caches and memory that were read at every level of ``memory_levels``;
        where there are any, only those that were read next to every application too. Sorted."""
        levels = [set(self.levels[level]) for level in self.memory_levels]
        if not levels:
            return ()
        everywhere = set.intersection(*levels)
        shared = {name for name in everywhere if is_memory_probe(name)}
        of_all_signatures = shared.intersection(*self.signatures.values())
        return tuple(sorted(of_all_signatures or shared))

    def learned(self, app: str) -> str:
        """``app`` itself.

        Raises:
            UnknownNameError: there is no profile of it.
            UntrainedError: none of its runs can be learned from.
        """
        self._check_known(app)
        if not any(run.app == app for run in self.runs):
            raise UntrainedError(
                f"{app} has no solo run that succeeded, so its slowdown is not known.",
                hint=f"Profile it: kongming profile APPS.toml --app {app}",
            )
        return app

    def environment(self, app: str) -> Readings:
        """What probes read next to ``app``.

        Raises:
            UnknownNameError: there is no profile of it.
            UntrainedError: it has no signature.
        """
        self._check_known(app)
        if app not in self.signatures:
            raise UntrainedError(
                f"{app} has no signature, so what it does to a neighbour is not known.",
                hint=f"Profile it: kongming profile APPS.toml --app {app}",
            )
        return self.signatures[app]

    def _check_known(self, app: str) -> None:
        if app not in self.apps:
            raise UnknownNameError("profile", app, self.apps)


def observe(profiles: Mapping[str, Profile]) -> Observations:
    """What the profiles show. Runs of an application without a solo run are passed over.

    Raises:
        IncompatibleError: they are of several nodes, placements or suite versions.
        UntrainedError: no solo run of any application has a fingerprint.
    """
    usable = {
        app: [run for run in _once(profile.runs) if run.ok and run.kind in ("solo", "induced")]
        for app, profile in sorted(profiles.items())
    }
    _check_one_node(profiles, usable)
    idle = _idle(run for runs in usable.values() for run in runs if run.kind == "solo")
    observed: list[Observation] = []
    memory: set[str] = set()
    for app, runs in usable.items():
        solo = solo_time(runs)
        if solo is None:
            continue
        for run in runs:
            level = level_name(run.levels)
            observed.append(
                Observation(app, level, math.log(run.cost / solo.median), _readings(run, idle))
            )
            if run.levels and all(_presses_on_memory(part) for part in run.levels):
                memory.add(level)
    return Observations(
        runs=tuple(observed),
        levels=_by_level(observed),
        memory_levels=frozenset(memory),
        signatures={
            app: _over(mean_signature(profile.signatures), idle)
            for app, profile in sorted(profiles.items())
            if profile.signatures
        },
        apps=tuple(sorted(profiles)),
    )


def level_name(levels: Sequence[LoadLevel]) -> str:
    """Equal for runs under the same load; empty for none."""
    return "+".join(sorted(str(level) for level in levels))


def is_memory_probe(surrogate: str) -> bool:
    """Whether a surrogate reads or writes through the caches; page faults are something else."""
    return surrogate.startswith(("stream.", "memory.streaming.", "memory.random."))


def _presses_on_memory(level: LoadLevel) -> bool:
    return is_memory_probe(level.surrogate)


def _once(runs: Iterable[Run]) -> list[Run]:
    """The runs without those that are there twice."""
    return list({run.id: run for run in runs}.values())


def _check_one_node(profiles: Mapping[str, Profile], usable: Mapping[str, Sequence[Run]]) -> None:
    records: list[Run | Signature] = [run for app_runs in usable.values() for run in app_runs]
    records += [s for profile in profiles.values() for s in profile.signatures]
    prints = [record.fingerprint for record in records if record.fingerprint is not None]
    for what, values in (
        ("node", {record.node_id for record in records}),
        ("placement", {record.placement for record in records}),
        ("suite version", {fingerprint.suite_version for fingerprint in prints}),
    ):
        if len(values) > 1:
            raise IncompatibleError(
                f"The profiles differ in {what} ({', '.join(sorted(values))}) and are not mixed.",
                hint=f"Give the profiles of one {what} only.",
            )


def _idle(solo_runs: Iterable[Run]) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for run in solo_runs:
        if run.fingerprint is not None:
            read = run.fingerprint.times()
            for name in read:
                if _is_time(read, name):
                    times.setdefault(name, []).append(read[name])
    if not times:
        raise UntrainedError(
            "No solo run has a fingerprint, so the idle node is not known.",
            hint="Profile the applications again: kongming profile APPS.toml",
        )
    return {name: statistics.median(values) for name, values in sorted(times.items())}


def _readings(run: Run, idle: Mapping[str, float]) -> Readings:
    return {} if run.fingerprint is None else _over(run.fingerprint.times(), idle)


def _over(times: Mapping[str, float], idle: Mapping[str, float]) -> Readings:
    return {name: math.log(times[name] / idle[name]) for name in idle if _is_time(times, name)}


def _is_time(times: Mapping[str, float], name: str) -> bool:
    return 0.0 < times.get(name, 0.0) < math.inf


def _by_level(observed: Iterable[Observation]) -> dict[str, Readings]:
    pooled: dict[str, dict[str, list[float]]] = {}
    for run in observed:
        if run.level != SOLO:
            level = pooled.setdefault(run.level, {})
            for name, value in run.readings.items():
                level.setdefault(name, []).append(value)
    return {
        level: {name: statistics.median(values) for name, values in sorted(readings.items())}
        for level, readings in sorted(pooled.items())
    }
