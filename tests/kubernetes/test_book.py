"""From pods to placements: what the server is told, and when nothing is left to tell."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from kongming_extender.book import Book, Due
from kongming_extender.pods import Demand, Pod

UIDS = [f"0000000{n}-0000-4000-8000-000000000000" for n in range(4)]


def pod(uid: str = UIDS[0], **changes: object) -> Pod:
    made = Pod(uid, "default", f"pod-{uid[7]}", Demand("etl", 1.2), node="node-a")
    return replace(made, **changes)  # type: ignore[arg-type]


def steps(book: Book, *, tell: bool = True) -> list[tuple[str, str]]:
    found = book.due()
    if tell:
        for due in found:
            book.told(due)
    return [(due.step, due.placement_id) for due in found]


def test_a_pod_is_reserved_bound_and_released() -> None:
    book = Book()
    assert book.put(pod(node="")).nodes == set()
    assert steps(book) == []
    assert book.put(pod()).nodes == {"node-a"}
    assert steps(book) == [("reserve", UIDS[0])]
    book.put(pod(phase="Running", started_at=5.0))
    assert steps(book) == [("bind", UIDS[0])]
    assert [one.limit for one in book.limited["node-a"].values()] == [1.2]
    seen = book.put(pod(phase="Succeeded", started_at=5.0, finished_at=50.0))
    assert [one.finished_at for one in seen.finished] == [50.0]
    assert seen.nodes == {"node-a"}
    assert steps(book) == [("release", UIDS[0])]
    assert (steps(book), len(book), dict(book.limited)) == ([], 0, {})


def test_steps_that_were_missed_are_passed_over() -> None:
    book = Book()
    book.put(pod())
    book.put(pod(phase="Running"))
    assert steps(book) == [("bind", UIDS[0])]
    book.gone(UIDS[0], 60.0)
    assert steps(book) == [("release", UIDS[0])]


def test_a_pod_that_came_and_went_unseen_is_not_told() -> None:
    book = Book()
    book.put(pod())
    book.gone(UIDS[0], 60.0)
    assert steps(book) == []
    assert book.put(pod(phase="Failed")).finished == []
    assert steps(book) == []


def test_a_pod_without_an_application_is_not_told() -> None:
    book = Book()
    book.put(pod(demand=Demand()))
    assert (steps(book), len(book)) == ([], 0)


def test_a_pod_cannot_change_its_application_or_node() -> None:
    """The server keeps one of each for an id."""
    book = Book()
    book.put(pod())
    book.put(pod(demand=Demand("other", 1.5), phase="Running"))
    (due,) = book.due()
    assert (due.pod.demand.app, due.pod.demand.limit, due.step) == ("etl", 1.5, "bind")
    book.put(pod(demand=Demand(), phase="Running"))
    book.put(pod(demand=Demand(), phase="Succeeded"))
    book.told(due)
    assert steps(book) == [("release", UIDS[0])]


def test_a_list_ends_what_it_does_not_hold() -> None:
    book = Book()
    for uid in UIDS[:3]:
        book.put(pod(uid))
    steps(book)
    seen = book.listed([pod(UIDS[1]), pod(UIDS[3])], 60.0)
    assert {one.uid for each in seen for one in each.finished} == {UIDS[0], UIDS[2]}
    assert sorted(steps(book)) == [
        ("release", UIDS[0]),
        ("release", UIDS[2]),
        ("reserve", UIDS[3]),
    ]


def test_a_guess_is_given_up_once_the_pod_is_seen() -> None:
    book = Book()
    for node, right in (("node-a", (1, 0)), ("node-b", (0, 1))):
        uid = UIDS[right[0]]
        guess = book.guess(pod(uid, node=""), "node-a", until=5.0)
        assert guess is not None
        assert guess.placement_id.startswith(f"{uid}/")
        assert book.guess(pod(uid, node=""), "node-a", until=6.0) is None
        assert steps(book, tell=False) == []
        seen = book.put(pod(uid, node=node))
        assert (seen.right, seen.wrong) == right
        assert seen.nodes == {node, "node-a"}
        # First its place, then the end of the guess: in between it counts twice, never not.
        assert steps(book) == [("reserve", uid), ("release", guess.placement_id)]
        assert book.guess(pod(uid, node=""), "node-c", until=9.0) is None


def test_a_guess_moves_and_expires() -> None:
    book = Book()
    first = book.guess(pod(node=""), "node-a", until=5.0)
    second = book.guess(pod(node=""), "node-b", until=6.0)
    assert first is not None
    assert second is not None
    assert steps(book) == [("release", first.placement_id)]
    assert book.expired(5.9) == []
    assert book.expired(6.0) == [second]
    assert steps(book) == []
    # An id that the server has ended is not used again.
    third = book.guess(pod(node=""), "node-b", until=9.0)
    assert third is not None
    assert third.placement_id != second.placement_id
    book.gone(UIDS[0], 7.0)
    assert steps(book) == [("release", third.placement_id)]
    fourth = book.guess(pod(node=""), "node-b", until=9.0)
    assert book.take_back(UIDS[0]) == fourth
    assert book.take_back(UIDS[0]) is None
    assert len(steps(book)) == 1


def test_orphans_are_pods_of_this_cluster_that_are_not_there() -> None:
    book = Book()
    book.put(pod(UIDS[0]))
    held = [
        (UIDS[0], "node-a"),
        (UIDS[1], "node-a"),
        (f"{UIDS[2]}/17", "node-a"),
        (UIDS[3], "elsewhere"),
        ("slurm-job-17", "node-a"),
    ]
    assert book.orphans(held, {"node-a"}) == [UIDS[1], f"{UIDS[2]}/17"]


PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "gone", "told"])


@given(st.lists(st.tuples(st.sampled_from(UIDS[:2]), PHASES), max_size=20))
def test_whatever_happens_a_placement_goes_forward_and_ends(
    events: list[tuple[str, str]],
) -> None:
    book, told = Book(), []

    def tell() -> list[Due]:
        found = book.due()
        for due in found:
            book.told(due)
        return found

    for uid, what in events:
        if what == "gone":
            book.gone(uid, 9.0)
        elif what == "told":
            told += tell()
        else:
            book.put(pod(uid, phase=what))
    book.listed([], 10.0)
    told += tell() + tell()
    assert book.due() == []
    assert len(book) == 0
    assert dict(book.limited) == {}
    order = {"reserve": 0, "bind": 1, "release": 2}
    for uid in UIDS[:2]:
        steps = [due.step for due in told if due.placement_id == uid]
        # A UID that comes again after its end begins anew.
        for before, after in itertools.pairwise(steps):
            assert order[after] > order[before] or before == "release"
        assert not steps or steps[-1] == "release"
