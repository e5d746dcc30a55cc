"""The OpenAPI document as a page for people, without a script and without anything from
elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from jinja2 import Template

from kongming.web.environment import environment


def page(document: Mapping[str, Any], errors: Mapping[str, str], url: str) -> str:
    """Return the HTML of a ``document`` of ``openapi``, with the reasons of ``errors`` by status;
    its examples ask the server at ``url``."""
    title = f"{document['info']['title']} {document['info']['version']} over HTTP"
    return _template().render(title=title, document=document, errors=errors, url=url)


@cache
def _template() -> Template:
    jinja = environment("kongming_server.http")
    # Jinja's own filter writes what a script reads, not what a person does.
    jinja.filters["json"] = json.dumps
    jinja.filters["zip"] = _zip
    return jinja.get_template("docs.html.j2")


def _zip(left: Iterable[str], right: Iterable[str]) -> list[tuple[str, str]]:
    return list(zip(left, right, strict=True))
