"""Locate and run ``kongming-microbench``, and read its JSON lines.

The binary never outlives this process: it holds the read end of a pipe (the lifeline) whose write
end only this process has, whichever thread started it. It runs in its own session, so that Ctrl-C
reaches only Python, which then stops it in order.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kongming.processes import ended_at_exit
from kongming.records.errors import ProbeError

NAME = "kongming-microbench"
SCHEMA = 1
"""Newest supported schema version of the binary's output."""

GRACE_S = 0.7
"""Time for the binary to clean up before it is killed; Ctrl-C must finish within a second."""

_ENTER_CGROUPS = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit 1; shift; done; shift; exec "$@"'

Event = dict[str, Any]
"""Output line of the binary: a JSON object."""


def locate() -> Path:
    """Locate the binary: KONGMING_MICROBENCH, else the interpreter's folder or PATH.

    Raises:
        ProbeError: it was not found, or KONGMING_MICROBENCH is not executable.
    """
    configured = os.environ.get("KONGMING_MICROBENCH")
    if configured:
        path = Path(configured).expanduser()
        if not _runs(path):
            raise ProbeError(
                f"KONGMING_MICROBENCH names {configured!r}, which is not an executable program.",
                hint="Unset it, or point it to kongming-microbench.",
            )
        return path
    folders = [Path(sys.executable).parent, Path(sys.prefix) / "bin", Path.home() / ".local/bin"]
    folders += [Path(entry) for entry in os.get_exec_path() if entry]
    for folder in folders:
        if _runs(folder / NAME):
            return folder / NAME
    raise ProbeError(
        f"{NAME} was not found next to {sys.executable} or in PATH.",
        hint="Install kongming with pip, which builds it, or set KONGMING_MICROBENCH to it.",
    )


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


class Microbench:
    """Running ``kongming-microbench`` process. Leaving the context stops and reaps it.

    ``arguments`` begin with the subcommand. ``cgroup_procs`` are ``cgroup.procs`` or ``tasks``
    files that the process enters before it starts.

    Raises:
        ProbeError: it was not found or could not be started.
    """

    def __init__(
        self, arguments: Sequence[str], *, cgroup_procs: Sequence[str | Path] = ()
    ) -> None:
        self.command = arguments[0]
        self._buffer = b""
        self._eof = False
        self._closed = False
        with ended_at_exit.starting(self):
            self._start(arguments, cgroup_procs)

    def _start(self, arguments: Sequence[str], cgroup_procs: Sequence[str | Path]) -> None:
        command, *rest = arguments
        lifeline, self._lifeline = os.pipe()
        self._stderr = os.memfd_create("kongming-microbench-stderr")
        try:
            argv = [str(locate()), command, "--lifeline", str(lifeline), *rest]
            if cgroup_procs:
                # A shell enters the groups and then executes the binary, so that all workers
                # start inside; writing the pid from here after the start would be a race.
                files = [str(path) for path in cgroup_procs]
                argv = ["/bin/sh", "-c", _ENTER_CGROUPS, NAME, *files, "--", *argv]
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                pass_fds=(lifeline,),
                start_new_session=True,
                bufsize=0,
            )
        except BaseException as error:
            os.close(self._lifeline)
            os.close(self._stderr)
            if isinstance(error, OSError):
                raise ProbeError(f"{NAME} could not be started: {error.strerror}.") from error
            raise
        finally:
            os.close(lifeline)
        assert self._process.stdout is not None
        self._stdout = self._process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Return whether the binary has closed its output and all of it was read."""
        return self._eof and b"\n" not in self._buffer

    def read(self, timeout: float | None = None) -> Event | None:
        """Return the next event, or None when the binary has closed its output.

        Raises:
            TimeoutError: ``timeout`` seconds passed without a complete line.
            ProbeError: a line is not a JSON object, or is of a newer schema.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                if line.strip():
                    return _parse(line)
                continue
            if self._eof:
                # The rest has no newline: the binary died in the middle of a line.
                return None
            wait_ms = None
            if deadline is not None:
                wait_ms = max(0.0, deadline - time.monotonic()) * 1000.0
            if not self._poll.poll(wait_ms):
                raise TimeoutError(f"{NAME} wrote no output for {timeout:g} s.")
            data = os.read(self._stdout, 1 << 16)
            self._eof = not data
            self._buffer += data

    def signal(self, number: int) -> None:
        """Send a signal to the binary; does nothing when it has ended."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the binary and all of its workers immediately."""
        self._reap(0.0)

    def stop(self, grace_s: float = GRACE_S) -> list[Event]:
        """Stop it (SIGTERM, then SIGKILL after ``grace_s``) and return its last events."""
        self.signal(signal.SIGTERM)
        events: list[Event] = []
        deadline = time.monotonic() + grace_s
        with contextlib.suppress(TimeoutError, ProbeError):
            while (event := self.read(max(0.0, deadline - time.monotonic()))) is not None:
                events.append(event)
        self._reap(max(0.0, deadline - time.monotonic()))
        return events

    def finish(self, timeout: float = 5.0) -> None:
        """Wait for the exit of a binary that has closed its output.

        Raises:
            ProbeError: it did not exit with status 0; the message is its own error message.
        """
        if self._reap(timeout) != 0:
            raise ProbeError(self.failure())

    def failure(self) -> str:
        """Reason for its end in one sentence: its last line on stderr, or the signal.

        Must be called before the context is left.
        """
        status = self._reap(1.0)
        if status < 0:
            try:
                cause = signal.Signals(-status).name
            except ValueError:
                cause = f"signal {-status}"
            return f"{NAME} {self.command} was killed by {cause}."
        size = os.fstat(self._stderr).st_size
        text = os.pread(self._stderr, 4096, max(0, size - 4096)).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            sentence = lines[-1].removeprefix(f"{NAME}:").strip()
            return sentence if sentence.endswith(".") else f"{sentence}."
        return f"{NAME} {self.command} ended with status {status} and no error message."

    def _reap(self, grace_s: float) -> int:
        if self._process.returncode is not None:
            return self._process.returncode
        deadline = time.monotonic() + grace_s
        try:
            while not self._has_exited() and time.monotonic() < deadline:
                time.sleep(0.002)
        finally:
            # Also on a second Ctrl-C. The leader is not reaped yet, so its process group id cannot
            # have been reused; this also kills workers that a killed supervisor left behind.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            status = self._process.wait()
        return status

    def _has_exited(self) -> bool:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def close(self) -> None:
        """Stop it if it is still running, and release its resources. May be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._process.returncode is None:
                self.stop()
        finally:
            self._reap(0.0)
            if self._process.stdout is not None:
                self._process.stdout.close()
            os.close(self._lifeline)
            os.close(self._stderr)
            ended_at_exit.discard(self)

    def __enter__(self) -> Microbench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stream(arguments: Sequence[str], *, cgroup_procs: Sequence[str | Path] = ()) -> Iterator[Event]:
    """Run the binary and yield its events; closing the iterator stops it.

    Raises:
        ProbeError: it is missing, failed, died, or wrote invalid output.
    """
    with Microbench(arguments, cgroup_procs=cgroup_procs) as running:
        while (event := running.read()) is not None:
            yield event
        running.finish()


def _parse(line: bytes) -> Event:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        shown = line[:80].decode(errors="replace")
        raise ProbeError(f"{NAME} wrote a line that is not understood: {shown!r}.")
    schema = event.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise ProbeError(
            f"{NAME} writes schema {schema}; this kongming reads up to {SCHEMA}.",
            hint="Both come from one installation: reinstall kongming.",
        )
    return event
