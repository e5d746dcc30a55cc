"""Requests to profile, on their way to the agents: none is lost, and none is carried out twice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kongming_server.core.questions import NodeState
from kongming_server.state import Agent

if TYPE_CHECKING:
    from kongming_server.hub import Hub

log = logging.getLogger(__name__)


class ProfileRequests:
    """What agents are asked for is in their ``wanted_profiles`` until it has reached them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._handed: dict[str, tuple[str, frozenset[str]]] = {}

    async def for_heartbeat(self, agent: Agent, peer: str) -> tuple[str, ...]:
        """What the answer to a heartbeat over the connection ``peer`` asks for.

        An agent gives up a connection on which an answer was lost, and keeps what an answer asks
        for before it speaks again. So when it does over the same connection, the answer has come.
        """
        came_over, names = self._handed.pop(agent.facts.id, ("", frozenset()))
        if names and came_over == peer:
            agent.wanted_profiles = tuple(n for n in agent.wanted_profiles if n not in names)
            await self._hub.keep(agent)
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
            for agent in self._hub.agents
            if agent.registered and app in agent.allowed_apps and agent.state is NodeState.READY
        ]
        if not able:
            return None
        asked = [agent for agent in able if app in agent.wanted_profiles]
        if asked:
            return asked[0].facts.name
        chosen = min(able, key=lambda agent: self._cost(agent, node_id))
        chosen.wanted_profiles = (*chosen.wanted_profiles, app)
        await self._hub.keep(chosen)
        return chosen.facts.name

    def _cost(self, agent: Agent, node_id: str) -> tuple[bool, int, str]:
        placed = sum(1 for _ in self._hub.placements_on(agent.facts.id))
        return agent.facts.id != node_id, placed, agent.facts.id
