"""Every setting of kongming-extender, in one table: its default, its unit and what it does.

A configuration file is TOML, one table for each section below; options of the command line win
over it. What is not said keeps its default.
"""

from __future__ import annotations

from dataclasses import dataclass

from kongming.addresses import is_loopback, split_address
from kongming.records.errors import InputError
from kongming.settings import REMOTE_ADDRESS, setting

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes puts a Pod's token and the authority of its API server."""


@dataclass(frozen=True, slots=True)
class Extender:
    listen: str = setting(
        "127.0.0.1:7404", unit="HOST:PORT", help="Where HTTP is served; port 0 takes a free one."
    )
    log_level: str = setting(
        "info",
        choices=("debug", "info", "warning", "error"),
        help="What is written to stderr, from this importance on.",
    )
    grace_s: float = setting(
        5.0,
        unit="s",
        minimum=0,
        maximum=600,
        help="How long calls under way may go on after SIGTERM.",
    )
    body_bytes: int = setting(
        16 << 20,
        unit="bytes",
        minimum=1 << 10,
        maximum=1 << 31,
        help="The greatest request that is read; more for whole nodes (nodeCacheCapable: false).",
    )


@dataclass(frozen=True, slots=True)
class Security:
    certificate: str = setting(
        "", unit="path", help="The extender's certificate (PEM); with a key, all is over TLS."
    )
    key: str = setting("", unit="path", help="The key of that certificate (PEM).")
    client_ca: str = setting(
        "",
        unit="path",
        help="Who asks to filter or prioritize must show a certificate of this authority (PEM).",
    )
    client_names: str = setting(
        "",
        unit="names",
        help="Common names that such a certificate may have, with commas between; empty for any "
        "of the role scheduler.",
    )
    insecure: bool = setting(
        False,
        help="Listen beyond loopback without TLS or client_ca: anybody who reaches it may ask.",
    )

    @property
    def tls(self) -> bool:
        return bool(self.certificate)


@dataclass(frozen=True, slots=True)
class Server:
    address: str = setting(
        "127.0.0.1:7400", "KONGMING's gRPC address.", REMOTE_ADDRESS, unit="HOST:PORT"
    )
    ca: str = setting(
        "", unit="path", help="File of the authority that signed the server's certificate."
    )
    cert: str = setting("", unit="path", help="The extender's own certificate, for mutual TLS.")
    key: str = setting("", unit="path", help="The key of that certificate.")
    token_file: str = setting(
        "", unit="path", help="File that holds a bearer token of the role scheduler."
    )
    deadline_s: float = setting(
        1.0,
        unit="s",
        minimum=0.01,
        maximum=60,
        help="The longest that an answer waits for the server; below the scheduler's httpTimeout.",
    )
    pause_s: float = setting(
        2.0,
        unit="s",
        minimum=0,
        maximum=600,
        help="A server that did not answer is not asked again for so long.",
    )


@dataclass(frozen=True, slots=True)
class Ranking:
    fresh_s: float = setting(
        2.0,
        unit="s",
        minimum=0,
        maximum=3600,
        help="A ranking is used as it is for so long; nodes that pods came to or left are asked "
        "about again all the same.",
    )
    oldest_s: float = setting(
        60.0,
        unit="s",
        minimum=0.1,
        maximum=86400,
        help="A ranking that could not be renewed is used for so long; then all nodes pass.",
    )
    fleet_s: float = setting(
        60.0, unit="s", minimum=0.1, maximum=86400, help="How often the server's nodes are listed."
    )
    chunk_nodes: int = setting(
        250,
        unit="nodes",
        minimum=1,
        maximum=10000,
        help="Nodes in one question to the server, which it processes in one step.",
    )
    share: float = setting(
        0.25,
        minimum=0.01,
        maximum=1,
        help="Share of the time that renewing rankings in the background may keep the server busy.",
    )
    steep: float = setting(
        2.0,
        unit="ratio",
        minimum=1.01,
        maximum=100,
        help="A node so many times as bad as the best one, residents counted, has the score 0.",
    )
    resident_weight: float = setting(
        1.0,
        minimum=0,
        maximum=1000,
        help="Weight of slowing the residents, where slowing the newcomer has weight 1.",
    )
    apps: int = setting(
        200,
        unit="rankings",
        minimum=1,
        maximum=100000,
        help="Rankings that are kept; beyond it the least recently used is dropped.",
    )


