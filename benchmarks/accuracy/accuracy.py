"""Accuracy over pairs: measured or recorded, scored beside the peers, held against the targets.

    python -m benchmarks.accuracy.accuracy examples/apps.toml --app xz --app stencil --out DIR
    python -m benchmarks.accuracy.accuracy examples/apps.toml --recorded STORE.db.xz --out DIR

Prints one JSON document: ``machine``, ``targets`` and the summary of ``kongming evaluate``, whose
tables and figures go to ``--out``.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.accuracy.targets import reached
from benchmarks.peers import NAMES, Profile, predictions
from kongming.store import Store

INCOMPLETE = 1
"""Exit status of ``kongming evaluate`` where something failed or is left: what is there counts."""

SUMMARY = (
    "placement",
    "apps",
    "runs",
    "repeats",
    "elapsed_s",
    "scored",
    "complete",
    "geomean_pct",
    "noise_floor_pct",
    "skill",
    "uninformative",
    "all",
    "perfect",
    "random_regret_pct",
    "heavy_pairs",
    "coverage",
    "chosen",
    "table",
)


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="kongming-accuracy-") as folder:
        store = options.store
        if options.recorded is not None:
            unpacked = Path(folder) / "recorded.db"
            with lzma.open(options.recorded) as source, unpacked.open("wb") as target:
                shutil.copyfileobj(source, target)
            store = f"sqlite:///{unpacked}"
        command = [sys.executable, "-m", "kongming.cli.main", "evaluate", str(options.apps)]
        command += ["--pairs", "--repeats", str(options.repeats), "--json", "--store", store]
        command += ["--placement", options.placement]
        command += [part for app in options.app for part in ("--app", app)]
        scoring = [*command, "--score-only"]
        alone = _evaluated(scoring if options.recorded else command)
        others = Path(folder) / "peers.json"
        others.write_text(json.dumps(_peers(store, alone)))
        document = _evaluated([*scoring, "--predictions", str(others), "--out", str(options.out)])
    json.dump(
        {
            "benchmark": "accuracy",
            "machine": _machine(document["node"]),
            "targets": reached(document, NAMES),
            **{key: document.get(key) for key in SUMMARY},
        },
        sys.stdout,
        indent=2,
    )
    print()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("apps", type=Path, metavar="APPS.toml")
    parser.add_argument("--app", action="append", default=[], metavar="NAME")
    parser.add_argument("--placement", default="cross-core")
    parser.add_argument("--repeats", type=int, default=4)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--store", metavar="URL", help="measure, and keep it here")
    where.add_argument("--recorded", type=Path, metavar="FILE.db.xz", help="score this instead")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    return parser.parse_args()


def _evaluated(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, INCOMPLETE) or not done.stdout.strip():
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _peers(url: str, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the peers predict, from the very runs that ours are trained on."""
    profiles = {}
    with Store.open(url) as store:
        for app, profile in document["profiles"].items():
            campaign = profile["campaign"]
            profiles[app] = Profile(
                app,
                tuple(store.runs(app=app, campaign=campaign)),
                tuple(store.signatures(app=app, campaign=campaign)),
            )
    measured = {
        (pair["app"], pair["beside"]): float(pair["slowdown"])
        for pair in document["pairs"]
        if pair["slowdown"] is not None
    }
    return [
        {"app": app, "beside": beside, "model": name, "slowdown": slowdown}
        for app, beside, name, slowdown in predictions(profiles, sorted(measured), measured)
    ]


def _machine(node: Mapping[str, Any]) -> dict[str, Any]:
    hardware, topology = node["hardware"], node["topology"]
    return {
        **{key: hardware[key] for key in ("cpu_vendor", "cpu_model", "llc_bytes", "memory_bytes")},
        "cpus": len(topology["cpus"]),
        "kernel": node["kernel"],
        "hypervisor": node["hypervisor"],
    }


if __name__ == "__main__":
    sys.exit(main())
