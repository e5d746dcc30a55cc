"""Bodies of HTTP requests, against a server that answers them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import strategies as st

from tests.fuzz.mutations import contents, documents
from tests.fuzz.targets import Target
from tests.server.stand import Stand

SEED = {"questions": [{"app": "sort", "node": "a", "resident_slowdown_limit": 1.5}]}
PATHS = ("/v1/predict", "/v1/rank", "/v1/colocation")
ENCODINGS = ("identity", "gzip", "deflate", "br", "x")


@contextmanager
def http_target() -> Iterator[Target]:
    """No answer says that the fault is the server's."""
    bodies = contents([json.dumps(SEED).encode()]) | documents([SEED]).map(
        lambda document: json.dumps(document).encode()
    )
    drawn = st.tuples(st.sampled_from(PATHS), st.sampled_from(ENCODINGS), bodies)
    with Stand() as stand:

        def ask(request: tuple[str, str, bytes]) -> None:
            path, encoding, body = request
            connection = http.client.HTTPConnection(stand.http, timeout=60)
            headers = {"Content-Type": "application/json"}
            if encoding != "identity":
                headers["Content-Encoding"] = encoding
            try:
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                text = answer.read()
            finally:
                connection.close()
            assert answer.status < 500, (answer.status, text[:300])

        yield Target(lambda: drawn, ask)
