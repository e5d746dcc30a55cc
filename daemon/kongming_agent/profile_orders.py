"""Campaigns that the server requested: one at a time, each in its own process. Requests survive a
restart of the agent."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kongming.records.errors import StoreError
from kongming_agent import profiling as profile
from kongming_agent.reporting.spool import Spool

_log = logging.getLogger(__name__)

IDS = "campaigns asked for"
"""Name of the spool's document: the id that each campaign is wanted under, by application."""

STARTS = "profiles asked for"
"""Name of the spool's document that counts the starts of each campaign, by application."""

_MOST_STARTS = 20
"""Starts of a campaign after which it is not begun again, whoever ended it: an agent that is
stopped in good order counts as one that a program took down with it."""
_STARTS = 5
"""Maximum number of killed attempts of a campaign: it may be the cause of the agent's end."""

_LATER_S = 600.0
"""Wait after a campaign that found the CPUs taken, or the spool's disk full."""

_LAST_WORDS_S = 3.0

_SHOWN = 5
"""Names in the line that says which were refused."""

_REFUSED_S = 600.0
"""That line is written this often at the most: a server may ask for the same all day."""


class Campaigns:
    """A request is on disk when ``ask`` returns, and stays there until its campaign has ended by
    itself. ``command``, followed by the application's name, starts a campaign. One that has ended
    is not begun again before ``pause_s``: a server may ask for it all day. One that ends with the
    status ``profiling.LATER`` stays, and is begun again later."""

    def __init__(
        self,
        allow: Sequence[str],
        state: Path,
        spool: Spool,
        command: Sequence[str],
        pause_s: float = 0.0,
    ) -> None:
        self._allow, self._state, self._spool = tuple(allow), state, spool
        self._command = list(command)
        self._pause_s = pause_s
        self._not_before: dict[str, float] = {}
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._at_work = ""
        self._refused_at = -_REFUSED_S
        counts: dict[str, int] = spool.get(STARTS) or {}
        ids: dict[str, str] = spool.get(IDS) or {}
        self._ids = {name: id for name, id in ids.items() if name in self._allow}
        self._starts = {name: starts for name, starts in counts.items() if name in self._allow}

    def ask(self, names: Iterable[str], ids: Mapping[str, str] | None = None) -> None:
        """May be called from any thread. A name that waits or is at work already stays as it is.
        ``ids`` are those that the campaigns' runs are to be reported under, by name."""
        with self._lock:
            before = len(self._starts)
            refused = []
            for name in names:
                if name not in self._allow:
                    refused.append(name)
                elif name not in self._starts:
                    self._starts[name] = 0
                    self._ids[name] = (ids or {}).get(name, "")
            if len(self._starts) > before:
                self._keep()
        now = time.monotonic()
        if refused and now >= self._refused_at + _REFUSED_S:
            self._refused_at = now
            more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
            shown = ", ".join(repr(name)[1:-1] for name in refused[:_SHOWN])
            _log.warning("not allowed here, so not profiled: %s%s", shown, more)

    def watch(self) -> tuple[bool, bool]:
        """Start a waiting campaign. Return whether any campaign is running, including an
        operator's, and whether a requested one has just ended."""
        ended = self._child is not None and self._child.poll() is not None
        if ended:
            self._ended()
        busy = profile.under_way(self._state)
        if self._child is None and not busy and self._command:
            self._begin()
        return busy or self._child is not None, ended

    def end(self) -> None:
        """End the running campaign; it continues when the agent is started again."""
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        try:
            child.wait(timeout=_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _begin(self) -> None:
        with self._lock:
            now = time.monotonic()
            # The agent itself may end with each start of a program, as by a lack of memory.
            for app in [app for app, starts in self._starts.items() if starts >= _MOST_STARTS]:
                starts = self._starts.pop(app)
                self._not_before[app] = now + self._pause_s
                self._keep()
                _log.error("profiling %s was started %d times: given up", app, starts)
            due = (app for app in self._starts if now >= self._not_before.get(app, now))
            name = next(due, "")
            if not name:
                return
            self._starts[name] += 1
            again = self._starts[name] > 1
            self._keep()
        _log.info("profiling %s on request of the server%s", name, ": continued" if again else "")
        self._at_work = name
        wanted = self._ids.get(name, "")
        under = ["--campaign", wanted] if wanted else []
        try:
            self._child = subprocess.Popen(
                [*self._command, *under, name], stdin=subprocess.DEVNULL, stdout=sys.stderr
            )
        except OSError as error:
            # As where the machine has no process left: its probes and reports go on.
            _log.warning("profiling %s cannot be started now: %s", name, error)
            with self._lock:
                self._later()

    def _ended(self) -> None:
        assert self._child is not None
        status, self._child = self._child.returncode, None
        _log.info("a campaign ended with status %d", status)
        with self._lock:
            starts = self._starts.pop(self._at_work, 0)
            # Ended by a signal; the campaign itself reports this as 128 and more.
            cut_short = status < 0 or status >= 128
            if status == profile.LATER:
                # Nothing of it went wrong: it has its turn once more, however often.
                self._starts[self._at_work] = starts
                self._later()
                return
            if cut_short and starts < _STARTS:
                # Moved behind the others: it may be the cause of the kill.
                self._starts[self._at_work] = starts
            elif cut_short:
                _log.error("profiling %s was killed %d times: given up", self._at_work, starts)
            if self._at_work not in self._starts:
                self._not_before[self._at_work] = time.monotonic() + self._pause_s
            self._keep()

    def _later(self) -> None:
        """Put off what is at work, as if it had not been started."""
        self._starts[self._at_work] = max(self._starts[self._at_work] - 1, 0)
        self._not_before[self._at_work] = time.monotonic() + _LATER_S
        self._keep()

    def _keep(self) -> None:
        try:
            self._ids = {name: id for name, id in self._ids.items() if name in self._starts}
            self._spool.put(IDS, self._ids)
            self._spool.put(STARTS, self._starts)
        except StoreError as error:
            # It is still carried out, unless the agent ends first.
            _log.warning("%s", error)


def profile_command(config: Path | None, state: Path) -> list[str]:
    """Return the command that starts a requested campaign of this process. The package may be
    upgraded before it is used: options keep their form."""
    command = [sys.executable, "-m", "kongming_agent.agent_command", "profile", "--requested"]
    command += ["--parent", str(os.getpid()), "--state", str(state)]
    return command if config is None else [*command, "--config", os.fspath(config)]
