"""The console script: it says so where the extra that the program needs is not installed."""

from __future__ import annotations

from kongming import process


def main() -> None:
    process.start("kongming-agent", "kongming_agent.agent_command", "agent")
