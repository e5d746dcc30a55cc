"""Request of ``kongming evaluate``: its parameters, and the settings that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.records.application import Application


@dataclass(frozen=True, slots=True)
class Request:
    """The parameters of an evaluation. None: the default of its kind, or no limit."""

    file: Path
    names: tuple[str, ...]
    inducer_names: tuple[str, ...]
    placement: str
    plan: str
    repeats: int | None
    precision: float | None
    sample: int | None
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

    def settings(
        self,
        apps: Mapping[str, Application],
        inducer_apps: Mapping[str, Application] = MappingProxyType({}),
    ) -> ProfileSettings:
        """Return the settings of profiles on this node, with programs as loads if any are given,
        and print what is not measured of them as they are.

        Raises:
            InputError: this node does not have the placement.
            ProbeError: the micro-benchmarks cannot be run.
            BusyError: something else measures on CPUs that have to be measured.
        """
        from kongming.campaigns.profile_campaign import profile_settings
        from kongming.cli import output
        from kongming.profiling.cautions import cautions

        output.print_warnings(cautions({**inducer_apps, **apps}))
        return profile_settings(
            apps,
            self.placement,
            self.directory,
            plan_name=self.plan,
            asked_seed=self.seed,
            inducer_apps=inducer_apps,
            anyway=self.anyway,
            dry_run=self.dry_run,
        )
