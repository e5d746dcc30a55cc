"""Settings of an analysis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Confidence, precisions and over-allocation of an analysis.

    ``precisions`` are those that repetitions are counted for. ``target`` is how much slower than
    the typical machine the slowest may be when extra machines are launched, for clusters of
    ``cluster_sizes`` machines.
    """

    confidence: float = 0.95
    precisions: tuple[float, ...] = (0.01, 0.05)
    target: float = 1.1
    cluster_sizes: tuple[int, ...] = (10, 50)

    @property
    def alpha(self) -> float:
        """The share of false discoveries that is accepted."""
        return 1.0 - self.confidence
