"""KONGMING: how long a program runs on a node as it is loaded now, or co-located with others."""

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
