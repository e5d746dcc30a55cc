"""Evaluate predictions against measurements, trivial predictors and the repeat noise.

Scoring is pure: measurements and predictions go in, a JSON document comes out, and tables and
figures are rendered from that document. Nothing here measures or stores.
"""

from kongming.evaluate.node_scores import score_environments
from kongming.evaluate.pairs import pressures, score_pairs
from kongming.evaluate.records import (
    EnvironmentMeasurement,
    EnvironmentPrediction,
    PairMeasurement,
    PairPrediction,
    Scored,
)
from kongming.evaluate.tables import to_csv, to_markdown

__all__ = [
    "EnvironmentMeasurement",
    "EnvironmentPrediction",
    "PairMeasurement",
    "PairPrediction",
    "Scored",
    "pressures",
    "score_environments",
    "score_pairs",
    "to_csv",
    "to_markdown",
]
