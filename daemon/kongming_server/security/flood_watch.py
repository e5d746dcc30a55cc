"""The thread that looks for floods of headers, ends their connections and keeps addresses out."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections import deque
from contextlib import closing, suppress

from kongming.rpc.connections import Connections
from kongming_server.running.supervision import AGAIN_S, Working, unwatched
from kongming_server.security.descriptors import (
    AcceptedConnections,
    PortDescriptors,
    ResidentMemory,
    available,
    give_back_memory,
)
from kongming_server.security.floods import CLOSED_S, MOST_CLOSED_S, Floods
from kongming_server.security.packet_filter import MOST_NETWORKS, address_filter, admission_filter

__all__ = ["FloodWatch"]

_log = logging.getLogger(__name__)

_NICE = -10
"""Priority of the thread, where the process may have that (``LimitNICE`` of systemd): it needs
little of a CPU, and waited for one up to 60 ms while gRPC's threads read a flood."""

_GIVE_BACK_S = 1.0
"""Between two times that the allocator is asked to give back what is free, while it is closed: else
free memory looks like that of a flood."""

LOOK_S, HURRIED_LOOK_S = 0.02, 0.005
"""Between two looks at the server's memory, and while it grows, at all connections as well: gRPC
takes up to 2 GB in a second."""

_SUDDEN_BYTES, _SUDDEN_S = 4 << 20, 1.0
"""With such a growth from one look to the next a flood may begin. Memory is looked at more often
for so long then, and connections, once it has grown further, after each such growth."""

_HURRIED_SWITCH_S = 0.001
"""For so long another thread may keep the interpreter while memory grows, instead of the usual
5 ms: that was most of the time between two looks."""

CALM_LOOK_S = 0.5
"""Between two looks at all connections while it does not."""

_GROWING_SHARE, _LARGEST_SHARE, _CALM_SHARE = 0.5, 0.2, 0.01
"""Of a core, what looking at all connections may take while memory grows, for any other reason that
there is to look, and else."""


