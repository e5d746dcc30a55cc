"""A node as the server knows it now, as a message."""

from __future__ import annotations

from dataclasses import replace

from kongming.rpc.message_codec import to_message
from kongming.rpc.record_codec import node_to_message
from kongming.rpc.v1 import fleet_pb2, records_pb2
from kongming_server.nodes.registry import Agent
from kongming_server.state import SharedState


def node_message(state: SharedState, agent: Agent, now: float) -> fleet_pb2.Node:
    status = replace(state.engine.node(agent.facts.id, now), probe_cost=agent.probe_cost)
    return to_message(status, fleet_pb2.Node, facts=_facts(agent))


def _facts(agent: Agent) -> records_pb2.NodeFacts:
    """Its facts, which hardly ever change and take half as long as all the rest to encode."""
    if agent.encoded is None or agent.encoded[0] is not agent.facts:
        agent.encoded = (agent.facts, node_to_message(agent.facts).SerializeToString())
    return records_pb2.NodeFacts.FromString(agent.encoded[1])
