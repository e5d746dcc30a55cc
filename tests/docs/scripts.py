"""The programs of docs/, which is no package."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.docs.tables import ROOT


def load(name: str) -> ModuleType:
    """The module ``docs/NAME.py``."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
