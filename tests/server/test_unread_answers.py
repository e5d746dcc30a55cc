"""Answers that nobody reads: few of a stranger's, and of a known caller's no more than so many
bytes."""

from __future__ import annotations

import asyncio
import socket

import grpc
import pytest
from kongming_server.security import unread_answers
from kongming_server.security.unread_answers import (
    ANSWER_BYTES,
    KNOWN_BYTES,
    STRANGERS_S,
    UnreadAnswers,
)

from kongming.rpc.v1 import predictor_pb2
from tests.server.http2 import Http2
from tests.server.process import eventually
from tests.server.stand import Stand, call

PREDICT = "/kongming.rpc.v1.Predictor/Predict"
PEER = "ipv6:%5B::1%5D:1"


def test_of_one_caller_so_many_bytes_wait_to_be_read() -> None:
    async def main() -> list[bool]:
        answers = UnreadAnswers()
        calls = [asyncio.get_running_loop().create_future() for _ in range(5)]
        size = KNOWN_BYTES // 2 - ANSWER_BYTES

        def begin(number: int, who: str, size: int = size) -> bool:
            return answers.begin(calls[number], who, size, stranger=False)

        taken = [begin(0, "a"), begin(1, "a"), begin(2, "a", 0), begin(3, "b", 2 * KNOWN_BYTES)]
        calls[0].set_result(None)
        await asyncio.sleep(0)
        taken.append(begin(4, "a"))
        for future in calls[1:]:
            future.cancel()
        await asyncio.sleep(0)
        # All bytes are free again.
        again = asyncio.get_running_loop().create_future()
        return [*taken, answers.begin(again, "a", 2 * KNOWN_BYTES, stranger=False)]

    assert asyncio.run(main()) == [True, True, False, True, True, True]


def test_a_stranger_who_does_not_read_is_named() -> None:
    async def main() -> None:
        now = 0.0
        answers = UnreadAnswers(lambda: now)
        calls = [asyncio.get_running_loop().create_future() for _ in range(6)]
        known = asyncio.get_running_loop().create_future()
        assert answers.begin(known, "token", 2, stranger=False)
        assert [answers.begin(future, PEER, 2, stranger=True) for future in calls] == [True] * 4 + [
            False
        ] * 2
        now += STRANGERS_S / 2
        late = asyncio.get_running_loop().create_future()
        assert answers.begin(late, "ipv4:192.0.2.1:1", 2, stranger=True)
        assert answers.stalled() == set()
        now += STRANGERS_S / 2
        assert answers.stalled() == {"ipv6:[::1]:1"}
        for future in calls:
            future.set_result(None)
        await asyncio.sleep(0)
        assert answers.stalled() == set()

    asyncio.run(main())


def test_who_reads_nothing_is_refused_and_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unread_answers, "KNOWN_BYTES", 4 * ANSWER_BYTES)

    async def answer(request: predictor_pb2.PredictRequest, context: object) -> object:
        return predictor_pb2.PredictResponse(request_id=request.request_id)

    with Stand(behaviours={"Predict": answer}) as stand:
        silent = Http2.to(stand.grpc, window=0)
        streams = [silent.ask(PREDICT, b"") for _ in range(6)]
        # Three have room, with the few bytes of each.
        eventually(lambda: silent.read(0.05) and silent.ended == set(streams[3:]))
        with stand.channel() as channel, pytest.raises(grpc.RpcError) as refused:
            call(channel, PREDICT)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert stand.sample("kongming_server_refused_total", reason="unread_answers") == 4.0
        for stream in streams[:3]:
            silent.allow(stream, 1 << 16)
        eventually(lambda: silent.read(0.05) and silent.ended == set(streams))
        with stand.channel() as channel:
            call(channel, PREDICT)
        silent.close()


def test_large_answers_over_http_are_counted_until_they_are_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # More than sockets hold.
    page = "x" * (24 << 20)

    async def answer(request: predictor_pb2.PredictRequest, context: object) -> object:
        return predictor_pb2.PredictResponse(request_id=page)

    def ask(address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=30)
        connection.sendall(
            b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 2\r\n\r\n{}"
        )
        return connection

    monkeypatch.setattr(unread_answers, "KNOWN_BYTES", 2 * len(page) - 1)
    with Stand(behaviours={"Predict": answer}) as stand:
        with ask(stand.http) as silent:
            assert silent.recv(12) == b"HTTP/1.1 200"
            with ask(stand.http) as second:
                assert second.recv(12) == b"HTTP/1.1 429"
            left = len(page)
            while left > 0:
                left -= len(silent.recv(1 << 20))
            eventually(lambda: not stand.guard.unread_answers.unread)
        with ask(stand.http) as third:
            assert third.recv(12) == b"HTTP/1.1 200"
        # What a client that left did not read no longer counts.
        eventually(lambda: not stand.guard.unread_answers.unread)
        # The log does not mention it either: that would have come before the next answer.
        with ask(stand.http) as last:
            assert last.recv(12) == b"HTTP/1.1 200"
    assert not [record for record in caplog.records if record.exc_info]
