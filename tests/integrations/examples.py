"""The examples of docs/ray-and-dask.md, run as they are but for the addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.server.process import ROOT

PAGE = ROOT / "docs/ray-and-dask.md"
EXPECTED = [0, 0, 1, 5, 14]
"""What both print."""


def run_example(name: str, replaced: Mapping[str, str]) -> None:
    """Run the page's example of this name; each text that is replaced has to be in it."""
    (code,) = re.findall(
        rf"<!-- example: {name} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    for old, new in replaced.items():
        assert old in code
        code = code.replace(old, new)
    # As a program's own, so that its functions go to workers by value.
    exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})
