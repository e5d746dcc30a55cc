"""Execution of a command under ``kongming-microbench exec``, which times and reaps it.

The measured program is a child of a small supervisor, not of Python: the supervisor measures the
times and, whatever happens to Python (an exception, Ctrl-C, kill -9), ends all processes of the
command. Python only reads two pipes: the report and the command's output.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal as signals
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kongming.probes.binary import locate
from kongming.processes import ended_at_exit
from kongming.records.application import Command
from kongming.records.errors import ProbeError
from kongming.records.run import Usage

KEPT_BYTES = 1 << 20
"""Bytes of the beginning, and of the end, of an output that are kept."""

PIPE_BYTES = 1 << 20
"""Size of the output pipe, so that the program does not block while Python is not scheduled."""

STOP_S = 2.0
"""Time for the supervisor to end all processes before it is killed."""

DRAIN_S = 0.2
"""Time to read remaining output after the supervisor has ended."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """Single run of the command; times in nanoseconds of CLOCK_MONOTONIC.

    ``error`` is set when the command could not be started. ``interrupted``: it was ended because
    the execution was stopped.
    """

    start_ns: int
    end_ns: int
    exit_status: int | None = None
    signal: int | None = None
    timed_out: bool = False
    interrupted: bool = False
    error: str | None = None
    usage: Usage = field(default_factory=Usage)

    @property
    def ok(self) -> bool:
        return (
            self.exit_status == 0
            and self.error is None
            and not self.timed_out
            and not self.interrupted
        )

    def failure(self, timeout_s: float | None = None) -> str | None:
        """Return why it failed, without a final period, or None."""
        if self.ok:
            return None
        if self.error is not None:
            return self.error.rstrip(".")
        if self.interrupted:
            return "was interrupted"
        if self.timed_out:
            limit = "its time" if timeout_s is None else f"{timeout_s:g} s"
            return f"did not end within {limit} and was killed"
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        if self.exit_status is not None and self.exit_status > 128:
            # The shell's exit status for a program that was killed by a signal.
            return f"exit status {self.exit_status} ({_signal_name(self.exit_status - 128)})"
        return f"exit status {self.exit_status}"

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Iteration:
        return cls(
            start_ns=int(event["start_ns"]),
            end_ns=int(event["end_ns"]),
            exit_status=event.get("exit_status"),
            signal=event.get("signal"),
            timed_out=bool(event.get("timed_out", False)),
            interrupted=bool(event.get("interrupted", False)),
            error=event.get("error"),
            usage=Usage.from_dict(event),
        )


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Output:
    """First and last MiB of a program's output of any length."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self._kept_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._kept_bytes:
            del self._tail[: -self._kept_bytes]

    @property
    def truncated(self) -> bool:
        return self.total_bytes > len(self._head) + len(self._tail)

    def text(self) -> str:
        gap = b"\n[...]\n" if self.truncated else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")

    def last_lines(self, lines: int = 5, characters: int = 1000) -> str:
        """Return the last non-empty lines, to be shown with an error."""
        # Unless truncated, head and tail are contiguous.
        end = self._tail if self.truncated else self._head + self._tail
        text = bytes(end[-4 * characters :]).decode(errors="replace")
        last = [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]
        return "\n".join(last)[-characters:]


def _options(
    cpus: Sequence[int],
    cgroup_procs: Sequence[str | Path],
    timeout_s: float | None,
    loop: bool,
) -> list[str]:
    options = ["--cpus", ",".join(map(str, cpus))] if cpus else []
    for path in cgroup_procs:
        options += ["--cgroup", str(path)]
    if timeout_s is not None:
        options += ["--timeout", f"{min(timeout_s, 1e9):.9f}"]
    return [*options, "--loop"] if loop else options


