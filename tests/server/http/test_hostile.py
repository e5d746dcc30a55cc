"""Bodies, headers and encodings of any kind: answered, and never with a failure of the server."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from kongming_server.configuration.limits import Limits
from kongming_server.configuration.settings import Security
from kongming_server.security.tokens import issue

from kongming.records.errors import StoreError
from kongming.rpc.v1 import predictor_pb2
from kongming.store import StoredToken
from tests.fuzz.requests import Request, requests
from tests.server.process import eventually
from tests.server.stand import Stand

JSON = {"Content-Type": "application/json"}
DRAWS = 4 * settings.default.max_examples
"""Bodies that are drawn. More of them, on a real server: ``make fuzz``."""


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with Stand() as running:
        yield running


def _send(stand: Stand, path: str, body: bytes, headers: dict[str, str]) -> int | None:
    """The status; None where the connection was closed without one."""
    connection = http.client.HTTPConnection(stand.http, timeout=20)
    try:
        connection.request("POST", path, body, JSON | headers)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return answer.status


@settings(
    max_examples=DRAWS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(request=requests())
def test_nothing_that_is_sent_makes_the_server_fail(
    stand: Stand, caplog: pytest.LogCaptureFixture, request: Request
) -> None:
    caplog.clear()
    status = _send(stand, request.path, request.body, request.headers)
    # Where headers say that another body is to come, none does.
    assert status is None or status < 500 or status == 504
    assert not [r for r in caplog.records if r.name.startswith("kongming") and r.exc_info]


@pytest.mark.parametrize(
    "body",
    [
        '{"app": "a", "resident_slowdown_limit": "\\ud800"}',
        '{"\\ud800": 1}',
        '{"request_id": "\\udfff"}',
        '{"limit": Infinity}',
        '{"limit": 1e999}',
        '{"limit": NaN}',
    ],
)
def test_what_json_allows_and_no_message_holds_is_the_callers_fault(
    stand: Stand, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert _send(stand, "/v1/rank", body.encode(), {}) == 400
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "nonsense", "gzip, gzip"])
@pytest.mark.parametrize("truly", [True, False])
def test_no_encoded_body_is_read(
    stand: Stand, encoding: str, truly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    body = gzip.compress(b'{"app": "a"}') if truly else b"no such encoding"
    assert _send(stand, "/v1/rank", body, {"Content-Encoding": encoding}) == 415
    assert _send(stand, "/v1/rank", b"{}", {"Content-Encoding": "identity"}) == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_many_small_parts_are_counted_before_they_are_parsed() -> None:
    with Stand(limits=Limits(batch=100)) as stand:
        deep = b'{"questions": [' + b'{"x": [' * 3000 + b"]}" * 3000 + b"]}"
        wide = b'{"nodes": [' + b",".join([b'"n"'] * 200) + b"]}"
        hidden = b'{"unknown": [' + b",".join([b"{}"] * 100_000) + b"]}"
        for body in (deep, wide, hidden):
            assert _send(stand, "/v1/rank", body, {}) == 400
        assert not stand.calls


def test_a_large_body_does_not_hold_up_other_calls() -> None:
    answered = threading.Event()
    threads: list[str] = []

    async def note(request: Any, context: Any) -> Any:
        threads.append(threading.current_thread().name)
        return predictor_pb2.PredictResponse(
            answers=[predictor_pb2.PredictAnswer()] * len(request.questions)
        )

    with Stand(behaviours={"Predict": note}) as stand:
        body = json.dumps({"questions": [{"app": "a" * 60}] * 10_000}).encode()
        assert len(body) < stand.guard.limits.json_bytes

        def ask() -> None:
            assert _send(stand, "/v1/predict", body, {}) == 200
            answered.set()

        asking = threading.Thread(target=ask)
        asking.start()
        between = 0
        while not answered.is_set():
            # Each is answered by the event loop while the body is parsed or written.
            connection = http.client.HTTPConnection(stand.http, timeout=20)
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            connection.close()
            between += 1
        asking.join()
        assert between >= 2


def test_slow_bodies_take_no_place_of_others() -> None:
    secret = issue()
    rows = [StoredToken(secret.id, "scheduler", secret.digest, created_at=0.0)]
    limits = Limits(queue=2, calls_per_peer=100)
    with Stand(Security(authenticate="always"), limits, tokens=lambda: rows) as stand:
        host, _, port = stand.http.rpartition(":")
        token = {"Authorization": f"Bearer {secret.text}"}
        head = (
            f"POST /v1/rank HTTP/1.1\r\nHost: {stand.http}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {secret.text}\r\nContent-Length: 100\r\n\r\n{{"
        )
        slow = [socket.create_connection((host, int(port)), timeout=20) for _ in range(10)]
        try:
            for connection in slow:
                connection.sendall(head.encode())
            # Each of them is within the gate by now, and waits for its body.
            eventually(lambda: stand.guard.calls == 10)
            assert _send(stand, "/v1/rank", b"{}", token) == 200
            assert stand.sample("kongming_server_calls_at_work") == 0
        finally:
            for connection in slow:
                connection.close()


def test_one_caller_cannot_take_all_places() -> None:
    tokens = [issue(), issue()]
    rows = [StoredToken(token.id, "scheduler", token.digest, created_at=0.0) for token in tokens]
    entered, go_on = threading.Semaphore(0), threading.Event()

    async def slow(request: Any, context: Any) -> Any:
        if request.app == "slow":
            entered.release()
            await asyncio.to_thread(go_on.wait, 20)
        return predictor_pb2.RankNodesResponse()

    greedy, other = ({"Authorization": f"Bearer {token.text}"} for token in tokens)
    with Stand(
        Security(authenticate="always"),
        Limits(queue=10, calls_per_peer=2),
        tokens=lambda: rows,
        behaviours={"RankNodes": slow},
    ) as stand:
        body = b'{"app": "slow"}'
        held = [
            threading.Thread(target=_send, args=(stand, "/v1/rank", body, greedy)) for _ in range(2)
        ]
        for thread in held:
            thread.start()
            assert entered.acquire(timeout=20)
        assert _send(stand, "/v1/rank", b"{}", greedy) == 429
        assert stand.sample("kongming_server_refused_total", reason="calls_per_peer") == 1
        assert _send(stand, "/v1/rank", b"{}", other) == 200
        go_on.set()
        for thread in held:
            thread.join(20)
        assert _send(stand, "/v1/rank", b"{}", greedy) == 200


def test_health_and_metrics_are_answered_when_the_queue_is_full() -> None:
    async def slow(request: Any, context: Any) -> Any:
        # The only place is taken by this very call.
        seen.extend(await asyncio.to_thread(statuses))
        return predictor_pb2.RankNodesResponse()

    def statuses() -> list[int]:
        codes = []
        for path in ("/healthz", "/readyz", "/metrics", "/docs"):
            connection = http.client.HTTPConnection(stand.http, timeout=20)
            connection.request("GET", path)
            codes.append(connection.getresponse().status)
            connection.close()
        return codes

    seen: list[int] = []
    with Stand(limits=Limits(queue=1), behaviours={"RankNodes": slow}) as stand:
        assert _send(stand, "/v1/rank", b"{}", {}) == 200
    assert seen == [200, 200, 200, 200]


def test_readiness_says_that_nothing_can_be_kept() -> None:
    reason: list[str | None] = [str(StoreError("database or disk is full"))]
    with Stand(degraded=lambda: reason[0]) as stand:
        for expected in ({"ready": True, "degraded": True, "reason": reason[0]}, {"ready": True}):
            connection = http.client.HTTPConnection(stand.http, timeout=20)
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            # It predicts all the same: nobody is to be sent elsewhere.
            assert (answer.status, json.loads(answer.read())) == (200, expected)
            connection.close()
            reason[0] = None
