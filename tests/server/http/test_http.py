"""The HTTP side: health, metrics, the JSON mirror, and what it refuses."""

from __future__ import annotations

import asyncio
import errno
import html
import http.client
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kongming_server.configuration.limits import Limits
from kongming_server.configuration.settings import Security
from kongming_server.http import openapi
from kongming_server.http.bodies import message_of
from kongming_server.security import Role
from kongming_server.security.tokens import Issued, issue

from kongming.records.errors import InputError, UnknownNameError, UntrainedError
from kongming.rpc.errors import from_rpc_error
from kongming.rpc.v1 import predictor_pb2
from kongming.store import StoredToken
from tests.server.stand import Stand

JSON = {"Content-Type": "application/json"}


def ask(
    stand: Stand,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any, http.client.HTTPMessage]:
    """Status, body (a document where it is JSON) and headers."""
    connection = http.client.HTTPConnection(stand.http, timeout=100)
    if body is not None and not isinstance(body, bytes | str):
        body = json.dumps(body)
    given = headers if headers is not None else (JSON if body is not None else {})
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.headers.get_content_type() == "application/json":
        return answer.status, json.loads(content), answer.headers
    return answer.status, content.decode(), answer.headers


async def predicted(request: Any, context: Any) -> Any:
    answer = predictor_pb2.PredictResponse(request_id=request.request_id)
    for question in request.questions:
        prediction = answer.answers.add().prediction
        prediction.app, prediction.node_id = question.app, question.node
        prediction.slowdown.median = float("inf") if question.app == "endless" else 1.25
        prediction.fingerprint_age.FromMilliseconds(1500)
    return answer


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with Stand(behaviours={"Predict": predicted}) as running:
        yield running


def test_health_readiness_and_metrics() -> None:
    reason: list[str | None] = ["The store is being read."]
    with Stand(ready=lambda: reason[0]) as stand:
        assert ask(stand, "GET", "/healthz")[:2] == (200, {"alive": True})
        status, body, _ = ask(stand, "GET", "/readyz")
        assert (status, body["reason"]) == (503, "The store is being read.")
        reason[0] = None
        assert ask(stand, "GET", "/readyz")[:2] == (200, {"ready": True})
        status, text, headers = ask(stand, "GET", "/metrics")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain")
        assert 'kongming_server_rpc_total{code="OK",method="GET /readyz"} 1.0' in text
        assert 'kongming_server_rpc_total{code="UNAVAILABLE",method="GET /readyz"} 1.0' in text


def test_predict_as_json(stand: Stand) -> None:
    body = {"request_id": "pod-7", "questions": [{"app": "fft", "node": "node-1"}]}
    status, answer, _ = ask(stand, "POST", "/v1/predict", body)
    assert status == 200
    assert answer["request_id"] == "pod-7"
    prediction = answer["answers"][0]["prediction"]
    assert (prediction["app"], prediction["node_id"]) == ("fft", "node-1")
    assert prediction["slowdown"]["median"] == 1.25
    assert prediction["fingerprint_age"] == "1.500s"
    assert prediction["stale"] is False  # given, though it is the default


def test_names_may_be_written_in_camel_case(stand: Stand) -> None:
    body = {
        "requestId": "pod-8",
        "questions": [{"app": "fft", "stalePolicy": "STALE_POLICY_REFUSE"}],
    }
    assert ask(stand, "POST", "/v1/predict", body)[1]["request_id"] == "pod-8"
    assert stand.calls[-1][1].questions[0].stale_policy == predictor_pb2.STALE_POLICY_REFUSE


def test_a_number_that_json_has_no_word_for(stand: Stand) -> None:
    _, answer, _ = ask(stand, "POST", "/v1/predict", {"questions": [{"app": "endless"}]})
    assert answer["answers"][0]["prediction"]["slowdown"]["median"] == "Infinity"


