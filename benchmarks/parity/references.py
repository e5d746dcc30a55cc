"""What the surrogates are held against: programs that share no code with them.

Each function returns one reading: seconds per load for a chase, bytes per second otherwise.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = ("-O3", "-std=c11", "-Wall", "-Wextra")


class ReferenceError(Exception):
    """A reference could not be built or run; the message is one sentence."""


def compiler() -> str:
    """CC, else cc or gcc: the compiler that the surrogates were built with, too."""
    for name in (os.environ.get("CC"), "cc", "gcc"):
        if name and shutil.which(name.split()[0]):
            return name
    raise ReferenceError("There is no C compiler (CC, cc or gcc).")


def compiler_version() -> str:
    return _run([*compiler().split(), "--version"], 10).splitlines()[0]


def _run(arguments: list[str], timeout: float) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise ReferenceError(f"{Path(arguments[0]).name} failed: {last}")
    return done.stdout


def build(source: Path, folder: Path, *defines: str) -> Path:
    """The program built from ``source`` into ``folder``, without -march=native."""
    program = folder / source.stem
    _run([*compiler().split(), *FLAGS, *defines, "-o", str(program), str(source), "-lm"], 120)
    return program


def chase(program: Path, size_bytes: int, seconds: float) -> float:
    document = json.loads(_run([str(program), str(size_bytes), str(seconds)], 120))
    return float(document["seconds_per_op"])


def triad(program: Path, array_bytes: int, seconds: float) -> float:
    """Mean bandwidth over all passes, in bytes per second."""
    document = json.loads(_run([str(program), str(array_bytes // 8), str(seconds)], 120))
    return 24.0 / float(document["seconds_per_element"])


def build_stream(source: Path, array_bytes: int, folder: Path) -> Path:
    """STREAM's own stream.c, without OpenMP, for arrays of this size."""
    elements = f"-DSTREAM_ARRAY_SIZE={array_bytes // 8}"
    # Static arrays above 2 GiB in all need another code model; the surrogates stay below.
    return build(source, folder, elements, "-DNTIMES=20", "-Wno-unused-parameter")


def stream_triad(program: Path) -> float:
    """STREAM's triad, from its average time as ours is a mean too, in bytes per second."""
    match = re.search(r"^Triad:\s+(\S+)\s+(\S+)\s+(\S+)\s", _run([str(program)], 300), re.M)
    if not match:
        raise ReferenceError("stream printed no line for Triad.")
    best_rate, mean, least = (float(word) for word in match.groups())
    return best_rate * 1e6 * least / mean


def fio_read(file: Path, cpu: int, seconds: float, order: str) -> float:
    """4 MiB direct reads of ``file`` at queue depth 1; ``order`` is read or randread."""
    arguments = [
        "fio",
        "--name=parity",
        f"--filename={file}",
        f"--size={file.stat().st_size}",
        f"--rw={order}",
        "--bs=4M",
        "--direct=1",
        "--ioengine=psync",
        "--iodepth=1",
        "--readonly",
        "--time_based",
        f"--runtime={max(1, round(seconds))}",
        f"--cpus_allowed={cpu}",
        "--output-format=json",
    ]
    output = _run(arguments, seconds + 60)
    # fio may print a message before the document.
    read = json.loads(output[output.index("{") :])["jobs"][0]["read"]
    return float(read["bw_bytes"])
