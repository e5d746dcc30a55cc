"""Build what is published into dist/, check it, and run it as a stranger would.

The sdist comes first, and the wheels are built from it alone: one for this machine and, where gcc
for it is installed, one for aarch64. auditwheel gives each the oldest manylinux tag that its binary
allows; nothing here makes that older than this machine's C library. Then the wheel of this machine
is run by pipx in an environment that has nothing but its own dependencies.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from pathlib import Path

from scikit_build_core.build import build_sdist

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BINARY = "kongming-microbench"

AARCH64 = {
    "CC": "aarch64-linux-gnu-gcc",
    "CMAKE_ARGS": "-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64",
    "_PYTHON_HOST_PLATFORM": "linux-aarch64",
}
"""What makes scikit-build-core build for the other machine, and name the wheel after it."""


def main() -> None:
    os.chdir(ROOT)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sdist = DIST / build_sdist(str(DIST))
    with ThreadPoolExecutor() as pool:
        others = []
        if platform.machine() != "aarch64" and shutil.which(AARCH64["CC"]):
            others.append(pool.submit(wheel, sdist, AARCH64))
        else:
            print(f"{AARCH64['CC']} is not installed: no wheel for aarch64.")
        own = wheel(sdist, {})
        check_fingerprint(own)
        wheels = [own, *(other.result() for other in others)]
    for path in wheels:
        check_contents(path)
    run("twine", "check", "--strict", *(str(path) for path in DIST.iterdir()))
    for path in sorted(DIST.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")


def run(program: str, *arguments: str, **variables: str) -> str:
    """Run a program of this environment and return its output, which is shown if it fails."""
    done = subprocess.run(
        [str(BIN / program), *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{program} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def wheel(sdist: Path, variables: dict[str, str]) -> Path:
    """The wheel of one machine, built from the sdist and tagged."""
    with tempfile.TemporaryDirectory() as folder:
        # With what `make setup` has brought: to fetch it again would take ten seconds more.
        pip = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
        run("python", "-m", *pip, "--wheel-dir", folder, str(sdist), **variables)
        (built,) = Path(folder).glob("*.whl")
        run("auditwheel", "repair", "--wheel-dir", f"{folder}/tagged", str(built))
        (tagged,) = Path(folder, "tagged").iterdir()
        if "manylinux" not in tagged.name:
            sys.exit(f"{tagged.name}: its binary needs more than the C library of a manylinux.")
        return Path(shutil.move(tagged, DIST))


def check_contents(path: Path) -> None:
    """The wheel has the packages, all of their files and the binary, and nothing else."""
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        scripts = ConfigParser(delimiters="=")
        scripts.read_string(archive.read(entry_points).decode())
    folders = PROJECT["tool"]["scikit-build"]["wheel"]["packages"]
    checked = PROJECT["tool"]["mypy"]["packages"]
    if {Path(folder).name for folder in folders} != set(checked):
        sys.exit(f"wheel.packages are {folders}, the packages that mypy checks {checked}.")
    wanted = {
        (package / file.relative_to(ROOT / folder)).as_posix()
        for folder in folders
        for package in [Path(Path(folder).name)]
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    other = {name for name in names if ".dist-info/" not in name}
    stem = "-".join(path.name.split("-")[:2])
    difference = other ^ (wanted | {f"{stem}.data/scripts/{BINARY}"})
    if difference:
        sys.exit(f"{path.name}: missing or too much: {', '.join(sorted(difference))}")
    targets = dict(scripts["console_scripts"])
    modules = {target.partition(":")[0].replace(".", "/") + ".py" for target in targets.values()}
    if targets != PROJECT["project"]["scripts"] or not modules <= names:
        sys.exit(f"{path.name}: entry points of modules that it lacks: {targets}")


def check_fingerprint(path: Path) -> None:
    """A fingerprint from the wheel in a new environment: its own dependencies are enough."""
    with tempfile.TemporaryDirectory() as folder:
        text = run(
            *("pipx", "run", "--no-cache", "--spec", str(path)),
            *("kongming", "fingerprint", "--suite", "quick", "--json"),
            PIPX_HOME=f"{folder}/pipx",
            PIP_CONSTRAINT=str(ROOT / "constraints.txt"),
            XDG_DATA_HOME=f"{folder}/data",
            KONGMING_DIR=f"{folder}/io",
            # Nobody times anything by this: it need not wait for measurements on the same CPU.
            KONGMING_LOCKS=f"{folder}/locks",
            PYTHONPATH="",
        )
    surrogates = json.loads(text)["surrogates"].values()
    timed = sum("seconds_per_op" in reading for reading in surrogates)
    if not timed:
        sys.exit(f"{path.name}: nothing was timed: {text}")
    print(f"pipx run --spec {path.name} kongming fingerprint: {timed} surrogates timed")


if __name__ == "__main__":
    main()
