"""Check that a caller may report for a node; the first caller to do so becomes its owner."""

from __future__ import annotations

import logging

from kongming.records.errors import AccessError, KongmingError
from kongming.records.fingerprint import NodeFacts
from kongming_server.nodes.ownership import Ownership, calling_agent, holder_of
from kongming_server.nodes.registry import Agent
from kongming_server.state import SharedState

log = logging.getLogger(__name__)


class NodeAccess:
    """Ownership of the nodes of one server, kept on disk."""

    def __init__(self, state: SharedState, ownership: Ownership) -> None:
        self._state = state
        self._ownership = ownership

    async def speak_for(self, agent: Agent) -> None:
        """Check that the caller may speak for this node.

        Raises:
            AccessError: it is another agent's.
            OverloadedError: no agent has registered it, and the caller may not have another one.
            StoreError: that it is the caller's from now on could not be kept.
        """
        before = agent.bound_to
        try:
            self._check_count(agent)
            # One that never registered is kept when it does.
            if self._ownership.claim(agent) and agent.registered:
                await self._state.keep(agent)
        except AccessError:
            self._state.metrics.refused.labels("forbidden").inc()
            log.warning(
                "Another agent than the one that registered %s spoke for it.", agent.facts.name
            )
            raise
        except KongmingError:
            agent.bound_to = before
            raise

    def register(self, facts: NodeFacts) -> Agent:
        """Take up a node, or what has changed of it, for the caller.

        Raises:
            AccessError, ConflictError: the caller may not register a node of this id and name.
            InputError: the engine cannot hold it.
        """
        try:
            self._ownership.admit(facts, self._state.agents)
            self._check_count(self._state.agents.get(facts.id))
        except KongmingError as error:
            self._state.metrics.refused.labels("forbidden").inc()
            log.warning("The node %s was not registered: %s", facts.id, error.message)
            raise
        agent = self._state.put_node(facts)
        self._ownership.claim(agent)
        return agent

    def _check_count(self, known: Agent | None) -> None:
        """Raise OverloadedError where a node that no agent has registered before would be the
        caller's, and it has too many."""
        caller = calling_agent()
        # One that was, and is nobody's, was released or came while nobody had to say who it is:
        # that it goes on is an operator's wish, and makes up no fleet.
        if caller is not None and (known is None or not (known.bound_to or known.registered)):
            count = self._state.agents.count_of(holder_of(caller))
            self._state.quotas.check_nodes(count, named=bool(caller.nodes))
