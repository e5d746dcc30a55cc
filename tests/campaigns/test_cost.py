"""How long a campaign is estimated to take, from the runs in a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from kongming.campaigns.cost import ASSUMED_APP_S, own_seconds, solo_seconds
from kongming.profiling.plans.identity import identity
from kongming.records.application import Application, Metric
from kongming.store import Store
from tests import builders


@pytest.mark.parametrize("unit", ["s", "ms", "ops/s"])
def test_seconds_are_those_of_the_run_whatever_its_metric_is(tmp_path: Path, unit: str) -> None:
    app = Application("service", "true", metric=Metric("([0-9.]+)", unit))
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.put_node(builders.node())
        for wall_s in (9.0, 10.0, 11.0):
            store.add_run(
                builders.run(
                    "service", 0.004, wall_s=wall_s, metric_unit=unit, identity=identity(app)
                )
            )
        assert solo_seconds(store, {"service": app}, "node-1") == ({"service": 10.0}, [])
        assert own_seconds(store, "service", app, "node-1") == 10.0


def test_another_version_of_a_program_is_an_estimate_and_no_knowledge(tmp_path: Path) -> None:
    app = Application("grown", "sort larger")
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.put_node(builders.node())
        store.add_run(builders.run("grown", 0.005, identity="the smaller one"))
        assert solo_seconds(store, {"grown": app}, "node-1") == ({"grown": 0.005}, [])
        assert own_seconds(store, "grown", app, "node-1") is None
        assert solo_seconds(store, {"new": app}, "node-1") == ({"new": ASSUMED_APP_S}, ["new"])
