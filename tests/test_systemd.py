from __future__ import annotations

import socket
from pathlib import Path

from kongming.processes.systemd import Notifier


def test_systemd_is_notified(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000"})
        assert notifier.watchdog_s == 30.0
        notifier.ready("probing")
        notifier.alive()
        notifier.stopping()
        messages = [listener.recv(200) for _ in range(3)]
    assert messages == [b"READY=1\nSTATUS=probing", b"WATCHDOG=1", b"STOPPING=1"]


def test_an_abstract_socket_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0kongming-agent-test")
        Notifier({"NOTIFY_SOCKET": "@kongming-agent-test"}).ready()
        assert listener.recv(100) == b"READY=1"


def test_without_systemd_or_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).ready()
    gone = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_PID": "1"})
    gone.alive()
    assert gone.watchdog_s is None
