"""A server that is not configured answers as a store does."""

from __future__ import annotations

from kongming_server.commands import server_config as config

from kongming.engine.settings import Settings


def test_defaults_of_the_server_are_those_of_the_engine() -> None:
    fleet = config.load().fleet
    assert (fleet.fingerprint_ttl_s, fleet.silent_after_s) == (
        Settings().ttl_s,
        Settings().silent_after_s,
    )