def test_rank_as_json_gets_a_request_id(stand: Stand) -> None:
    status, answer, _ = ask(stand, "POST", "/v1/rank", {"app": "fft", "limit": 3})
    assert status == 200
    assert answer["request_id"]
    name, request = stand.calls[-1]
    assert (name, request.app, request.limit) == ("RankNodes", "fft", 3)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InputError("is wrong.", field="app", hint="Name it."), 400, "INVALID_ARGUMENT"),
        (UnknownNameError("node", "nod", ["node"]), 404, "NOT_FOUND"),
        (UntrainedError("Nothing was trained."), 422, "FAILED_PRECONDITION"),
        (TimeoutError(), 504, "DEADLINE_EXCEEDED"),
    ],
)
def test_errors_have_a_status_a_code_and_a_way_out(
    error: Exception, status: int, code: str
) -> None:
    async def refuse(request: Any, context: Any) -> Any:
        raise error

    with Stand(behaviours={"RankNodes": refuse}) as stand:
        answered_status, body, _ = ask(stand, "POST", "/v1/rank", {})
        assert (answered_status, body["error"]["code"]) == (status, code)
        assert body["error"]["request_id"]
        assert body["error"]["field"] == (getattr(error, "field", None) or "")
        assert body["error"]["hint"] == (getattr(error, "hint", None) or "")


def test_what_was_not_foreseen_tells_nothing_of_the_inside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(request: Any, context: Any) -> Any:
        raise RuntimeError("postgresql://user:secret@host/db")

    with Stand(behaviours={"Predict": fail}) as stand:
        status, body, _ = ask(stand, "POST", "/v1/predict", {"request_id": "pod-9"})
    assert status == 500
    assert body["error"]["request_id"] == "pod-9"
    assert "secret" not in json.dumps(body)
    assert any("pod-9" in line for line in caplog.messages)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"questions": 1}',
        b'{"questions": [{"level": "high"}]}',
        b'{"questions": [{"invented": 1}]}',
        b'{"questions": [{"placement": "NEXT_DOOR"}]}',
        b'{"questions": [{"model_version": 99999999999}]}',
        b'{"request_id": "\xff"}',
        b'{"request_id": "a\\nb"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"questions": [{"level": ' + b"9" * 10_000 + b"}]}",
    ],
    ids=range(15),
)
def test_what_is_no_request_is_the_callers_fault(stand: Stand, body: bytes) -> None:
    before = len(stand.calls)
    status, answer, _ = ask(stand, "POST", "/v1/predict", body, JSON)
    assert status == 400
    assert answer["error"]["code"] == "INVALID_ARGUMENT"
    assert answer["error"]["field"]
    assert len(json.dumps(answer)) < 2000
    assert len(stand.calls) == before


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["questions", "request_id", "app", "level", "placement", "domain", "nodes"]
            )
            | st.text(max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_BODIES = st.binary(max_size=200) | _VALUES.map(lambda value: json.dumps(value).encode())


@settings(
    max_examples=2 * settings.default.max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(path=st.sampled_from(["/v1/predict", "/v1/rank"]), body=_BODIES)
def test_no_body_makes_the_server_fail(stand: Stand, path: str, body: bytes) -> None:
    status, answer, _ = ask(stand, "POST", path, body, JSON)
    assert status in (200, 400)
    assert ("error" in answer) == (status == 400)


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(content=st.binary(min_size=1, max_size=300))
def test_no_bytes_make_the_server_fail(stand: Stand, content: bytes) -> None:
    host, _, port = stand.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=100) as connection:
        connection.sendall(content + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := connection.recv(4096):
                answer += part
        except ConnectionError:
            pass
    assert not answer or re.match(rb"HTTP/1\.[01] (?!5)\d\d\d ", answer)
    assert ask(stand, "GET", "/healthz")[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_form_of_a_web_page_is_no_request(stand: Stand, kind: str) -> None:
    status, answer, _ = ask(stand, "POST", "/v1/predict", b"{}", {"Content-Type": kind})
    assert status == 415
    assert answer["error"]["code"] == "INVALID_ARGUMENT"


def test_a_body_that_is_too_large_is_refused() -> None:
    with Stand(limits=Limits(json_bytes=4096)) as stand:
        body = {"request_id": "x" * 100, "questions": [{"app": "a" * 100}] * 100}
        status, answer, _ = ask(stand, "POST", "/v1/predict", body)
        assert (status, answer["error"]["code"]) == (413, "RESOURCE_EXHAUSTED")
        assert not stand.calls


def test_a_batch_that_is_too_large_names_its_field() -> None:
    with Stand(limits=Limits(batch=3)) as stand:
        status, answer, _ = ask(stand, "POST", "/v1/predict", {"questions": [{}] * 4})
        assert (status, answer["error"]["field"]) == (400, "questions")


def test_the_rate_counts_for_http_too() -> None:
    with Stand(limits=Limits(rate_per_peer=0.01, burst=2)) as stand:
        answers = [ask(stand, "POST", "/v1/rank", {}) for _ in range(3)]
        assert [status for status, _, _ in answers] == [200, 200, 429]
        assert answers[2][2]["Retry-After"]
        # Paths that nobody serves are counted as well.
        assert ask(stand, "GET", "/nothing")[0] == 429


def test_a_full_queue_answers_429() -> None:
    async def slow(request: Any, context: Any) -> Any:
        # The only place is taken by this very call.
        answered.append(await asyncio.to_thread(ask, stand, "POST", "/v1/rank", {}))
        return predictor_pb2.RankNodesResponse()

    answered: list[Any] = []
    with Stand(limits=Limits(queue=1), behaviours={"RankNodes": slow}) as stand:
        assert ask(stand, "POST", "/v1/rank", {})[0] == 200
    assert answered[0][0] == 429


def test_unknown_paths_and_methods(stand: Stand) -> None:
    status, answer, _ = ask(stand, "GET", "/nothing")
    assert (status, answer["error"]["code"]) == (404, "NOT_FOUND")
    status, answer, headers = ask(stand, "GET", "/v1/predict")
    assert (status, headers["Allow"]) == (405, "POST")
    assert ask(stand, "POST", "/metrics", {})[0] == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "192.0.2.1", "localhost.evil", ""]
)
def test_a_web_page_whose_name_points_here_reads_nothing(stand: Stand, host: str) -> None:
    for path in ("/metrics", "/readyz"):
        assert ask(stand, "GET", path, headers={"Host": host})[0] == 403


def test_a_name_of_several_addresses_has_one_port_at_each() -> None:
    with Stand(host="localhost") as stand:
        port = int(stand.http.rpartition(":")[2])
        reached = 0
        for entry in dict.fromkeys(socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)):
            with socket.socket(entry[0]) as connection:
                connection.settimeout(10)
                try:
                    connection.connect(entry[4])
                except OSError as error:
                    # A machine without IPv6 may have a name for it.
                    if error.errno != errno.EADDRNOTAVAIL:
                        raise
                    continue
                reached += 1
        assert reached
        assert ask(stand, "GET", "/healthz")[0] == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:7401", "127.0.0.1", "[::1]:7401"])
