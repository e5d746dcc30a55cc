"""A PostgreSQL that is frozen, and acknowledges what it is sent all the same."""

from __future__ import annotations

import os
import signal

import pytest

from kongming.records.errors import StoreError
from kongming.store import Store
from kongming.store import connection as store_connection


def _freeze_within_transaction(store: Store) -> None:
    with store._reading() as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        assert isinstance(pid, int)
        # The kernel acknowledges for it, as the host does for a virtual machine that is paused.
        os.kill(pid, signal.SIGSTOP)
        try:
            connection.exec_driver_sql("SELECT 1")
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_frozen_server_is_an_error_and_then_served_again(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_connection, "GRACE_S", 0.2)
    with Store.open(postgres_store_url, statement_s=0.3) as store:
        with pytest.raises(StoreError, match="ended the connection") as met:
            _freeze_within_transaction(store)
        assert met.value.away
        assert store.agents() == []
