"""The agents of all nodes, and the watchers of each node. No I/O."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kongming.engine.nodes import domain_of
from kongming.records.answers import NodeState
from kongming.records.errors import InputError, OverloadedError, UnknownNameError
from kongming.records.fingerprint import NodeFacts

AGENT_STATES: tuple[NodeState, ...] = ("ready", "silent", "suspect", "stored")
"""What an agent alone shows: whether its node has an idle reference, the engine knows."""

MOST_CAMPAIGNS = 64
"""Campaigns of one node of which it is remembered that they were asked for. More are remembered
where each is one of the two newest of an application that the node allows: it may still wait its
turn, or its runs may be on their way."""


@dataclass(slots=True)
class Agent:
    """A node and its agent. Times are unix seconds, None before there was one.

    ``registered`` is False for a node that is only known from what was measured there by hand;
    ``unwritten`` while its facts are not on disk as its agent last reported them;
    ``suspect`` says why the node is in quarantine; ``plausible`` counts the plausible
    fingerprints since then; ``bound_to`` whose node it is (``nodes.ownership``), empty for
    nobody's; ``campaigns`` are the application of each campaign that was asked for, by its id,
    and who asked; ``encoded`` are its facts as they were last sent, and their message's bytes.
    """

    facts: NodeFacts
    registered: bool = False
    unwritten: bool = False
    agent_version: str = ""
    suite_version: str = ""
    allowed_apps: tuple[str, ...] = ()
    wanted_profiles: tuple[str, ...] = ()
    suspect: str | None = None
    plausible: int = 0
    silent: bool = False
    last_heartbeat: float | None = None
    last_fingerprint: float | None = None
    probe_cost: float = 0.0
    spooled: int = 0
    probe_now: bool = False
    bound_to: str = ""
    campaigns: dict[str, tuple[str, str]] = field(default_factory=dict)
    encoded: tuple[NodeFacts, bytes] | None = None

    def want(self, app: str, by: str) -> None:
        """Have it profile an application, ``by`` an operator or the server. Models are trained on
        the runs of the campaign whose id it is given."""
        if app in self.wanted_profiles:
            return
        self.wanted_profiles = (*self.wanted_profiles, app)
        self.campaigns[secrets.token_hex(16)] = (app, by)
        while len(self.campaigns) > MOST_CAMPAIGNS and (spare := self._spare_campaign()):
            del self.campaigns[spare]

    def _spare_campaign(self) -> str:
        """The id of the oldest campaign that two newer ones of its application have followed, or
        whose application is not allowed any more; empty for none. Runs of the one before the newest
        may still be on their way."""
        followed: Counter[str] = Counter()
        spare = ""
        for id_, (app, _) in reversed(self.campaigns.items()):
            if followed[app] >= 2 or app not in self.allowed_apps:
                spare = id_
            followed[app] += 1
        return spare

    def campaign_of(self, app: str) -> str:
        """The id of the newest campaign that was asked for; empty for none."""
        ids = [id_ for id_, (name, _) in self.campaigns.items() if name == app]
        return ids[-1] if ids else ""

    def was_asked(self, campaign: str, app: str) -> bool:
        """Return whether a campaign of this id was asked for, of this application."""
        return campaign in self.campaigns and self.campaigns[campaign][0] == app

    @property
    def state(self) -> NodeState:
        """One of ``AGENT_STATES``."""
        if self.suspect is not None:
            return "suspect"
        if not self.registered:
            return "stored"
        return "silent" if self.silent else "ready"

    @property
    def domains(self) -> int:
        """Last-level cache domains; one where the node tells of none."""
        return max(1, len(self.facts.llc_cpus))

    def domain_of(self, cpu: int) -> int | None:
        """The last-level cache domain of a CPU; 0 where the node tells of none, None if unknown."""
        return domain_of(self.facts, cpu)

    def to_document(self) -> dict[str, Any]:
        """Return what outlives a restart, as JSON."""
        return {
            "schema": 1,
            "agent_version": self.agent_version,
            "suite_version": self.suite_version,
            "allowed_apps": list(self.allowed_apps),
            "wanted_profiles": list(self.wanted_profiles),
            "suspect": self.suspect,
            "bound_to": self.bound_to,
            "campaigns": {id_: list(campaign) for id_, campaign in self.campaigns.items()},
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Take over what ``to_document`` wrote."""
        self.registered = True
        self.agent_version = str(document.get("agent_version", ""))
        self.suite_version = str(document.get("suite_version", ""))
        self.allowed_apps = tuple(map(str, document.get("allowed_apps", ())))
        self.wanted_profiles = tuple(map(str, document.get("wanted_profiles", ())))
        suspect = document.get("suspect")
        self.suspect = None if suspect is None else str(suspect)
        self.bound_to = str(document.get("bound_to", ""))
        self.campaigns = {
            str(id_): (str(app), str(by))
            for id_, (app, by) in dict(document.get("campaigns", {})).items()
        }


