"""Whose node it is: an agent reports for no node that another agent's credentials brought in.

A node belongs to the token, or to the name in the certificate, of the agent that first spoke for
it. Many agents may share one token, and then its nodes. A node is free again when its token is
revoked or expires, or when an operator releases it; operators may speak for every node.
"""

from __future__ import annotations

from collections.abc import Callable

from kongming.records.errors import AccessError
from kongming_server.nodes.registry import Agent
from kongming_server.security.admission import Caller, current_call
from kongming_server.security.roles import Role

_TOKEN = "token "


class Ownership:
    """``in_force`` says of a token's id whether it still opens anything."""

    def __init__(self, in_force: Callable[[str], bool]) -> None:
        self._in_force = in_force

    def claim(self, agent: Agent) -> bool:
        """Whether the node is the caller's only from now on, which is to be put on disk.

        Raises:
            AccessError: it is another agent's.
        """
        call = current_call.get()
        if call is None or call.caller.role is not Role.AGENT or not call.caller.identity:
            return False
        mine = holder_of(call.caller)
        if agent.bound_to == mine:
            return False
        if agent.bound_to and self._counts(agent.bound_to):
            raise AccessError(
                f"The node {agent.facts.id} was registered by another agent.",
                hint="Use the token or certificate that it was registered with. An operator "
                f"releases it: kongming-server token release {agent.facts.id}",
            )
        agent.bound_to = mine
        return True

    def _counts(self, holder: str) -> bool:
        if not holder.startswith(_TOKEN):
            return True
        return self._in_force(holder.removeprefix(_TOKEN))


def spoken_by_an_agent() -> bool:
    """Whether this call is a node's own sign of life: schedulers and operators report what ran
    there too. Where nobody is asked who they are, nobody is known to be an agent, and its
    heartbeats and fingerprints tell."""
    call = current_call.get()
    return call is not None and call.caller.role is Role.AGENT


def holder_of(caller: Caller) -> str:
    """What stays the same of a caller: a token's id; of a certificate its name, which outlives the
    certificate's renewal."""
    if caller.identity.startswith(_TOKEN):
        return caller.identity
    return f"certificate {caller.name}"
