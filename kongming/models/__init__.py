"""Models of one application: environment in, slowdown out.

``registry`` names them and imports nothing heavy; ``training`` fits and validates them with
scikit-learn and lightgbm and writes a document; ``persist`` reads such a document back, and
``frozen`` predicts from it with numpy alone.
"""

from kongming.models.registry import AUTO, Kind, model_kind, model_names

__all__ = ["AUTO", "Kind", "model_kind", "model_names"]
