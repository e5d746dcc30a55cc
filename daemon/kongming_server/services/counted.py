"""The Predictor service with metrics of what its predictions are based on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from kongming.engine.engine import Engine
from kongming.rpc.v1 import predictor_pb2
from kongming_server.metrics import Metrics
from kongming_server.services.predictor import PredictorService

if TYPE_CHECKING:  # Its types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[object, object]


class CountedPredictor(PredictorService):
    def __init__(self, engine: Engine, now: Callable[[], float], metrics: Metrics) -> None:
        super().__init__(engine, now)
        self._counters = {
            predictor_pb2.BASIS_MODEL: metrics.predictions.labels("model"),
            predictor_pb2.BASIS_NODE_ONLY: metrics.predictions.labels("node-only"),
        }
        self._doubts = [
            metrics.doubtful.labels(reason)
            for reason in ("extrapolating", "at_least", "uncalibrated")
        ]

    async def Predict(
        self, request: predictor_pb2.PredictRequest, context: Context
    ) -> predictor_pb2.PredictResponse:
        response = await super().Predict(request, context)
        for answer in response.answers:
            # An answer that is a failure has a prediction of no basis.
            counter = self._counters.get(answer.prediction.basis)
            if counter is None:
                continue
            counter.inc()
            said = answer.prediction
            doubts = (
                said.extrapolating,
                said.slowdown.at_least,
                not said.slowdown.calibrated,
            )
            for doubt, is_so in zip(self._doubts, doubts, strict=True):
                if is_so:
                    doubt.inc()
        return response
