"""Programs of ours as processes of their own that need not import everything first.

``python -m kongming_server.commands.server_command`` takes more than a second of a CPU to import
what it needs, and the tests start hundreds of programs. One process imports every module once, and
is forked for each start: what runs is a real process (its own pid, signals, exit status, folder,
environment, file descriptors), a child of the tests, and ends when they are killed. A start is cold
all the same where KONGMING_TEST_COLD is set, where the environment holds what Python reads at its
own start, and outside of pytest: a benchmark measures what users start, which has imported what it
needs alone.

As a program (``python -m tests.warm_start FD``) it is the process that is forked.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["COLD", "Process", "Started", "run", "start"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kongming", "kongming_agent", "kongming_server", "kongming_extender")
PATH = [str(ROOT / "daemon"), str(ROOT)]

LEFT_OUT = (".migrations", ".integrations")
"""Modules that are not imported ahead: migrations run when they are imported, and integrations load
schedulers of others, which no program of ours does and which each fork would copy and shut down."""

COLD = "KONGMING_TEST_COLD"
"""The variable under which nothing is forked: every program is started anew."""

_IN_PYTEST = "PYTEST_VERSION"
"""What pytest sets while it runs, for its workers and other children too."""

_MESSAGE_BYTES = 1 << 20
_LARGE = 2 << 20
_MADV_COLLAPSE = 25
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_START = threading.Lock()
_source: tuple[int, socket.socket, subprocess.Popen[bytes]] | None = None


class Process:
    """A forked program; as ``subprocess.Popen`` as far as tests need it."""

    def __init__(self, args: Sequence[str], pid: int, stdout: Any = None) -> None:
        self.args = list(args)
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            handle = os.pidfd_open(self.pid)
            try:
                ended = select.select([handle], [], [], timeout)[0]
            finally:
                os.close(handle)
            if not ended:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Started = Process | subprocess.Popen[str]


def start(
    module: str,
    *args: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Any = subprocess.DEVNULL,
    stdout: Any = subprocess.DEVNULL,
    stderr: Any = subprocess.DEVNULL,
    new_session: bool = False,
) -> Started:
    """Start ``python -m MODULE ARGS``; the streams are files, DEVNULL or, of its output, PIPE.
    In a session of its own it leads a process group, as what a terminal runs does."""
    words = [str(word) for word in args]
    given = dict(os.environ if env is None else env)
    if not _may_be_warm(given):
        command = [sys.executable, "-m", module, *words]
        return subprocess.Popen(
            command,
            env=given,
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=new_session,
        )
    order = {
        "module": module,
        "args": words,
        "env": given,
        "cwd": str(cwd or Path.cwd()),
        "parent": os.getpid(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "new_session": new_session,
    }
    with contextlib.ExitStack() as ours:
        nothing = ours.enter_context(open(os.devnull, "r+b"))  # noqa: PTH123
        ends = [(nothing if stdin == subprocess.DEVNULL else stdin).fileno()]
        shown = None
        for target in (stdout, stderr):
            if target == subprocess.PIPE:
                read, write = os.pipe()
                ours.callback(os.close, write)
                shown = os.fdopen(read, encoding="utf-8")
                ends.append(write)
            else:
                nowhere = target == subprocess.DEVNULL
                ends.append((nothing if nowhere else target).fileno())
        return Process([module, *words], _forked(order, ends), shown)


def run(
    module: str,
    *args: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """``subprocess.run`` of ``python -m MODULE ARGS``, with what it printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(module, *args, env=env, cwd=cwd, stdout=out, stderr=err)
        try:
            status = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(process.args, status, *texts)


def _may_be_warm(env: Mapping[str, str]) -> bool:
    if os.environ.get(COLD) or _IN_PYTEST not in os.environ:
        return False
    ours = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if not set(env.get("PYTHONPATH", "").split(os.pathsep)) <= {*PATH, *ours, ""}:
        return False
    names = {name for name in (*env, *os.environ) if name.startswith("PYTHON")} - {"PYTHONPATH"}
    return all(env.get(name) == os.environ.get(name) for name in names)