@dataclass(frozen=True, slots=True)
class Pods:
    watch: bool = setting(
        True, help="Watch pods through the API server; without it no assignment is reported."
    )
    api: str = setting(
        "", unit="URL", help="The API server; empty for the cluster that it runs in."
    )
    token_file: str = setting(
        f"{ACCOUNT}/token",
        unit="path",
        help="File of the service account's token; the default one may be missing where an API "
        "server is named.",
    )
    ca: str = setting(
        f"{ACCOUNT}/ca.crt",
        unit="path",
        help="File of the API server's authority; where the default one is missing and an API "
        "server is named, the system's authorities count.",
    )
    label_selector: str = setting(
        "",
        unit="selector",
        help="Watch only pods with such labels; empty for all. No other extender may report the "
        "rest: their assignments would be released as of pods that are gone.",
    )
    page: int = setting(
        500, unit="pods", minimum=1, maximum=100000, help="Pods in one part of a list."
    )
    renew_s: float = setting(
        240.0, unit="s", minimum=1, maximum=3600, help="A watch is begun again after so long."
    )
    longest_retry_s: float = setting(
        30.0, unit="s", minimum=0.05, maximum=3600, help="Longest wait between two attempts."
    )


@dataclass(frozen=True, slots=True)
class Assignments:
    guess_ttl_s: float = setting(
        5.0,
        unit="s",
        minimum=0,
        maximum=600,
        help="Hold the node with the greatest score until the pod is seen bound, for so long; "
        "0 for not at all.",
    )
    start_ttl_s: float = setting(
        600.0,
        unit="s",
        minimum=1,
        maximum=3600,
        help="A pod that is bound and has not started holds its place for so long.",
    )
    runs: bool = setting(True, help="Report how long pods that have succeeded ran.")
    least_run_s: float = setting(
        30.0,
        unit="s",
        minimum=0,
        maximum=86400,
        help="Shorter runs are not reported: Kubernetes gives times to the second.",
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, by section."""

    extender: Extender = Extender()
    security: Security = Security()
    server: Server = Server()
    ranking: Ranking = Ranking()
    pods: Pods = Pods()
    assignments: Assignments = Assignments()

    def __post_init__(self) -> None:
        """Check that settings fit together. Raises InputError."""
        _check_together(self)


def _check_together(config: Config) -> None:
    security = config.security
    host, _ = split_address(config.extender.listen, "extender.listen")
    if bool(security.certificate) != bool(security.key):
        raise InputError(
            "is missing: TLS needs a certificate and its key.",
            field="security.key" if security.certificate else "security.certificate",
            hint="Make both with: kongming-server init-tls DIR --name NAME",
        )
    for name in ("client_ca", "client_names"):
        if getattr(security, name) and not security.tls:
            raise InputError(
                "needs TLS: give certificate and key as well.", field=f"security.{name}"
            )
    if security.client_names and not security.client_ca:
        raise InputError(
            "needs an authority of client certificates.",
            field="security.client_names",
            hint="Set security.client_ca too.",
        )
    if not (security.tls or security.insecure or is_loopback(host)):
        raise InputError(
            f"{config.extender.listen} can be reached from other machines, and TLS is off.",
            field="extender.listen",
            allowed="an address of loopback, or any with TLS",
            hint="Give --certificate and --key; or say --insecure.",
        )
    if not (security.client_ca or security.insecure or is_loopback(host)):
        raise InputError(
            "is missing: anybody who reaches it could ask, and have nodes reserved.",
            field="security.client_ca",
            hint="Give --client-ca, the authority of kube-scheduler's certificate; or say "
            "--insecure.",
        )
    if config.ranking.oldest_s < config.ranking.fresh_s:
        raise InputError(
            "is not allowed.",
            field="ranking.oldest_s",
            value=config.ranking.oldest_s,
            allowed=f"ranking.fresh_s, {config.ranking.fresh_s:g}, or more",
        )
