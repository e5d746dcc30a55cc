"""What an evaluation would take: runs and minutes, without measuring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.cli.campaign import seed_of

if TYPE_CHECKING:
    from kongming.cli.evaluate import Asked
    from kongming.cli.profile_campaign import Profiling
    from kongming.profiling.environments import Environment
    from kongming.store import Store


def tell_pairs(store: Store, asked: Asked, site: Profiling, repeats: int) -> int:
    """Of the profiles that lack, and of all pairs."""
    from kongming.cli.evaluate_profiles import Place, profiles_held
    from kongming.cli.profile_campaign import cost_of, solo_seconds, suite_seconds

    place = Place(site.node.id, asked.placement, site.suite.version)
    held = profiles_held(store, site.settings()["apps"], asked.plan, place)
    lacking = {name: app for name, app in site.apps.items() if name not in held}
    runs, seconds, written = 0, 0.0, 0.0
    if lacking:
        missing = replace(site, apps=lacking)
        cost = cost_of(store, missing, missing.plan(seed_of(asked.seed)))
        runs, seconds, written = sum(cost.runs.values()), cost.seconds, cost.written_bytes
    solo, assumed = solo_seconds(store, site.apps, site.node.id)
    around = 0.0
    if asked.placement != "same-core":
        around = 2.0 * suite_seconds(site.suite, "quick", shared_core=False)
    pairs = list(permutations(sorted(site.apps), 2))
    # A neighbour is warmed up for an iteration, and met at a random moment of the next one.
    each = sum(1.5 * solo[other] + solo[app] + around for app, other in pairs)
    each += sum(solo[app] + around for app in site.apps)
    co_runs = repeats * (len(pairs) + len(site.apps))
    sentences = [
        f"{len(pairs)} ordered pairs {repeats} times, and a round of solo runs with each: "
        f"{co_runs} runs, about {repeats * each / 60:.0f} min."
    ]
    if lacking:
        sentences.insert(
            0,
            f"Profiles of {', '.join(sorted(lacking))}: {runs} runs at the most, "
            f"about {seconds / 60:.0f} min, up to {written / 1e9:.0f} GB written.",
        )
    document = {
        "kind": "pairs",
        "placement": asked.placement,
        "profile": {"apps": sorted(lacking), "runs": runs, "seconds": seconds},
        "pairs": {"pairs": len(pairs), "runs": co_runs, "seconds": repeats * each},
        "runs": runs + co_runs,
        "seconds": seconds + repeats * each,
        "written_bytes": round(written),
        "assumed_seconds": assumed,
    }
    return _tell(document, sentences, asked)


def tell_nodes(
    store: Store,
    asked: Asked,
    site: Profiling,
    repeats: int,
    environments: Sequence[Environment],
) -> int:
    """Of all runs in all environments that can be made here."""
    from kongming.cli.profile_campaign import solo_seconds, suite_seconds

    made = [environment for environment in environments if environment.unavailable is None]
    solo, assumed = solo_seconds(store, site.apps, site.node.id)
    seconds = 0.0
    for environment in made:
        around = suite_seconds(site.suite, "quick", shared_core=environment.in_slices)
        seconds += around + max((solo[name] for name in environment.programs), default=0.0)
        seconds += sum(solo[app] * _longer(environment) + around for app in site.apps)
    runs = repeats * len(made) * len(site.apps)
    sentences = [
        f"{len(site.apps)} applications in {len(made)} environments {repeats} times: "
        f"{runs} runs, about {repeats * seconds / 60:.0f} min.",
        f"Environments: {', '.join(environment.name for environment in made)}.",
    ]
    sentences += [
        f"Not possible here: {environment.name}: {environment.unavailable}"
        for environment in environments
        if environment.unavailable is not None
    ]
    document = {
        "kind": "nodes",
        "placement": asked.placement,
        "environments": [environment.to_dict() for environment in environments],
        "runs": runs,
        "seconds": repeats * seconds,
        "assumed_seconds": assumed,
    }
    return _tell(document, sentences, asked)


def _longer(environment: Environment) -> float:
    """How often its solo time a run takes there, at a guess."""
    if environment.kind == "quota":
        return 1.0 / float(environment.parameters["cpu_quota"])
    # Under a memory limit a run is made before, to fill the page cache.
    return 2.0 if environment.kind == "memory" or environment.shares_cpu else 1.0


def _tell(document: dict[str, Any], sentences: Sequence[str], asked: Asked) -> int:
    from kongming.cli.profile_campaign import ASSUMED_APP_S

    if asked.as_json:
        output.emit_json(document)
        return 0
    console = output.console()
    for sentence in sentences:
        console.print(sentence, markup=False)
    if document["assumed_seconds"]:
        console.print(
            f"Not yet run here and taken to last {ASSUMED_APP_S:g} s: "
            f"{', '.join(sorted(document['assumed_seconds']))}."
        )
    return 0