class Agents:
    """All nodes by id and by name."""

    def __init__(self) -> None:
        self._by_id: dict[str, Agent] = {}
        self._by_name: dict[str, set[str]] = {}
        self._by_alias: dict[str, set[str]] = {}

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, node_id: str) -> Agent | None:
        return self._by_id.get(node_id)

    def put(self, facts: NodeFacts) -> Agent:
        """The node's agent, with these facts from now on."""
        agent = self._by_id.get(facts.id)
        if agent is None:
            agent = self._by_id[facts.id] = Agent(facts)
        elif agent.facts.name != facts.name:
            _discard(self._by_name, agent.facts.name, facts.id)
            for alias in aliases(agent.facts):
                _discard(self._by_alias, alias.lower(), facts.id)
        agent.facts = facts
        self._by_name.setdefault(facts.name, set()).add(facts.id)
        for alias in aliases(facts):
            self._by_alias.setdefault(alias.lower(), set()).add(facts.id)
        return agent

    def called(self, name: str) -> list[Agent]:
        """The nodes whose id or name this is, in whatever case."""
        facts = ((agent, agent.facts) for agent in self.alike(name))
        return [agent for agent, of in facts if name.lower() in (of.id.lower(), of.name.lower())]

    def alike(self, *names: str) -> list[Agent]:
        """The nodes that have one of these as an alias, in whatever case: names of hosts have
        none, and people overlook it."""
        ids = {node_id for name in names for node_id in self._by_alias.get(name.lower(), ())}
        return [self._by_id[node_id] for node_id in sorted(ids)]

    def count_of(self, holder: str) -> int:
        """Return how many nodes belong to these credentials."""
        return sum(agent.bound_to == holder for agent in self._by_id.values())

    def known(self, node_id: str, field_name: str = "node_id") -> Agent:
        """Get a node by its id alone, as agents name themselves. Raises UnknownNameError."""
        agent = self._by_id.get(node_id)
        if agent is None:
            error = UnknownNameError("node", node_id, None, hint="Register it first.")
            error.field = field_name
            raise error
        return agent

    def named(self, node: str, field_name: str = "node") -> Agent:
        """Get a node by its id or name, as people and batch systems do. Where several have the
        name, it is the only one that is not silent: a machine that was installed again has another
        id.

        Raises:
            UnknownNameError: nothing is called so.
            InputError: several nodes have this name.
        """
        agent = self._by_id.get(self.id_of(node))
        if agent is not None:
            return agent
        ids = self._by_name.get(node, set())
        if not ids:
            error = UnknownNameError("node", node, self._by_name)
            error.field = field_name
            raise error
        if len(ids) > 1:
            raise InputError(
                "is the name of several nodes.",
                field=field_name,
                value=node,
                allowed=f"an id: {', '.join(sorted(ids)[:5])}",
            )
        return self._by_id[next(iter(ids))]

    def id_of(self, node: str) -> str:
        """The id of the node that ``named`` returns where several have this name; else ``node``."""
        ids = self._by_name.get(node, ())
        if len(ids) < 2 or node in self._by_id:
            return node
        agents = [self._by_id[id_] for id_ in ids]
        heard = [agent.facts.id for agent in agents if agent.registered and not agent.silent]
        return heard[0] if len(heard) == 1 else node


def _discard(ids: dict[str, set[str]], name: str, node_id: str) -> None:
    """Take a node from those of a name, which is forgotten with its last one: an agent may give its
    node a new name with each call."""
    of_name = ids.get(name, set())
    of_name.discard(node_id)
    if not of_name:
        ids.pop(name, None)


def first_part(name: str) -> str:
    """A host's name without its domain."""
    return name.partition(".")[0]


def aliases(facts: NodeFacts) -> set[str]:
    """Return what a batch system may call a node: its assignments there end with one of these."""
    return {facts.id, facts.name, first_part(facts.name)}


class Watchers:
    """Watchers that are notified when a node changes. Changes that come together are notified
    once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: dict[str, set[asyncio.Event]] = {}
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    @contextmanager
    def watching(self, node_id: str) -> Iterator[asyncio.Event]:
        """An event that is set at each change of the node. Raises OverloadedError."""
        if self._count >= self._limit:
            raise OverloadedError(
                f"There are {self._count} watchers already.", hint="Try again later."
            )
        event = asyncio.Event()
        self._count += 1
        self._events.setdefault(node_id, set()).add(event)
        try:
            yield event
        finally:
            self._count -= 1
            events = self._events[node_id]
            events.discard(event)
            if not events:
                del self._events[node_id]

    def changed(self, *node_ids: str) -> None:
        for node_id in node_ids:
            for event in self._events.get(node_id, ()):
                event.set()

    def all_changed(self) -> None:
        """Every watcher looks again: at the end of the server, and after a lost change feed."""
        self.changed(*self._events)


def allowed(apps: Sequence[str], agent: Agent) -> tuple[str, ...]:
    """The applications, all of which the node's own list allows. Raises InputError."""
    for app in apps:
        if app not in agent.allowed_apps:
            listed = ", ".join(sorted(agent.allowed_apps)) or "none"
            raise InputError(
                "is not in the node's own list of applications that it may be asked to profile.",
                field="apps",
                value=app,
                allowed=listed,
                hint=f"Add it to the agent's configuration on {agent.facts.name}.",
            )
    return tuple(dict.fromkeys(apps))
