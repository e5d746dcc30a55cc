"""Without a receiver of pushed metrics: logged once, and tried again."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest
from kongming_server.configuration.settings import Otel
from kongming_server.monitoring.metrics import Metrics
from kongming_server.monitoring.otel import Pusher

from kongming.records.errors import InputError
from tests.monitoring.receiver import receiving


async def _nothing() -> None:
    pass


def test_a_receiver_that_is_away_is_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    caplog.set_level(logging.INFO, "kongming_server.monitoring.otel")

    async def push(endpoint: str, times: int) -> None:
        pusher = Pusher(Otel(endpoint), Metrics(), _nothing)
        for _ in range(times):
            await pusher.push()
        await pusher.close()

    asyncio.run(push("http://127.0.0.1:9", 3))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "Metrics cannot be pushed to http://127.0.0.1:9; going on."
    caplog.clear()
    with receiving() as receiver:
        asyncio.run(push(f"http://{receiver.address}", 2))
        assert receiver.metrics["kongming_server_build_info"].gauge.data_points
    assert not caplog.records


@pytest.mark.parametrize("endpoint", ["grpc://{}", "{}", "ipv4:{}"])
def test_a_receiver_need_not_be_an_http_url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")

    async def push(endpoint: str) -> None:
        pusher = Pusher(Otel(endpoint), Metrics(), _nothing)
        await pusher.push()
        await pusher.close()

    with receiving() as receiver:
        asyncio.run(push(endpoint.format(receiver.address)))
        assert receiver.metrics["kongming_server_build_info"].gauge.data_points


def test_without_its_packages_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.metric_exporter", None)
    with pytest.raises(InputError, match=r"kongming\[server,otel\]"):
        Pusher(Otel("http://127.0.0.1:9"), Metrics(), _nothing)
