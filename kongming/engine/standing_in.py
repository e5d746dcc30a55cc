"""Applications of unknown pressure, for which a typical one stands in: in whose environment. Pure.

A typical pressure is the mean of other programs. It says nothing of how far this one is from it,
so no interval that rests on it is calibrated.
"""

from __future__ import annotations

from collections import Counter

from kongming.engine.environment import Phase
from kongming.engine.residents import Company, Present


def for_newcomer(company: Company) -> frozenset[str]:
    """Return the applications whose typical pressure was added to, or taken out of, what a newcomer
    meets."""
    return frozenset(member.resident.app for member in company.present if _counts(member))


def for_each(company: Company) -> list[frozenset[str]]:
    """Return the same of what each of ``company.present`` meets: without itself, unless its own
    pressure was taken out of a fingerprint."""
    counts = Counter(member.resident.app for member in company.present if _counts(member))
    everybody = frozenset(counts)
    apps = []
    for member in company.present:
        app = member.resident.app
        if _counts(member) and counts[app] == 1:
            apps.append(everybody - {app})
        elif not member.known and member.phase is Phase.WITHIN:
            apps.append(everybody | {app})
        else:
            apps.append(everybody)
    return apps


def _counts(member: Present) -> bool:
    return not member.known and member.phase in (Phase.ADDED, Phase.REMOVED)
