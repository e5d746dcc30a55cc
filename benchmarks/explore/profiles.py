"""Adaptive load levels against the quick plan's own order, replayed on recorded profiles.

    nice ../../.venv/bin/python profiles.py ../../examples/apps.toml \\
        --recorded ../accuracy/recorded/epyc-32M-cross-core.db.xz --starts 12 --starts 24

Each application's profile is cut to n starts, solo runs and signature included: the levels that an
adaptive plan would have chosen when the other applications had been profiled (``adaptive``), or the
first ones of the quick plan (``order``). Prints, by n and choice, excess and floored error of
``auto`` over the pairs, and where they lie between those of the complete plan (0) and SOLO (1);
and ``time_share``, the seconds of what is kept over those of the complete profiles.
``--levels-only`` trains nothing: the squared error of all levels as the others teach them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from kongming.campaigns.adaptive_levels import LevelChooser
from kongming.profiling.plans.campaign_plan import (
    ADAPTIVE,
    levels_of,
    make_adaptive_plan,
)
from kongming.profiling.plans.steps import Step
from kongming.records.run import LoadLevel, Run, Signature
from kongming.store import Store

Levels = tuple[LoadLevel, ...]
CHOICES = ("adaptive", "order")


def ladder_of(runs: Sequence[Run], placement: str) -> list[Levels]:
    inducers = {level.surrogate: level.family for run in runs for level in run.levels}
    measured = {run.levels for run in runs}
    return [mix for mix in levels_of(ADAPTIVE, inducers, placement=placement) if mix in measured]


def chosen(app: str, runs: Sequence[Run], ladder: list[Levels], starts: int, how: str) -> list[Run]:
    """The runs of ``app`` that a profile of ``starts`` starts would have."""
    own = [run for run in runs if run.app == app]
    solos = [run for run in own if run.kind == "solo"]
    of = {run.levels: run for run in own if run.kind == "induced"}
    plan = make_adaptive_plan(
        [app], ladder, lambda block: (), runs=starts, placement=runs[0].placement, seed=0
    )
    wanted = {kind: sum(step.kind == kind for step in plan.steps) for kind in ("solo", "induced")}
    selected = solos[:: max(1, len(solos) // wanted["solo"])][: wanted["solo"]]
    if how == "order":
        return selected + [of[mix] for mix in ladder if mix in of][: wanted["induced"]]
    chooser = LevelChooser(ladder, [run for run in runs if run.app != app], selected)
    for index in range(wanted["induced"]):
        levels = chooser([Step(1000 + index, index, "induced", app, ladder[0])])
        if levels in of:
            selected.append(of[levels])
            chooser.add(of[levels])
    return selected


def seconds(runs: Sequence[Run], signatures: Sequence[Signature]) -> float:
    """Return the seconds that runs with their fingerprints, and signatures, take."""
    total = math.fsum(run.wall_s for run in runs)
    for run in runs:
        # A run without a load has one fingerprint, which stands before and after it.
        for fingerprint in {id(f): f for f in (run.before, run.after) if f is not None}.values():
            total += fingerprint.elapsed_s
    return total + math.fsum(each.fingerprint.elapsed_s for each in signatures)


def level_error(
    app: str, profile: Sequence[Run], runs: Sequence[Run], ladder: list[Levels]
) -> float:
    """Mean squared error of the log slowdowns of all levels: those of ``profile``, and the others
    by least squares on what the other applications did under the levels of ``profile``."""

    def row(name: str, part: Sequence[Run]) -> dict[Levels, float]:
        own = [run for run in part if run.app == name]
        solo = median(math.log(run.cost) for run in own if run.kind == "solo")
        return {run.levels: math.log(run.cost) - solo for run in own if run.levels}

    others = sorted({run.app for run in runs} - {app})
    taught = np.array([[row(name, runs).get(mix, 0.0) for mix in ladder] for name in others])
    truth, known = row(app, runs), row(app, profile)
    places = [place for place, mix in enumerate(ladder) if mix in known]
    centre = taught.mean(axis=0)
    spread = (taught - centre).T @ (taught - centre) / len(taught)
    inner = spread[np.ix_(places, places)] + 1e-3 * np.eye(len(places))
    seen = np.array([known[ladder[place]] for place in places]) - centre[places]
    guess = centre + spread[:, places] @ np.linalg.solve(inner, seen)
    return fmean(
        (float(guess[place]) - truth[mix]) ** 2
        for place, mix in enumerate(ladder)
        if mix in truth and mix not in known
    ) * (1.0 - len(places) / len(ladder))


def cut(path: Path, keep: set[int], campaigns: set[str]) -> None:
    """Delete the steps of profiles that are not kept, and all their signatures but the first."""
    with sqlite3.connect(path) as database:
        for campaign in campaigns:
            rows = database.execute("SELECT id, step FROM run WHERE campaign = ?", (campaign,))
            gone = [(run,) for run, step in rows.fetchall() if step not in keep]
            database.executemany("DELETE FROM run WHERE id = ?", gone)
            database.execute(
                "DELETE FROM signature WHERE campaign = ? AND step NOT IN "
                "(SELECT min(step) FROM signature WHERE campaign = ? GROUP BY app)",
                (campaign, campaign),
            )


def scored(
    path: Path, file: Path, apps: Sequence[str], placement: str, *pairs: str
) -> dict[str, float]:
    """Return the figures of ``auto`` and SOLO on the pairs measured with the options ``pairs``."""
    command = [sys.executable, "-m", "kongming.cli.main", "evaluate", str(file), "--pairs"]
    command += ["--json", "--score-only", "--store", f"sqlite:///{path}"]
    command += ["--placement", placement, *(pairs or ("--repeats", "4"))]
    command += [part for app in apps for part in ("--app", app)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    document: dict[str, Any] = json.loads(done.stdout)
    return {
        f"{figure} {model}": document[key][model]["value"]
        if isinstance(document[key][model], dict)
        else document[key][model]
        for figure, key in (("excess", "excess"), ("floored", "floored_geomean_pct"))
        for model in ("auto", "SOLO")
        if model in document[key]
    }


def with_shares(scores: dict[str, float], complete: dict[str, float]) -> dict[str, float]:
    """Add where the errors of ``auto`` lie between those of the complete profiles (0) and of SOLO
    (1)."""
    for figure in ("excess", "floored"):
        quick, solo = (complete.get(f"{figure} {model}") for model in ("auto", "SOLO"))
        if quick is not None and solo is not None and solo != quick:
            scores[f"{figure} share"] = (scores[f"{figure} auto"] - quick) / (solo - quick)
    return scores


def unpack(recorded: Path, store: Path) -> None:
    with lzma.open(recorded) as source, store.open("wb") as target:
        shutil.copyfileobj(source, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("apps", type=Path, metavar="APPS.toml")
    parser.add_argument("--recorded", type=Path, required=True, metavar="FILE.db.xz")
    parser.add_argument("--placement", default="cross-core")
    parser.add_argument("--starts", type=int, action="append")
    parser.add_argument("--choice", choices=CHOICES, action="append")
    parser.add_argument("--levels-only", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        complete = Path(folder) / "complete.db"
        unpack(options.recorded, complete)
        with Store.open(f"sqlite:///{complete}") as store:
            every = store.runs(placement=options.placement, ok=True)
            signatures = store.signatures(placement=options.placement)
        campaigns = {run.campaign for run in every if run.kind == "induced"}
        runs = [run for run in every if run.campaign in campaigns]
        apps = sorted({run.app for run in runs if run.kind == "induced"})
        signatures = [each for each in signatures if each.campaign in campaigns]
        firsts = list({each.app: each for each in reversed(signatures)}.values())
        complete_s = seconds(runs, signatures)
        ladder = ladder_of(runs, options.placement)
        document: dict[str, Any] = {"apps": apps, "levels": len(ladder)}
        if not options.levels_only:
            document["whole"] = scored(complete, options.apps, apps, options.placement)
            print("whole", json.dumps(document["whole"]), file=sys.stderr, flush=True)
        for starts in options.starts or [12, 24]:
            for how in options.choice or CHOICES:
                selected = {app: chosen(app, runs, ladder, starts, how) for app in apps}
                key = f"{how} {starts}"
                selected_runs = [run for part in selected.values() for run in part]
                time_share = seconds(selected_runs, firsts) / complete_s
                if options.levels_only:
                    errors = {app: level_error(app, selected[app], runs, ladder) for app in apps}
                    document[key] = {
                        "mean": fmean(errors.values()),
                        "time_share": time_share,
                        **errors,
                    }
                    continue
                path = Path(folder) / "cut.db"
                shutil.copyfile(complete, path)
                cut(path, {run.step for run in selected_runs}, campaigns)
                scores = scored(path, options.apps, apps, options.placement)
                scores["time_share"] = time_share
                with_shares(scores, document["whole"])
                document[key] = scores
                print(key, json.dumps(scores), file=sys.stderr, flush=True)
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
