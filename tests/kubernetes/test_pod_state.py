"""From pods to assignments: which updates the server gets, and when none is left."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from kongming_extender.pod_state import PodState, Update
from kongming_extender.pods import Demand, Pod

UIDS = [f"0000000{n}-0000-4000-8000-000000000000" for n in range(4)]


def pod(uid: str = UIDS[0], **changes: object) -> Pod:
    default = Pod(uid, "default", f"pod-{uid[7]}", Demand("etl", 1.2), node="node-a")
    return replace(default, **changes)  # type: ignore[arg-type]


def updates(pods: PodState, *, acknowledge: bool = True) -> list[tuple[str, str]]:
    pending = pods.pending()
    if acknowledge:
        for update in pending:
            pods.acknowledge(update)
    return [(update.action, update.assignment_id) for update in pending]


def test_a_pod_is_reserved_bound_and_released() -> None:
    pods = PodState()
    assert pods.put(pod(node="")).nodes == set()
    assert updates(pods) == []
    assert pods.put(pod()).nodes == {"node-a"}
    assert updates(pods) == [("reserve", UIDS[0])]
    pods.put(pod(phase="Running", started_at=5.0))
    assert updates(pods) == [("bind", UIDS[0])]
    assert [web.limit for web in pods.residents_with_limits["node-a"].values()] == [1.2]
    changes = pods.put(pod(phase="Succeeded", started_at=5.0, finished_at=50.0))
    assert [ended.finished_at for ended in changes.finished] == [50.0]
    assert changes.nodes == {"node-a"}
    assert updates(pods) == [("release", UIDS[0])]
    assert (updates(pods), len(pods), dict(pods.residents_with_limits)) == ([], 0, {})


def test_phases_that_were_missed_are_skipped() -> None:
    pods = PodState()
    pods.put(pod())
    pods.put(pod(phase="Running"))
    assert updates(pods) == [("bind", UIDS[0])]
    pods.delete(UIDS[0], 60.0)
    assert updates(pods) == [("release", UIDS[0])]


def test_a_pod_that_came_and_went_unseen_is_not_sent() -> None:
    pods = PodState()
    pods.put(pod())
    pods.delete(UIDS[0], 60.0)
    assert updates(pods) == []
    assert pods.put(pod(phase="Failed")).finished == []
    assert updates(pods) == []


def test_a_pod_without_an_application_is_not_sent() -> None:
    pods = PodState()
    pods.put(pod(demand=Demand()))
    assert (updates(pods), len(pods)) == ([], 0)


def test_a_pod_cannot_change_its_application_or_node() -> None:
    """The server has one of each for an id."""
    pods = PodState()
    pods.put(pod())
    pods.put(pod(demand=Demand("other", 1.5), phase="Running"))
    (update,) = pods.pending()
    assert (update.pod.demand.app, update.pod.demand.limit, update.action) == ("etl", 1.5, "bind")
    pods.put(pod(demand=Demand(), phase="Running"))
    pods.put(pod(demand=Demand(), phase="Succeeded"))
    pods.acknowledge(update)
    assert updates(pods) == [("release", UIDS[0])]


def test_a_list_ends_what_it_does_not_hold() -> None:
    pods = PodState()
    for uid in UIDS[:3]:
        pods.put(pod(uid))
    updates(pods)
    all_changes = pods.replace_all([pod(UIDS[1]), pod(UIDS[3])], 60.0)
    assert {ended.uid for changes in all_changes for ended in changes.finished} == {
        UIDS[0],
        UIDS[2],
    }
    assert sorted(updates(pods)) == [
        ("release", UIDS[0]),
        ("release", UIDS[2]),
        ("reserve", UIDS[3]),
    ]


def test_a_guess_is_withdrawn_once_the_pod_is_seen() -> None:
    pods = PodState()
    for node, right in (("node-a", (1, 0)), ("node-b", (0, 1))):
        uid = UIDS[right[0]]
        guess = pods.guess(pod(uid, node=""), "node-a", until=5.0)
        assert guess is not None
        assert guess.assignment_id.startswith(f"{uid}/")
        assert pods.guess(pod(uid, node=""), "node-a", until=6.0) is None
        assert updates(pods, acknowledge=False) == []
        changes = pods.put(pod(uid, node=node))
        assert (changes.right_guesses, changes.wrong_guesses) == right
        assert changes.nodes == {node, "node-a"}
        # First its own assignment, then the end of the guess: in between it counts twice.
        assert updates(pods) == [("reserve", uid), ("release", guess.assignment_id)]
        assert pods.guess(pod(uid, node=""), "node-c", until=9.0) is None


def test_a_guess_moves_and_expires() -> None:
    pods = PodState()
    first = pods.guess(pod(node=""), "node-a", until=5.0)
    second = pods.guess(pod(node=""), "node-b", until=6.0)
    assert first is not None
    assert second is not None
    assert updates(pods) == [("release", first.assignment_id)]
    assert pods.expire_guesses(5.9) == []
    assert pods.expire_guesses(6.0) == [second]
    assert updates(pods) == []
    # An id that the server has ended is not used again.
    third = pods.guess(pod(node=""), "node-b", until=9.0)
    assert third is not None
    assert third.assignment_id != second.assignment_id
    pods.delete(UIDS[0], 7.0)
    assert updates(pods) == [("release", third.assignment_id)]
    fourth = pods.guess(pod(node=""), "node-b", until=9.0)
    assert pods.withdraw_guess(UIDS[0]) == fourth
    assert pods.withdraw_guess(UIDS[0]) is None
    assert len(updates(pods)) == 1


def test_orphans_are_assignments_of_this_cluster_without_a_pod() -> None:
    pods = PodState()
    pods.put(pod(UIDS[0]))
    held = [
        (UIDS[0], "node-a"),
        (UIDS[1], "node-a"),
        (f"{UIDS[2]}/17", "node-a"),
        (UIDS[3], "elsewhere"),
        ("slurm-job-17", "node-a"),
    ]
    assert pods.orphans(held, {"node-a"}) == [UIDS[1], f"{UIDS[2]}/17"]


def test_an_assignment_of_a_pod_that_names_no_application_any_more_ends_with_it() -> None:
    """Also of an extender that has not seen the pod with an application."""
    pods = PodState()
    unnamed = pod(demand=Demand(), phase="Running", started_at=5.0)
    pods.replace_all([unnamed, replace(unnamed, uid=UIDS[1])], 10.0)
    held = [(UIDS[0], "node-a"), (f"{UIDS[1]}/17", "node-a"), (UIDS[2], "node-a")]
    for _ in range(2):
        assert pods.orphans(held, {"node-a"}) == [f"{UIDS[1]}/17", UIDS[2]]
        assert updates(pods) == []
    changes = pods.put(replace(unnamed, phase="Succeeded", finished_at=50.0))
    # Nobody knows of which application it was a run.
    assert (changes.nodes, changes.finished) == ({"node-a"}, [])
    assert updates(pods) == [("release", UIDS[0])]
    # The other one had none, so that there is nothing to end.
    assert pods.delete(UIDS[1], 60.0).nodes == set()
    assert updates(pods) == []
    assert pods.orphans([(UIDS[1], "node-a")], {"node-a"}) == [UIDS[1]]


PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "deleted", "acknowledged"])


@given(st.lists(st.tuples(st.sampled_from(UIDS[:2]), PHASES), max_size=20))
def test_whatever_happens_an_assignment_goes_forward_and_ends(
    events: list[tuple[str, str]],
) -> None:
    pods, sent = PodState(), []

    def send() -> list[Update]:
        pending = pods.pending()
        for update in pending:
            pods.acknowledge(update)
        return pending

    for uid, event in events:
        if event == "deleted":
            pods.delete(uid, 9.0)
        elif event == "acknowledged":
            sent += send()
        else:
            pods.put(pod(uid, phase=event))
    pods.replace_all([], 10.0)
    sent += send() + send()
    assert pods.pending() == []
    assert len(pods) == 0
    assert dict(pods.residents_with_limits) == {}
    order = {"reserve": 0, "bind": 1, "release": 2}
    for uid in UIDS[:2]:
        actions = [update.action for update in sent if update.assignment_id == uid]
        # A UID that comes again after its end begins anew.
        for before, after in itertools.pairwise(actions):
            assert order[after] > order[before] or before == "release"
        assert not actions or actions[-1] == "release"


def test_what_was_sent_and_not_answered_is_released() -> None:
    """The server may have done it; what was never sent needs no end."""
    pods = PodState()
    pods.put(pod())
    (reserve,) = pods.pending()
    pods.put(pod(UIDS[1]))
    pods.note_sent(reserve)
    for uid in UIDS[:2]:
        pods.delete(uid, at=50.0)
    assert updates(pods) == [("release", UIDS[0])]
    assert updates(pods) == []
