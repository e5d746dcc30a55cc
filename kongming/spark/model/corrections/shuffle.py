"""Remote share of a shuffle: with E executors, 1 - 1/E of it comes from others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.workload import Workload


@dataclass(frozen=True, eq=False, slots=True)
class Shuffle:
    """Correction for shuffles: what tasks waited for fetches grows with the remote share."""

    workload: Workload

    name = "shuffle"

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        ratio = _remote(change.target.executors, 1.0) / _remote(change.recorded.executors, np.inf)
        if ratio in (0.0, 1.0) and change.recorded.executors == 1:
            return lengths
        corrected = []
        for stage, own in zip(self.workload.stages, lengths, strict=True):
            waits = stage.tasks["fetch_wait_s"].astype(np.float64)
            total = float(stage.lengths.sum())
            if not waits.any() or not total:
                corrected.append(own)
            elif len(own) == len(waits):
                corrected.append(np.maximum(own + waits * (ratio - 1.0), 0.0))
            else:
                share = min(float(waits.sum()) / total, 1.0)
                corrected.append(own * (1.0 + share * (ratio - 1.0)))
        return corrected

    def remarks(self, change: Change) -> list[str]:
        shuffled = any(stage.tasks["shuffle_local_bytes"].any() for stage in self.workload.stages)
        if change.recorded.executors == 1 < change.target.executors and shuffled:
            return ["recorded on one executor: what a remote shuffle costs was not seen"]
        return []


def _remote(executors: int, at_one: float) -> float:
    if executors == 1:
        return 0.0 if at_one == 1.0 else at_one
    return 1.0 - 1.0 / executors