class FloodWatch:
    """The thread that looks, from ``start`` to ``close``. Linux only, as it needs /proc."""

    def __init__(
        self, connections: Connections, working: Working = unwatched, *, tls: bool = True
    ) -> None:
        """``working`` is around each look, so that one that hangs is noticed. ``tls``: whether
        connections are encrypted, and take more for it."""
        self._tls = tls
        self._connections = connections
        self._working = working
        self._offenders: deque[str] = deque()
        self._wake = threading.Event()
        self._closed = False
        self._refused: frozenset[str] = frozenset()
        self._admitted: frozenset[str] | None = None
        self._filtered = True
        self._hurried, self._switch_s = False, 0.0
        # At the last look.
        self._resident, self._sudden_until = math.inf, -math.inf
        # The least since the last look at all connections; and whether some were ended then.
        self._least_resident, self._ended = math.inf, False
        self._next_look = self._next_calm_look = self._next_give_back = 0.0
        # Whether the kernel kept all out, before the last look, who are to be.
        self._enforced = True
        self._thread: threading.Thread | None = None

    def start(self, port: int) -> None:
        """Look at the sockets of a port."""
        if available():
            self._thread = threading.Thread(
                target=self._run, args=(port,), name="kongming-floods", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def report(self, peer: str) -> None:
        """A call with too many headers came over this connection. From any thread."""
        self._offenders.append(peer)
        self._wake.set()

    def _run(self, port: int) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while not self._closed:
            try:
                self._watch(port)
            except Exception:
                _log.exception("Looking for floods of headers failed, and is begun again.")
                time.sleep(AGAIN_S)

    def _watch(self, port: int) -> None:
        with (
            closing(PortDescriptors(port)) as sockets,
            closing(ResidentMemory()) as memory,
            closing(AcceptedConnections()) as accepted,
        ):
            floods = Floods(self._connections, memory.bytes(), tls=self._tls)
            try:
                while not self._closed:
                    self._wake.wait(HURRIED_LOOK_S if self._hurried else LOOK_S)
                    self._wake.clear()
                    with self._working("Looking for floods of headers"):
                        self._look(floods, sockets, memory.bytes(), accepted)
            finally:
                self._hurry(False)

    def _hurry(self, hurried: bool) -> None:
        """Look more often, and have the interpreter sooner for it."""
        if hurried == self._hurried:
            return
        self._hurried = hurried
        if hurried:
            self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(_HURRIED_SWITCH_S if hurried else self._switch_s)

    def _look(
        self,
        floods: Floods,
        sockets: PortDescriptors,
        resident: int,
        accepted: AcceptedConnections,
    ) -> None:
        alarming, held = floods.alarming(resident), floods.held()
        begun = time.monotonic()
        sudden = resident - self._resident > _SUDDEN_BYTES
        # Who is new takes three times as long to look at: that is done by when it counts.
        begins = sudden and begun >= self._sudden_until
        if sudden:
            self._sudden_until = begun + _SUDDEN_S
        self._resident = resident
        # Not for addresses that are held: one could have that for as long as it likes.
        self._hurry(alarming or floods.closed or begun < self._sudden_until)
        # What has grown and does so no more, as where a fleet has come back, is no flood yet. From
        # the least since that look: what was freed meanwhile may be taken again by another flood.
        self._least_resident = min(self._least_resident, resident)
        grows = resident - self._least_resident > _SUDDEN_BYTES
        growing = alarming and (grows or self._ended)
        # Once they are kept out and who had come before has ended, nothing more is to be done.
        keeping_out = bool(held) and not self._enforced
        watchful = bool(growing or floods.closed or keeping_out or begins or self._offenders)
        if begun >= (self._next_look if watchful else self._next_calm_look):
            worked_s = time.thread_time()
            offenders = {self._offenders.popleft() for _ in range(len(self._offenders))}
            # First: who has come since was not accepted before.
            count = accepted.count()
            received = sockets.received()
            ending = floods.to_end(received, resident, offenders, count)
            # Before they end, so that nobody comes back in the meantime.
            self._enforced = self._admit(floods, sockets)
            # Those that brought most first: there may be a thousand.
            sockets.abort(sorted(ending, key=received.__getitem__, reverse=True))
            self._least_resident, self._ended = resident, bool(ending)
            if floods.closed and begun >= self._next_give_back:
                give_back_memory()
                self._next_give_back = begun + _GIVE_BACK_S
            if ending:
                _log.warning(
                    "%d connections that brought floods of headers were ended, one of them of %s.",
                    len(ending),
                    next(iter(ending)),
                )
            # Its own time, not what it waited for a CPU and the interpreter while others had them:
            # that is long just when a flood is read.
            spent_s = time.thread_time() - worked_s
            share = _GROWING_SHARE if self._hurried else _LARGEST_SHARE
            # The first of a flood is to make the next ones short, not late.
            pause_s = 0.0 if begins else spent_s / share
            self._next_look = begun + max(HURRIED_LOOK_S, pause_s)
            self._next_calm_look = begun + max(CALM_LOOK_S, spent_s / _CALM_SHARE)
        elif held != self._refused and begun >= self._next_look:
            # Fewer: some may connect again.
            self._admit(floods, sockets)

    def _admit(self, floods: Floods, sockets: PortDescriptors) -> bool:
        """Have the kernel drop whoever may not connect now; whether it did so before."""
        refused, admitted = floods.held(), floods.admitted()
        if (refused, admitted) == (self._refused, self._admitted):
            return self._filtered
        rules = address_filter(refused) if admitted is None else admission_filter(admitted)
        taken = sockets.filter(rules)
        # Of more than it can name it drops some alone.
        self._filtered = taken and (admitted is not None or len(refused) <= MOST_NETWORKS)
        if not taken:
            _log.warning(
                "The kernel takes no filter of %d addresses: who sends floods of headers can "
                "come back at once.",
                len(refused if admitted is None else admitted),
            )
        if admitted is not None and self._admitted is None:
            _log.warning(
                "Memory grows by floods of headers from ever more addresses, or by many who come "
                "at once: for %g to %g s only the %d from which a caller was known can connect.",
                CLOSED_S,
                MOST_CLOSED_S,
                len(admitted),
            )
        elif admitted == frozenset() != self._admitted:
            _log.warning("Memory grows even so: new connections are refused until then.")
        self._refused, self._admitted = refused, admitted
        return False
