"""Annotations, times and phases of pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_extender.pods import Demand, demand_of, pod_of

from tests.kubernetes import clusters


def annotated(**values: str) -> dict[str, Any]:
    annotations = {f"kongming.dev/{key}": value for key, value in values.items()}
    return {"metadata": {"uid": "u", "annotations": annotations}}


def test_annotations_are_the_demand() -> None:
    values = {"limit": "1.25", "placement": "smt-sibling", "stale": "history", "unknown": "allow"}
    demand = demand_of(annotated(app="etl", **values))
    assert (demand.app, demand.limit) == ("etl", 1.25)
    assert (demand.placement, demand.stale) == ("smt-sibling", "history")
    assert demand.unknown == "allow"
    assert demand.problems == ()
    assert demand_of({}) == demand_of({"metadata": {"annotations": None}})


@pytest.mark.parametrize(
    ("annotations", "part"),
    [
        ({"limit": "0.5"}, "1 or more"),
        ({"limit": "20%"}, "1 or more"),
        ({"limit": "nan"}, "1 or more"),
        ({"placement": "near"}, "cross-core"),
        ({"stale": "never"}, "widen"),
        ({"unknown": "never"}, "allow, last, refuse"),
    ],
)
def test_an_annotation_that_is_not_valid_is_ignored_and_reported(
    annotations: dict[str, str], part: str
) -> None:
    demand = demand_of(annotated(app="etl", **annotations))
    assert demand == Demand(app="etl", problems=demand.problems)
    assert len(demand.problems) == 1
    assert part in demand.problems[0]


@pytest.mark.parametrize(
    "app", ["etl\n2026-11-22 ERROR forged", "x" * 257, "\N{OGHAM LETTER BEITH}" * 86]
)
def test_an_application_that_no_server_would_take_is_ignored_and_reported(app: str) -> None:
    demand = demand_of(annotated(app=app))
    assert demand.app == ""
    [problem] = demand.problems
    assert problem.isprintable()
    assert len(problem) < 250
    assert demand_of(annotated(app="x" * 256)).problems == ()


def test_a_pod_that_has_ended_has_its_times() -> None:
    pod = clusters.decoded(
        clusters.pod(
            app="etl",
            node="node-a",
            phase="Failed",
            started="2026-01-01T00:00:10Z",
            finished="2026-01-01T00:01:10Z",
            exit_code=3,
        )
    )
    assert pod.ended
    assert (pod.node, pod.exit_status, pod.restarts) == ("node-a", 3, 0)
    assert pod.started_at is not None
    assert pod.finished_at == pod.started_at + 60.0


KEYS = st.sampled_from(
    [
        *("uid", "annotations", "nodeName", "phase", "containerStatuses", "state", "running"),
        *("terminated", "startedAt", "finishedAt", "exitCode", "restartCount"),
        "kongming.dev/limit",
    ]
)
LEAVES = st.none() | st.integers() | st.text(max_size=5)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=5)
)


@given(JSON, JSON, JSON)
def test_any_document_can_be_decoded(metadata: Any, spec: Any, status: Any) -> None:
    document = {"metadata": metadata, "spec": spec, "status": status}
    pod = pod_of(document)
    assert pod is None or pod.uid
