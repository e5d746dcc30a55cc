"""The settings of kongming-server, by section: each with its default, its unit and what it does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kongming.settings import setting, url_in_file
from kongming_server.configuration.limits import Limits, Quotas


@dataclass(frozen=True, slots=True)
class Server:
    listen: str = setting(
        "127.0.0.1:7400", unit="HOST:PORT", help="Where gRPC is served; port 0 takes a free one."
    )
    http: str = setting(
        "127.0.0.1:7401",
        unit="HOST:PORT",
        help="Where HTTP is served: metrics, health and the JSON mirror; empty for nowhere.",
    )
    store: str = setting(
        "",
        unit="URL",
        help="The store; empty for store_file, KONGMING_STORE, KONGMING_STORE_FILE, else SQLite in "
        "the data folder.",
    )
    store_file: str = setting(
        "", unit="path", help="A file with the store's URL, where that holds a password."
    )
    new_store: bool = setting(
        False, help="Make a new store where a SQLite file is there and has 0 bytes."
    )
    check_store_s: float = setting(
        30.0,
        unit="s",
        minimum=0,
        maximum=3600,
        help="The longest that a SQLite file is checked for damage at a start; 0 for not at all.",
    )
    statement_timeout_s: float = setting(
        120.0,
        unit="s",
        minimum=0,
        maximum=3600,
        help="PostgreSQL ends a statement that takes longer, and the call that needs it fails; 0 "
        "for never.",
    )
    lock_timeout_s: float = setting(
        30.0,
        unit="s",
        minimum=0,
        maximum=3600,
        help="Likewise a statement that waits longer for a lock that another program holds.",
    )
    log_level: str = setting(
        "info",
        choices=("debug", "info", "warning", "error"),
        help="What is written to stderr, from this importance on.",
    )
    grace_s: float = setting(
        10.0,
        unit="s",
        minimum=0,
        maximum=600,
        help="How long calls under way may go on after SIGTERM.",
    )
    stuck_s: float = setting(
        600.0,
        unit="s",
        minimum=1,
        maximum=86400,
        help="A call to the store, or other work in a thread, that has not ended by then is stuck: "
        "/healthz and systemd's watchdog say so, that the server be started again.",
    )

    def store_url(self) -> str | None:
        """The URL that the settings name; None for the default.

        Raises:
            InputError: the file of the URL cannot be read.
        """
        if self.store:
            return self.store
        return url_in_file(Path(self.store_file)) if self.store_file else None


@dataclass(frozen=True, slots=True)
class Fleet:
    heartbeat_period_s: float = setting(
        75.0,
        unit="s",
        minimum=0.1,
        maximum=3600,
        help="Interval of the heartbeats of agents that have nothing else to report.",
    )
    silent_after_s: float = setting(
        200.0,
        unit="s",
        minimum=0.2,
        maximum=86400,
        help="Time without a report after which a node is silent, and not ranked.",
    )
    fingerprint_ttl_s: float = setting(
        180.0,
        unit="s",
        minimum=1,
        maximum=86400,
        help="Age up to which a fingerprint is used without warning, while the node has too few to "
        "learn from how long they are valid (5; then 60 to 1800 s).",
    )
    spread_period_s: float = setting(
        10.0,
        unit="s",
        minimum=0.1,
        maximum=3600,
        help="Interval at which servers on one store exchange which agents they serve.",
    )
    watchers: int = setting(
        1000, unit="streams", minimum=1, maximum=100000, help="WatchNode streams at one time."
    )


@dataclass(frozen=True, slots=True)
class Assignments:
    reservation_ttl_s: float = setting(
        60.0,
        unit="s",
        minimum=0.1,
        maximum=86400,
        help="A reservation ends by itself after so long, where the request does not say.",
    )
    reservation_ttl_max_s: float = setting(
        3600.0, unit="s", minimum=0.1, maximum=604800, help="The longest that a request may ask."
    )


@dataclass(frozen=True, slots=True)
class Ingest:
    batch_records: int = setting(
        500,
        unit="records",
        minimum=1,
        maximum=100000,
        help="Reported records in one transaction, at the most.",
    )
    gather_s: float = setting(
        0.5,
        unit="s",
        minimum=0,
        maximum=10,
        help="How far apart transactions of reports begin where many come; a fifth where few do.",
    )
    queue_records: int = setting(
        20000,
        unit="records",
        minimum=1,
        maximum=10000000,
        help="Reported records that wait for the store; beyond it agents have to send later.",
    )
    queue_bytes: int = setting(
        64 << 20,
        unit="bytes",
        minimum=1 << 20,
        maximum=1 << 40,
        help="Bytes of the reported records that wait for the store, likewise.",
    )
    queue_wait_s: float = setting(
        5.0,
        unit="s",
        minimum=0,
        maximum=600,
        help="How long a record waits for a place in that queue before it is refused.",
    )
    report_records: int = setting(
        5000,
        unit="records",
        minimum=1,
        maximum=1000000,
        help="Fingerprints in one Report.",
    )


@dataclass(frozen=True, slots=True)
class Matrix:
    refresh_budget_s: float = setting(
        0.02,
        unit="s",
        minimum=0.001,
        maximum=1,
        help="The longest that refreshing predictions may hold up other calls at a time.",
    )


@dataclass(frozen=True, slots=True)
class Security:
    certificate: str = setting(
        "", unit="path", help="The server's certificate (PEM); with a key, all is served over TLS."
    )
    key: str = setting("", unit="path", help="The key of that certificate (PEM).")
    client_ca: str = setting(
        "",
        unit="path",
        help="Callers must show a certificate of this authority (PEM): mutual TLS.",
    )
    agents_by_name: bool = setting(
        False,
        help="An agent's certificate without DNS names is for the node of its common name (CN) "
        "alone; one with DNS names always is for nodes of these names.",
    )
    authenticate: str = setting(
        "auto",
        choices=("auto", "always"),
        help="Who must show a token or a certificate: auto asks wherever there is TLS.",
    )
    insecure: bool = setting(
        False, help="Listen beyond loopback without TLS: anybody who reaches it may do all."
    )
    public_watcher: bool = setting(
        False,
        help="Anybody may ask GET /watcher, the document for Trimaran, which shows no token.",
    )
    tokens_period_s: float = setting(
        1.0,
        unit="s",
        minimum=0.05,
        maximum=60,
        help="How often tokens are read: a token that was added or revoked counts from then on.",
    )

    @property
    def tls(self) -> bool:
        return bool(self.certificate)

    @property
    def authenticates(self) -> bool:
        """Return whether every caller must say who it is."""
        return self.tls or self.authenticate == "always"


@dataclass(frozen=True, slots=True)
class Training:
    workers: int = setting(
        1,
        unit="processes",
        minimum=1,
        maximum=256,
        help="Processes that train applications, outside the serving one and at low priority.",
    )
    dask: str = setting(
        "",
        unit="URL",
        help="Train on the Dask cluster of this scheduler, as tls://HOST:8786; empty for here. "
        "Plain tcp:// is for loopback alone.",
    )
    dask_ca: str = setting(
        "", unit="path", help="The authority of the cluster's certificates (PEM)."
    )
    dask_cert: str = setting(
        "", unit="path", help="The certificate that is shown to the cluster (PEM)."
    )
    dask_key: str = setting("", unit="path", help="The key of that certificate (PEM).")
    models: str = setting(
        "",
        unit="names",
        help="Models to fit, with commas between them; empty for all but the slow optional ones.",
    )
    queued: int = setting(
        100, unit="operations", minimum=1, maximum=10000, help="Trainings that may wait their turn."
    )


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    false_alarm: float = setting(
        0.01,
        minimum=1e-6,
        maximum=0.5,
        help="Probability that a model whose errors stay as validated is ever reported as "
        "drifting.",
    )
    profile: bool = setting(
        True, help="Ask an agent that may to profile an application that drifts."
    )
    profile_pause_s: float = setting(
        86400.0,
        unit="s",
        minimum=0,
        maximum=31536000,
        help="No agent is asked so for the same application more often than this, nor while it is "
        "being profiled.",
    )
    retrain: bool = setting(
        True, help="Train an application that drifts, once it was profiled again."
    )
    retrain_runs: int = setting(
        12,
        unit="runs",
        minimum=4,
        maximum=100000,
        help="Runs of a new profile without which an application that drifts is not trained.",
    )
    retrain_pause_s: float = setting(
        600.0,
        unit="s",
        minimum=0,
        maximum=604800,
        help="An application that drifts is not trained by itself more often than this.",
    )
    check_period_s: float = setting(
        1.0,
        unit="s",
        minimum=0.01,
        maximum=3600,
        help="How soon finished runs count in the realised error and in the test for drift.",
    )
    window: int = setting(
        2000,
        unit="runs",
        minimum=50,
        maximum=100000,
        help="Finished runs of an application that realised error and coverage are of.",
    )


@dataclass(frozen=True, slots=True)
class Retention:
    """Times for which things are kept. Models, what they are trained on, and references of nodes
    that report always are."""

    live_s: float = setting(
        3 * 86400.0,
        unit="s",
        minimum=3600,
        maximum=1e10,
        help="Live fingerprints as they were reported; older ones become hourly figures.",
    )
    hourly_s: float = setting(
        400 * 86400.0,
        unit="s",
        minimum=3600,
        maximum=1e10,
        help="Hourly figures of fingerprints.",
    )
    changes_s: float = setting(
        3600.0,
        unit="s",
        minimum=60,
        maximum=1e10,
        help="The feed of changes: a server that was away for longer reads everything again.",
    )
    assignments_s: float = setting(
        90 * 86400.0,
        unit="s",
        minimum=3600,
        maximum=1e10,
        help="Assignments that have ended, and forecasts for them.",
    )
    realised_s: float = setting(
        400 * 86400.0,
        unit="s",
        minimum=3600,
        maximum=1e10,
        help="Finished runs, with what had been predicted for them.",
    )
    operations_s: float = setting(
        90 * 86400.0, unit="s", minimum=3600, maximum=1e10, help="Trainings that have ended."
    )
    unasked_s: float = setting(
        90 * 86400.0,
        unit="s",
        minimum=3600,
        maximum=1e10,
        help="Runs and signatures that were not requested, which no model learns from.",
    )
    gone_s: float = setting(
        400 * 86400.0,
        unit="s",
        minimum=3600,
        maximum=1e10,
        help="Agents that are silent for so long, readings of references, and references that "
        "newer ones have replaced.",
    )
    period_s: float = setting(
        600.0,
        unit="s",
        minimum=0.1,
        maximum=86400,
        help="Time between two rounds of thinning the store.",
    )
    budget_s: float = setting(
        5.0,
        unit="s",
        minimum=0.01,
        maximum=3600,
        help="The longest that one such turn may take; while something is left, the next one "
        "follows after four times as long.",
    )


@dataclass(frozen=True, slots=True)
class Series:
    """Parts of the fleet that have series of their own at /metrics."""

    nodes: int = setting(
        1000,
        unit="nodes",
        minimum=0,
        maximum=100_000,
        help="Nodes with series of their own at /metrics, up to seven of each node; the first by "
        "name.",
    )
    apps: int = setting(
        100,
        unit="applications",
        minimum=0,
        maximum=100_000,
        help="Trained applications likewise, three series each; one of several placements counts "
        "as several.",
    )


@dataclass(frozen=True, slots=True)
class Otel:
    """Metrics pushed by OpenTelemetry's protocol (OTLP), in addition to /metrics."""

    endpoint: str = setting(
        "",
        unit="URL or target",
        help="Push all metrics to this OTLP receiver over gRPC: http://HOST:4317, or with TLS "
        "https://HOST:4317 or HOST:4317; empty for nowhere. It needs the extra 'otel'.",
    )
    period_s: float = setting(
        60.0, unit="s", minimum=0.1, maximum=3600, help="Time between two pushes of the metrics."
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, by section."""

    server: Server = Server()
    fleet: Fleet = Fleet()
    assignments: Assignments = Assignments()
    ingest: Ingest = Ingest()
    matrix: Matrix = Matrix()
    security: Security = Security()
    limits: Limits = Limits()
    quotas: Quotas = Quotas()
    training: Training = Training()
    closed_loop: ClosedLoop = ClosedLoop()
    retention: Retention = Retention()
    series: Series = Series()
    otel: Otel = Otel()
