"""Identities of co-runs' neighbours: a name may mean another program after a change.

Newer co-runs say the identities of their neighbours. For older ones it is told from what else was
measured: of the same campaign, which starts each program once, or before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kongming.records.moments import unix
from kongming.records.run import NEIGHBOUR_IDENTITIES, Run, Signature


def as_signed(
    coruns: Iterable[Run],
    signatures: Mapping[str, Sequence[Signature]],
    measured: Iterable[Run | Signature],
) -> list[Run]:
    """Return those of ``coruns`` whose neighbours were the programs of ``signatures``, by
    application, each of one identity; a neighbour without any is not judged.

    ``measured`` are what tells who a neighbour was: its runs and signatures on that node, in any
    order. Where nothing does, it is taken to be the program of its signature.
    """
    identities = {name: known[0].identity for name, known in signatures.items() if known}
    sightings = _Sightings(measured)
    return [
        run
        for run in coruns
        if all(
            sightings.identity(run, name) in (None, identities[name])
            for name in run.neighbours
            if name in identities
        )
    ]


class _Sightings:
    """Identities of applications by when, and in which campaign, they were seen."""

    def __init__(self, measured: Iterable[Run | Signature]) -> None:
        self._by_app: dict[str, list[tuple[float, str]]] = {}
        self._by_campaign: dict[tuple[str, str], list[tuple[float, str]]] = {}
        for each in measured:
            seen = unix(_started_at(each)), each.identity
            self._by_app.setdefault(each.app, []).append(seen)
            if each.campaign:
                self._by_campaign.setdefault((each.campaign, each.app), []).append(seen)

    def identity(self, corun: Run, name: str) -> str | None:
        """The identity of a co-run's neighbour; None where nothing says it."""
        recorded = corun.config.get(NEIGHBOUR_IDENTITIES)
        if isinstance(recorded, Mapping) and name in recorded:
            return str(recorded[name])
        moment = unix(corun.started_at)
        nearby = self._by_campaign.get((corun.campaign, name), [])
        return (
            _newest(nearby, moment)
            # A campaign goes through its programs in any order.
            or (min(nearby)[1] if nearby else None)
            or _newest(self._by_app.get(name, []), moment)
        )


def _newest(seen: Iterable[tuple[float, str]], moment: float) -> str | None:
    """Return the identity of the newest of ``seen`` at a moment; None without any by then."""
    return max((each for each in seen if each[0] <= moment), default=(moment, None))[1]


def _started_at(measured: Run | Signature) -> str:
    return measured.started_at if isinstance(measured, Run) else measured.fingerprint.started_at
