"""Tables against reality: predictions scored beside trivial predictors and the repeat noise.

Everything here is pure: what was measured and what was predicted go in, a JSON document comes
out, and tables and figures are made of that document. Nothing measures, stores or trains.
"""

from kongming.evaluate.nodes import score_environments
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
