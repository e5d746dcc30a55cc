"""Decision trees with oblique splits and a line in each leaf (paper 004, section 3.2)."""

from kongming.explore.tree.oblique_model_tree import ObliqueModelTree

__all__ = ["ObliqueModelTree"]