class Execution:
    """Command that runs once, or repeatedly with ``loop``. Leaving the context ends it.

    ``command`` is a shell line or an argv; it is pinned to ``cpus`` (empty: not pinned), enters
    the groups of ``cgroup_procs`` first; ``timeout_s`` limits one iteration.

    Raises:
        ProbeError: the binary was not found or could not be started.
    """

    def __init__(
        self,
        command: Command,
        *,
        cpus: Sequence[int] = (),
        cgroup_procs: Sequence[str | Path] = (),
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        loop: bool = False,
    ) -> None:
        self.timeout_s = timeout_s
        self.output = Output()
        self._iterations: list[Iteration] = []
        self._changed = threading.Condition()
        self._done = False
        self._closing = threading.Lock()
        with ended_at_exit.starting(self):
            self._start(command, _options(cpus, cgroup_procs, timeout_s, loop), cwd=cwd, env=env)

    def _start(
        self,
        command: Command,
        options: Sequence[str],
        *,
        cwd: str | Path | None,
        env: Mapping[str, str] | None,
    ) -> None:
        lifeline_read, self._lifeline = os.pipe()
        report_read, report_write = os.pipe()
        output_read, output_write = os.pipe()
        with contextlib.suppress(OSError):  # exceeds the user's limit
            fcntl.fcntl(output_read, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            argv = [str(locate().absolute()), "exec"]
            argv += ["--lifeline", str(lifeline_read), "--report", str(report_write)]
            argv += [*options, "--"]
            argv += ["/bin/sh", "-c", command] if isinstance(command, str) else command
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                pass_fds=(lifeline_read, report_write),
                cwd=cwd,
                env=None if env is None else dict(env),
                # Ctrl-C must reach only Python, which then stops this in order.
                start_new_session=True,
            )
        except BaseException as error:
            for fd in (self._lifeline, report_read, output_read):
                os.close(fd)
            if isinstance(error, OSError):
                raise ProbeError(f"A command could not be started: {error.strerror}.") from error
            raise
        finally:
            for fd in (lifeline_read, report_write, output_write):
                os.close(fd)
        self._pump = threading.Thread(
            target=self._read, args=(report_read, output_read), daemon=True
        )
        self._pump.start()

    @property
    def pid(self) -> int:
        """Pid of the guard, the parent of the supervisor, which is the parent of the command."""
        return self._process.pid

    @property
    def running(self) -> bool:
        return not self._done

    def iterations(self) -> list[Iteration]:
        """Return the iterations that have ended so far, oldest first."""
        with self._changed:
            return list(self._iterations)

    def wait(self, timeout_s: float | None = None, *, iterations: int | None = None) -> bool:
        """Wait for the end, or for ``iterations`` iterations; return False on timeout."""

        def reached() -> bool:
            return self._done or (iterations is not None and len(self._iterations) >= iterations)

        with self._changed:
            return self._changed.wait_for(reached, timeout_s)

    def result(self) -> Iteration:
        """Wait for the end and return the last iteration.

        Raises:
            ProbeError: the supervisor itself failed.
        """
        self.wait()
        self.close()
        if not self._iterations:
            reason = self.output.last_lines(1) or "no error message"
            raise ProbeError(f"A command could not be supervised: {reason}")
        return self._iterations[-1]

    def close(self) -> None:
        """End it if it is still running; return when no process of it is left.

        May be called again, and from any thread.
        """
        try:
            if self._process.returncode is None and not self._done:
                self._process.send_signal(signals.SIGTERM)
                if not self.wait(STOP_S):
                    # The supervisor notices its guard's death and ends the rest.
                    self._process.kill()
                    self.wait(STOP_S)
            self._process.wait()
        finally:
            with self._closing:
                if self._lifeline >= 0:
                    os.close(self._lifeline)
                    self._lifeline = -1
        self._pump.join(STOP_S)
        ended_at_exit.discard(self)

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, report: int, output: int) -> None:
        """Read both pipes until their end, in a separate thread.

        A program's output is added before its end is noted, so that it is complete for a thread
        that waits for the iteration.
        """
        pending = b""
        reporting = True
        os.set_blocking(output, False)
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(report, selectors.EVENT_READ)
                ready.register(output, selectors.EVENT_READ)
                while ready.get_map():
                    # A process that cannot be killed may hold the output open forever.
                    events = ready.select(None if reporting else DRAIN_S)
                    if not events:
                        break
                    fds = {key.fd for key, _ in events}
                    if output in fds and self._drain(output):
                        ready.unregister(output)
                    if report not in fds:
                        continue
                    data = os.read(report, PIPE_BYTES)
                    if data:
                        *lines, pending = (pending + data).split(b"\n")
                        # More output may have arrived since ``select``.
                        self._drain(output)
                        self._note(lines)
                    else:
                        ready.unregister(report)
                        reporting = False
        finally:
            os.close(report)
            os.close(output)
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def _drain(self, output: int) -> bool:
        """Read the available output without blocking; return whether the pipe is at its end.

        Reads at most the pipe's size, since a program may print faster than this reads.
        """
        room = PIPE_BYTES
        while room > 0:
            try:
                data = os.read(output, room)
            except BlockingIOError:
                return False
            if not data:
                return True
            self.output.add(data)
            room -= len(data)
        return False

    def _note(self, lines: Sequence[bytes]) -> None:
        events = [json.loads(line.decode(errors="replace")) for line in lines if line]
        ended = [Iteration.from_event(e) for e in events if e.get("event") == "iteration"]
        if ended:
            with self._changed:
                self._iterations += ended
                self._changed.notify_all()
