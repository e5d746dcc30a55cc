"""Tasks and outcomes of training: records that processes exchange as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """One application to be trained. ``placement`` None is every one that it has runs at.

    ``only_new`` leaves out what has no runs beyond those that its model has learnt from.
    ``since`` says by placement when (unix seconds) the program has changed: runs before are not
    learnt from, where ``least`` runs came after. ``models`` None are all but the optional ones.
    ``by_operator``: whether an operator asked for it, and not a server by itself.
    """

    app: str
    placement: str | None = None
    model: str = "auto"
    models: tuple[str, ...] | None = None
    random_state: int = 0
    only_new: bool = False
    since: Mapping[str, float] = field(default_factory=dict)
    least: int = 4
    by_operator: bool = True

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"since": dict(self.since)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Task:
        models = document["models"]
        return cls(**{**document, "models": None if models is None else tuple(models)})


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of training for one application at one placement; see the message TrainedModel.
    ``profile`` is the verdict on its runs as the model's document has it. ``node_id`` and ``runs``:
    the node that its runs are of, and how many they are."""

    app: str
    placement: str
    version: int = 0
    promoted: bool = False
    reason: str = ""
    error: str = ""
    node_id: str = ""
    runs: int = 0
    profile: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what goes from a worker to its server."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Outcome:
        """Read what an operation keeps; what a newer server has added is left out."""
        return cls(**{name: value for name, value in document.items() if name in cls.__slots__})

    def to_document(self) -> dict[str, Any]:
        """Return what an operation keeps: the training data are in the log and in the model."""
        return {
            name: value for name, value in self.to_dict().items() if name not in ("node_id", "runs")
        }
