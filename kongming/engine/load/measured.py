"""Predict, or explain, in an environment that was measured by hand, with the models of a store."""

from __future__ import annotations

from dataclasses import replace

from kongming.engine.engine import Engine
from kongming.engine.load import Needs, load, tolerated
from kongming.engine.load.nodes import newest_references
from kongming.engine.nodes import domain_of
from kongming.learning.intervals import Widening
from kongming.records.answers import Explanation, Forecast
from kongming.records.fingerprint import Fingerprint
from kongming.records.moments import unix
from kongming.records.prediction import Prediction
from kongming.records.questions import Question
from kongming.store import Store


def predict_measured(
    store: Store, fingerprint: Fingerprint, question: Question, widening: Widening
) -> Prediction:
    """The runtime in the environment of a fingerprint, at the moment when it was taken, whoever
    runs there: by the model in service, with intervals widened so. ``question`` names the
    fingerprint's node and a placement.

    Raises: as ``Engine.predict``, and InputError for an implausible fingerprint.
    """
    engine, here, now = _engine_at(store, fingerprint, question, widening)
    return _prediction_of(engine.predict(here, now))


def explain_measured(
    store: Store, fingerprint: Fingerprint, question: Question, widening: Widening
) -> Explanation:
    """Return what ``predict_measured`` comes from, surrogate by surrogate. Raises likewise."""
    engine, here, now = _engine_at(store, fingerprint, question, widening)
    return engine.explain(here, now)


def _engine_at(
    store: Store, fingerprint: Fingerprint, question: Question, widening: Widening
) -> tuple[Engine, Question, float]:
    """Return an engine that knows the fingerprint's node only by it, the question about the cache
    domain there, and the moment."""
    node = fingerprint.node
    now = unix(fingerprint.started_at) + fingerprint.elapsed_s / 2.0
    engine = load(store, Needs(apps=frozenset({(question.app, 0)})), now)
    engine.put_node(node)
    if question.placement is not None:
        engine.put_widening(question.app, question.placement, widening)
    for domain, reference in newest_references(store, node):
        with tolerated():
            engine.put_reference(node.id, domain, reference.times, reference.suite_version)
    here = domain_of(node, fingerprint.cpu) or 0
    engine.put_fingerprint(node.id, here, fingerprint, now=now)
    return engine, replace(question, domain=here), now


def _prediction_of(forecast: Forecast) -> Prediction:
    """A forecast by a model as one of an environment that no node need have."""
    assert forecast.solo_s is not None
    assert forecast.runtime_s is not None
    return Prediction(
        app=forecast.app,
        model=forecast.model,
        placement=forecast.placement,
        solo_s=forecast.solo_s,
        runtime_s=forecast.runtime_s,
        slowdown=forecast.slowdown,
        extrapolating=forecast.extrapolating,
        drivers=forecast.drivers,
        warnings=forecast.warnings,
        notes=forecast.notes,
        metric_unit=forecast.metric_unit,
    )
