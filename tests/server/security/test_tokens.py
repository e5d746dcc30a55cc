"""Tokens: what is kept of them, what is accepted, and when they end."""

from __future__ import annotations

import asyncio
import hmac
import logging
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_server.security import tokens as module
from kongming_server.security.tokens import TokenBook, duration_s, issue

from kongming.records.errors import AccessError, InputError, StoreError
from kongming.store import StoredToken

NOW = 1_000_000.0


def book(*rows: StoredToken) -> TokenBook:
    loaded = TokenBook(lambda: rows)
    loaded.load()
    return loaded


def row(token: module.Issued, **changes: object) -> StoredToken:
    return replace(
        StoredToken(id=token.id, role="agent", secret_hash=token.digest, created_at=0.0), **changes
    )


def test_a_token_is_known_by_its_hash_alone() -> None:
    token = issue()
    stored = row(token)
    # The secret may hold the character between the parts.
    secret = token.text.split("_", 2)[2]
    assert len(secret) == 43
    assert secret not in repr(stored)
    assert token.text not in repr(token)
    assert book(stored).find(token.text, NOW) == stored


def test_two_tokens_have_nothing_in_common() -> None:
    first, second = issue(), issue()
    assert first.id != second.id
    assert first.text.split("_", 2)[2] != second.text.split("_", 2)[2]


def test_the_secret_of_one_token_does_not_open_another() -> None:
    first, second = issue(), issue()
    known = book(row(first), row(second))
    mixed = f"kongming_{first.id}_{second.text.split('_', 2)[2]}"
    with pytest.raises(AccessError, match="not known"):
        known.find(mixed, NOW)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"expires_at": NOW}, "expired"),
        ({"revoked_at": NOW - 1}, "revoked"),
        ({"role": "king"}, "role"),
    ],
)
def test_a_token_that_has_ended_says_so_to_its_holder(
    changes: dict[str, object], reason: str
) -> None:
    token = issue()
    with pytest.raises(AccessError, match=reason) as refused:
        book(row(token, **changes)).find(token.text, NOW)
    assert refused.value.reason == "unauthenticated"
    assert token.text not in str(refused.value)


def test_a_guess_does_not_learn_that_a_token_has_ended() -> None:
    token = issue()
    with pytest.raises(AccessError, match="not known"):
        book(row(token, revoked_at=1.0)).find(f"kongming_{token.id}_{'A' * 43}", NOW)


def test_a_token_counts_until_the_moment_of_its_expiry() -> None:
    token = issue()
    assert book(row(token, expires_at=NOW + 0.001)).find(token.text, NOW)


@given(st.text(max_size=200))
def test_any_other_text_is_not_known(text: str) -> None:
    with pytest.raises(AccessError) as refused:
        book(row(issue())).find(text, NOW)
    assert refused.value.reason == "unauthenticated"
    assert len(text) < 8 or text not in str(refused.value)


def test_hashes_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(first: str, second: str) -> bool:
        compared.append((first, second))
        return hmac.compare_digest(first, second)

    class Spy:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(module, "hmac", Spy)
    token = issue()
    known = book(row(token))
    known.find(token.text, NOW)
    for wrong in (f"kongming_{'0' * 12}_{'A' * 43}", f"kongming_{token.id}_{'A' * 43}", "x"):
        with pytest.raises(AccessError):
            known.find(wrong, NOW)
    # A known id, an unknown one and no token at all take the same way.
    assert len(compared) == 4
    assert {len(text) for pair in compared for text in pair} == {64}


def test_a_revocation_counts_and_an_outage_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    token = issue()
    rows: list[StoredToken] = [row(token)]
    away = False
    refused = 0

    def source() -> list[StoredToken]:
        nonlocal refused
        if away:
            refused += 1
            raise StoreError("The store is away.")
        return list(rows)

    async def live() -> None:
        nonlocal away
        known = TokenBook(source)
        await known.refresh()
        refreshing = asyncio.create_task(known.keep_fresh(0.005))
        away = True
        while refused < 3:
            await asyncio.sleep(0.005)
        assert known.find(token.text, NOW)
        rows[0] = row(token, revoked_at=1.0)
        away = False
        with suppress(AccessError):
            while known.find(token.text, NOW):
                await asyncio.sleep(0.005)
        refreshing.cancel()

    with caplog.at_level(logging.WARNING):
        asyncio.run(live())
    assert sum("could not be read" in line for line in caplog.messages) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("12h", 43200), ("30d", 2592000), ("1w", 604800)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "0d", "30", "d", "-1d", "1.5h", "1y", "9999999d", "٣d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InputError) as refused:
        duration_s(text)
    assert refused.value.field == "expires"
