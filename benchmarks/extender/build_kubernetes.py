"""Build a real kube-apiserver and kube-scheduler, and unpack etcd, into build/kubernetes/bin.

    python3 benchmarks/extender/build_kubernetes.py      # what `make kubernetes` runs

No package has these programs. Debian has the source of Kubernetes together with all modules that it
needs (of which Debian itself builds kubectl alone), a Go compiler and etcd. They are downloaded as
packages and unpacked, never installed: no root, no service that starts, no change of the system's
sources. It takes some ten minutes of two CPUs and 3 GB while it builds, and leaves 200 MB.

Needs a Debian system with apt-get and dpkg, and no Python package.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "kubernetes"
PROGRAMS = ("kube-apiserver", "kube-scheduler", "kubectl", "etcd")
RELEASE = "bookworm"
"""Of Debian: later ones have no source of Kubernetes with its modules."""
SOURCE = "kubernetes"
VERSION = "1.20.2"
"""What the package ``1.20.5+really1.20.2`` holds."""
PACKAGES = ("etcd-server", "kubernetes-client", "golang-1.19-go", "golang-1.19-src")
GO = "usr/lib/go-1.19"
STAGING = "staging/src/k8s.io"
_VERSION_VARIABLES = "k8s.io/kubernetes/vendor/k8s.io/component-base/version"


def missing(folder: Path = FOLDER) -> list[str]:
    """Programs that are not built yet."""
    return [name for name in PROGRAMS if not (folder / "bin" / name).is_file()]


def build(folder: Path, *, keep: bool = False) -> None:
    """Build what is missing; ``keep`` leaves the source and the compiler there.

    Raises:
        OSError, subprocess.CalledProcessError: a step failed; what it wrote is on stderr.
    """
    if not missing(folder):
        return
    work = folder / "work"
    system, source = work / "system", work / "go/src/k8s.io/kubernetes"
    apt = _apt(work)
    (folder / "bin").mkdir(exist_ok=True)
    if not source.is_dir():
        packages = work / "packages"
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir()
        _run([*apt, "update", "-qq"], packages)
        _run([*apt, "download", "-qq", *PACKAGES], packages)
        _run([*apt, "source", "--download-only", "-qq", SOURCE], packages)
        for file in packages.glob("*.deb"):
            _run(["dpkg", "-x", str(file), str(system)], packages)
        (archive,) = packages.glob("*.orig.tar.gz")
        source.parent.mkdir(parents=True, exist_ok=True)
        unpacking = work / "unpacking"
        shutil.rmtree(unpacking, ignore_errors=True)
        unpacking.mkdir()
        _run(["tar", "-xzf", str(archive), "-C", str(unpacking), "--strip-components=1"], packages)
        unpacking.rename(source)
    for name in ("etcd", "kubectl"):
        shutil.copy2(system / "usr/bin" / name, folder / "bin" / name)
    _compile(folder / "bin", system / GO, work)
    if not keep:
        shutil.rmtree(work)


def _apt(work: Path) -> list[str]:
    """apt-get with sources, lists and a cache of its own."""
    listed = work / "apt" / "sources.list"
    (work / "apt/lists/partial").mkdir(parents=True, exist_ok=True)
    (work / "apt/cache/archives/partial").mkdir(parents=True, exist_ok=True)
    mirror = _mirror()
    listed.write_text("".join(f"{kind} {mirror} {RELEASE} main\n" for kind in ("deb", "deb-src")))
    options = {
        "Dir::Etc::SourceList": listed,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": work / "apt/lists",
        "Dir::Cache": work / "apt/cache",
        "APT::Sandbox::User": "",
    }
    return ["apt-get", *(f"-o{name}={value}" for name, value in options.items())]


def _mirror() -> str:
    """The address from which this system has Debian's own packages."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    own = [row[2] for row in rows if row[:2] == ["Debian", "main"] and "security" not in row[2]]
    if not own:
        raise OSError("apt-get knows no packages of Debian: run apt-get update, or this on Debian.")
    return own[0]


def _compile(programs: Path, go: Path, work: Path) -> None:
    # The way of Go before modules: the modules are part of the source, whose list of them newer
    # versions of Go find incomplete.
    environment = {
        "GOROOT": str(go),
        "GOPATH": str(work / "go"),
        "GOCACHE": str(work / "cache"),
        "GO111MODULE": "off",
        "GOPROXY": "off",
        "GOFLAGS": "",
        "CGO_ENABLED": "0",
    }
    kubernetes = work / "go/src/k8s.io/kubernetes"
    _generate_openapi(go, work, kubernetes, environment)
    major, minor, _ = VERSION.split(".")
    values = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X {_VERSION_VARIABLES}.{name}={text}" for name, text in values.items())
    command = [str(go / "bin/go"), "build", "-p", "2", "-ldflags", f"-s -w {flags}", "-o"]
    for name in ("kube-scheduler", "kube-apiserver"):
        print(f"Building {name} ...", file=sys.stderr)
        target = programs / f"{name}.new"
        _run(["nice", *command, str(target), f"./cmd/{name}"], kubernetes, environment)
        target.rename(programs / name)


def _generate_openapi(go: Path, work: Path, kubernetes: Path, environment: dict[str, str]) -> None:
    """Write the one source file of the API server that is generated and not in the source.

    As Makefile.generated_files of Kubernetes does, whose rules need the Go release of that time.
    """
    generator = work / "openapi-gen"
    command = [str(go / "bin/go"), "build", "-p", "2", "-o", str(generator)]
    _run([*command, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"], kubernetes, environment)
    marked = {
        file.parent.relative_to(kubernetes)
        for part in ("pkg", STAGING)
        for file in (kubernetes / part).rglob("*.go")
        if b"+k8s:openapi-gen=" in file.read_bytes()
    }
    others = tuple(f"{STAGING}/{name}/" for name in ("code-generator", "sample-apiserver"))
    packages = sorted(
        f"k8s.io/kubernetes/{folder}".replace("/staging/src/", "/vendor/")
        for folder in marked
        if not f"{folder}/".startswith(others)
    )
    options = {
        "-i": ",".join(packages),
        "-p": "k8s.io/kubernetes/pkg/generated/openapi",
        "-O": "zz_generated.openapi",
        "-h": "vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
        "-r": str(work / "violations"),
        "--output-base": str(work / "go/src"),
    }
    # It asks Go where packages are.
    path = os.pathsep.join((str(go / "bin"), os.environ.get("PATH", os.defpath)))
    arguments = [part for option in options.items() for part in option]
    _run([str(generator), *arguments], kubernetes, environment | {"PATH": path})


def _run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"} | (environment or {}),
        stdout=sys.stderr,
        check=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where bin/ is made")
    parser.add_argument("--keep", action="store_true", help="leave the source and the compiler")
    options = parser.parse_args()
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        print(
            "Not a Debian system: bring kube-apiserver, kube-scheduler and etcd yourself, into "
            f"{options.folder / 'bin'}.",
            file=sys.stderr,
        )
        return 1
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        build(folder, keep=options.keep)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"Not built: {error}", file=sys.stderr)
        return 1
    print(folder / "bin")
    return 0


if __name__ == "__main__":
    sys.exit(main())
