"""What a running agent costs, read from outside of it. Prints one JSON.

Starts kongming-agent with its default settings (or --config), without a server unless one is
named, and after --minutes reads from /proc what it and its ended probes used: share of one core,
proportional set size, bytes written. The agent's own figures stand next to it. The budget holds
over twenty minutes: a shorter run may see its first burst alone.

Exit status 0; with --check 4 when it is above 1 % of a core, 64 MiB, or its budget of bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

CPU_LIMIT = 0.01
PSS_LIMIT_BYTES = 64 << 20
DAY_S = 86400.0


def cpu_seconds(pid: int) -> tuple[float, float]:
    """(of the process itself, of its children that have ended)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, child_user, child_system = (float(fields[i]) for i in (11, 12, 13, 14))
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + system) / ticks, (child_user + child_system) / ticks


def number(pid: int, file: str, key: str) -> float:
    """The number after ``key:`` in a file of /proc/PID."""
    match = re.search(rf"^{key}:\s+(\d+)", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
    return float(match[1]) if match else 0.0


def figures(port: int) -> dict[str, float]:
    """The agent's own metrics that have no labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    samples = re.findall(r"^kongming_agent_(\w+) (\S+)$", page, re.MULTILINE)
    return {name: float(value) for name, value in samples}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "kongming_agent.agent_command", "--state", state]
        command += ["--metrics", f"127.0.0.1:{port}", "--server", options.server]
        if options.config is not None:
            command += ["--config", str(options.config)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            # Starting is paid once; what it cost is reported separately.
            time.sleep(options.settle)
            started = time.monotonic()
            own_0, probes_0 = cpu_seconds(process.pid)
            written_0 = number(process.pid, "io", "write_bytes")
            time.sleep(60.0 * options.minutes)
            passed = time.monotonic() - started
            own, probes = cpu_seconds(process.pid)
            written = number(process.pid, "io", "write_bytes") - written_0
            pss = number(process.pid, "smaps_rollup", "Pss") * 1024.0
            reported = figures(port)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
    share = (own - own_0 + probes - probes_0) / passed
    # A sixth of a day's bytes may be written at once, the rest comes evenly.
    budget = reported["budget_written_bytes"] * (1.0 + 5.0 * passed / DAY_S) / 6.0
    return {
        "schema": 1,
        "benchmark": "service.agent_cost",
        "met": share <= CPU_LIMIT and pss <= PSS_LIMIT_BYTES and written <= budget,
        "seconds": round(passed, 1),
        "start_cpu_s": round(own_0 + probes_0, 3),
        "cpu_share": round(share, 5),
        "cpu_share_without_probes": round((own - own_0) / passed, 5),
        "cpu_share_limit": CPU_LIMIT,
        "pss_bytes": round(pss),
        "pss_limit_bytes": PSS_LIMIT_BYTES,
        "written_bytes": round(written),
        "written_bytes_limit": round(budget),
        "told_by_agent": reported,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--settle", type=float, default=15.0, help="seconds before it is read")
    parser.add_argument("--server", default="127.0.0.1:1", help="HOST:PORT (default: none there)")
    parser.add_argument("--config", type=Path, help="the agent's settings")
    parser.add_argument("--check", action="store_true", help="exit 4 when a limit is missed")
    options = parser.parse_args()
    document = measure(options)
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
