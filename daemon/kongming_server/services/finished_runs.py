"""Consequences of a run that is on disk: its assignment ends, and its forecast is compared."""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from kongming.records.errors import KongmingError, StoreError, UnknownNameError
from kongming.records.run import Run
from kongming_server.ingest.decode import ended_at

_log = logging.getLogger(__name__)


class FinishedRun(NamedTuple):
    """A run that is on disk, and the assignment whose end it is; empty for none."""

    run: Run
    assignment_id: str


class EndsAssignments(Protocol):
    async def end(self, assignment_id: str, node_id: str, ended_at: float) -> None: ...


class ComparesRuns(Protocol):
    async def run_finished(self, reported: FinishedRun, /) -> bool: ...


async def follow_up(
    finished: FinishedRun, assignments: EndsAssignments, loop: ComparesRuns
) -> None:
    """Release the assignment, whatever comes of the comparison: until then it counts as running.
    A repeated delivery does both once more, which changes nothing. What this run in particular
    does not allow is logged, and would not be otherwise the next time.

    Raises:
        StoreError: the store is away, so that the run is to be delivered again.
    """
    try:
        if finished.assignment_id:
            run = finished.run
            await assignments.end(finished.assignment_id, run.node_id, ended_at(run))
    except UnknownNameError:
        _log.info("A run ended the assignment %s: unknown.", finished.assignment_id)
    except KongmingError as error:
        _give_up(finished, error)
    try:
        await loop.run_finished(finished)
    except KongmingError as error:
        _give_up(finished, error)


def _give_up(finished: FinishedRun, error: KongmingError) -> None:
    """Raises the error again where it is the store's as a whole. One about a single row would come
    back with each delivery, and keep the agent from delivering anything else."""
    if isinstance(error, StoreError) and error.away:
        raise error
    _log.warning("The run %s was kept but not followed up: %s", finished.run.id, error)
