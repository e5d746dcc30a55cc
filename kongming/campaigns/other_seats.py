"""Warnings of a campaign that continues on other CPUs than it was begun on.

The key of a campaign has what its CPUs share, not their numbers: a job of a cluster gets other CPUs
of its node each time, and would never complete a campaign that is bound to some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kongming.records.errors import InputError

if TYPE_CHECKING:
    from kongming.profiling.plans.placement import Seats
    from kongming.records.application import Application
    from kongming.records.fingerprint import NodeFacts
    from kongming.records.run import Run


def other_seats(
    node: NodeFacts, placement: str, apps: Mapping[str, Application], runs: Iterable[Run]
) -> list[str]:
    """Return a sentence for each application of which earlier ``runs`` were on other CPUs than it
    is measured on now, by the facts of the node that these runs have."""
    from kongming.profiling.plans.placement import choose

    before: dict[str, dict[Seats, None]] = {}
    for run in runs:
        # The environment of a run next to a program is a signature, perhaps of another campaign.
        taken = run.before or run.fingerprint
        if taken is None or run.app not in apps:
            continue
        try:
            seats = choose(taken.node, placement, apps[run.app].cpus)
        except InputError:
            continue
        before.setdefault(run.app, {})[seats] = None
    sentences = []
    for app, then in sorted(before.items()):
        now = choose(node, placement, apps[app].cpus)
        then.pop(now, None)
        if then:
            earlier = " and ".join(map(str, then))
            sentences.append(
                f"{app} is measured {now} from here on, and was measured {earlier}: its runs may "
                "differ by that. taskset -c gives this command CPUs of your choice."
            )
    return sentences
