"""Fingerprints and runs at a site, as records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kongming.probes.fingerprinting import take_fingerprint
from kongming.profiling.runs.outcome import Outcome
from kongming.profiling.site import Site
from kongming.records.application import Application
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import APP_CPUS, APP_KIND, Run

QUICK = "quick"
"""Suite that is timed right before and right after every run."""


def site_fingerprint(site: Site, suite: str, names: Sequence[str] | None = None) -> Fingerprint:
    """Take a fingerprint on the application's CPU, under the same conditions."""
    return take_fingerprint(
        node=site.node,
        suite=suite,
        names=names,
        cpu=site.app_cpus[0],
        directory=site.io_dir,
        shared_core=site.shared_core,
        cgroup_procs=site.app_procs,
    )


def as_run(outcome: Outcome, app: Application, site: Site, **fields: object) -> Run:
    """Create the Run of an outcome at a site; ``fields`` are the remaining fields of Run, and its
    ``config`` has what the application says of the time that was measured."""
    warnings = (*site.warnings, *outcome.warnings)
    config: Any = fields.pop("config", {})
    return Run(
        app=app.name,
        node_id=site.node.id,
        placement=site.placement,
        started_at=outcome.started_at,
        wall_s=outcome.wall_s,
        metric=outcome.metric,
        metric_unit=app.metric_unit,
        better=app.better,
        usage=outcome.usage,
        exit_status=outcome.exit_status,
        error=outcome.error,
        warnings=warnings,
        config={**config, **_timed(app)},
        **fields,  # type: ignore[arg-type]
    )


def _timed(app: Application) -> dict[str, Any]:
    """Return what the processor time of a run is of, where it is not that of one CPU of a
    program."""
    kind = {} if app.kind == "batch" else {APP_KIND: app.kind}
    cpus = {} if app.cpus == 1 else {APP_CPUS: app.cpus}
    return {**kind, **cpus}
