"""The main job, end to end, by the commands that a user would type.

Fingerprints this node, profiles three real programs, trains, predicts how each pair disturbs one
another, runs each pair for real, and prints predicted next to measured. Run it with `make demo`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
APPS = ("xz", "hash-join", "stencil")
REPEATS = "2"
ERRORS = {
    "error": "error",
    "of the mean": "mean_error",
    "of solo": "solo_error",
    "noise floor": "floor",
}
"""The columns of errors, and what holds them."""
LEVELS = {"cross-core": "6", "same-core": "4"}
"""Fewer where a core is shared: there each fingerprint takes four seconds instead of half a one."""


class Kongming:
    """Runs `kongming` commands and says which; JSON comes back as a document."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = str(Path(sys.executable).parent / "kongming")
        self.common = ["--store", f"sqlite:///{folder / 'demo.db'}"]

    def __call__(self, *arguments: str, stored: bool = True) -> None:
        """For a person: what the command prints is shown."""
        self._run([*arguments, *(self.common if stored else [])], capture=False)

    def json(self, *arguments: str) -> Any:
        """For this program: the command's one JSON document."""
        return json.loads(self._run([*arguments, *self.common, "--json"], capture=True))

    def _run(self, arguments: list[str], *, capture: bool) -> str:
        shown = [a for a in arguments if a not in self.common]
        print(f"\n$ kongming {' '.join(short(part) for part in shown)}", flush=True)
        done = subprocess.run(
            [self.program, *arguments],
            stdout=subprocess.PIPE if capture else None,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"demo: kongming {arguments[0]} ended with status {done.returncode}.")
        return done.stdout or ""


def short(text: str) -> str:
    """A path below the current folder as a person would type it."""
    here = f"{Path.cwd()}/"
    return text.replace(here, "")


def placement_here() -> str:
    """Next to one another on two CPUs where there are two; else both on the only one."""
    if len(os.sched_getaffinity(0)) > 1:
        return "cross-core"
    print("This node has one CPU: no cross-core neighbours here, so both share that core.")
    return "same-core"


def compare(kongming: Kongming, placement: str) -> list[dict[str, Any]]:
    """Each ordered pair: measured, predicted by the chosen model and by the mean."""
    place = ["--placement", placement]
    folder = ["--dir", str(kongming.folder)]
    seen = kongming.json("corun", *APPS, *place, "--repeats", REPEATS, *folder)
    plain = {
        (each["app"], each["neighbours"][0]["app"]): each["slowdown"]["median"]
        for pair in combinations(APPS, 2)
        for each in kongming.json("pair", *pair, *place, "--model", "MEAN")["predictions"]
    }
    rows = []
    for predicted in seen["predictions"]:
        app, neighbour = predicted["app"], predicted["measured"]["neighbour"]
        measured = predicted["measured"]["slowdown"]
        of_mean = plain[app, neighbour]
        rows.append(
            {
                "pair": f"{app} next to {neighbour}",
                "model": predicted["model"],
                "predicted": predicted["slowdown"]["median"],
                "interval": (predicted["slowdown"]["lower"], predicted["slowdown"]["upper"]),
                "measured": measured,
                "error": predicted["error_pct"],
                "mean_error": 100 * abs(of_mean - measured) / measured,
                "solo_error": 100 * abs(1.0 - measured) / measured,
                "floor": predicted["noise_floor_pct"],
            }
        )
    return rows


def report(rows: list[dict[str, Any]], placement: str) -> str:
    """One table, and the means under it; returns the result in a sentence."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Slowdown of one program next to another, {placement}")
    table.add_column("pair")
    for heading in ("predicted", "90 % interval", "measured", *ERRORS):
        table.add_column(heading, justify="right")
    for row in rows:
        low, high = row["interval"]
        table.add_row(
            row["pair"],
            f"{row['predicted']:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{row['measured']:.2f}",
            *(f"{row[key]:.1f} %" for key in ERRORS.values()),
        )
    table.add_section()
    averages = [_mean([row[key] for row in rows]) for key in ERRORS.values()]
    table.add_row("mean", "", "", "", *(f"{value:.1f} %" for value in averages))
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print()
    console.print(table)
    print(
        "'Of the mean' is the error of always predicting the mean of the training runs, 'of solo'\n"
        "of saying that nothing slows; the noise floor is what a perfect prediction would still\n"
        "be off by, since repeats differ."
    )
    held = sum(row["interval"][0] <= row["measured"] <= row["interval"][1] for row in rows)
    error, of_the_mean, _, floor = averages
    return (
        f"Result: {held} of {len(rows)} measured slowdowns lie in their interval; error "
        f"{error:.1f} %, of the mean {of_the_mean:.1f} %, noise floor {floor:.1f} %: "
        f"{compared([row['mean_error'] - row['error'] for row in rows])}"
    )


def compared(gains: list[float]) -> str:
    """Whether the prediction was better than the mean by more than chance: by two standard errors
    of the difference over the pairs."""
    mean_gain = _mean(gains)
    spread = math.fsum((gain - mean_gain) ** 2 for gain in gains) / (len(gains) - 1)
    chance = 2.0 * math.sqrt(spread / len(gains))
    if mean_gain > chance:
        return "better than the mean."
    if mean_gain < -chance:
        return "worse than the mean; a quieter time or a longer profile may show more."
    return f"no clear difference: of {len(gains)} pairs less than {chance:.1f} points is chance."


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=HERE.parent / ".demo")
    folder = parser.parse_args().dir.resolve()
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kongming = Kongming(folder)
    try:
        result = walk_through(kongming)
    finally:
        # The store stays, to look at; the surrogates' large file does not.
        for left in folder.glob("kongming-io*"):
            left.unlink()
    print(
        f"\nDone in {(time.monotonic() - started) / 60:.1f} minutes. Everything measured is in\n"
        f"{short(str(folder))}/demo.db (--store sqlite:///{short(str(folder))}/demo.db).\n\n"
        "Where to go next:\n"
        "  kongming init                    describe your own programs\n"
        "  kongming profile apps.toml       measure them under load (resumes where it stopped)\n"
        "  kongming train                   fit the models, see their errors\n"
        "  kongming predict APP             how long it takes on this node as it is now\n"
        "  kongming predict APP --with B    how long it takes next to B\n\n" + result
    )


def walk_through(kongming: Kongming) -> str:
    """The whole job; returns its result in a sentence."""
    place = ["--dir", str(kongming.folder)]
    kongming("fingerprint", "--suite", "quick", *place)
    placement = placement_here()
    chosen = [part for app in APPS for part in ("--app", app)]
    kongming(
        "profile",
        str(HERE / "demo.toml"),
        *chosen,
        *("--placement", placement, "--plan", "quick"),
        *("--levels", LEVELS[placement], "--suite", "quick"),
        *place,
    )
    kongming("train", *APPS, "--placement", placement, "--verbose")
    models = kongming.json("models", "--placement", placement)["models"]
    return report(compare(kongming, placement), placement) + spoiled(models)


def spoiled(models: list[dict[str, Any]]) -> str:
    """A sentence on profiles that were disturbed, after a line break: what follows from them is no
    result. Empty where none is."""
    names = [
        model["app"] for model in models if (model.get("profile") or {}).get("verdict") == "spoiled"
    ]
    if not names:
        return ""
    which = (
        f"the profile of {names[0]} is"
        if len(names) == 1
        else (f"the profiles of {', '.join(names[:-1])} and {names[-1]} are")
    )
    return (
        f"\nNote: {which} spoiled, as something else ran on this machine (why: see above). These "
        "numbers say little; run the demo again at a quieter time."
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
