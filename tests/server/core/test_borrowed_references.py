"""A node without an idle reference is taken to be as nodes like it, of which none counts for
more than one by calling itself many."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kongming.engine.engine import Engine
from kongming.engine.load import Needs, load
from kongming.records.errors import InputError
from kongming.records.questions import Question, RankQuestion
from kongming.store import Store
from tests import builders
from tests.server.core import worlds

NOW = worlds.NOW
DOMAINS = tuple((cpu,) for cpu in range(32))


def lend(engine: Engine, node_id: str, by: str, *, slower: float = 1.0, domains: int = 1) -> None:
    facts = {"llc_cpus": DOMAINS[:domains]} if domains > 1 else {}
    engine.put_node(builders.node(id=node_id, name=node_id, **facts), NOW)
    times = {name: slower * seconds for name, seconds in worlds.IDLE.items()}
    for domain in range(domains):
        engine.put_reference(node_id, domain, times, worlds.SUITE, by=by)


def borrowed(engine: Engine) -> float:
    """How many times slower than idle a node seems that borrows, and is as idle as IDLE."""
    live = worlds.fingerprint(worlds.IDLE, node_id="borrower")
    engine.put_fingerprint("borrower", 0, live, now=NOW, by="token borrower")
    general = engine.node("borrower", NOW).general_slowdown
    assert general is not None
    return general


def test_many_cache_domains_are_one_vote() -> None:
    engine = Engine()
    lend(engine, "thief", "token thief", slower=1e6, domains=32)
    for number in range(2):
        lend(engine, f"honest-{number}", f"token {number}")
    assert borrowed(engine) == pytest.approx(1.0)


def test_many_nodes_of_one_holder_are_one_vote() -> None:
    engine = Engine()
    for number in range(4):
        lend(engine, f"thief-{number}", "token thief", slower=1e6)
    for number in range(2):
        lend(engine, f"honest-{number}", f"token {number}")
    assert borrowed(engine) == pytest.approx(1.0)


def test_nodes_of_one_holder_alone_are_their_median() -> None:
    engine = Engine()
    for number, slower in enumerate((1.0, 1.0, 1e6)):
        lend(engine, f"node-{number}", "token fleet", slower=slower)
    assert borrowed(engine) == pytest.approx(1.0)


def test_a_node_that_is_quarantined_lends_nothing() -> None:
    engine = Engine()
    lend(engine, "honest", "token honest")
    for number in range(2):
        lend(engine, f"thief-{number}", f"token thief {number}", slower=1e6)
        engine.mark_suspect(f"thief-{number}", "implausible")
    assert borrowed(engine) == pytest.approx(1.0)


def test_what_was_lent_is_no_bound_of_what_a_node_may_report() -> None:
    engine = Engine()
    lend(engine, "thief", "token thief", slower=1e6)
    assert borrowed(engine) < 1e-4
    assert engine.reference("borrower") is None
    lend(engine, "borrower", "token borrower")
    assert engine.reference("borrower") == pytest.approx(worlds.IDLE)


def test_a_node_in_other_hands_is_the_vote_of_these() -> None:
    engine = Engine()
    for number in range(3):
        lend(engine, f"node-{number}", "token thief", slower=1e6)
    assert borrowed(engine) < 1e-3
    for number in range(2):
        lend(engine, f"node-{number}", f"token {number}")
    assert math.log(borrowed(engine)) == pytest.approx(0.0, abs=1e-9)


def test_what_one_agent_alone_names_is_not_lent() -> None:
    engine = Engine()
    engine.put_node(builders.node(id="thief", name="thief"), NOW)
    engine.put_reference("thief", 0, {"junk": 1e-9} | worlds.IDLE, worlds.SUITE, by="token thief")
    live = worlds.fingerprint({"own": 1.0} | worlds.IDLE, node_id="borrower")
    engine.put_fingerprint("borrower", 0, live, now=NOW, by="token borrower")
    assert engine.node("borrower", NOW).slowdown == pytest.approx(dict.fromkeys(worlds.IDLE, 1.0))


def test_a_store_knows_whose_node_is_whose(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        for node_id, slower, holder in (
            *((f"thief-{number}", 1e6, "token thief") for number in range(4)),
            *((f"honest-{number}", 1.0, f"token {number}") for number in range(2)),
            ("borrower", None, "token borrower"),
        ):
            store.put_node(builders.node(id=node_id, name=f"name-{node_id}"))
            store.put_agent(node_id, {"bound_to": holder}, NOW)
            if slower is not None:
                times = {name: slower * seconds for name, seconds in worlds.IDLE.items()}
                store.put_reference(node_id, worlds.SUITE, 0, times, 3, worlds.iso(NOW - 9e5))
        live = worlds.fingerprint(worlds.IDLE, node_id="borrower")
        store.add_fingerprint(live, purpose="live")
        engine = load(store, Needs(nodes=frozenset({"borrower"})), NOW)
        assert engine.node("borrower", NOW).general_slowdown == pytest.approx(1.0)


def test_a_model_of_the_node_itself_needs_nothing_that_others_lend() -> None:
    """There its readings count as they are: the answer is as calibrated as with a reference."""
    engine = Engine()
    engine.put_model(worlds.model("app", {"stream.triad": 0.5}, node_id="home"), 1)
    lend(engine, "like", "token like")
    live = worlds.fingerprint(worlds.IDLE, node_id="home")
    engine.put_fingerprint("home", 0, live, now=NOW, by="token home")
    predicted = engine.predict(Question("app", "home"), NOW).slowdown
    (ranked,) = engine.rank(RankQuestion("app", nodes=("home",), seed=1), NOW).nodes
    assert ranked.slowdown.calibrated is predicted.calibrated


@pytest.mark.parametrize("limit", [0.0, 1.0])
def test_a_limit_for_residents_that_nobody_keeps_is_refused(limit: float) -> None:
    assert RankQuestion("app", resident_slowdown_limit=limit)
    with pytest.raises(InputError, match="resident_slowdown_limit"):
        RankQuestion("app", resident_slowdown_limit=0.9)
