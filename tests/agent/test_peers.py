from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from kongming_agent.peers import GREETING, Responder, time_peer

from kongming.errors import MeasurementError


@pytest.fixture
def responder() -> Iterator[Responder]:
    made = Responder("127.0.0.1:0")
    yield made
    made.close()


def test_round_trip_and_bandwidth_are_timed_within_bytes_and_time(responder: Responder) -> None:
    timing = time_peer(responder.address, peer_node_id="n2", most_bytes=4 << 20, most_s=1.0)
    assert timing.peer_node_id == "n2"
    assert 0.0 < timing.round_trip_s < 0.5
    assert timing.bytes_per_s > 0.0
    assert 0 < timing.sent_bytes <= 4 << 20
    assert timing.elapsed_s < 3.0


def test_time_ends_it_as_well_as_bytes(responder: Responder) -> None:
    timing = time_peer(responder.address, most_bytes=1 << 40, most_s=0.1)
    assert timing.elapsed_s < 2.0


def test_what_is_no_agent_gets_a_greeting_and_nothing_more() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    got = bytearray()

    def answer() -> None:
        caller, _ = listener.accept()
        with caller:
            caller.sendall(b"HTTP/1.1 400 Bad")
            caller.settimeout(2.0)
            while data := caller.recv(1000):
                got.extend(data)

    thread = threading.Thread(target=answer)
    thread.start()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(MeasurementError, match="no agent"):
        time_peer(address, most_bytes=1 << 20, most_s=0.2)
    thread.join()
    listener.close()
    assert bytes(got) == GREETING


def test_a_peer_that_is_away_is_an_error_in_words() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    with pytest.raises(MeasurementError, match=address):
        time_peer(address, most_bytes=1 << 20, most_s=0.2)


def test_a_caller_that_talks_nonsense_is_hung_up_on(responder: Responder) -> None:
    host, _, port = responder.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5.0) as caller:
        caller.sendall(b"x" * len(GREETING))
        assert caller.recv(100) == b""
    with socket.create_connection((host, int(port)), timeout=5.0) as caller:
        caller.sendall(GREETING)
        assert caller.recv(len(GREETING)) == GREETING
        caller.sendall(b"?")
        assert caller.recv(100) == b""


def test_no_more_than_a_few_callers_at_once(responder: Responder) -> None:
    host, _, port = responder.address.rpartition(":")
    waiting = []
    for _ in range(2):
        caller = socket.create_connection((host, int(port)), timeout=5.0)
        caller.sendall(GREETING)
        assert caller.recv(len(GREETING)) == GREETING
        waiting.append(caller)
    with pytest.raises(MeasurementError):
        time_peer(responder.address, most_bytes=1 << 16, most_s=0.2)
    for caller in waiting:
        caller.close()
