"""Estimated cost of a campaign, from the store: runs, seconds and bytes written."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.probes.suite import Suite
    from kongming.profiling.plans.campaign_plan import Estimate
    from kongming.profiling.plans.steps import Plan
    from kongming.records.application import Application
    from kongming.store import Store

LIKELY_BYTES_PER_S = 2e8
"""Assumed usual rate of a surrogate that writes, before it was timed on this node."""

ASSUMED_APP_S = 5.0
"""Assumed seconds of an application that never ran here."""


def cost_of(store: Store, settings: ProfileSettings, plan: Plan) -> Estimate:
    """Estimate the cost of all steps of ``plan``, from the store."""
    from kongming.profiling.plans.campaign_plan import estimate
    from kongming.profiling.write_limit import FASTEST_BYTES_PER_S

    apps = {**settings.inducer_apps, **settings.apps}
    seconds, _ = solo_seconds(store, apps, settings.node.id)
    latest = store.fingerprints(
        node_id=settings.node.id, suite_version=settings.suite.version, limit=20
    )
    rates = {}
    shares = []
    for surrogate in settings.suite.surrogates:
        times = [f.times()[surrogate.name] for f in latest if surrogate.name in f.times()]
        if surrogate.family == "write" and surrogate.bytes_per_op:
            fastest = surrogate.bytes_per_op / min(times) if times else FASTEST_BYTES_PER_S
            rates[surrogate.name] = fastest
            # Never timed here: assume what a SATA or a cloud disk writes.
            usual = surrogate.bytes_per_op / median(times) if times else LIKELY_BYTES_PER_S
            shares.append(usual / fastest)
    names = settings.suite.names_of(plan.suite)
    shared = plan.placement == "same-core"
    chunks = _chunk_seconds(plan.suite, len(names), shared)
    return estimate(
        plan,
        app_seconds=seconds,
        suite_seconds=suite_seconds(settings.suite, plan.suite, shared_core=shared),
        quick_seconds=suite_seconds(settings.suite, "quick", shared_core=shared),
        suite_bytes=sum(rates[name] for name in names if name in rates) * chunks,
        write_bytes_per_second=rates,
        # On a shared core a load has half the time.
        likely_share=(median(shares) if shares else 1.0) * (0.5 if shared else 1.0),
    )


def suite_seconds(suite: Suite, name: str, *, shared_core: bool) -> float:
    """Return the seconds of one fingerprint of a suite."""
    from kongming.probes.fingerprinting import schedule

    return schedule(name, len(suite.names_of(name)), steady=shared_core).seconds


def _chunk_seconds(suite: str, surrogates: int, shared_core: bool) -> float:
    from kongming.probes.fingerprinting import schedule

    window = schedule(suite, surrogates, steady=shared_core)
    return window.chunk * window.rounds


def solo_seconds(
    store: Store, apps: Mapping[str, Application], node_id: str
) -> tuple[dict[str, float], list[str]]:
    """Return the solo seconds of each application, of another version of it where this one never
    ran here, and the applications that never did (assumed to take ``ASSUMED_APP_S``)."""
    seconds, assumed = {}, []
    for name, app in apps.items():
        alone = own_seconds(store, name, app, node_id)
        if alone is None:
            alone = _median_wall_s(store, name, node_id, None)
        if alone is None:
            assumed.append(name)
        seconds[name] = ASSUMED_APP_S if alone is None else alone
    return seconds, assumed


def own_seconds(store: Store, name: str, app: Application, node_id: str) -> float | None:
    """Return the solo seconds of an application as it is now, whatever its metric is; None where
    it never ran here."""
    from kongming.profiling.plans.identity import identity

    return _median_wall_s(store, name, node_id, identity(app))


def _median_wall_s(store: Store, name: str, node_id: str, identity: str | None) -> float | None:
    from kongming.records.run import median_wall_s

    return median_wall_s(
        store.runs(
            app=name,
            identity=identity,
            node_id=node_id,
            kind="solo",
            ok=True,
            fingerprints=False,
        )
    )