def _forked(order: dict[str, Any], ends: Sequence[int]) -> int:
    """The pid of a new child of this process."""
    with _START:
        channel = _running()
        # The new process loses its parent on purpose, and this one is to be the next.
        _adopt_orphans(True)
        try:
            socket.send_fds(channel, [json.dumps(order).encode()], ends)
            answer = channel.recv(64)
        except BaseException:
            _end()  # else the next start would get the answer to this one
            raise
        finally:
            _adopt_orphans(False)
        if not answer:
            raise RuntimeError("the process that is forked has ended; its stderr says why")
        return int(answer)


def _adopt_orphans(yes: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


def _running() -> socket.socket:
    global _source
    if _source is None or _source[0] != os.getpid():
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            imported = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_start", str(theirs.fileno())],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(_path())},
                cwd=ROOT,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        _source = (os.getpid(), mine, imported)
        atexit.register(_end)
    return _source[1]


def _end() -> None:
    """Nothing that reads orders is left, as at the end of the tests."""
    global _source
    if _source is not None and _source[0] == os.getpid():
        _, channel, imported = _source
        _source = None
        channel.close()
        imported.kill()
        imported.wait()


def _path() -> list[str]:
    return [*PATH, *filter(None, [os.environ.get("PYTHONPATH")])]


def _import_everything() -> None:
    for package in PACKAGES:
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            # A missing extra is a matter of who needs it.
            if not any(name in module.name for name in LEFT_OUT):
                with contextlib.suppress(ImportError):
                    importlib.import_module(module.name)
    importlib.import_module("kongming.store.migrations")


def _leave_memory_dirty() -> None:
    """Programs do not wait for write-back before they measure: other tests write all the time, so
    that they would wait to their limit each time, and write back what those write. How they wait is
    tested by itself."""
    from kongming.profiling.runs import settle

    settle.SETTLED_BYTES = sys.maxsize


def _use_large_pages() -> None:
    """Have memory in pages of 2 MiB where the kernel can: a fork copies an entry for each page,
    which for 190 MB of small ones takes a third of a start."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        where, access, *_, name = [*line.split(maxsplit=5), ""][:6]
        if access.startswith("rw") and name in ("", "[heap]"):
            begin, end = (int(address, 16) for address in where.split("-"))
            for address in range(-(-begin // _LARGE) * _LARGE, end - _LARGE + 1, _LARGE):
                advise(address, _LARGE, _MADV_COLLAPSE)  # says no where nothing is used yet


def _serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each order; returns, in each of the new processes, what it is to run."""
    while True:
        text, ends, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 3)
        if not text:  # the tests have ended
            os._exit(0)
        read, write = os.pipe()
        between = os.fork()
        if not between:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            channel.close()
            order = json.loads(text)
            if order["new_session"]:
                os.setsid()
            # Only now: whoever knows the pid may want to end its group.
            os.write(write, str(os.getpid()).encode())
            for end in (read, write):
                os.close(end)
            _end_with(order["parent"], between)
            return order, ends
        os.close(write)
        os.waitpid(between, 0)
        channel.send(os.read(read, 64))
        for end in (read, *ends):
            os.close(end)


def _end_with(parent: int, between: int) -> None:
    """Get SIGTERM when the process of the tests ends, however it ends."""
    # The signal comes when that parent ends which the process has when it asks for it.
    while os.getppid() == between:
        time.sleep(0.0005)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _become(order: dict[str, Any], ends: Sequence[int]) -> None:
    for number, end in enumerate(ends):
        os.dup2(end, number)
    for end in ends:
        os.close(end)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    os.sched_setaffinity(0, order["cpus"])
    sys.path[0] = order["cwd"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [order["module"], *order["args"]]
    sys.modules.pop(order["module"], None)


def _main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _import_everything()
    _leave_memory_dirty()
    # Nothing of it is ever garbage: so the pages stay shared.
    gc.collect()
    gc.freeze()
    _use_large_pages()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # libraries have idle threads
        order, ends = _serve(channel)
    _become(order, ends)
    try:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        _leave(ended.code)


def _leave(code: str | int | None) -> None:
    """End as Python does, but for freeing every object: that would copy every page first."""
    if isinstance(code, str):
        print(code, file=sys.stderr)  # noqa: T201
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(1 if isinstance(code, str) else (code or 0) & 0xFF)


if __name__ == "__main__":
    _main()
