"""Where the server may listen."""

from __future__ import annotations

import pytest
from kongming_server.commands.server_config import load
from kongming_server.configuration.settings import Security
from kongming_server.security import check_bind

from kongming.addresses import resolves_to_loopback
from kongming.records.errors import InputError

LOCAL = ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"]
BEYOND = [
    *("0.0.0.0:1", "[::]:1", ":1", "192.0.2.1:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"),
    *("no-such-host.invalid:1", "1.2.3.4.5:1", "0:1", "unix:/run/kongming"),
]


@pytest.mark.parametrize("address", LOCAL)
def test_loopback_needs_nothing(address: str) -> None:
    check_bind(address, Security(), "server.listen")


@pytest.mark.parametrize("address", BEYOND)
def test_beyond_loopback_needs_tls_or_insecure(address: str) -> None:
    with pytest.raises(InputError) as refused:
        check_bind(address, Security(), "server.listen")
    assert refused.value.field == "server.listen"
    assert "init-tls" in (refused.value.hint or "")
    assert "--insecure" in (refused.value.hint or "")
    # Tokens over plaintext can be read on the way.
    with pytest.raises(InputError):
        check_bind(address, Security(authenticate="always"), "server.listen")
    check_bind(address, Security(insecure=True), "server.listen")
    check_bind(address, Security(certificate="a", key="b"), "server.listen")


@pytest.mark.parametrize("address", ["7400", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:"])
def test_what_is_no_address_is_not_taken_for_one_beyond_loopback(address: str) -> None:
    with pytest.raises(InputError, match=r"is not an address\. Found .*HOST:PORT"):
        check_bind(address, Security(), "server.listen")


def test_with_tls_everybody_must_say_who_they_are() -> None:
    assert Security(certificate="a", key="b").authenticates
    assert not Security().authenticates
    assert not Security(insecure=True).authenticates
    assert Security(authenticate="always").authenticates


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"security.certificate": "a"}, "security.key"),
        ({"security.key": "a"}, "security.certificate"),
        ({"security.client_ca": "a"}, "security.client_ca"),
    ],
)
def test_half_of_tls_is_refused(options: dict[str, str], field: str) -> None:
    with pytest.raises(InputError) as refused:
        load(None, options)
    assert refused.value.field == field


def test_an_ipv6_zone_is_no_address_of_its_own() -> None:
    assert resolves_to_loopback("::1%lo")
    assert not resolves_to_loopback("fe80::1%eth0")
