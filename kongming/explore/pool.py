"""The points that stand for a space: all that are allowed, or draws from them."""

from __future__ import annotations

import numpy as np

from kongming.explore.situation import keys, without
from kongming.explore.space import Space

_MOST_DRAWN = 20
"""Times that further points are drawn at the most, where few are allowed."""


class Pool:
    """Codes (n, d) of distinct allowed points; ``complete``: of all of them.

    Of a space in which few of the drawn points are allowed it holds few, and draws further ones as
    they are used up; ``drawn`` says how often it did, and gives the same points to whom resumes.
    """

    def __init__(self, space: Space, seed: int, drawn: int = 0) -> None:
        self._space, self._seed = space, seed
        self.codes, self.complete = space.pool(np.random.default_rng([seed]))
        self.drawn = 0
        while self.drawn < drawn and not self.complete:
            self._draw()

    def leave(self, count: int, taken: list[tuple[float, ...]]) -> bool:
        """Draw until ``count`` codes are left that are not taken, if so many are to be found;
        return whether any were drawn."""
        if self.complete or len(self.codes) >= len(taken) + count:
            return False
        before = self.drawn
        used = keys(np.array(taken, dtype=np.float64).reshape(len(taken), self.codes.shape[1]))
        while len(without(self.codes, used)) < count and self.drawn < _MOST_DRAWN:
            self._draw()
        return self.drawn > before

    def _draw(self) -> None:
        self.drawn += 1
        more, _ = self._space.pool(np.random.default_rng([self._seed, self.drawn]))
        self.codes = np.concatenate([self.codes, without(more, keys(self.codes))])
