"""What a run at a site says of the program whose time was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kongming.probes.suite import Suite
from kongming.profiling.plans.placement import Seats
from kongming.profiling.runs.outcome import Outcome
from kongming.profiling.runs.site_run import as_run
from kongming.profiling.site import Site
from kongming.records import moments
from kongming.records.application import Application
from kongming.records.run import Run, Usage, waiting_share
from tests import builders

SERVICE: dict[str, Any] = {"kind": "service", "ready": "true", "load": "true"}


def solo(cpu_s: float, fields: dict[str, Any], **of_app: Any) -> Run:
    """A solo run of 10 s that used so much processor time, as it is read from a store."""
    app = Application("a", "a", **of_app)
    site = Site(
        builders.node(), Suite("1-0123abcd", (), (), Path()), "cross-core", Seats((0,), 1), Path()
    )
    outcome = Outcome(moments.now(), 0, 10**10, 10.0, 10.0, Usage(cpu_s=cpu_s))
    run = as_run(outcome, app, site, identity="0" * 16, kind="solo", **fields)
    return Run.from_dict(run.to_dict())


@pytest.mark.parametrize(
    ("of_app", "share"),
    [({}, 0.01), (SERVICE, None), ({"cpus": 4}, None)],
    ids=["program", "service", "of four CPUs"],
)
def test_the_waiting_of_a_program_is_seen_on_its_own_single_cpu_alone(
    of_app: dict[str, Any], share: float | None
) -> None:
    """A load driver polls for 99 % of its time while its service waits for a disk, and four
    threads that each wait for three quarters of theirs use as much in all."""
    run = solo(9.9, {}, **of_app)

    assert waiting_share([run]) == (None if share is None else pytest.approx(share))


def test_what_a_campaign_says_of_a_run_stays_beside_it() -> None:
    environment = {"environment": "idle", "kind": "idle"}

    assert solo(9.9, {"config": environment}).config == environment
    mixed = solo(9.9, {"config": environment}, **SERVICE)
    assert {**mixed.config, **environment} == mixed.config
    assert mixed.waiting_share is None
    assert solo(9.9, {}).config == {}
