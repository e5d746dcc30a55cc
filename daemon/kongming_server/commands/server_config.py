"""Read the server's settings, and check that they fit together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kongming import settings as declared
from kongming.records.errors import InputError
from kongming_server.configuration.settings import Config
from kongming_server.training.dask_cluster import check_cluster
from kongming_server.training.model_names import model_names


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
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_url = False
    if endpoint and not is_url:
        raise InputError(
            "is not a URL.",
            field="otel.endpoint",
            value=endpoint,
            allowed="http://HOST:PORT or https://HOST:PORT",
        )
