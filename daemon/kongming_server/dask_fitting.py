"""Fitting on a Dask cluster: the same function, elsewhere.

The cluster's machines need this package. Texts go out and come back; what comes back is read as
text alone, never unpickled.
"""

from __future__ import annotations

from typing import Any

from kongming.errors import InputError, MissingExtraError, UnavailableError
from kongming_server.training_task import fit_text

CONNECT_S = 10.0
"""How long to wait for the cluster's scheduler."""


class DaskFitting:
    """A client of the cluster at ``address``, as tcp://HOST:8786.

    Raises:
        MissingExtraError: Dask is not installed.
        UnavailableError: nothing answers there.
    """

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError as error:
            raise MissingExtraError("Training on a cluster", "dask", "distributed") from error
        if "://" not in address:
            raise InputError(
                "is no address.", field="training.dask", found=address, allowed="tcp://HOST:PORT"
            )
        client: Any = distributed.Client
        try:
            self._client = client(
                address,
                timeout=CONNECT_S,
                set_as_default=False,
                # Functions go out pickled, as Dask does it; nothing that is pickled is taken in.
                serializers=["dask", "msgpack", "pickle"],
                deserializers=["dask", "msgpack"],
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise UnavailableError(
                f"The Dask scheduler at {address} does not answer: {error}.",
                hint="Start it, or train here: leave out --dask.",
            ) from error
        self._address = address

    def threads(self) -> int:
        """Threads of all the cluster's workers; 1 while it has none."""
        return max(1, sum(int(n) for n in self._client.nthreads().values()))

    def fit(self, text: str) -> str:
        """``fit_text``, on one of the cluster's workers.

        Raises:
            UnavailableError: the cluster lost it.
        """
        future = self._client.submit(_fit_bytes, text.encode(), pure=False)
        try:
            found: bytes = future.result()
        except Exception as error:
            raise UnavailableError(
                f"The Dask cluster at {self._address} did not train it: {error!r}."
            ) from error
        finally:
            future.release()
        return found.decode()


def _fit_bytes(text: bytes) -> bytes:
    return fit_text(text.decode()).encode()
