"""Each role against each RPC, on a real connection."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import grpc
import pytest
from kongming_server.configuration.settings import Security
from kongming_server.security import PERMISSIONS, PUBLIC, Role, permit
from kongming_server.security.tokens import Issued, issue

from kongming.records.errors import AccessError
from kongming.rpc.errors import from_rpc_error
from kongming.store import StoredToken
from tests.server.stand import Stand, call, rpcs

AGENT = {"Register", "Report", "ReportRuns", "Bind"}
SCHEDULER = {
    *("Predict", "PredictColocation", "RankNodes", "Explain"),
    *("ReportRuns", "ListNodes", "WatchNode"),
    *("GetApplication", "ListApplications", "ListModels"),
    *("Reserve", "Bind", "Release", "ListAssignments"),
}
"""What each may call, written down a second time: a slip in the table is a slip in two places."""

MAY = {
    Role.AGENT: AGENT,
    Role.MONITOR: set(),
    Role.SCHEDULER: SCHEDULER,
    Role.OPERATOR: {method.name for method in rpcs().values()},
}


@pytest.fixture(scope="module")
def issued() -> dict[Role, Issued]:
    return {role: issue() for role in Role}


@pytest.fixture(scope="module")
def stand(issued: dict[Role, Issued]) -> Iterator[Stand]:
    rows = [
        StoredToken(id=token.id, role=role.value, secret_hash=token.digest, created_at=0.0)
        for role, token in issued.items()
    ]
    with Stand(Security(authenticate="always"), tokens=lambda: rows) as running:
        yield running


@pytest.fixture(scope="module")
def channel(stand: Stand) -> Iterator[grpc.Channel]:
    with stand.channel() as opened:
        yield opened


def test_the_table_names_every_rpc_and_nothing_else() -> None:
    named = {method for method in PERMISSIONS if method.startswith("/kongming.")}
    assert named == set(rpcs())
    assert not PUBLIC & set(PERMISSIONS)
    assert all(Role.OPERATOR in roles for roles in PERMISSIONS.values())


@pytest.mark.parametrize("method", sorted(rpcs()))
@pytest.mark.parametrize("role", list(Role))
def test_each_role_may_call_what_it_needs_and_no_more(
    stand: Stand, channel: grpc.Channel, issued: dict[Role, Issued], role: Role, method: str
) -> None:
    before = len(stand.calls)
    if rpcs()[method].name in MAY[role]:
        call(channel, method, token=issued[role].text)
        assert len(stand.calls) == before + 1
        return
    with pytest.raises(grpc.RpcError) as refused:
        call(channel, method, token=issued[role].text)
    error = from_rpc_error(refused.value)
    assert isinstance(error, AccessError)
    assert error.reason == "forbidden"
    assert role.value in error.message
    assert error.hint
    assert len(stand.calls) == before  # the servicer never saw it


@pytest.mark.parametrize("method", sorted(rpcs()))
def test_nobody_may_call_anything(stand: Stand, channel: grpc.Channel, method: str) -> None:
    before = len(stand.calls)
    with pytest.raises(grpc.RpcError) as refused:
        call(channel, method)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert len(stand.calls) == before


def test_a_monitor_reads_metrics_and_nothing_else(stand: Stand, issued: dict[Role, Issued]) -> None:
    connection = http.client.HTTPConnection(stand.http, timeout=10)
    statuses = {}
    for role in Role:
        headers = {"Authorization": f"Bearer {issued[role].text}"}
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        answer.read()
        statuses[role] = answer.status
    connection.close()
    assert statuses == {
        Role.AGENT: 403,
        Role.MONITOR: 200,
        Role.SCHEDULER: 200,
        Role.OPERATOR: 200,
    }
    assert [method for method, roles in PERMISSIONS.items() if Role.MONITOR in roles] == [
        "GET /metrics",
        "GET /watcher",
    ]


def test_what_is_in_no_table_is_forbidden_to_all() -> None:
    for role in Role:
        with pytest.raises(AccessError, match="nobody"):
            permit("/kongming.rpc.v1.Fleet/Invented", role)
