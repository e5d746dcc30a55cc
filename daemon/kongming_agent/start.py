"""The console script: it says so where the extra that the program needs is not installed."""

from __future__ import annotations

from kongming.processes import entry


def main() -> None:
    entry.start("kongming-agent", "kongming_agent.agent_command", "agent")
