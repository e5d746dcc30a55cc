"""The template environment of all pages.

A page extends ``base.html.j2`` and imports ``macros.html.j2``, from templates/ of this package; a
package with pages has its own templates/ folder.
"""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from kongming.web import formats


def environment(*packages: str) -> Environment:
    """An environment with the templates of ``packages`` (names) and of this package.

    Everything is escaped, and an unknown name in a template is an error.
    """
    jinja = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "kongming.web")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in formats.__all__:
        if name != "MISSING":
            jinja.filters[name] = getattr(formats, name)
    jinja.globals["MISSING"] = formats.MISSING
    return jinja
