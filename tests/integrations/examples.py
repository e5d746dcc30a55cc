"""The examples in Python of docs/, run as they are but for what a test replaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.server.process import ROOT

PAGE = ROOT / "docs/ray-and-dask.md"
EXPECTED = [0, 0, 1, 5, 14]
"""What both of this page print."""


def run_example(name: str, replaced: Mapping[str, str], page: Path = PAGE) -> dict[str, Any]:
    """Run the page's example of this name, and return its variables; each text that is replaced has
    to be in it."""
    (code,) = re.findall(
        rf"<!-- example: {name} -->\n```python\n(.*?)```", page.read_text(), re.DOTALL
    )
    for old, new in replaced.items():
        assert old in code
        code = code.replace(old, new)
    # As a program's own, so that its functions go to workers by value.
    variables: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, str(page), "exec"), variables)
    return variables
