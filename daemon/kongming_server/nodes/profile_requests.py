"""Requests to profile until their agents have them: none is lost, and none is executed twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kongming_server.nodes.registry import Agent, Agents

SERVER = "server"
OPERATOR = "operator"
"""Who asks for a campaign."""


class ServerState(Protocol):
    """The part of the server's shared state that requests need."""

    @property
    def agents(self) -> Agents: ...

    async def keep(self, agent: Agent) -> None:
        """Write to disk what is known of an agent."""

    def assignments_on(self, node_id: str) -> Iterable[str]:
        """Ids of the assignments that are reserved or bound there."""


class ProfileRequests:
    """Requests stay in each agent's ``wanted_profiles`` until they have reached it."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._handed: dict[str, tuple[str, frozenset[str]]] = {}

    async def for_heartbeat(self, agent: Agent, peer: str) -> tuple[str, ...]:
        """Return what the answer to a heartbeat over the connection ``peer`` asks for.

        An agent gives up a connection on which an answer was lost, and keeps what an answer asks
        for before it speaks again. So when it does over the same connection, the answer has come.
        """
        came_over, names = self._handed.pop(agent.facts.id, ("", frozenset()))
        if names and came_over == peer:
            agent.wanted_profiles = tuple(n for n in agent.wanted_profiles if n not in names)
            await self._state.keep(agent)
        if agent.wanted_profiles:
            self._handed[agent.facts.id] = (peer, frozenset(agent.wanted_profiles))
        return agent.wanted_profiles

    async def ask(self, app: str, node_id: str) -> str | None:
        """Ask one agent that may to profile an application; its node's name, None without any.

        The node ``node_id``, whose runs the model in service is of, goes before others; then the
        one where least is placed.
        """
        able = [
            agent
            for agent in self._state.agents
            if agent.registered and app in agent.allowed_apps and agent.state == "ready"
        ]
        if not able:
            return None
        pending = [agent for agent in able if app in agent.wanted_profiles]
        if pending:
            return pending[0].facts.name
        chosen = min(able, key=lambda agent: self._cost(agent, node_id))
        chosen.want(app, SERVER)
        await self._state.keep(chosen)
        return chosen.facts.name

    def _cost(self, agent: Agent, node_id: str) -> tuple[bool, int, str]:
        placed = sum(1 for _ in self._state.assignments_on(agent.facts.id))
        return agent.facts.id != node_id, placed, agent.facts.id
