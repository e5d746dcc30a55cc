"""How long training takes, model by model. Prints one JSON document.

A made-up campaign: as many runs and surrogates as requested, three intensities of each inducer and
a few mixes, a program that is slowed by three resources. Every model is fitted and validated as
`kongming train` does it, on all surrogates and on the quick ones.

    whole       seconds of one `train_application`, all models of both variants
    models      by model: seconds to validate and to fit it, their ratio to the sum over models,
                and for the genetic ones how many selections were scored

Run it on an idle machine. Exit status 0; 1 if something could not be run; 4 with --check when a
target is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from typing import Any

import numpy as np

from kongming import Fingerprint, LoadLevel, Reading, Run
from kongming.learning import dataset as datasets
from kongming.learning.dataset import Dataset
from kongming.learning.fitting import fit
from kongming.learning.registry import KINDS, Kind
from kongming.learning.training import train_application
from kongming.learning.validation import cross_validate, make_folds, positions
from kongming.probes.node import node_facts
from kongming.records.errors import KongmingError

LIMIT_S = 6.0
FAMILIES = ("cache", "memory", "compute", "os", "read", "write", "metadata", "network")
INTENSITIES = (0.3, 0.6, 1.0)
SENSITIVITY = {"cache": 0.5, "memory": 0.3, "write": 0.2}
SOLO_S = 3.0


def campaign(runs: int, surrogates: int, seed: int) -> list[Run]:
    """Runs of one program: one in ten solo, one in twenty under two inducers at once."""
    random = np.random.default_rng(seed)
    node = node_facts()
    names = [f"{FAMILIES[j % len(FAMILIES)]}.{j:02}" for j in range(surrogates)]
    family = {name: name.partition(".")[0] for name in names}
    idle = {name: 10.0 ** random.uniform(-9, -2) for name in names}
    drawn_runs = []
    for number in range(runs):
        levels: list[LoadLevel] = []
        if number % 10:
            chosen = [names[number % surrogates]]
            if number % 20 == 1:
                chosen.append(names[(number * 7 + 1) % surrogates])
            levels = [
                LoadLevel(surrogate=name, family=family[name], intensity=INTENSITIES[number % 3])
                for name in chosen
            ]
        pressure = dict.fromkeys(FAMILIES, 0.0)
        for level in levels:
            pressure[level.family] += 0.8 * level.intensity
        times = {
            name: idle[name] * math.exp(pressure[family[name]] + 0.03 * random.standard_normal())
            for name in names
        }
        log = sum(share * pressure[name] for name, share in SENSITIVITY.items())
        metric = SOLO_S * math.exp(log + 0.02 * random.standard_normal())
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1.7e9 + 60.0 * number))
        readings = {
            name: Reading(
                name=name,
                family=family[name],
                op="one operation",
                seconds_per_op=seconds,
                median=seconds,
                p90=1.1 * seconds,
                n=20,
                ops=1000,
                elapsed_s=0.05,
            )
            for name, seconds in times.items()
        }
        fingerprint = Fingerprint(
            node=node,
            suite="standard",
            suite_version="1-00000000",
            cpu=0,
            started_at=when,
            elapsed_s=2.0,
            surrogates=readings,
        )
        drawn_runs.append(
            Run(
                app="made-up",
                identity="0" * 16,
                node_id=node.id,
                placement="cross-core",
                kind="induced" if levels else "solo",
                started_at=when,
                wall_s=metric,
                metric=metric,
                levels=tuple(levels),
                fingerprint=fingerprint,
                step=number,
            )
        )
    return drawn_runs


def quick_names(surrogates: int, data: Dataset) -> tuple[str, ...]:
    """Two in five of the surrogates, as in the real suite."""
    return data.columns[: max(2, 2 * surrogates // 5)]


def measure_model(kind: Kind, variants: dict[str, Dataset]) -> dict[str, Any]:
    validating = fitting = 0.0
    evaluations: dict[str, int] = {}
    for name, data in variants.items():
        folds = make_folds(data)
        start = time.monotonic()
        validation = cross_validate(kind, data, folds, noise=0.01)
        middle = time.monotonic()
        inner = positions(folds, np.arange(len(data.y)))
        fitted = fit(kind, data, noise=0.01, inner=inner)
        fitting += time.monotonic() - middle
        validating += middle - start
        if hasattr(fitted.estimator, "evaluations_"):
            evaluations[name] = int(fitted.estimator.evaluations_)
            evaluations[f"{name}, validating"] = validation.evaluations
    result: dict[str, Any] = {
        "validate_s": round(validating, 3),
        "fit_s": round(fitting, 3),
        "seconds": round(validating + fitting, 3),
    }
    return result | ({"evaluations": evaluations} if evaluations else {})


def measure(options: argparse.Namespace) -> dict[str, Any]:
    runs = campaign(options.observations, options.surrogates, options.seed)
    data = datasets.build(runs)
    quick = quick_names(options.surrogates, data)
    variants = {"full": data, "quick": data.select(quick)}
    wanted = options.models or [kind.name for kind in KINDS.values() if not kind.optional]
    # The first fit of each kind loads its libraries.
    train_application(runs[:30], quick_columns=quick, models=wanted)
    walls, cpus = [], []
    for _ in range(options.runs):
        start, cpu = time.monotonic(), time.process_time()
        train_application(runs, quick_columns=quick, models=wanted)
        walls.append(time.monotonic() - start)
        cpus.append(time.process_time() - cpu)
    models = {name: measure_model(KINDS[name], variants) for name in wanted}
    total = sum(model["seconds"] for model in models.values())
    for model in models.values():
        model["ratio"] = round(model["seconds"] / total, 3)
    median_wall_s = statistics.median(walls)
    return {
        "schema": 1,
        "benchmark": "train_speed",
        "met": median_wall_s < LIMIT_S,
        "whole": {
            "wall_s": round(median_wall_s, 3),
            "worst_wall_s": round(max(walls), 3),
            "cpu_s": round(statistics.median(cpus), 3),
            "limit_s": LIMIT_S,
        },
        "models": models,
        "observations": len(data.y),
        "surrogates": {name: len(variant.columns) for name, variant in variants.items()},
        "left_out": [fold.name for fold in make_folds(data)],
        "runs": options.runs,
        "seed": options.seed,
        "python": sys.version.split()[0],
        "load1": os.getloadavg()[0],
        "node": node_facts().to_dict(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--observations", type=int, default=200)
    parser.add_argument("--surrogates", type=int, default=35)
    parser.add_argument("--runs", type=int, default=3, help="of the complete training (default 3)")
    parser.add_argument("--seed", type=int, default=0, help="of the made-up campaign")
    parser.add_argument("--models", nargs="*", choices=tuple(KINDS), help="only these")
    parser.add_argument("--check", action="store_true", help="exit 4 when a target is missed")
    options = parser.parse_args()
    if options.runs < 1 or options.observations < 30 or options.surrogates < 8:
        parser.error("--runs must be 1, --observations 30 and --surrogates 8 or more")
    try:
        document = measure(options)
    except KongmingError as error:
        print(f"train_speed: {error}", file=sys.stderr)
        return 1
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
