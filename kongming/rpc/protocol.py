"""Protocol of what can be asked, whoever answers: a server over gRPC, or the library over a local
store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from kongming.records.answers import (
    ApplicationReport,
    Assignment,
    Colocation,
    Explanation,
    Forecast,
    Imported,
    ModelReport,
    NodeReport,
    OperationReport,
    Ranking,
)
from kongming.records.errors import KongmingError
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.records.run import Run, Signature


class PredictionService(Protocol):
    """Questions that a store alone can answer as well. Every method raises KongmingError."""

    def predict(self, questions: Sequence[Question]) -> tuple[Forecast | KongmingError, ...]:
        """Answer the questions in their order: each with a forecast, or the reason why it has
        none."""

    def rank(self, question: RankQuestion) -> Ranking:
        """An application without a profile is ranked by the nodes' general slowdown."""

    def predict_colocation(self, question: ColocationQuestion) -> Colocation:
        """Predict on an idle node, co-located with named neighbours; and each of them as well."""

    def nodes(self) -> tuple[NodeReport, ...]:
        """All nodes, by name."""

    def register_application(
        self, name: str, identity: str, document: Mapping[str, Any]
    ) -> ApplicationReport:
        """Make an application known; ``document`` is its table. Repeating it is harmless."""

    def explain(self, question: Question) -> Explanation:
        """Return why its answer is what it is: the part of each surrogate, the greatest first."""

    def import_runs(self, records: Iterable[Run | Signature]) -> Imported:
        """Import records: on disk once it has answered; those known before stay as they are."""

    def model(self, app: str, placement: str | None = None, version: int = 0) -> ModelReport:
        """Get a model with its document; version 0 is the one in service."""

    def promote_model(
        self, app: str, placement: str | None = None, version: int = 0
    ) -> ModelReport:
        """Put a version in service and return it; version 0 is the one before the present one."""

    def models(self, app: str | None = None) -> tuple[ModelReport, ...]:
        """List models by application and placement, newest first, without documents."""


class Service(PredictionService, Protocol):
    """All that a server does. Every method raises KongmingError."""

    def watch_node(self, node: str, *, for_s: float | None = None) -> Iterator[NodeReport]:
        """The node (id or name) now and after each change, for so many seconds, or until the
        iterator is closed."""

    def request_profile(self, node: str, apps: Sequence[str]) -> None:
        """Ask the node's agent to profile applications of its own list."""

    def application(self, name: str) -> ApplicationReport: ...

    def applications(self) -> tuple[ApplicationReport, ...]: ...

    def train(
        self,
        apps: Sequence[str] = (),
        *,
        placement: str | None = None,
        model: str | None = None,
        random_state: int = 0,
    ) -> OperationReport:
        """Begin training; no ``apps`` are all with new runs."""

    def operation(self, operation_id: str) -> OperationReport: ...

    def operations(
        self, *, ended: bool = False, limit: int | None = None
    ) -> tuple[OperationReport, ...]:
        """Newest first, without ``limit`` as many as the server likes; with ``ended`` those that
        have ended as well."""

    def watch_operation(self, operation_id: str) -> Iterator[OperationReport]:
        """The operation now and after each change, until it has ended."""

    def cancel_operation(self, operation_id: str) -> OperationReport: ...

    def delete_model(self, app: str, placement: str, version: int = 0) -> int:
        """Delete a model and return how many versions were deleted; version 0 is all."""

    def reserve(
        self,
        assignment_id: str,
        app: str,
        node: str,
        *,
        placement: str | None = None,
        domain: int = 0,
        ttl_s: float | None = None,
        memory_bytes: int = 0,
    ) -> Assignment: ...

    def bind(
        self,
        assignment_id: str,
        *,
        app: str = "",
        node: str = "",
        started_at: float | None = None,
    ) -> Assignment:
        """``app`` and ``node`` are needed only for what was never reserved."""

    def release(self, assignment_id: str, *, ended_at: float | None = None) -> Assignment: ...

    def assignments(
        self, node: str | None = None, *, ended: bool = False
    ) -> tuple[Assignment, ...]:
        """Those that are reserved or bound; with ``ended`` the others as well."""
