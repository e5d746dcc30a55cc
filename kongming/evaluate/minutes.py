"""Minutes of measuring that each predictor needs: n profiles against n x n pairs."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from kongming.evaluate.trivial import AWAKE, MEAN, OF_PAIRS, SOLO
from kongming.learning.awake import keeps_awake
from kongming.records.moments import unix
from kongming.records.run import Run, Signature

_PAUSE = 10.0
"""A gap above so many times the campaign's median one is an interruption, and counts as the median,
unless the run in it took so long."""

Costs = Sequence[tuple[Run | Signature, float]]
"""Records with the seconds of machine time that each took."""


def campaign_costs(
    profiles: Iterable[Run | Signature], coruns: Iterable[Run]
) -> tuple[Costs, Costs]:
    """Return the records of profiles and those of pairs with the seconds that each took.

    A campaign may interleave both on one node. They share its time: no second counts for a profile
    and for a pair, except that of a run which both need.
    """
    of_profiles = {record.id: record for record in profiles}
    of_pairs = {run.id: run for run in coruns}
    nodes: dict[str, list[Run | Signature]] = {}
    for record in (of_profiles | of_pairs).values():
        nodes.setdefault(record.node_id, []).append(record)
    costs = [cost for records in nodes.values() for cost in machine_seconds(records)]
    return (
        [cost for cost in costs if cost[0].id in of_profiles],
        [cost for cost in costs if cost[0].id in of_pairs],
    )


def machine_seconds(records: Iterable[Run | Signature]) -> list[tuple[Run | Signature, float]]:
    """Return each record of one node with the time from the end of the one before to its own
    end, so that fingerprints, set-up and loads count for the record that they precede."""
    ended = sorted(((_end(record), record) for record in records), key=lambda item: item[0])
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(ended)]
    of_campaign: dict[str, list[float]] = {}
    for gap, (_, record) in zip(gaps, ended[1:], strict=True):
        of_campaign.setdefault(record.campaign, []).append(gap)
    usual = {campaign: statistics.median(own) for campaign, own in of_campaign.items()}
    seconds = [_wall(record) for _, record in ended[:1]]
    for gap, (_, record) in zip(gaps, ended[1:], strict=True):
        typical = usual[record.campaign]
        longest = _PAUSE * typical + max(_wall(record) - typical, 0.0)
        seconds.append(gap if gap <= longest else typical)
    return [(record, max(time, 0.0)) for (_, record), time in zip(ended, seconds, strict=True)]


def minutes_needed(profiles: Costs, pairs: Costs, models: Iterable[str]) -> dict[str, float]:
    """Return the minutes by predictor: of trivial ones, and of ``models`` of whole profiles.

    Predictors of left-out pairs need all pairs (and the solo runs between them): each pair in turn
    is left out, but it would not be worth while to measure all others to predict the last one.
    """
    profile = _minutes(profiles, lambda record: True)
    needed = {
        SOLO: _minutes(profiles, _is_solo),
        AWAKE: _minutes(profiles, lambda r: _is_solo(r) or (isinstance(r, Run) and keeps_awake(r))),
        MEAN: _minutes(profiles, lambda record: isinstance(record, Run)),
    }
    needed |= dict.fromkeys(OF_PAIRS, _minutes(pairs, lambda record: True))
    return {**dict.fromkeys(models, profile), **needed}


def _minutes(costs: Costs, needed: Callable[[Run | Signature], bool]) -> float:
    return math.fsum(seconds for record, seconds in costs if needed(record)) / 60.0


def _is_solo(record: Run | Signature) -> bool:
    return isinstance(record, Run) and record.kind == "solo"


def _wall(record: Run | Signature) -> float:
    return record.wall_s if isinstance(record, Run) else record.fingerprint.elapsed_s


def _end(record: Run | Signature) -> float:
    start = record.started_at if isinstance(record, Run) else record.fingerprint.started_at
    return unix(start) + _wall(record)
