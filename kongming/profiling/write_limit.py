"""Bytes that a campaign writes: what inducers and probes really wrote, and a limit on it. Pure.

Loads that would write more than is left are not started. Fingerprints write too, and without them
nothing can be measured: once the limit is reached nothing more is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kongming.probes.suite import Suite
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import LoadLevel

FASTEST_BYTES_PER_S = 1e9
"""Assumed rate of a surrogate that writes and was not timed yet: rather too high."""


@dataclass(slots=True)
class WriteLimit:
    """``limit_bytes`` for all that is written from now on; None for no limit."""

    suite: Suite
    limit_bytes: float | None = None
    written_bytes: float = 0.0
    refused: int = 0
    """Steps that were left out."""
    _rates: dict[str, float] = field(default_factory=dict)

    def add_fingerprint(self, fingerprint: Fingerprint) -> None:
        """Count what its surrogates wrote, and learn how fast they do."""
        for name, size in self._sizes().items():
            reading = fingerprint.surrogates.get(name)
            if reading is not None and reading.seconds_per_op:
                rate = size / reading.seconds_per_op
                # Not from the operations, of which a reading has whole ones only: of blocks too
                # large for their slice there are fractions.
                self.written_bytes += reading.elapsed_s * rate
                self._rates[name] = max(rate, self._rates.get(name, 0.0))

    def add_operations(self, operations: Iterable[tuple[str, float]]) -> None:
        """Count the operations of loads, as pairs of surrogate and number."""
        sizes = self._sizes()
        self.written_bytes += sum(number * sizes.get(name, 0.0) for name, number in operations)

    @property
    def is_reached(self) -> bool:
        return self.limit_bytes is not None and self.written_bytes >= self.limit_bytes

    def seconds(self, levels: Iterable[LoadLevel]) -> float | None:
        """Return how long these loads may run before the limit is reached, None if always."""
        rate = self._rate(levels)
        if self.limit_bytes is None or rate <= 0.0:
            return None
        return max(0.0, self.limit_bytes - self.written_bytes) / rate

    def allows(self, levels: Iterable[LoadLevel], seconds: float) -> bool:
        """Return whether these loads may run for so long."""
        left = self.seconds(levels)
        return left is None or left >= seconds

    def _rate(self, levels: Iterable[LoadLevel]) -> float:
        sizes: Mapping[str, float] = self._sizes()
        return sum(
            self._rates.get(level.surrogate, FASTEST_BYTES_PER_S) * level.intensity * level.copies
            for level in levels
            if level.surrogate in sizes
        )

    def _sizes(self) -> dict[str, float]:
        return {
            surrogate.name: float(surrogate.bytes_per_op)
            for surrogate in self.suite.surrogates
            if surrogate.family == "write" and surrogate.bytes_per_op
        }
