"""Read the server's settings, and check that they fit together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kongming import settings as declared
from kongming.addresses import is_address
from kongming.records.errors import InputError
from kongming_server.configuration.settings import Config
from kongming_server.training.dask_cluster import check_cluster
from kongming_server.training.model_names import model_names

_TARGETS = ("dns", "unix", "unix-abstract", "ipv4", "ipv6", "vsock", "xds")
"""Schemes of the targets that gRPC itself resolves."""


def load(path: Path | None = None, options: Mapping[str, Any] | None = None) -> Config:
    """The defaults, what the file at ``path`` says, and over both ``options`` by key.

    Raises:
        InputError: the file cannot be read, or a value is of the wrong kind or out of range.
        UnknownNameError: a key that no setting has.
    """
    config = declared.load(Config, path, options)
    _check_together(config)
    return config


def _check_together(config: Config) -> None:
    fleet, assignments = config.fleet, config.assignments
    if fleet.silent_after_s <= fleet.heartbeat_period_s:
        raise InputError(
            "is not allowed.",
            field="fleet.silent_after_s",
            value=fleet.silent_after_s,
            allowed=f"more than fleet.heartbeat_period_s, {fleet.heartbeat_period_s:g}",
        )
    if assignments.reservation_ttl_s > assignments.reservation_ttl_max_s:
        raise InputError(
            "is not allowed.",
            field="assignments.reservation_ttl_s",
            value=assignments.reservation_ttl_s,
            allowed="up to assignments.reservation_ttl_max_s, "
            f"{assignments.reservation_ttl_max_s:g}",
        )
    if config.server.store and config.server.store_file:
        raise InputError(
            "is given together with server.store.",
            field="server.store_file",
            allowed="one of both",
        )
    security = config.security
    if bool(security.certificate) != bool(security.key):
        raise InputError(
            "is missing: TLS needs a certificate and its key.",
            field="security.key" if security.certificate else "security.certificate",
            hint="Make both with: kongming-server init-tls DIR",
        )
    if security.client_ca and not security.certificate:
        raise InputError("needs TLS: give certificate and key as well.", field="security.client_ca")
    model_names(config.training.models)
    _check_receiver(config.otel.endpoint)
    check_cluster(config.training)


def _check_receiver(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        if parts.scheme in _TARGETS:
            # OpenTelemetry's exporter would take the authority for the target.
            is_receiver = bool(parts.path) and not parts.netloc
        else:
            is_receiver = bool(parts.scheme and parts.hostname)
    except ValueError:
        is_receiver = False
    if endpoint and not is_receiver and not is_address(endpoint):
        raise InputError(
            "is not a receiver.",
            field="otel.endpoint",
            value=endpoint,
            allowed="http://HOST:PORT, https://HOST:PORT, HOST:PORT or a target of gRPC, "
            "as dns:///HOST:PORT or unix:///PATH",
        )
