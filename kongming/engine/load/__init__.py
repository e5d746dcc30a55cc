"""An engine from a store: the only part of the engine that reads one.

``load`` puts in what some questions need, in the order in which a server does at its start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kongming.engine.engine import Engine
from kongming.engine.load.models import ModelFiles, names_of_applications, scale_files
from kongming.engine.load.stored_nodes import (
    assignments_at,
    holder_of,
    newest_references,
    recent_fingerprints,
    suspicion_of,
)
from kongming.engine.nodes import hardware
from kongming.engine.settings import Settings
from kongming.records.errors import KongmingError, StoreError
from kongming.records.fingerprint import NodeFacts
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.records.scaling import profiled_at
from kongming.store import Reference, Store

__all__ = ["Needs", "load", "put_references"]


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of questions from a store. ``nodes`` are ids and names, None for all; ``apps`` names
    with the versions of their models that are asked for, 0 for the one in service; ``scale_models``
    are by name. ``company`` says that signatures are needed whoever runs where. ``jobs`` are
    applications that are asked about on several machines: their profiles at configurations of their
    own are needed too."""

    nodes: frozenset[str] | None = frozenset()
    apps: frozenset[tuple[str, int]] = frozenset()
    scale_models: frozenset[str] = frozenset()
    company: bool = False
    jobs: frozenset[str] = frozenset()

    @classmethod
    def of(cls, questions: Iterable[Question | RankQuestion | ColocationQuestion]) -> Needs:
        """Return what these questions need together."""
        nodes: set[str] = set()
        every_node, company = False, False
        apps: set[tuple[str, int]] = set()
        scale_models: set[str] = set()
        jobs: set[str] = set()
        for question in questions:
            if isinstance(question, ColocationQuestion):
                company = True
                apps |= {(app, 0) for app in (question.app, *question.neighbours)}
                nodes |= set() if question.node is None else {question.node}
                continue
            nodes |= set(question.nodes)
            if isinstance(question, Question):
                apps.add((question.app, question.model_version))
                nodes |= {node for node in (question.node, question.driver) if node}
            else:
                apps.add((question.app, 0))
                every_node |= not question.nodes
            if question.scaling is not None:
                scale_models.add(question.scaling.model or question.app)
                jobs.add(question.app)
        return cls(
            None if every_node else frozenset(nodes),
            frozenset(apps),
            frozenset(scale_models),
            company,
            frozenset(jobs),
        )

    def with_profiles(self, trained: Iterable[str]) -> Needs:
        """Add those of the ``trained`` applications that are profiles of a job."""
        profiles = {
            (app, 0)
            for app in set(trained)
            if any(profiled_at(app, job) is not None for job in self.jobs)
        }
        return replace(self, apps=self.apps | profiles)


def load(
    store: Store,
    needs: Needs,
    now: float,
    *,
    files: ModelFiles | None = None,
    settings: Settings | None = None,
) -> Engine:
    """An engine that answers as one that holds the whole store; ``files`` are model files that
    were read before.

    Where nothing runs on the nodes that are asked about, signatures and other applications'
    models change no answer, and are not read.

    Raises:
        KongmingError: the store cannot be read, or a model that is asked for is damaged.
    """
    settings = settings or Settings()
    files = files or ModelFiles(store)
    if needs.jobs:
        needs = needs.with_profiles(app for app, _ in files.in_service())
    engine = Engine(settings)
    facts = store.nodes()
    for node in facts:
        engine.put_node(node)
    known = {node.id for node in facts}
    # An agent is stored before its node: a server may have ended in between.
    for row in (row for row in store.agents() if row.node_id in known):
        if suspicion_of(row):
            engine.mark_suspect(row.node_id, suspicion_of(row))
        engine.set_holder(row.node_id, holder_of(row))
        engine.heartbeat(row.node_id, row.seen_at)
    chosen = [node for node in facts if _is_wanted(node, needs.nodes)]
    ids = {node.id for node in chosen}
    residents = assignments_at(store, now)
    company = needs.company or any(resident.node_id in ids for resident in residents)
    lacking = set()
    for node in facts if company else chosen:
        if not put_references(engine, store, node):
            lacking.add(hardware(node))
    for node in () if company else facts:
        # Like nodes lend theirs.
        if node.id not in ids and hardware(node) in lacking:
            put_references(engine, store, node)
    for node in chosen:
        for domain, fingerprint in recent_fingerprints(store, node, settings.history):
            with tolerated():
                engine.put_fingerprint(node.id, domain, fingerprint, now=now)
    _put_models(engine, store, needs, files, company=company)
    for name, scale_file in scale_files(store, needs.scale_models):
        engine.put_scale_model(name, scale_file)
    if company:
        engine.put_signatures(store.signatures(requested=True))
    else:
        for app, _ in sorted(needs.apps):
            if not files.entries(app):
                # Its signatures say at which placement it was profiled.
                engine.put_signatures(store.signatures(app=app, requested=True))
    # An idle node, or an environment that was measured, has nobody on it.
    for resident in residents if chosen else ():
        engine.put_assignment(resident)
    return engine


def _put_models(
    engine: Engine, store: Store, needs: Needs, files: ModelFiles, *, company: bool
) -> None:
    apps = dict.fromkeys(app for app, _ in sorted(needs.apps))
    if any(not files.entries(app) for app in apps):
        engine.put_applications(names_of_applications(store))
    serving = files.in_service()
    for (app, placement), version in serving.items():
        if app in apps:
            engine.put_model(files.read(app, placement, version), version)
        elif company:
            with tolerated():
                engine.put_model(files.read(app, placement, version), version)
    for app, version in sorted(needs.apps):
        for entry in files.entries(app):
            if version == entry.version != serving.get((app, entry.placement)):
                engine.put_model(files.read(app, entry.placement, version), version, False)
    concerned = [key for key in serving if key[0] in apps or company]
    for key, widening in files.widenings(concerned).items():
        engine.put_widening(*key, widening)


def put_references(
    engine: Engine,
    store: Store,
    node: NodeFacts,
    references: Iterable[Reference] | None = None,
) -> bool:
    """Put in the newest idle references of a node, of ``references`` (newest first) where they were
    read already; whether it has any."""
    has_reference = False
    for domain, reference in newest_references(store, node, references):
        with tolerated():
            engine.put_reference(node.id, domain, reference.times, reference.suite_version)
            has_reference = True
    return has_reference


def _is_wanted(node: NodeFacts, wanted: Collection[str] | None) -> bool:
    return wanted is None or node.id in wanted or node.name in wanted


@contextmanager
def tolerated() -> Iterator[None]:
    """One record that cannot be used must not keep the others from being used."""
    try:
        yield
    except StoreError:
        raise
    except KongmingError:
        return
