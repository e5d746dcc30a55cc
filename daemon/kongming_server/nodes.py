"""A node as the server knows it now, as a message."""

from __future__ import annotations

from kongming.rpc import records
from kongming.rpc.v1 import fleet_pb2
from kongming_server.core.questions import NodeState
from kongming_server.hub import Hub
from kongming_server.state import Agent

_STATES = {
    NodeState.READY: fleet_pb2.NODE_STATE_READY,
    NodeState.SILENT: fleet_pb2.NODE_STATE_SILENT,
    NodeState.SUSPECT: fleet_pb2.NODE_STATE_SUSPECT,
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
        placements=[
            fleet_pb2.PlacedApplication(
                placement_id=one.placement_id,
                app=one.app,
                state=one.state,
                since=records.timestamp(one.since),
            )
            for one in status.placements
        ],
    )
    if status.last_heartbeat is not None:
        made.last_heartbeat.CopyFrom(records.timestamp(status.last_heartbeat))
    if status.last_fingerprint is not None:
        made.last_fingerprint.CopyFrom(records.timestamp(status.last_fingerprint))
    return made
