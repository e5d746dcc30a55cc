"""Accuracy over pairs: measured or recorded, scored next to the peers, compared with the targets.

    python -m benchmarks.accuracy.accuracy examples/apps.toml --app xz --app stencil --out DIR
    python -m benchmarks.accuracy.accuracy examples/apps.toml --recorded STORE.db.xz --out DIR

Prints one JSON document: ``machine``, ``targets`` and the summary of ``kongming evaluate``, whose
tables and figures go to ``--out``. ``--results`` also keeps what is committed next to a recording:
the summary, the table, every prediction and the figure of minutes. ``--nodes`` scores environments.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.accuracy.targets import reached
from benchmarks.peers import NAMES, Profile, predictions
from benchmarks.peers.observations import is_memory_probe
from kongming.evaluate.minutes import campaign_costs
from kongming.records.run import Run, Signature
from kongming.store import Store

INCOMPLETE = 1
"""Exit status of ``kongming evaluate`` where something failed or is left: what is there counts."""

SUMMARY = (
    "kind",
    "placement",
    "apps",
    "runs",
    "repeats",
    "elapsed_s",
    "scored",
    "complete",
    "sample",
    "preregistered",
    "dropped",
    "excess",
    "noise",
    "geomean_pct",
    "floored_geomean_pct",
    "noise_floor_pct",
    "skill",
    "all",
    "truth",
    "random_regret_pct",
    "heavy_pairs",
    "minutes",
    "measuring",
    "coverage",
    "chosen",
    "table",
)

FIGURE = "error-minutes-light.svg"


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="kongming-accuracy-") as folder:
        store = options.store
        if options.recorded is not None:
            unpacked = Path(folder) / "recorded.db"
            with lzma.open(options.recorded) as source, unpacked.open("wb") as target:
                shutil.copyfileobj(source, target)
            store = f"sqlite:///{unpacked}"
        kind = "--nodes" if options.nodes else "--pairs"
        command = [sys.executable, "-m", "kongming.cli.main", "evaluate", str(options.apps)]
        command += [kind, "--json", "--store", store, "--placement", options.placement]
        if options.precision is None:
            command += ["--repeats", str(options.repeats)]
        else:
            command += ["--precision", options.precision]
        if options.sample is not None:
            command += ["--sample", str(options.sample)]
        if options.preregister is not None:
            command += ["--preregister", str(options.preregister)]
        command += [part for app in options.app for part in ("--app", app)]
        scoring = [*command, "--score-only"]
        if options.nodes:
            written = ["--out", str(options.out)]
            document = _evaluated([*(scoring if options.recorded else command), *written])
            targets = []
        else:
            # Peers need the profiles that are chosen; no model of ours is trained for that.
            held = _evaluated([*(scoring if options.recorded else command), "--models", "MEAN"])
            others = Path(folder) / "peers.json"
            others.write_text(json.dumps(_peers(store, held)))
            written = ["--predictions", str(others), "--out", str(options.out)]
            document = _evaluated([*scoring, *written])
            targets = reached(document, NAMES)
    summary = json.dumps(
        {
            "benchmark": "accuracy",
            "machine": _machine(document["node"]),
            "targets": targets,
            **{key: document.get(key) for key in SUMMARY},
        },
        indent=2,
    )
    print(summary)
    if options.results is not None:
        _keep(options.out, options.results, f"{summary}\n")
    return 0


def _keep(out: Path, stem: Path, summary: str) -> None:
    """Write STEM.json, .md, .csv (every prediction) and, of pairs, the figure of minutes."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_name(f"{stem.name}.json").write_text(summary)
    for name in ("table.md", "pairs.csv", "runs.csv", FIGURE):
        source = out / name
        if source.exists():
            shutil.copyfile(source, stem.with_name(f"{stem.name}{source.suffix}"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("apps", type=Path, metavar="APPS.toml")
    parser.add_argument("--app", action="append", default=[], metavar="NAME")
    parser.add_argument("--placement", default="cross-core")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--precision", metavar="PERCENT", help="of a pair, instead of --repeats")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of the ordered pairs")
    parser.add_argument("--preregister", type=Path, metavar="FILE", help="see kongming evaluate")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--store", metavar="URL", help="measure, and keep it here")
    where.add_argument("--recorded", type=Path, metavar="FILE.db.xz", help="score this instead")
    parser.add_argument("--nodes", action="store_true", help="environments instead of pairs")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--results", type=Path, metavar="STEM", help="copy what is committed to STEM.json, .md ..."
    )
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
        coruns = [
            run
            for run in store.runs(campaign=document["campaign"])
            if {run.app, *run.neighbours} <= profiles.keys()
        ]
    measured = {
        (pair["app"], pair["neighbour"]): float(pair["slowdown"])
        for pair in document["pairs"]
        if pair["slowdown"] is not None
    }
    minutes = _minutes(profiles, coruns)
    return [
        {
            "app": app,
            "neighbour": neighbour,
            "model": name,
            "slowdown": slowdown,
            "minutes": minutes[name],
        }
        for app, neighbour, name, slowdown in predictions(profiles, sorted(measured), measured)
    ]


def _minutes(profiles: Mapping[str, Profile], coruns: Iterable[Run]) -> dict[str, float]:
    """Minutes of measuring by peer: BUBBLE-UP needs the loads of caches and memory only, and
    PARAGON-PAIRS the pairs as well."""
    records = [r for profile in profiles.values() for r in (*profile.runs, *profile.signatures)]
    costs, of_pairs = campaign_costs(records, coruns)
    total_minutes = math.fsum(seconds for _, seconds in costs) / 60.0
    bubbles = math.fsum(
        seconds
        for record, seconds in costs
        if isinstance(record, Signature)
        or all(is_memory_probe(level.surrogate) for level in record.levels)
    )
    needed = dict.fromkeys(NAMES, total_minutes)
    needed["BUBBLE-UP"] = bubbles / 60.0
    needed["PARAGON-PAIRS"] += math.fsum(seconds for _, seconds in of_pairs) / 60.0
    return needed


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
