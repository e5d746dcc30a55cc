"""KONGMING: how long a program runs on a node as it is loaded now, or co-located with others."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kongming.records.application import Application, Metric
    from kongming.records.errors import KongmingError
    from kongming.records.fingerprint import Fingerprint, NodeFacts, Reading
    from kongming.records.prediction import Driver, Interval, Prediction
    from kongming.records.run import LoadLevel, Run, Signature

__version__ = "0.1.0"

__all__ = [
    "Application",
    "Driver",
    "Fingerprint",
    "Interval",
    "KongmingError",
    "LoadLevel",
    "Metric",
    "NodeFacts",
    "Prediction",
    "Reading",
    "Run",
    "Signature",
    "__version__",
]

_MODULES = {
    "Application": "application",
    "Driver": "prediction",
    "Fingerprint": "fingerprint",
    "Interval": "prediction",
    "KongmingError": "errors",
    "LoadLevel": "run",
    "Metric": "application",
    "NodeFacts": "fingerprint",
    "Prediction": "prediction",
    "Reading": "fingerprint",
    "Run": "run",
    "Signature": "run",
}
"""The module of ``kongming.records`` that has each."""


def __getattr__(name: str) -> Any:
    # Not at the start: a console script first has to handle Ctrl-C, and this package is imported
    # before any module in it.
    if name == "records":
        return import_module("kongming.records")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"kongming.records.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
