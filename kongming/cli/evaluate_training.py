"""Training for an evaluation: many sets of runs, by as many processes as there are CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kongming.cli import output

if TYPE_CHECKING:
    from kongming.models.persist import ModelFile
    from kongming.run import Run
    from kongming.store import Store

Key = tuple[str, ...]
"""An application, and whatever else tells its sets of runs apart."""


@dataclass(frozen=True, slots=True)
class Task:
    """One set of runs to be trained on. ``models`` None: those that are trained by default;
    ``quick_columns`` as ``train_application`` takes them."""

    key: Key
    runs: tuple[Run, ...]
    placement: str
    models: Sequence[str] | None
    seed: int
    quick_columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """Models by key, as documents and as they were read, and why there is none for the others."""

    documents: Mapping[Key, Mapping[str, Any]]
    files: Mapping[Key, ModelFile]
    failed: Mapping[Key, str]


def train_all(tasks: Sequence[Task]) -> Trained:
    """Train on every set of runs, and show how far it is."""
    from kongming.cli.parallel import available_cpus, in_order
    from kongming.models.persist import read

    documents, files, failed = {}, {}, {}
    with output.progress("Training", len(tasks)) as shown:
        shown.update(0)
        for done, (task, answer) in enumerate(in_order(_train, tasks, available_cpus())):
            shown.update(done + 1, text=f"Trained {', '.join(task.key)}")
            if isinstance(answer, str):
                failed[task.key] = answer
            else:
                documents[task.key] = answer
                files[task.key] = read(answer)
    return Trained(documents, files, failed)


def _train(task: Task) -> dict[str, Any] | str:
    """The model document, or why there can be none. In a process of its own, perhaps."""
    from kongming.errors import CannotAnswerError
    from kongming.models.training import train_application

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


def keep(store: Store, document: Mapping[str, Any]) -> None:
    """Put a model into the store unless the newest one there is the same."""
    app, placement, node_id = (str(document[key]) for key in ("app", "placement", "node_id"))
    newest = store.model(app, placement, node_id=node_id)
    if newest is None or newest.get("variants") != document["variants"]:
        store.put_model(app, str(document["identity"]), node_id, placement, document)
