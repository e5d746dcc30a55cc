"""A node as the server knows it now, as a message."""

from __future__ import annotations

from dataclasses import replace

from kongming.rpc.message_codec import to_message
from kongming.rpc.v1 import fleet_pb2
from kongming_server.nodes.registry import Agent
from kongming_server.state import Hub


def node_message(hub: Hub, agent: Agent, now: float) -> fleet_pb2.Node:
    status = hub.engine.node(agent.facts.id, now)
    return to_message(
        replace(status, facts=agent.facts, probe_cost=agent.probe_cost), fleet_pb2.Node
    )
