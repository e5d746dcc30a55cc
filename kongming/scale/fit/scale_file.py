"""The models of one table of runs, as a scale model file holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kongming.records.errors import InputError, UnknownNameError
from kongming.scale.fit.contexts.context_model import ContextModel
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.tracked_files import TrackedFile


@dataclass(frozen=True, eq=False, slots=True)
class ScaleFile:
    """All models of one table: one for each job and machine type, or over ``contexts`` one for each
    job. ``created_at`` is UTC in ISO 8601."""

    name: str | None
    created_at: str
    models: tuple[ScaleModel, ...]
    tracked: tuple[TrackedFile, ...] = ()
    contexts: tuple[ContextModel, ...] = ()

    def at_context(self, given: Mapping[str, str]) -> ScaleFile:
        """Return the models at one context. Of a model over contexts with a column of machine types
        that is not given, these are one for each type, also of types without runs of this input.

        Raises:
            InputError: a value of the context is missing or no number, or the file has no contexts.
            UnknownNameError: no such column.
        """
        if not self.contexts:
            if given:
                raise InputError(
                    "The model has no contexts.",
                    field="--context",
                    value=", ".join(given),
                    hint="Fit it with --context COLUMN.",
                )
            return self
        models: list[ScaleModel] = []
        for of_job in self.contexts:
            column = of_job.type_column
            if column is None or column in given:
                models.append(of_job.at(given))
            else:
                models += [of_job.at({**given, column: name}) for name in of_job.types]
        return replace(self, models=tuple(models), contexts=())

    def of_job(self, group: str | None) -> ScaleFile:
        """Return the file with one job's models over contexts alone: columns, and what determines
        their values, differ between jobs. Without contexts it stays as it is.

        Raises as ``of_group``.
        """
        if not self.contexts:
            return self
        _check_group(group, [of_job.group for of_job in self.contexts])
        if group is None:
            return self
        return replace(
            self, contexts=tuple(of_job for of_job in self.contexts if of_job.group == group)
        )

    def of_group(self, group: str | None) -> tuple[ScaleModel, ...]:
        """Return the models of one job, one per machine type.

        Raises:
            InputError: there are several jobs and none is named, or there are none to name.
            UnknownNameError: no such job.
        """
        if self.contexts:
            return self.of_job(group).at_context({}).of_group(group)
        _check_group(group, [model.group for model in self.models])
        if group is None:
            return self.models
        return tuple(model for model in self.models if model.group == group)

    def single(self, group: str | None = None, machine_type: str | None = None) -> ScaleModel:
        """Return the model of one job on one machine type. Raises as ``of_group``."""
        models = self.of_group(group)
        types = [str(model.machine_type) for model in models]
        if machine_type is None:
            if len(models) > 1:
                raise InputError(
                    "The model covers several machine types.",
                    field="--type",
                    allowed=", ".join(types),
                )
            return models[0]
        if all(model.machine_type is None for model in models):
            raise InputError(
                "The model distinguishes no machine types.",
                field="--type",
                hint="Leave out --type, or fit again: kongming scale fit RUNS.csv --type-column "
                "COLUMN",
            )
        if machine_type not in types:
            raise UnknownNameError("machine type in the model", machine_type, types)
        return models[types.index(machine_type)]


def _check_group(group: str | None, known: Sequence[str | None]) -> None:
    """Raise InputError or UnknownNameError unless a job is named where there are several, and one
    of those that there are."""
    groups = list(dict.fromkeys(known))
    if group is None:
        if len(groups) > 1:
            raise InputError(
                "The model covers several jobs.",
                field="--group",
                allowed=", ".join(str(name) for name in groups),
            )
    elif groups == [None]:
        raise InputError(
            "The model distinguishes no jobs.",
            field="--group",
            hint="Leave out --group, or fit again: kongming scale fit RUNS.csv --group COLUMN",
        )
    elif group not in groups:
        raise UnknownNameError("job in the model", group, [str(name) for name in groups])
