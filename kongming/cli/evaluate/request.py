"""Shared parts of the evaluations that measure: the request, this node, and training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.cli import output

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.evaluate.training import Task, Trained
    from kongming.records.application import Application
    from kongming.store import Store


@dataclass(frozen=True, slots=True)
class Request:
    """The parameters of an evaluation. None: the default of its kind, or no limit."""

    file: Path
    names: tuple[str, ...]
    placement: str
    plan: str
    repeats: int | None
    precision: float | None
    models: tuple[str, ...] | None
    environments: int | None
    budget: float | None
    scored: str
    seed: int | None
    predictions: tuple[Path, ...]
    out: Path | None
    preregister: Path | None
    directory: Path | None
    again: bool
    anyway: bool
    score_only: bool
    dry_run: bool
    store_url: str | None
    as_json: bool

    def least_repeats(self, default: int) -> int:
        """Return how often each case is run at the least."""
        from kongming.profiling.plans.precision import LEAST

        return (self.repeats or default) if self.precision is None else LEAST

    def most_repeats(self, default: int) -> int:
        """Return how often each case is run at the most."""
        from kongming.profiling.plans.precision import MOST

        return (self.repeats or default) if self.precision is None else MOST

    def settings(self, apps: Mapping[str, Application]) -> ProfileSettings:
        """Return the settings of profiles on this node.

        Raises:
            InputError: this node does not have the placement.
            ProbeError: the micro-benchmarks cannot be run.
        """
        from kongming.campaigns.profile_campaign import profile_settings

        return profile_settings(
            apps, self.placement, self.directory, plan_name=self.plan, asked_seed=self.seed
        )


def train_all(tasks: Sequence[Task]) -> Trained:
    """Train on every set of runs, with one process per CPU, and show progress."""
    from kongming.evaluate.training import collect, train
    from kongming.process_pool import available_cpus, in_order

    with output.progress("Training", len(tasks)) as shown:
        shown.update(0)

        def answers() -> Iterator[tuple[Task, dict[str, Any] | str]]:
            for done, (task, answer) in enumerate(in_order(train, tasks, available_cpus())):
                shown.update(done + 1, text=f"Trained {', '.join(task.key)}")
                yield task, answer

        return collect(answers())


def keep(store: Store, document: Mapping[str, Any]) -> None:
    """Store a model unless the newest stored one is the same."""
    app, placement, node_id = (str(document[key]) for key in ("app", "placement", "node_id"))
    newest = store.model(app, placement, node_id=node_id)
    if newest is None or newest.get("variants") != document["variants"]:
        store.put_model(app, str(document["identity"]), node_id, placement, document)


def print_cost(document: dict[str, Any], sentences: Sequence[str], *, as_json: bool) -> int:
    """Print the cost of an evaluation; return the exit status."""
    from kongming.campaigns.cost import ASSUMED_APP_S

    if as_json:
        output.emit_json(document)
        return 0
    console = output.console()
    for sentence in sentences:
        console.print(sentence, markup=False)
    if document["assumed_seconds"]:
        console.print(
            f"Not yet run here, assumed to take {ASSUMED_APP_S:g} s: "
            f"{', '.join(sorted(document['assumed_seconds']))}."
        )
    return 0
