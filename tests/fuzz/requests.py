"""HTTP requests of any kind: paths, bodies that are nearly right, encodings, headers."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import NamedTuple

from hypothesis import strategies as st

from tests.fuzz.mutations import contents

HOSTILE_TEXT = st.text(max_size=12) | st.sampled_from(
    ["\ud800", "a\udfffb", "\x00", "\x1b[31m", "1e999", "NaN", "Infinity", "-Infinity", ""]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([1 << 70, -(1 << 70), 1e308, 5e-324])
FIELDS = st.sampled_from(
    [
        *("questions", "request_id", "app", "node", "level", "placement", "domain", "nodes"),
        *("limit", "resident_slowdown_limit", "stale_policy", "model_version", "memory_bytes"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | HOSTILE_TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(FIELDS | HOSTILE_TEXT, inner, max_size=4)
    ),
    max_leaves=12,
)
SEED = {"questions": [{"app": "sort", "node": "a", "resident_slowdown_limit": 1.5}]}
BODIES = (
    st.binary(max_size=200)
    | contents([json.dumps(SEED).encode()])
    | st.dictionaries(FIELDS | HOSTILE_TEXT, VALUES, max_size=4).map(
        lambda value: json.dumps(value).encode()
    )
)
ENCODINGS = st.sampled_from(
    ["", "identity", "gzip", "deflate", "br", "zstd", "compress", "gzip, gzip", "\x7f", "x" * 200]
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *("X-Request-Id", "Accept", "Accept-Encoding", "Expect", "Range", "Cookie"),
            *("Authorization", "If-None-Match", "Transfer-Encoding", "Connection", "Upgrade"),
        ]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=40),
    max_size=3,
)
PATHS = ("/v1/predict", "/v1/rank", "/healthz", "/nothing")


class Request(NamedTuple):
    path: str
    body: bytes
    headers: dict[str, str]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A POST of JSON, as far as its body, encoding and headers are any."""
    squeeze = draw(st.sampled_from([bytes, bytes, gzip.compress, zlib.compress]))
    headers = draw(HEADERS)
    encoding = draw(ENCODINGS)
    if encoding:
        headers["Content-Encoding"] = encoding
    return Request(draw(st.sampled_from(PATHS)), squeeze(draw(BODIES)), headers)
