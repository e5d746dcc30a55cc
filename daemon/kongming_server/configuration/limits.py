"""The settings of what callers may bring: sizes, numbers and rates, and quotas of agents."""

from __future__ import annotations

from dataclasses import dataclass

from kongming.settings import setting


@dataclass(frozen=True, slots=True)
class Limits:
    message_bytes: int = setting(
        4 << 20,
        unit="bytes",
        minimum=1024,
        maximum=1 << 30,
        help="The greatest message that is read over gRPC, but for those of ImportRuns.",
    )
    import_bytes: int = setting(
        16 << 20,
        unit="bytes",
        minimum=1024,
        maximum=1 << 30,
        help="The greatest message of ImportRuns.",
    )
    json_bytes: int = setting(
        1 << 20,
        unit="bytes",
        minimum=1024,
        maximum=1 << 30,
        help="The greatest body that is read over HTTP.",
    )
    batch: int = setting(
        10000,
        unit="questions",
        minimum=1,
        maximum=1000000,
        help="Questions, candidates or neighbours in one request, at the most.",
    )
    queue: int = setting(
        1024,
        unit="calls",
        minimum=1,
        maximum=1000000,
        help="Calls at work at one time, streams aside; the next one is refused.",
    )
    calls_per_peer: int = setting(
        256,
        unit="calls",
        minimum=1,
        maximum=1000000,
        help="Calls of one peer at one time, streams aside.",
    )
    streams: int = setting(
        20000,
        unit="streams",
        minimum=1,
        maximum=1000000,
        help="Open streams at one time, of all peers.",
    )
    streams_per_peer: int = setting(
        2000,
        unit="streams",
        minimum=1,
        maximum=1000000,
        help="Open streams of one peer: an address with its token or certificate.",
    )
    streams_per_connection: int = setting(
        100,
        unit="streams",
        minimum=1,
        maximum=1000000,
        help="Calls and streams on one gRPC connection; a client waits with more.",
    )
    public_streams: int = setting(
        8,
        unit="streams",
        minimum=1,
        maximum=1000000,
        help="Open streams of one address that need no token (grpc.health.v1.Health/Watch).",
    )
    connections: int = setting(
        20000,
        unit="connections",
        minimum=2,
        maximum=1000000,
        help="Connections in all; fewer where the process may open fewer files.",
    )
    connections_per_address: int = setting(
        1000,
        unit="connections",
        minimum=1,
        maximum=1000000,
        help="Connections of one address to one port.",
    )
    idle_s: float = setting(
        30.0,
        unit="s",
        minimum=0.1,
        maximum=3600,
        help="Connections end that for so long asked nothing, or did not finish their request; "
        "over gRPC those of callers that are not known.",
    )
    rate_per_peer: float = setting(
        10000.0, unit="calls/s", minimum=0.001, maximum=1e9, help="Calls of one peer, over time."
    )
    burst: int = setting(
        20000, unit="calls", minimum=1, maximum=1000000000, help="Calls of one peer at once."
    )
    agent_rate: float = setting(
        5.0,
        unit="calls/s",
        minimum=0.001,
        maximum=1e9,
        help="Calls of one agent, which is an address with its token or certificate, over time: "
        "further ones wait their turn, up to 5 s.",
    )
    agent_burst: int = setting(
        20, unit="calls", minimum=1, maximum=1000000000, help="Calls of one agent at once."
    )
    agent_bytes: float = setting(
        262144.0,
        unit="bytes/s",
        minimum=1024,
        maximum=1e12,
        help="Bytes of one agent's messages, over time; one of message_bytes at once.",
    )


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of what one agent's credentials, or one node, may bring, so that the rest have
    room."""

    nodes: int = setting(
        4,
        unit="nodes",
        minimum=1,
        maximum=10000000,
        help="Nodes of one agent's token or certificate that names none: its own, also where that "
        "was set up again. Raise it where many agents share one.",
    )
    named_nodes: int = setting(
        20000,
        unit="nodes",
        minimum=1,
        maximum=10000000,
        help="Nodes of one agent's token or certificate that names them, as by a pattern.",
    )
    names: int = setting(
        1000,
        unit="names",
        minimum=1,
        maximum=10000000,
        help="Applications, and likewise suite versions, that one agent's token or certificate is "
        "the first to name, since the server's start.",
    )
    assignments: int = setting(
        1000,
        unit="assignments",
        minimum=1,
        maximum=1000000,
        help="Assignments of one node that an agent may bind in addition to those that are there, "
        "and in a day a hundred times as many.",
    )
    node_bytes: int = setting(
        512 << 20,
        unit="bytes",
        minimum=1 << 20,
        maximum=1 << 50,
        help="Bytes that one node may report in a day; further reports are put off.",
    )
