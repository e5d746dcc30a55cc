"""Models of one application: environment in, slowdown out.

``registry`` names them and imports nothing heavy; ``training`` fits and validates them with
scikit-learn and lightgbm and writes a document; ``model_file`` reads such a document back, and
``predictor_loading`` makes predictors from it that need only numpy.
"""

from kongming.learning.registry import AUTO, Kind, model_kind, model_names

__all__ = ["AUTO", "Kind", "model_kind", "model_names"]
