"""The Predictor service with metrics of what its predictions are based on."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from kongming.engine.engine import Engine
from kongming.records.answers import Basis, Forecast
from kongming.records.errors import KongmingError
from kongming_server.monitoring.metrics import Metrics
from kongming_server.services.predictor import PredictorService


class CountedPredictor(PredictorService):
    def __init__(
        self,
        engine: Engine,
        now: Callable[[], float],
        metrics: Metrics,
        id_of: Callable[[str], str] = str,
    ) -> None:
        super().__init__(engine, now, id_of)
        self._by_basis = {basis: metrics.predictions.labels(basis) for basis in get_args(Basis)}
        self._extrapolating = metrics.doubtful.labels("extrapolating")
        self._at_least = metrics.doubtful.labels("at_least")
        self._uncalibrated = metrics.doubtful.labels("uncalibrated")

    def count(self, answer: Forecast | KongmingError) -> None:
        if isinstance(answer, Forecast):
            self._by_basis[answer.basis].inc()
            if answer.extrapolating:
                self._extrapolating.inc()
            if answer.slowdown.at_least:
                self._at_least.inc()
            if not answer.slowdown.calibrated:
                self._uncalibrated.inc()