def test_names_of_loopback_are_answered_to(stand: Stand, host: str) -> None:
    assert ask(stand, "GET", "/readyz", headers={"Host": host})[0] == 200


def test_answers_are_not_to_be_guessed_at_or_kept(stand: Stand) -> None:
    for path in ("/docs", "/openapi.json", "/nothing"):
        headers = ask(stand, "GET", path)[2]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
    policy = ask(stand, "GET", "/docs")[2]["Content-Security-Policy"]
    assert "default-src 'none'" in policy


@pytest.fixture(scope="module")
def issued() -> dict[Role, Issued]:
    return {role: issue() for role in Role}


@pytest.fixture(scope="module")
def guarded(issued: dict[Role, Issued]) -> Iterator[Stand]:
    rows = [
        StoredToken(id=token.id, role=role.value, secret_hash=token.digest, created_at=0.0)
        for role, token in issued.items()
    ]
    with Stand(Security(authenticate="always"), tokens=lambda: rows) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "may"),
    [
        ("POST /v1/predict", {Role.SCHEDULER, Role.OPERATOR}),
        ("POST /v1/rank", {Role.SCHEDULER, Role.OPERATOR}),
        ("GET /metrics", {Role.MONITOR, Role.SCHEDULER, Role.OPERATOR}),
    ],
)
def test_each_role_may_ask_what_it_needs_and_no_more(
    guarded: Stand, issued: dict[Role, Issued], path: str, may: set[Role]
) -> None:
    method, _, url = path.partition(" ")
    body = {} if method == "POST" else None
    for role in Role:
        headers = {"Authorization": f"Bearer {issued[role].text}"} | JSON
        status, answer, _ = ask(guarded, method, url, body, headers)
        assert status == (200 if role in may else 403), answer
    status, answer, headers = ask(guarded, method, url, body)
    assert status == 401
    assert headers["WWW-Authenticate"].startswith("Bearer")
    wrong = f"Bearer {issue().text}"
    status, answer, _ = ask(guarded, method, url, body, {"Authorization": wrong} | JSON)
    assert status == 401
    assert wrong.split()[1] not in json.dumps(answer)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/docs"])
