"""A store that takes nothing is said once, and once more when it takes records again."""

from __future__ import annotations

import logging

import pytest
from kongming_server.outage import Outage

from kongming.records.errors import InputError, StoreError


def test_one_line_when_it_begins_and_one_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    with caplog.at_level(logging.INFO):
        outage.succeeded()
        # What is wrong with a record says nothing of the store.
        outage.failed(InputError("is no record.", field="run"))
        assert outage.reason is None
        for _ in range(20):
            outage.failed(StoreError("database or disk is full"))
        assert outage.reason is not None
        assert "disk is full" in outage.reason
        for _ in range(5):
            outage.succeeded()
        assert outage.reason is None
        outage.failed(StoreError("database or disk is full"))
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "ERROR"]
    assert "20 writes" in caplog.messages[1]
