"""Stores as evaluations leave them, with runs of made-up programs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.evaluate.figures import theme
from kongming.profiling.appfile import load as applications
from kongming.profiling.plans.identity import identity
from kongming.records.fingerprint import COUPLING
from kongming.records.run import Run
from kongming.store import Store
from tests import builders
from tests.models import synthetic

PROGRAMS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "chaser": ({"memory.random.128M": 0.6}, {"memory": 0.5}),
    "writer": ({"iobench.write.4M": 0.5}, {"write": 0.6}),
    "reader": ({"iobench.read.4M": 0.7, "stream.triad": 0.2}, {"read": 0.6, "memory": 0.3}),
    "sums": ({"compute.int": 0.9, "memory.random.8M": 0.3}, {"cache": 0.5}),
}
"""By name: what each is sensitive to, and what it loads."""

ENVIRONMENTS: dict[str, tuple[str, dict[str, float]]] = {
    "idle": ("idle", {}),
    "io-64M": ("io", {"read": 0.9, "write": 0.8}),
    "io-128M": ("io", {"read": 0.5, "write": 0.4}),
    "mix-other-chaser": ("mix", {"memory": 0.5}),
    "mix-same-sums": ("mix", {"memory": 0.2, "read": 0.3, "compute": 0.6}),
    "quota-0.5": ("quota", {"compute": 0.7, "cache": 0.5}),
    "quota-0.8": ("quota", {"compute": 0.3, "cache": 0.2}),
}
"""By name: the kind of each, and what it slows."""

COUPLED = {"chaser": {COUPLING: 4.0}, "writer": {COUPLING: 3.0}, "sums": {COUPLING: 1.1}}
"""By neighbour: the coupling before a program is run next to it."""

SUITE = "1-0123abcd"
SOLO_S = 3.0
BEGUN = datetime(2026, 2, 1, tzinfo=UTC)
EVERY_S = 60.0
"""From the start of one of the pairs' runs to the next."""


