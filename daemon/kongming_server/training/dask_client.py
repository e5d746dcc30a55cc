"""The process that speaks to a Dask cluster: it has no store, no token and no password.

``python -m kongming_server.training.dask_client``, started by ``dask_cluster``. It reads JSON lines
and writes JSON lines. The first line in says where the cluster is (``address``, and for TLS the PEM
texts ``ca``, ``cert`` and ``key``); it answers with the cluster's ``threads``, or an ``error``.
Each further line is an ``id`` and a ``text`` to fit; the answer has the ``id`` with an ``answer``
or an ``error``. It ends when its input does.

Functions go out pickled, as Dask does it. What comes in may hold pickled objects in many places of
Dask's protocol (errors, warnings, messages), so that unpickling is refused in the whole process:
the interpreter asks before it looks up any class or function that a pickled object names.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import pwd
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CONNECT_S = 10.0
"""How long to wait for the cluster's scheduler, in seconds."""

AT_ONCE = 64
"""Texts that are being fitted at a time."""

_ERROR_CHARACTERS = 300

_HARMLESS = frozenset({("builtins", "bytes")})
"""Dask names the type of an answer as a pickled class; the answers here are bytes."""


def refuse_unpickling() -> None:
    """Refuse, in this process from now on, pickled objects that name a class or a function but
    ``bytes``.

    A TypeError is raised where one does: what Dask's client takes for one that it cannot read.
    """

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and tuple(arguments[:2]) not in _HARMLESS:
            raise TypeError(f"nothing pickled is read here: {arguments[0]}.{arguments[1]}")

    sys.addaudithook(hook)


def become_nobody() -> None:
    """Give root up, where this is root: what the cluster could make this process do, it does as a
    user that owns nothing."""
    if os.geteuid() != 0:
        return
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
    os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)


_LATE = ("encodings.idna", "tornado.platform.asyncio", "distributed.comm.tcp")
"""Modules that Dask's client loads when it connects. They are loaded before root is given up: the
user nobody may not be able to read where Python or KONGMING is installed."""


class _Fitting:
    """A client of the cluster. Raises OSError, TimeoutError or ValueError without one."""

    def __init__(self, address: str, ca: str, cert: str, key: str) -> None:
        import distributed

        from kongming_server.training.fitting import fit_bytes

        for name in _LATE:
            importlib.import_module(name)

        self._function = fit_bytes
        security = None
        if ca:
            tls: Any = distributed.Security
            security = tls(
                tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True
            )
        refuse_unpickling()
        become_nobody()
        client: Any = distributed.Client
        self._client = client(
            address,
            timeout=CONNECT_S,
            set_as_default=False,
            security=security,
            serializers=["dask", "msgpack", "pickle"],
            deserializers=["dask", "msgpack"],
        )

    def threads(self) -> int:
        """Count the threads of all the cluster's workers; 1 while it has none."""
        return max(1, sum(int(n) for n in self._client.nthreads().values()))

    def fit(self, text: str) -> dict[str, str]:
        future = self._client.submit(self._function, text.encode(), pure=False)
        try:
            answer = future.result()
            if not isinstance(answer, bytes):
                return {"error": f"it answered with {type(answer).__name__} instead of text"}
            return {"answer": answer.decode()}
        except Exception as error:
            return {"error": repr(error)[:_ERROR_CHARACTERS]}
        finally:
            future.release()


def main() -> int:
    """Texts from standard input, answers to standard output."""
    output = os.dup(1)
    os.dup2(2, 1)
    answers = os.fdopen(output, "w", encoding="utf-8")
    first = sys.stdin.readline()
    if not first:
        return 0
    setup = json.loads(first)
    # Dask writes a traceback for each object that it may not unpickle.
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    writing = threading.Lock()

    def tell(message: dict[str, Any]) -> None:
        line = json.dumps(message, allow_nan=False)
        with writing:
            answers.write(line + "\n")
            answers.flush()

    try:
        fitting = _Fitting(setup["address"], setup["ca"], setup["cert"], setup["key"])
        threads = fitting.threads()
    except ModuleNotFoundError as error:
        tell({"error": str(error), "missing": error.name == "distributed"})
        return 1
    except Exception as error:
        tell({"error": str(error)[:_ERROR_CHARACTERS]})
        return 1
    tell({"threads": threads})

    def answer(message: dict[str, Any]) -> None:
        tell({"id": message["id"], **fitting.fit(message["text"])})

    pool = ThreadPoolExecutor(AT_ONCE)
    for line in sys.stdin:
        pool.submit(answer, json.loads(line))
    # Whoever asked has ended: nobody waits for what is under way.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
