"""Runs every surrogate of a kongming-microbench binary once as a probe and once as an inducer.

Usage: every_kernel.py BINARY
For sanitizer builds: small sizes, short times, and any error, any word on stderr or any file left
behind is a failure.
"""

# ruff: noqa: T201 -- a script that reports on its standard output
from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = [
    *("--l2", str(1 << 20)),
    *("--llc", str(4 << 20)),
    *("--memory", str(256 << 20)),
    *("--io-bytes", str(128 << 20)),
]


def run(binary: Path, folder: str, *arguments: str) -> tuple[list[dict[str, object]], str]:
    """The events of one call, and what is wrong with it ("" if nothing)."""
    done = subprocess.run(
        [binary, *arguments, *SIZES, "--dir", folder],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [str(event["error"]) for event in events if event.get("event") == "error"]
    if done.returncode != 0:
        wrong.append(f"exit status {done.returncode}")
    if done.stderr.strip():
        wrong.append(done.stderr.strip()[-4000:])
    return events, "; ".join(wrong)


def main() -> int:
    binary = Path(sys.argv[1]).resolve()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="kongming-sanitize-") as folder:
        listed, wrong = run(binary, folder, "list")
        if wrong or not listed:
            print(f"list: {wrong or 'no surrogates'}")
            return 1
        for line in listed:
            name = str(line["name"])
            roles = line["roles"]
            calls = {
                "probe": ("probe", "--rounds", "2", "--seconds", "0.2", name),
                "inducer": ("induce", name, "--seconds", "0.2", "--intensity", "0.5"),
            }
            for role, arguments in calls.items():
                if role not in roles:
                    continue
                events, wrong = run(binary, folder, *arguments)
                if not wrong and role == "probe" and not any("ops" in event for event in events):
                    wrong = "no timed work"
                print(f"{'FAIL' if wrong else 'ok':4} {role:8} {name} {wrong}", flush=True)
                failures += bool(wrong)
        left = sorted(
            path.name for path in Path(folder).iterdir() if not path.name.startswith("kongming-io")
        )
        if left:
            print(f"FAIL files left behind: {', '.join(left)}")
            failures += 1
    print(f"{failures} failures" if failures else "every kernel ran clean")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
