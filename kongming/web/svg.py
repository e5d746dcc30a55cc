"""Figures by matplotlib as inline SVG that takes its colours from the page's style sheet.

A figure is drawn once, with a placeholder for each colour, which becomes a CSS variable: so one
drawing serves light and dark pages. Text stays text, in the font of the page. matplotlib is used
without pyplot, so nothing global is left behind.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("ink", "faint", "grid", "blue", "bar", "orange", "green", "mark")
"""CSS variables of style.css that figures may use."""

_PLACEHOLDER = "#0102{:02x}"
_STYLE = re.compile(r'style="[^"]*"')
_PATH = re.compile(r' d="([^"]*)"')
_NUMBER = re.compile(r"-?\d+\.\d+")
_POINT = re.compile(r"M(\S+ \S+)L\1(?=M|$)")
_DROPPED = re.compile(
    r"<metadata>.*?</metadata>|<defs>.*?</defs>|<!--.*?-->| (?:id|clip-path)=\"[^\"]*\"", re.DOTALL
)
"""Ids would be the same in several figures of one page. So there is no clipping, and no marker."""

_POINTS_PER_INCH = 72.0


def colour(name: str) -> str:
    """The placeholder of one of ``COLOURS``."""
    return _PLACEHOLDER.format(COLOURS.index(name))


@contextmanager
def drawing_style() -> Iterator[None]:
    """Settings to draw with: figures have to be made and written within it."""
    style = matplotlib.rc_context(
        {
            "axes.axisbelow": True,
            "axes.edgecolor": colour("faint"),
            "axes.linewidth": 1.0,
            "axes.spines.left": False,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "date.converter": "concise",
            "font.family": "sans-serif",
            "font.size": 11.0,
            "grid.color": colour("grid"),
            "grid.linewidth": 1.0,
            "path.simplify": False,
            "svg.fonttype": "none",
            # A name may hold dollar signs.
            "text.parse_math": False,
            "text.color": colour("faint"),
            "xtick.labelcolor": colour("faint"),
            "ytick.labelcolor": colour("faint"),
            # Ticks without length are not drawn at all.
            "xtick.major.size": 0.0,
            "xtick.minor.size": 0.0,
            "ytick.major.size": 0.0,
            "ytick.minor.size": 0.0,
        }
    )
    with style, warnings.catch_warnings():
        # The browser has letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many pixels."""
    figure = Figure(figsize=(width / _POINTS_PER_INCH, height / _POINTS_PER_INCH))
    figure.patch.set_visible(False)
    return figure


def new_axes(figure: Figure, left: float, top: float, right: float, bottom: float) -> Axes:
    """Axes with margins in pixels, ``top`` and ``bottom`` measured from the top of the figure."""
    width, height = (_POINTS_PER_INCH * size for size in figure.get_size_inches())
    axes = figure.add_axes(
        (
            left / width,
            1.0 - bottom / height,
            1.0 - (left + right) / width,
            (bottom - top) / height,
        )
    )
    axes.patch.set_visible(False)
    return axes


def to_svg(figure: Figure, title: str, description: str, class_: str = "") -> Markup:
    """An element for a page. ``title`` and ``description`` are for those who cannot see it."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg")
    width, height = (_POINTS_PER_INCH * size for size in figure.get_size_inches())
    text = buffer.getvalue()
    # Colours are replaced in styles alone: a label may look like one.
    text = text[text.index(">", text.index("<svg")) + 1 :]
    text = _STYLE.sub(_with_variables, _DROPPED.sub("", text))
    text = _PATH.sub(_shortened, text)
    label = f"{title}. {description}"
    begin = Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        f"plot {class_}".strip(), f"{width:g}", f"{height:g}", label
    )
    lines = "\n".join(line.strip() for line in text.splitlines() if line.strip())
    return begin + Markup("<title>{}</title>\n").format(label) + Markup(lines)


def _with_variables(match: re.Match[str]) -> str:
    style = match[0]
    for k, name in enumerate(COLOURS):
        style = style.replace(_PLACEHOLDER.format(k), f"var(--{name})")
    return style


def _shortened(match: re.Match[str]) -> str:
    """A path to a tenth of a pixel; a line of no length, which is a dot, in its shortest form."""
    path = _NUMBER.sub(lambda number: f"{float(number[0]):.1f}", match[1])
    path = re.sub(r"\s*([MLz])\s*", r"\1", path).strip()
    path = _POINT.sub(r"M\1h0", path)
    return f' d="{path}"'
