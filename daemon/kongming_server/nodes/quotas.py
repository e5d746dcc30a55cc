"""Quotas on what one agent's credentials, or one node, may add. No I/O.

What was counted is forgotten at a restart; what has been kept by then counts as known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from kongming.records.errors import InputError, OverloadedError
from kongming_server.configuration.limits import Quotas as Settings
from kongming_server.security.rates import Rates

_DAY_S = 86_400.0
_TURNOVER = 100
"""How often in a day all assignments that a node may have can be replaced by others."""


class Quotas:
    """``known`` says of an application whether it was registered, profiled or trained by others.
    A holder of "" is no particular caller, and has no quota."""

    def __init__(
        self, settings: Settings, known: Callable[[str], bool] = lambda name: False
    ) -> None:
        self._settings = settings
        self._known = known
        self._names: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._bytes = Rates(settings.node_bytes / _DAY_S, float(settings.node_bytes))
        self._bound = Rates(_TURNOVER * settings.assignments / _DAY_S, float(settings.assignments))

    def check_nodes(self, count: int, *, named: bool) -> None:
        """Raises OverloadedError where a holder of ``count`` nodes may not have another one.
        ``named``: its token or certificate says which nodes it is for."""
        if count >= (self._settings.named_nodes if named else self._settings.nodes):
            raise OverloadedError(
                f"This token or certificate has {count} nodes.",
                hint="Raise quotas.named_nodes."
                if named
                else "Give each agent its own (kongming-server token add --role agent --node NAME),"
                " or where many are to share one raise quotas.nodes. A machine that was installed "
                "again counts by its former id, too: kongming-server token release ID.",
            )

    def name_application(self, holder: str, name: str) -> None:
        """Raises InputError where this holder has named too many applications first."""
        if not self._known(name):
            self._take(holder, "applications", name, "run.app")

    def name_suite(self, holder: str, version: str) -> None:
        """Raises InputError where this holder has named too many suite versions."""
        self._take(holder, "suite versions", version, "fingerprint.suite_version")

    def check_assignments(self, count: int) -> None:
        """Raises OverloadedError where a node of ``count`` assignments may not have another."""
        if count >= self._settings.assignments:
            raise OverloadedError(
                f"{count} assignments are reserved or bound on this node.",
                hint="Release those that have ended, or raise quotas.assignments.",
            )

    def take_assignment(self, node_id: str, now: float) -> None:
        """Raises OverloadedError where a node has bound too many new assignments of late: those
        that ended are remembered for a while, and kept on disk for longer."""
        wait_s = self._bound.take(node_id, now)
        if wait_s > 0.0:
            raise OverloadedError(
                f"Too many assignments were bound on the node {node_id} of late.",
                hint=f"Bind again in {wait_s:.0f} s, or raise quotas.assignments.",
            )

    def take_bytes(self, node_id: str, size: int, now: float) -> None:
        """Raises OverloadedError where a node has reported too many bytes of late."""
        wait_s = self._bytes.take(node_id, now, float(size))
        if wait_s > 0.0:
            raise OverloadedError(
                f"The node {node_id} has reported more than quotas.node_bytes of late.",
                hint=f"Report again in {wait_s:.0f} s.",
            )

    def _take(self, holder: str, kind: str, name: str, field: str) -> None:
        if not holder:
            return
        names = self._names[holder, kind]
        if name in names:
            return
        if len(names) >= self._settings.names:
            raise InputError(
                f"is one of too many {kind} of this token or certificate.",
                field=field,
                allowed=f"up to {self._settings.names}",
                hint="Raise quotas.names.",
            )
        names.add(name)