def test_what_is_public_needs_no_token(guarded: Stand, path: str) -> None:
    assert ask(guarded, "GET", path)[0] == 200


def test_the_description_says_all_that_is_served(stand: Stand) -> None:
    described = ask(stand, "GET", "/openapi.json")[1]
    assert described["openapi"].startswith("3.1")
    for path, operations in described["paths"].items():
        for method in operations:
            status = ask(stand, method.upper(), path, {} if method == "post" else None)[0]
            assert status == 200, path
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)))
    assert references <= set(described["components"]["schemas"])
    page = ask(stand, "GET", "/docs")[1]
    assert all(path in page for path in described["paths"])
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"?https?:", page)


def test_the_described_fields_are_those_of_the_messages() -> None:
    schemas = openapi.document()["components"]["schemas"]
    for message in (
        predictor_pb2.PredictRequest,
        predictor_pb2.Prediction,
        predictor_pb2.RankedNode,
    ):
        fields = {field.name for field in message.DESCRIPTOR.fields}
        assert set(schemas[message.DESCRIPTOR.name]["properties"]) == fields


def test_the_description_tells_what_each_field_means(stand: Stand) -> None:
    schemas = openapi.document()["components"]["schemas"]
    assert schemas["Interval"]["properties"]["level"]["description"].startswith("Probability")
    status, page, _ = ask(stand, "GET", "/docs", headers={"Host": "localhost:7401"})
    assert status == 200
    assert "What to do when a node's fingerprint is older" in html.unescape(page)
    assert "http://localhost:7401/v1/predict" in page
    hostile = ask(stand, "GET", "/docs", headers={"Host": "localhost:<script>"})
    assert "<script" not in str(hostile[1])


def test_the_examples_are_questions_and_answers() -> None:
    paths = openapi.document()["paths"]
    for path, request, response in (
        ("/v1/predict", predictor_pb2.PredictRequest(), predictor_pb2.PredictResponse()),
        ("/v1/rank", predictor_pb2.RankNodesRequest(), predictor_pb2.RankNodesResponse()),
    ):
        post = paths[path]["post"]
        question = post["requestBody"]["content"]["application/json"]["example"]
        answer = post["responses"]["200"]["content"]["application/json"]["example"]
        assert json_format.ParseDict(question, request).ByteSize()
        assert json_format.ParseDict(answer, response).ByteSize()


@pytest.mark.parametrize("path", ["/", "/v1/nodes"])
def test_what_is_not_served_names_what_is(stand: Stand, path: str) -> None:
    status, answer, _ = ask(stand, "GET", path)
    assert (status, answer["error"]["code"]) == (404, "NOT_FOUND")
    assert "/docs" in answer["error"]["hint"]


def test_a_client_of_grpc_hears_that_it_asks_the_port_of_http(stand: Stand) -> None:
    with (
        grpc.insecure_channel(stand.http) as channel,
        pytest.raises(grpc.RpcError) as failed,
    ):
        channel.unary_unary("/kongming.rpc.v1.Predictor/Predict")(b"", timeout=10)
    error = from_rpc_error(failed.value, "there")
    assert "port of HTTP" in (error.hint or "")


WRONG_LIMIT = "the value of limit is of the wrong kind"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"app": "sort"', "it is not JSON (Expecting ',' delimiter: line 1, column 15)"),
        (b"\xff", "it is not a text in UTF-8"),
        (b"[]", "it is not an object"),
        (b'{"ap": "sort"}', "it has no field named 'ap' (did you mean app?)"),
        (b'{"limit": "x"}', WRONG_LIMIT),
        (b'{"limit": 1e400}', WRONG_LIMIT),
        (
            b'{"scaling": {"machine": 2}}',
            "scaling has no field named 'machine' (did you mean machines or machine_type?)",
        ),
        (b'{"scaling": {"machines": "x"}}', "the value of machines is of the wrong kind"),
        (b'{"limit": "Message type \\"x\\" has no field named \\"y\\" at \\"z\\""}', WRONG_LIMIT),
    ],
)
def test_a_wrong_body_is_described_without_words_of_a_parser(body: bytes, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        asyncio.run(message_of(body, predictor_pb2.RankNodesRequest, 10))
    assert refused.value.message == f"body: is not a RankNodesRequest: {reason}."
