"""Predict, or explain, in an environment that was measured by hand, with the models of a store."""

from __future__ import annotations

from dataclasses import replace

from kongming.engine.engine import Engine
from kongming.engine.load import Needs, load, put_references
from kongming.engine.nodes import domain_of, hardware
from kongming.records.answers import Colocation, Explanation, Forecast
from kongming.records.fingerprint import Fingerprint
from kongming.records.moments import unix
from kongming.records.questions import ColocationQuestion, Question
from kongming.store import Reference, Store


def predict_measured(store: Store, fingerprint: Fingerprint, question: Question) -> Forecast:
    """The runtime in the environment of a fingerprint, at the moment when it was taken, whoever
    runs there: by the model in service. ``question`` names the fingerprint's node; the answer has
    no age, since the environment is not one of now.

    Raises: as ``Engine.predict``.
    """
    engine, domain, now = _engine_at(store, fingerprint, Needs(apps=_in_service(question.app)))
    return replace(engine.predict(replace(question, domain=domain), now), fingerprint_age_s=None)


def colocate_measured(
    store: Store, fingerprint: Fingerprint, question: ColocationQuestion
) -> Colocation:
    """``predict_measured`` with named neighbours added to what the fingerprint holds: they must not
    run there already.

    Raises: as ``Engine.predict_colocation``.
    """
    apps = _in_service(question.app, *question.neighbours)
    engine, domain, _ = _engine_at(store, fingerprint, Needs(apps=apps, company=True))
    return engine.predict_colocation(replace(question, node=fingerprint.node.id), domain)


def explain_measured(store: Store, fingerprint: Fingerprint, question: Question) -> Explanation:
    """Return what ``predict_measured`` comes from, surrogate by surrogate. Raises likewise."""
    engine, domain, now = _engine_at(store, fingerprint, Needs(apps=_in_service(question.app)))
    return engine.explain(replace(question, domain=domain), now)


def _in_service(*apps: str) -> frozenset[tuple[str, int]]:
    return frozenset((app, 0) for app in apps)


def _engine_at(store: Store, fingerprint: Fingerprint, needs: Needs) -> tuple[Engine, int, float]:
    """Return an engine that knows the fingerprint's node only by it, the cache domain there, and
    the moment."""
    node = fingerprint.node
    now = unix(fingerprint.started_at) + fingerprint.elapsed_s / 2.0
    engine = load(store, needs, now)
    engine.put_node(node)
    if not put_references(engine, store, node):
        # Like nodes lend theirs.
        like = [other for other in store.nodes() if hardware(other) == hardware(node)]
        references: dict[str, list[Reference]] = {}
        for reference in store.references() if like else ():
            references.setdefault(reference.node_id, []).append(reference)
        for other in like:
            put_references(engine, store, other, references.get(other.id, []))
    here = domain_of(node, fingerprint.cpu) or 0
    engine.put_fingerprint(node.id, here, fingerprint, now=now)
    return engine, here, now
