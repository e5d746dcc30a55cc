"""Templates and figures of pages: what is escaped, and what an inline figure consists of."""

from __future__ import annotations

import re

import pytest
from jinja2 import UndefinedError

from kongming.web.environment import environment
from kongming.web.formats import percent, quantity, ratio
from kongming.web.svg import colour, drawing_style, new_axes, new_figure, to_svg

HOSTILE = "<script>x</script>"


def test_what_is_put_into_a_template_is_escaped() -> None:
    template = environment().from_string(
        """{% extends "base.html.j2" %}
        {% from "macros.html.j2" import cell, figure, findings, heading, section, table %}
        {% block main %}
        {% call section(x, note=x) %}
        {% call(row) table([x], [x], caption=x) %}{{ heading(row) }}{{ cell(row) }}{% endcall %}
        {{ figure(x, x, notes=[x], keys=[(x, x)]) }}
        {{ findings([{"kind": x, "text": x}]) }}
        {% endcall %}
        {% endblock %}"""
    )
    text = template.render(title=HOSTILE, x=HOSTILE)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 15


def test_a_name_that_a_template_does_not_get_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        environment().from_string("{{ nothing }}").render()


def test_a_missing_value_has_a_mark() -> None:
    text = environment().from_string(
        '{% from "macros.html.j2" import cell %}{{ cell(none) }}{{ cell("") }}{{ cell(0) }}'
    )
    assert text.render() == "<td>-</td><td>-</td><td>0</td>"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "-"),
        (1.2345e-8, "s", "12.3 ns"),
        (999.6e-9, "s", "1.00 µs"),
        (12.0, "s", "12.0 s"),
        (31.24, "ops/s", "31.2 ops/s"),
    ],
)
def test_quantities_have_three_digits(value: float | None, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_ratios_and_shares() -> None:
    assert [ratio(value) for value in (None, 1.0, 12.34)] == ["-", "\u00d71.00", "\u00d712.3"]
    assert [percent(value) for value in (None, 0.123)] == ["-", "12.3 %"]


def test_a_figure_has_no_colour_and_no_id_of_its_own() -> None:
    label = f"$x_1$ #010203 {HOSTILE}"
    with drawing_style():
        figure = new_figure(200.0, 100.0)
        axes = new_axes(figure, 20.0, 10.0, 10.0, 80.0)
        axes.plot([0.0, 1.0], [0.123456, 2.0], color=colour("orange"), linewidth=2.0)
        axes.set_yticks([0.5], [label])
        axes.grid(visible=True)
        svg = to_svg(figure, HOSTILE, "One line", "wide")
    assert svg.startswith('<svg class="plot wide" viewBox="0 0 200 100" role="img"')
    assert "<script" not in svg
    # A label is text as it is: no formula, no colour, no letter as a shape.
    assert "$x_1$ #010203 &lt;script&gt;" in svg
    assert "stroke: var(--orange)" in svg
    styles = " ".join(re.findall(r'style="([^"]*)"', svg))
    assert "#" not in styles
    assert not re.search(r"(\bid|href|clip-path)=|url\(|<(style|defs|metadata|image)", svg)


def test_letters_that_the_drawing_font_lacks_are_no_warning() -> None:
    with drawing_style():
        figure = new_figure(200.0, 100.0)
        new_axes(figure, 20.0, 10.0, 10.0, 80.0).set_yticks([0.5], ["機械"])
        assert "機械" in to_svg(figure, "Letters", "of another script")
