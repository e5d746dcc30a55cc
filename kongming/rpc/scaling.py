"""Jobs on several machines as messages, and back: the same for the client and the server."""

from __future__ import annotations

from kongming.rpc.v1 import predictor_pb2
from kongming.rpc.values import (
    interval_from_message,
    interval_to_message,
    not_negative,
    one_of,
)
from kongming.scaling import PART_KINDS, Part, Scaled, Scaling, SlowedNode


def scaling_to_message(scaling: Scaling | None) -> predictor_pb2.Scaling | None:
    if scaling is None:
        return None
    return predictor_pb2.Scaling(
        machines=scaling.machines,
        scale=scaling.scale,
        model=scaling.model,
        machine_type=scaling.machine_type,
        iterations=scaling.iterations,
    )


def scaling_from_message(message: predictor_pb2.Scaling) -> Scaling:
    """Raises InputError for what is out of range."""
    return Scaling(
        machines=message.machines,
        scale=message.scale or 1.0,
        model=message.model,
        machine_type=message.machine_type,
        iterations=message.iterations if message.HasField("iterations") else None,
    )


def scaled_to_message(scaled: Scaled) -> predictor_pb2.Scaled:
    return predictor_pb2.Scaled(
        machines=scaled.machines,
        scale=scaled.scale,
        model=scaled.model,
        kind=scaled.kind,
        idle=interval_to_message(scaled.idle_s),
        driver=scaled.driver,
        slowest=scaled.slowest,
        parts=[
            predictor_pb2.ScaledPart(
                term=part.term,
                kind=part.kind,
                node_id=part.node_id,
                idle_seconds=part.idle_s,
                share=part.share,
            )
            for part in scaled.parts
        ],
        nodes=[
            predictor_pb2.SlowedNode(
                node_id=node.node_id,
                name=node.name,
                slowdown=interval_to_message(node.slowdown),
                extrapolating=node.extrapolating,
            )
            for node in scaled.nodes
        ],
        reasons=scaled.reasons,
    )


def scaled_from_message(message: predictor_pb2.Scaled) -> Scaled:
    """Raises InputError where an interval or a part cannot be true."""
    return Scaled(
        machines=message.machines,
        scale=message.scale,
        model=message.model,
        kind=message.kind,
        idle_s=interval_from_message(message.idle, "scaled.idle"),
        driver=message.driver,
        slowest=message.slowest,
        parts=tuple(map(_part, message.parts)),
        nodes=tuple(
            SlowedNode(
                node.node_id,
                node.name,
                interval_from_message(node.slowdown, f"scaled.nodes.{node.name}"),
                node.extrapolating,
            )
            for node in message.nodes
        ),
        reasons=tuple(message.reasons),
    )


def _part(message: predictor_pb2.ScaledPart) -> Part:
    one_of(message.kind, "scaled.parts.kind", PART_KINDS)
    kind = next(kind for kind in PART_KINDS if kind == message.kind)
    return Part(
        term=message.term,
        kind=kind,
        node_id=message.node_id,
        idle_s=not_negative(message.idle_seconds, "scaled.parts.idle_seconds"),
        share=not_negative(message.share, "scaled.parts.share"),
    )
