"""Draw the pictures of README.md and docs/ from recordings: ``make pictures [ONLY=NAME]``.

``accuracy`` is predicted against measured slowdowns, from the tables of benchmarks/accuracy. It
comes out the same each time (a test compares it). ``audit`` is the page of ``kongming audit
report`` about a committed recording, as Chromium shows it.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from kongming.web.svg import COLOURS, colour, drawing_style, new_axes, new_figure, to_svg

__all__ = ["FOLDER", "PICTURES", "accuracy", "main"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
RESULTS = ROOT / "benchmarks" / "accuracy" / "results"
RECORDING = ROOT / "benchmarks" / "instances" / "amd-epyc-8a5360.parquet"
OTHER_CORE = ("epyc-32M-cross-core", "epyc-32M-cross-core-holdout")
SAME_CORE = ("epyc-32M-same-core",)
WIDTH, HEIGHT = 860.0, 492.0


@dataclass(frozen=True)
class Pair:
    """One program next to another: slowdowns, and the 90 % interval of one run."""

    measured: float
    predicted: float
    lower: float
    upper: float

    @property
    def held(self) -> bool:
        return self.lower <= self.measured <= self.upper


def pairs(recordings: Sequence[str]) -> list[Pair]:
    """What ``auto`` predicted of every ordered pair of these recordings."""
    points = []
    for name in recordings:
        with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as table:
            points += [
                Pair(*(float(row[key]) for key in ("measured", "predicted", "lower", "upper")))
                for row in csv.DictReader(table)
                if row["model"] == "auto"
            ]
    return points


def accuracy() -> str:
    """The figure as an SVG file that follows the reader's light or dark setting."""
    with drawing_style():
        figure = new_figure(WIDTH, HEIGHT)
        panels = (
            ("On another core", pairs(OTHER_CORE), 52.0, 440.0, 0.62, 2.8, (0.7, 1, 1.4, 2, 2.8)),
            ("Sharing one core", pairs(SAME_CORE), 472.0, 20.0, 0.5, 26, (0.5, 1, 2, 4, 8, 16)),
        )
        held = total = 0
        for title, points, left, right, low, high, ticks in panels:
            axes = new_axes(figure, left, 62.0, right, 392.0)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlim(low, high)
            axes.set_ylim(low, high)
            axes.grid(visible=True)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
                axis.set_ticks([], minor=True)
            axes.plot([low, high], [low, high], color=colour("faint"), linewidth=1.0)
            for inside in (True, False):
                of_kind = [pair for pair in points if pair.held is inside]
                name = colour("blue" if inside else "orange")
                x = [pair.measured for pair in of_kind]
                bottom, top = [p.lower for p in of_kind], [p.upper for p in of_kind]
                axes.vlines(x, bottom, top, color=name, linewidth=1.2, alpha=0.45)
                y = [p.predicted for p in of_kind]
                # A line of no length, since markers need ids in the file.
                axes.vlines(x, y, y, color=name, linewidth=5.0, capstyle="round")
            axes.set_title(f"{title}: {len(points)} pairs", loc="left", color=colour("ink"))
            axes.set_xlabel("measured slowdown, mean of four runs", color=colour("faint"))
            held += sum(pair.held for pair in points)
            total += len(points)
            if left < WIDTH / 2:
                axes.set_ylabel("predicted slowdown", color=colour("faint"))
        figure.text(
            *(52.0 / WIDTH, 1.0 - 18.0 / HEIGHT),
            "Predicted from profiles of each program alone, against what each pair really did",
            color=colour("ink"),
            fontsize=13.5,
        )
        notes = (
            f"Bars: 90 % intervals of one run; {held} of {total} measured means lie within (the "
            "others are orange). A dot on the line is right.",
            "Recordings epyc-32M-cross-core, -cross-core-holdout and -same-core, of one cloud "
            "machine with two virtual CPUs.",
            "They also chose the settings of the models, so this shows how it looks, and proves "
            "nothing.",
        )
        for line, note in enumerate(notes):
            figure.text(52.0 / WIDTH, (46.0 - 16.0 * line) / HEIGHT, note)
        title = "Predicted and measured slowdowns of pairs of programs"
        svg = str(to_svg(figure, title, " ".join(notes)))
    return _standalone(svg)


def _standalone(svg: str) -> str:
    """An inline figure of a page as a file: with its colours, and a paper of its own."""
    sheet = files("kongming.web").joinpath("templates/style.css").read_text(encoding="utf-8")
    palettes = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[:2]
    wanted = (*COLOURS, "card")
    light, dark = (
        " ".join(f"--{key}: {value};" for key, value in re.findall(r"--(\w+): (#\w+);", palette)
                 if key in wanted)
        for palette in palettes
    )  # fmt: skip
    style = (
        f"<style>:root {{ {light} }}\n@media (prefers-color-scheme: dark) "
        f"{{ :root {{ {dark} }} }}\n"
        "text { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; }</style>"
    )
    paper = f'<rect width="{WIDTH:g}" height="{HEIGHT:g}" rx="10" style="fill: var(--card)"/>'
    svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return svg.replace("</title>\n", f"</title>\n{style}\n{paper}\n", 1).rstrip() + "\n"


def audit() -> bytes:
    """The beginning of the page about the recording, as a PNG of few colours."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = Path(folder) / "report.html"
        kongming = str(Path(sys.executable).parent / "kongming")
        report = [kongming, "audit", "report", str(RECORDING), "--out", str(page)]
        subprocess.run(report, check=True, stdout=subprocess.DEVNULL)
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        shown = browser.new_page(viewport={"width": 1000, "height": 975}, color_scheme="light")
        shown.goto(page.as_uri())
        picture = shown.screenshot()
        browser.close()
    smaller = Image.open(io.BytesIO(picture)).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    smaller.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


PICTURES: dict[str, Callable[[], str | bytes]] = {"accuracy.svg": accuracy, "audit.png": audit}
"""By the name of the file."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = {Path(name).stem: name for name in PICTURES}
    parser.add_argument("name", nargs="*", help=f"which (default: all): {', '.join(names)}")
    chosen = parser.parse_args(arguments).name or list(names)
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"no picture {', '.join(unknown)}; there are {', '.join(names)}")
    for name in chosen:
        drawn = PICTURES[names[name]]()
        data = drawn.encode() if isinstance(drawn, str) else drawn
        (FOLDER / names[name]).write_bytes(data)
        print(f"docs/pictures/{names[name]}: {len(data) / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
