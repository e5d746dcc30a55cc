"""HTML and SVG from functions that escape: only what they made themselves is taken as it is."""

from __future__ import annotations

from html import escape

__all__ = ["Markup", "join", "quantity", "ratio", "tag"]

NOTHING = "-"
"""What stands where there is no number."""

TIMES = "\u00d7"

_VOID = frozenset({"meta", "br", "hr", "line", "rect", "path", "circle", "polyline", "col"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(element: str, *children: object, **attributes: object) -> Markup:
    """An element. Attributes: ``class_`` is class, an underscore within a name is a hyphen, None
    leaves one out. Children that are no ``Markup`` are escaped; None is nothing."""
    parts = [f"<{element}"]
    for key, value in attributes.items():
        if value is not None:
            name = key.rstrip("_").replace("_", "-")
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            parts.append(f' {name}="{escape(text, quote=True)}"')
    if element in _VOID and not children:
        # SVG asks for the slash, HTML does not mind.
        return Markup("".join(parts) + "/>")
    return Markup("".join(parts) + f">{join(*children)}</{element}>")


def join(*children: object) -> Markup:
    """Children one after the other, escaped where they have to be."""
    return Markup("".join(_text(child) for child in children))


def quantity(value: float | None, unit: str) -> str:
    """Three digits in a familiar unit."""
    if value is None:
        return NOTHING
    if unit != "s":
        return f"{value:.3g} {unit}".strip()
    for factor, name in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        # 999.5 of a unit would be shown as 1000: that is one of the next.
        if abs(value) * factor < 999.5:
            return f"{_three(value * factor)} {name}"
    return f"{_three(value)} s"


def ratio(value: float | None) -> str:
    """A factor, with a multiplication sign."""
    return (
        NOTHING
        if value is None
        else f"{TIMES}{value:.3g}"
        if value >= 10.0
        else f"{TIMES}{value:.2f}"
    )


def _three(value: float) -> str:
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def _text(child: object) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, list | tuple):
        return join(*child)
    return escape(str(child), quote=False)
