from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kongming.probes.suite import Suite
from kongming.profiling.plans.placement import Seats
from kongming.profiling.runs import coupling
from kongming.profiling.runs.coupling import LEAST_GAP_S, CouplingLog, neighbours_of
from kongming.profiling.site import Site
from kongming.records.errors import ProbeError
from kongming.records.fingerprint import COUPLING
from tests import builders


def site(placement: str = "cross-core") -> Site:
    suite = Suite("1-0123abcd", (), (), Path())
    return Site(builders.node(), suite, placement, Seats((0,), 1), Path())


def test_a_campaign_reads_the_coupling_again_only_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings: list[Any] = [1.1, ProbeError("The stream failed."), 4.0]

    def measure(*_: object) -> float:
        reading = readings.pop(0)
        if isinstance(reading, ProbeError):
            raise reading
        return float(reading)

    monkeypatch.setattr(coupling, "measure_coupling", measure)
    now = [100.0]
    log = CouplingLog(clock=lambda: now[0])
    # On a shared core it would say nothing of the cache.
    assert log.read(site("same-core")) == ({}, site("same-core"))
    assert log.read(site()) == ({COUPLING: 1.1}, site())
    now[0] += 0.9 * LEAST_GAP_S
    assert log.read(site())[0] == {COUPLING: 1.1}
    now[0] += 0.2 * LEAST_GAP_S
    signals, marked = log.read(site())
    assert signals == {}
    assert marked.warnings == ("the coupling was not measured: The stream failed.",)
    now[0] += LEAST_GAP_S
    assert log.read(site()) == ({COUPLING: 4.0}, site())


def test_neighbours_share_the_cache_but_no_core() -> None:
    node = builders.node(
        cpus=(0, 1, 2, 3, 4),
        cores={"0": 0, "1": 0, "2": 1, "3": 2, "4": 3},
        llc_cpus=((0, 1, 2, 3), (4,)),
        siblings={"0,3": {"shares_core": True}},
    )
    assert neighbours_of(node, 0) == (2,)
    assert neighbours_of(node, 4) == ()
