"""How a server is reached: what is refused before anything is sent, and TLS with a token."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kongming.addresses import is_loopback
from kongming.records.errors import InputError, UnavailableError
from kongming.rpc.channel import Connection, read_token
from kongming.rpc.client import RemoteService
from kongming.rpc.v1 import fleet_pb2, fleet_pb2_grpc
from tests.rpc.scripted import Answers, serving

NO_NODES: Answers = {"ListNodes": lambda request: fleet_pb2.ListNodesResponse()}


@pytest.mark.parametrize("target", ["", "host", "host:", ":7400", "host:0", "host:x", "::1:7400"])
def test_address_without_host_and_port_is_refused(target: str) -> None:
    with pytest.raises(InputError, match=r"HOST:PORT|IPv6"):
        Connection(target)


def test_url_is_refused_as_one() -> None:
    with pytest.raises(InputError, match=r"is a URL, not an address.*HOST:PORT"):
        Connection("http://127.0.0.1:7400")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
    ],
)
def test_loopback_is_what_never_leaves_the_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_token_is_not_sent_in_the_clear_beyond_loopback() -> None:
    with pytest.raises(InputError, match="--ca"):
        Connection("10.0.0.1:7400", token="secret")
    assert Connection("10.0.0.1:7400", token="secret", tls=True).secure
    assert Connection("127.0.0.1:7400", token="secret").loopback


def test_token_is_not_shown() -> None:
    assert "secret" not in repr(Connection("127.0.0.1:7400", token="secret"))


def test_certificate_and_key_come_together() -> None:
    with pytest.raises(InputError, match="cert"):
        Connection("127.0.0.1:7400", cert=Path("cert.pem"))


def test_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ca: cannot be read.*ca\.pem"):
        Connection("127.0.0.1:7400", ca=tmp_path / "ca.pem").open()
    (tmp_path / "ca.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(InputError, match="holds no certificate"):
        Connection("127.0.0.1:7400", ca=tmp_path / "ca.pem").open()


@pytest.mark.parametrize("text", ["", " \n", "two\nlines"])
def test_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(InputError, match="holds no token"):
        read_token(file)
    file.write_text(" kmt_abc\n")
    assert read_token(file) == "kmt_abc"


def test_a_token_that_others_can_read_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text("kmt_abc")
    for mode, warnings in ((0o600, 0), (0o640, 0), (0o644, 1)):
        file.chmod(mode)
        for _ in range(3):
            read_token(file)
        assert len([line for line in caplog.messages if str(file) in line]) == warnings


def test_token_reaches_the_server_over_loopback() -> None:
    with (
        serving(NO_NODES) as server,
        RemoteService(Connection(server.target, token="secret")) as service,
    ):
        assert service.nodes() == ()
        assert server.seen[0][2]["authorization"] == "Bearer secret"


def test_proxy_of_the_environment_is_not_asked_for_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving(NO_NODES) as server, RemoteService(Connection(server.target)) as service:
        assert service.nodes() == ()


def test_server_that_is_away_is_told_with_the_way_out() -> None:
    with serving(NO_NODES) as server:
        target = server.target
    with (
        RemoteService(Connection(target, timeout_s=5.0)) as service,
        pytest.raises(UnavailableError, match=f"No answer from {target}.*kongming-server"),
    ):
        service.nodes()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


class Authority:
    """A private authority and what it signs, as PEM."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder("authority", self._key)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def signed(self, common: str) -> tuple[bytes, bytes]:
        """A certificate for the loopback address, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = self._builder(common, key).add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _pem(key)

    def _builder(self, common: str, key: ec.EllipticCurvePrivateKey) -> Any:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(_name("authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def _server(authority: Authority, *, mutual: bool = False) -> grpc.ServerCredentials:
    certificate, key = authority.signed("server")
    return grpc.ssl_server_credentials(
        [(key, certificate)], authority.pem if mutual else None, require_client_auth=mutual
    )


def _files(folder: Path, authority: Authority) -> dict[str, Path]:
    certificate, key = authority.signed("client")
    files = {"ca": authority.pem, "cert": certificate, "key": key}
    paths = {name: folder / f"{name}.pem" for name in files}
    for name, path in paths.items():
        path.write_bytes(files[name])
    return paths


def test_tls_with_a_token(tmp_path: Path, authority: Authority) -> None:
    ca = _files(tmp_path, authority)["ca"]
    with (
        serving(NO_NODES, _server(authority)) as server,
        RemoteService(Connection(server.target, ca=ca, token="secret")) as service,
    ):
        assert service.nodes() == ()
        assert server.seen[0][2]["authorization"] == "Bearer secret"


def test_mutual_tls_needs_the_callers_certificate(tmp_path: Path, authority: Authority) -> None:
    files = _files(tmp_path, authority)
    with serving(NO_NODES, _server(authority, mutual=True)) as server:
        with RemoteService(
            Connection(server.target, ca=files["ca"], cert=files["cert"], key=files["key"])
        ) as service:
            assert service.nodes() == ()
        with (
            RemoteService(Connection(server.target, ca=files["ca"])) as stranger,
            pytest.raises(UnavailableError),
        ):
            stranger.nodes()


def test_server_of_another_authority_is_not_trusted(tmp_path: Path, authority: Authority) -> None:
    ca = _files(tmp_path, Authority())["ca"]
    with (
        serving(NO_NODES, _server(authority)) as server,
        RemoteService(Connection(server.target, ca=ca)) as service,
        pytest.raises(UnavailableError, match="--ca"),
    ):
        service.nodes()
    assert server.seen == []


def test_asyncio_channel_reaches_it_as_well(tmp_path: Path, authority: Authority) -> None:
    ca = _files(tmp_path, authority)["ca"]

    async def ask(connection: Connection) -> fleet_pb2.ListNodesResponse:
        async with connection.open_aio() as channel:
            return await fleet_pb2_grpc.FleetStub(channel).ListNodes(
                fleet_pb2.ListNodesRequest(), timeout=100
            )

    with serving(NO_NODES, _server(authority)) as server:
        answer = asyncio.run(ask(Connection(server.target, ca=ca, token="secret")))
        assert answer == fleet_pb2.ListNodesResponse()
        assert server.seen[0][2]["authorization"] == "Bearer secret"
