"""Training on runs of several nodes: which of their models goes into service."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kongming_server.operations.tasks import Outcome, Task
from kongming_server.training.fitting import fit_text
from kongming_server.training.task import train

from kongming.records.run import Run
from kongming.store import Store
from tests.server.profiles.profiled import campaign, keep

BEGAN = 1_700_000_000.0


@pytest.fixture
def store(store_url: str) -> Store:
    return Store.open(store_url)


def on_node(node_id: str, began_at: float, suite_version: str = "") -> list[Run]:
    """A profile of the same program on a node."""
    runs = []
    for run in campaign("prog", began_at=began_at):
        fingerprint = run.fingerprint
        if fingerprint is not None and suite_version:
            fingerprint = replace(fingerprint, suite_version=suite_version)
        runs.append(
            replace(run, id=f"{node_id}-{run.id}", node_id=node_id, fingerprint=fingerprint)
        )
    return runs


def trained(store: Store) -> list[Outcome]:
    return train(store, Task("prog", models=("LM",)), fit_text, lambda _share, _text: None)


@pytest.mark.parametrize("newest", ["node-a", "node-b"])
@pytest.mark.parametrize("suites", [("", ""), ("1-0000aaaa", "1-0000bbbb")])
def test_the_first_in_service_is_of_the_node_with_the_newest_runs(
    store: Store, newest: str, suites: tuple[str, str]
) -> None:
    for node_id, suite in zip(("node-a", "node-b"), suites, strict=True):
        keep(store, on_node(node_id, BEGAN + 1000.0 * (node_id == newest), suite))

    outcomes = trained(store)

    assert [(outcome.node_id, outcome.promoted) for outcome in outcomes] == [
        (newest, True),
        ("node-b" if newest == "node-a" else "node-a", False),
    ]
    assert store.in_service("prog", "cross-core") == 1
    again = trained(store)
    assert [outcome.promoted for outcome in again] == [True, False]


def test_runs_that_nothing_was_learned_from_do_not_keep_an_earlier_program_in_service(
    store: Store,
) -> None:
    keep(store, on_node("node-a", BEGAN))
    assert [outcome.promoted for outcome in trained(store)] == [True]
    changed = "another-program"
    runs = [replace(run, identity=changed) for run in on_node("node-b", BEGAN + 1000.0)]
    begun = replace(on_node("node-a", BEGAN + 2000.0)[-1], id="begun", identity=changed)
    keep(store, [*runs, begun])

    outcomes = {outcome.node_id or outcome.error[:12]: outcome for outcome in trained(store)}

    assert outcomes["node-b"].promoted, outcomes
    assert store.in_service("prog", "cross-core") == outcomes["node-b"].version
