"""The console script: it says so where the extra that the program needs is not installed."""

from __future__ import annotations

from kongming.processes import entry


def main() -> None:
    entry.start("kongming-server", "kongming_server.commands.server_command", "server")
