"""Training for an evaluation: many sets of runs, some of which may not suffice for a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kongming.learning.model_file import ModelFile
    from kongming.records.run import Run

Key = tuple[str, ...]
"""An application, and whatever else identifies the set of runs."""


@dataclass(frozen=True, slots=True)
class Task:
    """One set of training runs. ``models`` None: the default models; ``quick_columns``: as in
    ``train_application``."""

    key: Key
    runs: tuple[Run, ...]
    placement: str
    models: Sequence[str] | None
    seed: int
    quick_columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """Models by key, as documents and parsed, and the reasons why other keys have none."""

    documents: Mapping[Key, Mapping[str, Any]]
    files: Mapping[Key, ModelFile]
    failed: Mapping[Key, str]


def collect(answers: Iterable[tuple[Task, dict[str, Any] | str]]) -> Trained:
    """Sort the results of ``train`` into models and failure reasons."""
    from kongming.learning.model_file import read

    documents, files, failed = {}, {}, {}
    for task, answer in answers:
        if isinstance(answer, str):
            failed[task.key] = answer
        else:
            documents[task.key] = answer
            files[task.key] = read(answer)
    return Trained(documents, files, failed)


def train(task: Task) -> dict[str, Any] | str:
    """Train a model; returns its document, or the reason why that is not possible."""
    from kongming.learning.training import train_application
    from kongming.records.errors import CannotAnswerError

    try:
        return train_application(
            task.runs,
            placement=task.placement,
            models=task.models,
            quick_columns=task.quick_columns,
            random_state=task.seed,
        )
    except CannotAnswerError as error:
        return str(error)
