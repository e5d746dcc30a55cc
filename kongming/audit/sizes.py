"""Surrogates that sessions of different suite versions measure alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kongming.audit.readings import Session
from kongming.quantities import format_bytes
from kongming.records.errors import IncompatibleError

ALIKE = 1.01
"""Ratio up to which two sizes are taken as one. Those that follow the memory differ by hundredths
of a per cent between machines of one kind."""

_Sizes = Mapping[str, int]
"""Bytes by what has a size, as ``Suite.sizes_of`` has them."""


def unlike(sessions: Iterable[Session], names: Iterable[str]) -> dict[str, str]:
    """Return why readings cannot be compared between all of the sessions, by the surrogate's name.

    Of one suite version all can. Of several, those can whose sizes all sessions say and agree in.

    Raises:
        IncompatibleError: versions differ in more than sizes, or a session says none.
    """
    sessions = list(sessions)
    versions = sorted({str(session.get("suite_version")) for session in sessions})
    if len(versions) == 1 and versions != ["None"]:
        return {}
    known = [_sizes(session) for session in sessions]
    generations = {version.partition("-")[0] for version in versions}
    if len(generations) > 1 or not all(known):
        raise IncompatibleError(
            f"The sessions differ in suite version ({', '.join(versions)}) and do not say which "
            "surrogates are the same.",
            hint="Give files of one suite version only, or record the others again.",
        )
    reasons = {}
    for name in names:
        sizes = [of_session.get(name) for of_session in known]
        if not _agree(sizes):
            texts = ", ".join(sorted(set(map(_text, sizes))))
            reasons[name] = f"has other sizes on other machines: {texts}"
    return reasons


def _sizes(session: Session) -> dict[str, _Sizes]:
    surrogates: Mapping[str, Mapping[str, _Sizes]] = session.get("surrogates") or {}
    return {name: facts["sizes"] for name, facts in surrogates.items() if "sizes" in facts}


def _agree(several: Sequence[_Sizes | None]) -> bool:
    """Return whether all are known, are of the same things, and differ by chance alone."""
    known = [sizes for sizes in several if sizes is not None]
    if len(known) < len(several) or len({frozenset(sizes) for sizes in known}) > 1:
        return False
    bytes_of = [[sizes[what] for sizes in known] for what in known[0]]
    return all(max(values) <= ALIKE * min(values) for values in bytes_of)


def _text(sizes: _Sizes | None) -> str:
    if sizes is None:
        return "unknown"
    return " in ".join(format_bytes(size) for _, size in sorted(sizes.items())) or "none"
