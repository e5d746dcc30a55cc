"""Ownership of nodes: an agent cannot report for a node that other credentials registered.

A node belongs to the token, or to the name in the certificate, of the agent that first spoke for
it, and so does its name. Many agents may share one token, and then its nodes. A node whose token
was revoked or has expired waits for an operator's word: its release, or a token that names it.
Operators may speak for every node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase
from typing import Protocol

from kongming.records.errors import AccessError, ConflictError
from kongming.records.fingerprint import NodeFacts
from kongming_server.nodes.registry import Agent, Agents, first_part
from kongming_server.security.admission import Caller, current_call
from kongming_server.security.roles import Role

_TOKEN = "token "


class Tokens(Protocol):
    """Knowledge of all tokens at this moment."""

    def in_force(self, token_id: str) -> bool:
        """Return whether it still opens anything."""

    def naming(self, node: str) -> Collection[str]:
        """Ids of the tokens in force that name this node, in whatever case."""


class Ownership:
    """Decides by the caller of the current call. No I/O."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def claim(self, agent: Agent) -> bool:
        """Claim the node for the caller; return whether it is the caller's only from now on, which
        is to be put on disk.

        Raises:
            AccessError: it is another agent's, or the caller may not speak for it.
        """
        caller = calling_agent()
        if caller is None:
            return False
        mine = holder_of(caller)
        named = covers(caller, agent.facts.name)
        if agent.bound_to == mine:
            # Of two certificates of one common name each is for the nodes that it names.
            if not named:
                raise _not_named(agent.facts)
            return False
        if agent.bound_to and (self._counts(agent.bound_to) or not (caller.nodes and named)):
            raise AccessError(
                f"The node {agent.facts.id} was registered by another agent.",
                hint="Use the token or certificate that it was registered with. An operator "
                f"releases it: kongming-server token release {agent.facts.id}",
            )
        if not named:
            raise _not_named(agent.facts)
        if not caller.nodes:
            # Also of a node that was measured by hand. One that was registered keeps its id.
            ids = () if agent.registered else (agent.facts.id,)
            self._refuse_named_for_others(caller, (*ids, agent.facts.name))
        agent.bound_to = mine
        return True

    def admit(self, facts: NodeFacts, agents: Agents) -> None:
        """Check that the caller may register a node of this id and this name.

        Raises:
            AccessError: its token names other nodes, or another token names this one.
            ConflictError: the name or the id is that of another agent's node.
        """
        caller = calling_agent()
        if caller is None:
            return
        if not covers(caller, facts.name):
            raise _not_named(facts)
        mine = holder_of(caller)
        # What a node is called already it keeps: what was allowed when it came may be no more.
        known = agents.get(facts.id)
        new_id, new_name = is_new(facts, known)
        # Nor did the caller choose the id that was measured by hand on a node that it is for.
        measured = bool(caller.nodes) and known is not None and known.facts.name == facts.name
        chosen = new_id and not measured
        new = [name for name, new in ((facts.id, chosen), (facts.name, new_name)) if new]
        self._refuse_named_for_others(caller, new)
        # A batch system may know nodes by the first part of their names alone. That two have one
        # and the same is no mistake where an operator made a token for each.
        if caller.nodes:
            named = agents.called(facts.name)
        else:
            named = agents.alike(facts.name, first_part(facts.name))
        for what, name, others in (
            ("node.name", facts.name, named if new_name else ()),
            # An agent may bind assignments whose id ends with its node's id.
            ("node.id", facts.id, agents.alike(facts.id) if new_id else ()),
        ):
            for other in others:
                # What was measured by hand is no agent's: no operator could release it.
                if other.facts.id != facts.id and other.bound_to not in ("", mine):
                    raise ConflictError(
                        "is that of another agent's node.",
                        field=what,
                        value=name,
                        hint="Rename this node, or have an operator release the other one: "
                        f"kongming-server token release {other.facts.id}",
                    )

    def _refuse_named_for_others(self, caller: Caller, names: Iterable[str]) -> None:
        """Raise AccessError where a token of another caller is for one of these ids and names, and
        the caller's own is not."""
        mine = holder_of(caller)
        for name in names:
            if caller.nodes and covers(caller, name):
                continue
            if any(_TOKEN + token != mine for token in self._tokens.naming(name)):
                raise AccessError(
                    f"Another token is for the node {name}.",
                    hint="An operator makes one for it: kongming-server token add --role "
                    f"agent --node {name}",
                )

    def _counts(self, holder: str) -> bool:
        if not holder.startswith(_TOKEN):
            return True
        return self._tokens.in_force(holder.removeprefix(_TOKEN))


class TokensNow:
    """``Tokens`` of a book of tokens, by a clock."""

    def __init__(self, book: _Book, now: Callable[[], float]) -> None:
        self._book = book
        self._now = now

    def in_force(self, token_id: str) -> bool:
        return self._book.in_force(token_id, self._now())

    def naming(self, node: str) -> Collection[str]:
        return self._book.naming(node, self._now())


class _Book(Protocol):
    def in_force(self, token_id: str, now: float) -> bool: ...

    def naming(self, node: str, now: float) -> Collection[str]: ...


def is_new(facts: NodeFacts, known: Agent | None) -> tuple[bool, bool]:
    """Return whether the node's id, and whether its name, is another than it registered with
    before."""
    new = known is None or not known.registered
    return new, new or (known is not None and known.facts.name != facts.name)


def calling_agent() -> Caller | None:
    """The caller, where it is an agent that had to say who it is. Schedulers and operators speak
    for every node; where callers are not authenticated, none is known to be an agent."""
    call = current_call.get()
    if call is None or call.caller.role is not Role.AGENT or not call.caller.identity:
        return None
    return call.caller


def spoken_by_an_agent() -> bool:
    """Return whether this call is a node's own sign of life: schedulers and operators report what
    ran there too. Where callers are not authenticated, none is known to be an agent, and its
    heartbeats and fingerprints tell."""
    call = current_call.get()
    return call is not None and call.caller.role is Role.AGENT


def spoken_by_an_operator() -> bool:
    """Return whether an operator calls, or somebody who need not say who it is."""
    call = current_call.get()
    return call is not None and call.caller.role is Role.OPERATOR


def holder_of(caller: Caller) -> str:
    """Return what stays the same of a caller: a token's id; of a certificate its name, which
    outlives the certificate's renewal."""
    if caller.identity.startswith(_TOKEN):
        return caller.identity
    return f"certificate {caller.name}"


def covers(caller: Caller, name: str) -> bool:
    """Return whether a caller's token or certificate is for a node of this name, or for any."""
    return not caller.nodes or any(fnmatchcase(name, pattern) for pattern in caller.nodes)


def _not_named(facts: NodeFacts) -> AccessError:
    return AccessError(
        f"The token or certificate is not for a node of the name {facts.name}.",
        hint="An operator makes one for it: kongming-server token add --role agent "
        f"--node {facts.name}",
    )
