"""A node as the server knows it now, as a message."""

from __future__ import annotations

from kongming.records.answers import NodeState
from kongming.rpc import record_codec as records
from kongming.rpc import value_codec as values
from kongming.rpc.v1 import fleet_pb2
from kongming_server.nodes.registry import Agent
from kongming_server.state import Hub

_STATES: dict[NodeState, fleet_pb2.NodeState.ValueType] = {
    "ready": fleet_pb2.NODE_STATE_READY,
    "silent": fleet_pb2.NODE_STATE_SILENT,
    "suspect": fleet_pb2.NODE_STATE_SUSPECT,
    "stored": fleet_pb2.NODE_STATE_STORED,
}


def node_message(hub: Hub, agent: Agent, now: float) -> fleet_pb2.Node:
    status = hub.engine.node(agent.facts.id, now)
    made = fleet_pb2.Node(
        facts=records.node_to_message(agent.facts),
        state=_STATES[status.state],
        reason=status.reason,
        general_slowdown=status.general_slowdown,
        slowdown=status.slowdown,
        probe_cost=agent.probe_cost,
        assignments=[
            fleet_pb2.PlacedApplication(
                assignment_id=one.assignment_id,
                app=one.app,
                state=one.state,
                since=values.timestamp(one.since_at),
            )
            for one in status.assignments
        ],
    )
    if status.last_heartbeat_at is not None:
        made.last_heartbeat.CopyFrom(values.timestamp(status.last_heartbeat_at))
    if status.last_fingerprint_at is not None:
        made.last_fingerprint.CopyFrom(values.timestamp(status.last_fingerprint_at))
    return made
