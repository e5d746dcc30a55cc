"""Notification of systemd (sd_notify): ready, alive, stopping. Does nothing without systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends to the socket ``NOTIFY_SOCKET``; does nothing without it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        # An abstract socket is written with an @ and begins with a zero byte.
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        micros = environment.get("WATCHDOG_USEC", "")
        meant = environment.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.watchdog_s = int(micros) / 1e6 if micros.isdigit() and meant else None
        """Return the interval in which systemd expects ``alive``, in seconds; None for never."""

    def ready(self, status: str = "") -> None:
        self._send("READY=1" + (f"\nSTATUS={status}" if status else ""))

    def alive(self, status: str = "") -> None:
        self._send("WATCHDOG=1" + (f"\nSTATUS={status}" if status else ""))

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.connect(self._address)
                sender.sendall(text.encode())
        except OSError:
            # A missing receiver is ignored.
            return
