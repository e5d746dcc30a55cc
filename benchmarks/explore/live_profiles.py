"""Adaptive profiles measured live, next to complete ones of the same programs and to their pairs.

    ../../.venv/bin/python live_profiles.py ../../examples/apps.toml --folder FOLDER \\
        --taught ../accuracy/recorded/epyc-32M-cross-core.db.xz \\
        --app bzip2 --app compile --app gather --app json --app lu --app sort

Measures, with a store of each in the folder, every one of which has the profiles of ``--taught``
(of other programs): adaptive profiles of the first ``--starts``, then complete quick profiles and
pairs, interleaved, then adaptive profiles of the other ``--starts``. The same command resumes. On
an idle machine; six programs take an hour.

Prints one JSON document: excess and floored error over the pairs of ``auto`` trained on each
profile; ``share``, where these lie between those of the complete profiles (0) and SOLO (1); and
``time_share``, seconds of measuring over those of the complete profiles. ``order`` are the complete
profiles cut to as many starts in the quick plan's own order.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profiles import chosen, cut, ladder_of, scored, seconds, unpack, with_shares

from kongming.campaigns.pair_campaign import KIND
from kongming.store import Store


def kongming(*arguments: object) -> None:
    """Run a command; what it prints is progress."""
    command = [sys.executable, "-m", "kongming.cli.main", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def url(path: Path) -> str:
    return f"sqlite:///{path.absolute()}"


def options_of_pairs(options: argparse.Namespace) -> tuple[str, ...]:
    sample = () if options.sample is None else ("--sample", str(options.sample))
    return ("--repeats", str(options.repeats), *sample)


def measure(options: argparse.Namespace, apps: Sequence[str], stores: dict[str, Path]) -> None:
    """Measure what the stores lack, in the order of the module's text."""
    names = [part for app in apps for part in ("--app", app)]
    where = [options.apps, *names, "--placement", options.placement]
    first, *later = options.starts

    def adaptive(starts: int) -> None:
        plan = ["--plan", "adaptive", "--runs", starts]
        kongming("profile", *where, *plan, "--store", url(stores[f"adaptive {starts}"]))

    adaptive(first)
    more = ["--pairs", *options_of_pairs(options), "--models", "auto"]
    kongming("evaluate", *where, *more, "--store", url(stores["complete"]))
    for starts in later:
        adaptive(starts)


def campaign_of(store: Store, key: str, value: object, apps: Sequence[str]) -> str:
    """Return the newest campaign of these applications whose document has this value."""
    for campaign in store.campaigns():
        document = campaign.document
        if document.get(key) == value and set(document.get("apps", ())) == set(apps):
            return campaign.id
    raise SystemExit(f"no campaign whose {key} is {value} of {', '.join(apps)}")


def with_pairs(profiles: Path, complete: Path, pairs: str, campaign: str) -> None:
    """Copy the campaign ``pairs`` of ``complete`` into ``profiles``, whose own ``campaign`` stands
    for a complete quick profile from now on: those are what pairs are scored with."""
    with sqlite3.connect(profiles) as database:
        database.execute("ATTACH ? AS other", (str(complete),))
        for table in ("node", "application", "fingerprint"):
            database.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM other.{table}")
        database.execute("INSERT INTO campaign SELECT * FROM other.campaign WHERE id = ?", (pairs,))
        for table in ("run", "signature"):
            database.execute(
                f"INSERT INTO {table} SELECT * FROM other.{table} WHERE campaign = ?", (pairs,)
            )
        database.execute(
            "UPDATE campaign SET document = json_set(document, '$.plan', 'quick') WHERE id = ?",
            (campaign,),
        )


def score(
    options: argparse.Namespace, apps: Sequence[str], stores: dict[str, Path]
) -> dict[str, Any]:
    """Return the document that is printed."""
    placement, complete = options.placement, stores["complete"]
    how = options_of_pairs(options)
    with Store.open(url(complete)) as store:
        pairs = campaign_of(store, "evaluate", KIND, apps)
        quick = campaign_of(store, "plan", "quick", apps)
        runs = store.runs(placement=placement, campaign=quick, ok=True)
        signatures = store.signatures(placement=placement, campaign=quick)
        taught = [
            run
            for run in store.runs(placement=placement, ok=True)
            if run.app not in apps and run.kind in ("solo", "induced")
        ]
    firsts = list({each.app: each for each in reversed(signatures)}.values())
    complete_s = seconds(runs, signatures)
    document: dict[str, Any] = {"apps": list(apps), "repeats": options.repeats}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(complete, copy)
        document["complete"] = scored(copy, options.apps, apps, placement, *how)
        document["complete"]["starts"] = (len(runs) + len(signatures)) / len(apps)
        print("complete", json.dumps(document["complete"]), file=sys.stderr, flush=True)
        ladder = ladder_of([*taught, *runs], placement)
        for starts in options.starts:
            shutil.copyfile(complete, copy)
            left = [
                run
                for app in apps
                for run in chosen(app, [*taught, *runs], ladder, starts, "order")
            ]
            cut(copy, {run.step for run in left}, {quick})
            scores = scored(copy, options.apps, apps, placement, *how)
            with_shares(scores, document["complete"])
            scores["time_share"] = seconds(left, firsts) / complete_s
            document[f"order {starts}"] = scores
            print("order", starts, json.dumps(scores), file=sys.stderr, flush=True)

            path = stores[f"adaptive {starts}"]
            with Store.open(url(path)) as store:
                campaign = campaign_of(store, "plan", "adaptive", apps)
                own = store.runs(placement=placement, campaign=campaign, ok=True)
                own_signatures = store.signatures(placement=placement, campaign=campaign)
            shutil.copyfile(path, copy)
            with_pairs(copy, complete, pairs, campaign)
            scores = scored(copy, options.apps, apps, placement, *how)
            with_shares(scores, document["complete"])
            scores["time_share"] = seconds(own, own_signatures) / complete_s
            scores["starts"] = (len(own) + len(own_signatures)) / len(apps)
            document[f"adaptive {starts}"] = scores
            print("adaptive", starts, json.dumps(scores), file=sys.stderr, flush=True)
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("apps", type=Path, metavar="APPS.toml")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--taught", type=Path, required=True, metavar="FILE.db.xz")
    parser.add_argument("--app", action="append", required=True)
    parser.add_argument("--placement", default="cross-core")
    parser.add_argument("--starts", type=int, action="append")
    parser.add_argument("--sample", type=int, metavar="N", help="ordered pairs (default: all)")
    parser.add_argument("--repeats", type=int, default=4, help="runs of each pair (default: 4)")
    parser.add_argument("--score-only", action="store_true")
    options = parser.parse_args()
    options.starts = options.starts or [24, 12]
    apps = sorted(options.app)
    names = ["complete", *(f"adaptive {starts}" for starts in options.starts)]
    stores = {name: options.folder / f"{name.replace(' ', '-')}.db" for name in names}
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in stores.values():
        if not path.exists():
            part = path.with_suffix(".part")
            unpack(options.taught, part)
            part.rename(path)
    if not options.score_only:
        measure(options, apps, stores)
    print(json.dumps(score(options, apps, stores), indent=1))


if __name__ == "__main__":
    main()