@contextmanager
def light_pages() -> Iterator[None]:
    """Draw figures as SVG for light pages alone: four files of each take four times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theme, "THEMES", (theme.LIGHT,))
        patch.setattr(theme, "FORMATS", ("svg",))
        yield


def applications_file(folder: Path, names: Iterable[str] = PROGRAMS) -> Path:
    file = folder / "apps.toml"
    file.write_text("".join(f'[apps.{name}]\ncommand = "true {name}"\n' for name in names))
    return file


def fill_pairs(
    store: Store,
    file: Path,
    *,
    repeats: int = 2,
    done: float = 1.0,
    drift: float = 0.0,
    load: str | None = None,
) -> dict[str, str]:
    """Profiles of all programs, and their pairs; returns the ids of both campaigns.

    Only the share ``done`` of the pairs' runs was made. ``drift`` slows whatever runs, by its
    log from the first run of the pairs to the last. The program ``load`` is a load of the others'
    profiles.
    """
    apps = applications(file)
    identities = {name: identity(app) for name, app in apps.items()}
    store.put_node(builders.node())
    place = {"placement": "cross-core", "suite_version": SUITE, "node": "node-1"}
    settings: dict[str, Any] = {"plan": "quick", "levels": None, **place, "apps": identities}
    if load is not None:
        settings["inducers"] = {load: identities[load]}
    profile = store.open_campaign("profiles", settings | {"seed": 1})
    for number, (name, app) in enumerate(sorted(apps.items())):
        powers, loads = PROGRAMS[name]
        store.put_application(name, identities[name], app.to_dict())
        own = {"identity": identities[name], "campaign": profile.id}
        store.add_all(
            runs=[
                *synthetic.campaign(name, powers, seed=number, passive={COUPLING: 1.2}, **own),
                *(_beside(name, load, step, own) for step in range(3) if load not in (None, name)),
            ],
            signatures=[
                synthetic.signature(name, loads, seed=seed, id=f"{name}-{seed}", **own)
                for seed in range(3)
            ],
        )
    store.finish_campaign(profile.id)
    pairs: dict[str, Any] = {"evaluate": "pairs", "repeats": repeats, **place, "apps": identities}
    key = hashlib.sha256(json.dumps(pairs, sort_keys=True).encode()).hexdigest()[:16]
    campaign = store.open_campaign(key, pairs | {"seed": 2})
    runs = list(_coruns(identities, campaign.id, repeats, drift))
    for run in runs[: round(done * len(runs))]:
        store.add_run(run)
    if done == 1.0:
        store.finish_campaign(campaign.id)
    return {"profiles": profile.id, "pairs": campaign.id}


def _beside(name: str, load: str | None, step: int, own: Mapping[str, Any]) -> Run:
    """A run of a profile next to a program that is a load."""
    random = np.random.default_rng(step)
    times = synthetic.environment(PROGRAMS[str(load)][1], random)
    return builders.run(
        name,
        SOLO_S * synthetic.slowdown(PROGRAMS[name][0], times),
        times,
        kind="induced",
        neighbours=(load,),
        step=1000 + step,
        **own,
    )


def slowdown(app: str, other: str | None, random: np.random.Generator | None = None) -> float:
    """What ``app`` is slowed by next to ``other``; without noise where nothing is drawn."""
    loads = {} if other is None else PROGRAMS[other][1]
    noise = 0.0 if random is None else 0.01
    drawn = np.random.default_rng(0) if random is None else random
    times = synthetic.environment(loads, drawn, noise=noise)
    return synthetic.slowdown(PROGRAMS[app][0], times) * math.exp(noise * drawn.standard_normal())


def _coruns(
    identities: Mapping[str, str], campaign: str, repeats: int, drift: float
) -> Iterable[Run]:
    random = np.random.default_rng(5)
    names = sorted(identities)
    round_ = [*permutations(names, 2), *((name, None) for name in names)]
    tasks = [round_[i] for _ in range(repeats) for i in random.permutation(len(round_))]
    for step, (name, other) in enumerate(tasks):
        slower = math.exp(drift * step / len(tasks))
        yield builders.run(
            name,
            SOLO_S * slower * slowdown(name, other, random),
            kind="solo" if other is None else "corun",
            neighbours=() if other is None else (other,),
            started_at=(BEGUN + timedelta(seconds=EVERY_S * step)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            identity=identities[name],
            campaign=campaign,
            step=step,
            passive=COUPLED.get(other or "", {}),
        )


def fill_nodes(
    store: Store, file: Path, *, repeats: int = 3, synthetic_kind: str | None = None
) -> str:
    """Runs of all programs in all environments; returns the campaign's id."""
    identities = {name: identity(app) for name, app in applications(file).items()}
    store.put_node(builders.node())
    environments = [
        {"name": name, "kind": kind, "parameters": {}, "synthetic": kind == synthetic_kind}
        for name, (kind, _) in ENVIRONMENTS.items()
    ]
    settings: dict[str, Any] = {
        "evaluate": "nodes",
        "repeats": repeats,
        "placement": "cross-core",
        "suite_version": SUITE,
        "node": "node-1",
        "apps": identities,
        "environments": len(environments),
    }
    missing = {"name": "memory", "kind": "memory", "unavailable": "no memory controller"}
    campaign = store.open_campaign(
        "nodes", settings | {"seed": 3, "made": [*environments, missing]}
    )
    random = np.random.default_rng(6)
    for step, (_, environment, name) in enumerate(
        product(range(repeats), environments, sorted(identities))
    ):
        times = synthetic.environment(ENVIRONMENTS[environment["name"]][1], random)
        quick = {known: times[known] for known in synthetic.QUICK}
        seen = builders.fingerprint(quick, suite="quick")
        noise = math.exp(0.01 * random.standard_normal())
        store.add_run(
            builders.run(
                name,
                SOLO_S * synthetic.slowdown(PROGRAMS[name][0], times) * noise,
                kind="environment",
                fingerprint=seen,
                before=seen,
                after=seen,
                identity=identities[name],
                campaign=campaign.id,
                step=step,
                config={
                    "environment": environment["name"],
                    "kind": environment["kind"],
                    "synthetic": environment["synthetic"],
                },
            )
        )
    store.finish_campaign(campaign.id)
    return campaign.id
