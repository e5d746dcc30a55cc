"""The Dask cluster of the settings: only over TLS where it is on other machines."""

from __future__ import annotations

from pathlib import Path

from kongming.records.errors import InputError
from kongming_server.security.binding import is_loopback
from kongming_server.settings import Training
from kongming_server.training.records import Cluster

_FILES = ("dask_ca", "dask_cert", "dask_key")


def check_cluster(settings: Training) -> None:
    """Return where ``training.dask`` and its files fit together.

    Raises:
        InputError: an address that is none, plain TCP to another machine, or a file is missing.
    """
    if not settings.dask:
        return
    scheme, separator, rest = settings.dask.partition("://")
    host = rest.rpartition(":")[0]
    if not separator or scheme not in ("tcp", "tls") or not host:
        raise InputError(
            "is not an address.",
            field="training.dask",
            found=settings.dask,
            allowed="tls://HOST:PORT, or tcp://HOST:PORT on loopback",
        )
    if scheme == "tcp" and not is_loopback(host):
        raise InputError(
            "is on another machine, and nothing says that it is the cluster which answers.",
            field="training.dask",
            found=settings.dask,
            allowed="tls://HOST:PORT, or tcp://HOST:PORT on loopback",
            hint="Start Dask with TLS and give training.dask_ca, dask_cert and dask_key.",
        )
    if scheme == "tls":
        for name in _FILES:
            if not getattr(settings, name):
                raise InputError(
                    "is missing: tls:// needs an authority, a certificate and its key.",
                    field=f"training.{name}",
                )


def cluster_of(settings: Training) -> Cluster | None:
    """The cluster with its certificates, None without one.

    Raises:
        InputError: as ``check_cluster``, or a file cannot be read.
    """
    check_cluster(settings)
    if not settings.dask:
        return None
    if settings.dask.startswith("tcp://"):
        return Cluster(settings.dask)
    texts = []
    for name in _FILES:
        path = Path(getattr(settings, name))
        try:
            texts.append(path.read_text(encoding="ascii"))
        except (OSError, UnicodeError) as error:
            raise InputError(
                f"{path} cannot be read: {error}.", field=f"training.{name}"
            ) from error
    return Cluster(settings.dask, *texts)
