"""A tree that grows with every batch of runs instead of being fitted afresh (paper 004, C.3)."""

from __future__ import annotations

from collections.abc import Callable

from kongming.arrays import Floats
from kongming.explore.tree.oblique_model_tree import ObliqueModelTree


class OnlineTree:
    """Grows the same tree from the same ``steps``: the numbers of runs at which it was asked for.

    Args:
        new: an unfitted tree.
        first_runs: the (n, d) columns and (n,) values of the first so many runs.
    """

    def __init__(
        self,
        new: Callable[[], ObliqueModelTree],
        first_runs: Callable[[int], tuple[Floats, Floats]],
    ) -> None:
        self.steps: list[int] = []
        self._new, self._first_runs = new, first_runs
        self._grown: tuple[int, ObliqueModelTree] | None = None

    def after(self, runs: int) -> ObliqueModelTree:
        """Return the tree, grown by the runs since the last step."""
        if not self.steps or self.steps[-1] != runs:
            self.steps.append(runs)
        start, tree = self._grown or (0, self._new())
        for count in self.steps:
            if count > start:
                tree.grow(*self._first_runs(count))
        self._grown = self.steps[-1], tree
        return tree
