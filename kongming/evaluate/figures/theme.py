"""Look of all figures, on light and on dark pages, and the way in which they are written.

matplotlib is imported when a figure is drawn and not before, and without pyplot: nothing global is
left behind. The colours keep apart for the colour-blind (after Okabe and Ito), in shades that stand
out from their background; beyond eight of them, dashes tell lines apart.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.files.atomic_file import replace_bytes
from kongming.files.missing_file import unwritable
from kongming.records.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one kind of page. ``ramp`` runs from little to much, for cells."""

    name: str
    page: str
    ink: str
    faint: str
    grid: str
    lines: tuple[str, ...]
    ramp: tuple[str, ...]


LIGHT = Theme(
    name="light",
    page="#ffffff",
    ink="#1b1f24",
    faint="#6a737d",
    grid="#dfe3e8",
    lines=(
        *("#0072b2", "#d55e00", "#009e73", "#b8438e"),
        *("#a67c00", "#3fa4dc", "#5b4bb5", "#7a4a1e"),
    ),
    ramp=("#f3f6fa", "#b6d3ea", "#5f9fd0", "#1f63a5", "#0b2d5c"),
)
DARK = Theme(
    name="dark",
    page="#15191e",
    ink="#e8ecf0",
    faint="#98a2ad",
    grid="#323941",
    lines=(
        *("#56b4e9", "#f28e3c", "#2bcf9b", "#e794c9"),
        *("#f0e442", "#3f7fd6", "#a99bf5", "#c99b6b"),
    ),
    ramp=("#1f262e", "#1f4a73", "#2f7dbd", "#7bbcec", "#e4f3ff"),
)
THEMES = (LIGHT, DARK)

FORMATS = ("svg", "png")

DPI = 160
"""Dots per inch of a PNG."""

_FONT = 10.0


def write(draw: Callable[[Theme], Figure], folder: Path, name: str) -> tuple[Path, ...]:
    """Draw once a theme and write FOLDER/NAME-light.svg, -light.png, -dark.svg and -dark.png.

    The same data give the same bytes. The folder is made where it is missing; a figure of before
    stays until its successor is complete.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: the folder or a file cannot be written.
        StoreError: the disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    written = []
    for theme in THEMES:
        with _style(theme):
            figure = draw(theme)
            for suffix in FORMATS:
                path = folder / f"{name}-{theme.name}.{suffix}"
                _save(figure, path)
                written.append(path)
    return tuple(written)


def write_one(draw: Callable[[Theme], Figure], path: Path, theme: Theme = LIGHT) -> None:
    """Draw once, on the theme's own page, to an SVG or PNG by the suffix of ``path``.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: the file cannot be written.
        StoreError: the disk is full.
    """
    with _style(theme):
        _save(draw(theme), path)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, laid out so that nothing overlaps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def title(axes: Axes, text: str) -> None:
    """A title above the left edge."""
    axes.set_title(text, loc="left", fontsize=_FONT + 1.0, fontweight="bold", pad=10.0)


def lines(parts: Sequence[str], width: int) -> list[str]:
    """Fill lines of ``width`` characters with parts; one that is longer is broken at spaces."""
    filled: list[str] = []
    for part in parts:
        if filled and len(filled[-1]) + 1 + len(part) <= width:
            filled[-1] += f" {part}"
        else:
            filled += textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False)
    return filled


def on(shade: tuple[float, ...]) -> str:
    """Dark or light ink: whichever is read better on ``shade`` (r, g, b of 0 to 1)."""
    red, green, blue = shade[:3]
    bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
    return "#1b1f24" if bright else "#ffffff"


def _save(figure: Figure, path: Path) -> None:
    kind = path.suffix.lower().removeprefix(".")
    date: dict[str, Any] = {"Date": None} if kind == "svg" else {}
    content = io.BytesIO()
    figure.savefig(
        content, format=kind, dpi=DPI, bbox_inches="tight", pad_inches=0.15, metadata=date
    )
    replace_bytes(path, content.getvalue())


def _style(theme: Theme) -> AbstractContextManager[None]:
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingExtraError("Drawing figures", "plots", error.name or "matplotlib") from error

    return matplotlib.rc_context(
        {
            "figure.facecolor": theme.page,
            "savefig.facecolor": theme.page,
            "axes.facecolor": theme.page,
            "axes.edgecolor": theme.faint,
            "axes.labelcolor": theme.ink,
            "axes.titlecolor": theme.ink,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.linewidth": 0.8,
            "grid.color": theme.grid,
            "grid.linewidth": 0.7,
            "text.color": theme.ink,
            "xtick.color": theme.faint,
            "ytick.color": theme.faint,
            "xtick.labelcolor": theme.ink,
            "ytick.labelcolor": theme.ink,
            "font.family": "DejaVu Sans",
            "font.size": _FONT,
            "legend.frameon": False,
            # Without a salt of its own an SVG names its parts at random.
            "svg.hashsalt": "kongming",
        }
    )
