"""init-tls, and TLS with what it makes: over gRPC and over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import ssl
import stat
from datetime import datetime
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from kongming_server.configuration.settings import Security
from kongming_server.security import Role
from kongming_server.security.certificates import holder, init_tls, names_of
from kongming_server.security.credentials import http_ssl
from kongming_server.security.tokens import issue

from kongming.records.errors import AccessError, InputError
from kongming.rpc.errors import from_rpc_error
from kongming.store import StoredToken
from tests.server.stand import Stand, call

PREDICT = "/kongming.rpc.v1.Predictor/Predict"
REPORT = "/kongming.rpc.v1.Fleet/Report"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    init_tls(directory, ["node-7.example", "192.0.2.7"])
    return directory


def security(directory: Path, *, mutual: bool = False) -> Security:
    return Security(
        certificate=str(directory / "server.crt"),
        key=str(directory / "server.key"),
        client_ca=str(directory / "ca.crt") if mutual else "",
    )


def secure(stand: Stand, directory: Path, client: str | None = None) -> grpc.Channel:
    root = (directory / "ca.crt").read_bytes()
    if client is None:
        return grpc.secure_channel(stand.grpc, grpc.ssl_channel_credentials(root))
    key, chain = ((directory / f"{client}.{end}").read_bytes() for end in ("key", "crt"))
    return grpc.secure_channel(stand.grpc, grpc.ssl_channel_credentials(root, key, chain))


def https(stand: Stand, directory: Path, client: str | None = None) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    if client is not None:
        context.load_cert_chain(directory / f"{client}.crt", directory / f"{client}.key")
    return http.client.HTTPSConnection(stand.http, context=context, timeout=100)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_keys_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written = init_tls(tmp_path / "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    keys = [path for path in written.files if path.suffix == ".key"]
    assert len(keys) == 2 + len(Role)
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        path.name for path in written.files
    )


def test_what_certificates_are_good_for(tls: Path) -> None:
    server = certificate(tls / "server.crt")
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "node-7.example"]
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "::1", "192.0.2.7"]
    authority = certificate(tls / "ca.crt")
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    for name, purpose in [("server", ExtendedKeyUsageOID.SERVER_AUTH)] + [
        (f"client-{role}", ExtendedKeyUsageOID.CLIENT_AUTH) for role in Role
    ]:
        leaf = certificate(tls / f"{name}.crt")
        leaf.verify_directly_issued_by(authority)
        assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
            purpose
        ]
        assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize("role", list(Role))
def test_the_role_is_in_the_certificate(tls: Path, role: Role) -> None:
    pem = (tls / f"client-{role}.crt").read_bytes()
    identity = holder(pem)
    assert (identity.name, identity.role) == (f"kongming-{role}", role)
    assert identity.until == certificate(tls / f"client-{role}.crt").not_valid_after_utc.timestamp()
    assert holder(ssl.PEM_cert_to_DER_cert(pem.decode())) == identity


NAMES = x509.SubjectAlternativeName
CLIENTS = ExtendedKeyUsageOID.CLIENT_AUTH


def certified(
    tls: Path, units: list[str], uris: list[str], usage: list[x509.ObjectIdentifier]
) -> bytes:
    """A client's certificate as another authority might write it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, "somebody")]
    subject += [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit) for unit in units]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(certificate(tls / "ca.crt").subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1))
        .not_valid_after(datetime(2100, 1, 1))
    )
    if uris:
        named = NAMES([x509.UniformResourceIdentifier(uri) for uri in uris])
        builder = builder.add_extension(named, critical=False)
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("units", "uris", "role"),
    [
        (["operator"], [], Role.OPERATOR),
        ([], ["kongming:role/agent"], Role.AGENT),
        # The URI counts, and not the unit next to it, which others may have chosen.
        (["operator"], ["kongming:role/agent"], Role.AGENT),
        (["operator"], ["spiffe://example/agent", "kongming:role/monitor"], Role.MONITOR),
        (["operator"], ["spiffe://example/agent"], Role.OPERATOR),
        (["operator"], ["kongming:role/king"], None),
        (["operator"], ["kongming:role/agent", "kongming:role/operator"], None),
        (["operator"], ["kongming:role/agent", "kongming:role/king"], None),
        (["agent", "operator"], [], None),
        (["Agent"], [], None),
        ([], [], None),
    ],
)
def test_a_role_is_named_by_a_uri_or_else_by_the_unit(
    tls: Path, units: list[str], uris: list[str], role: Role | None
) -> None:
    assert holder(certified(tls, units, uris, [CLIENTS]))[1] == role


@pytest.mark.parametrize("usage", [[], [ExtendedKeyUsageOID.SERVER_AUTH]])
def test_a_certificate_that_is_not_made_for_clients_names_nobody(
    tls: Path, usage: list[x509.ObjectIdentifier]
) -> None:
    with pytest.raises(AccessError, match="not made for clients"):
        holder(certified(tls, ["operator"], ["kongming:role/operator"], usage))


def test_a_node_may_have_a_longer_name_than_a_common_name(tmp_path: Path) -> None:
    names = [f"{'n' * 60}.{letter * 10}.example" for letter in "ab"]
    init_tls(tmp_path, agents=names)
    files = [tmp_path / f"agent-{name}.crt" for name in names]
    holders = [holder(file.read_bytes()) for file in files]
    assert [names_of(file.read_bytes()) for file in files] == [(name,) for name in names]
    assert len({shown.name for shown in holders}) == 2
    assert all(len(shown.name) == 64 for shown in holders)
    init_tls(tmp_path, agents=names, renew=True)
    assert [holder(file.read_bytes()).name for file in files] == [shown.name for shown in holders]


def test_each_node_gets_a_certificate_of_its_own(tmp_path: Path) -> None:
    first = init_tls(tmp_path, agents=["node-1"])
    assert {"ca.key", "server.key", "agent-node-1.key"} <= {path.name for path in first.files}
    contents = {path: path.read_bytes() for path in first.files}
    second = init_tls(tmp_path, agents=["node-2", "node-3.example"])
    assert sorted(path.name for path in second.files) == [
        *("agent-node-2.crt", "agent-node-2.key"),
        *("agent-node-3.example.crt", "agent-node-3.example.key"),
    ]
    assert {path: path.read_bytes() for path in contents} == contents
    holders = [holder((tmp_path / f"agent-node-{n}.crt").read_bytes()) for n in (1, 2)]
    assert [(identity.name, identity.role) for identity in holders] == [
        ("node-1", Role.AGENT),
        ("node-2", Role.AGENT),
    ]
    certificate(tmp_path / "agent-node-2.crt").verify_directly_issued_by(
        certificate(tmp_path / "ca.crt")
    )
    with pytest.raises(InputError, match="exists"):
        init_tls(tmp_path, agents=["node-4", "node-2"])
    assert not (tmp_path / "agent-node-4.crt").exists()
    renewed = init_tls(tmp_path, agents=["node-2"], renew=True)
    assert [path.stem for path in renewed.files] == ["agent-node-2"] * 2
    for wrong in ("*.example", "10.0.0.1", "../x", ""):
        with pytest.raises(InputError):
            init_tls(tmp_path, agents=[wrong])


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\n"])
def test_what_is_no_certificate_names_nobody(content: bytes) -> None:
    with pytest.raises(AccessError):
        holder(content)


def test_nothing_is_overwritten(tls: Path) -> None:
    before = (tls / "ca.key").read_bytes()
    with pytest.raises(InputError, match="exists") as refused:
        init_tls(tls)
    assert "--renew" in (refused.value.hint or "")
    assert (tls / "ca.key").read_bytes() == before


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 64, "ü.example", "a..b", "1.2.3.4/8"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as refused:
        init_tls(tmp_path / "never", [name])
    assert refused.value.field == "name"
    assert not (tmp_path / "never").exists()


def test_a_token_over_tls(tls: Path) -> None:
    token = issue()
    rows = [StoredToken(token.id, "scheduler", token.digest, created_at=0.0)]
    with Stand(security(tls), tokens=lambda: rows) as stand, secure(stand, tls) as channel:
        call(channel, PREDICT, token=token.text)
        with pytest.raises(grpc.RpcError) as refused:
            call(channel, PREDICT)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as refused:
            call(channel, REPORT, token=token.text)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_client_certificate_has_its_role(tls: Path) -> None:
    with Stand(security(tls, mutual=True)) as stand:
        with secure(stand, tls, "client-scheduler") as channel:
            call(channel, PREDICT)
            with pytest.raises(grpc.RpcError) as refused:
                call(channel, REPORT)
            error = from_rpc_error(refused.value)
            assert isinstance(error, AccessError)
            assert error.reason == "forbidden"
        with secure(stand, tls, "client-agent") as channel:
            call(channel, REPORT)
        # A bad token is not made good by a certificate.
        with secure(stand, tls, "client-operator") as channel:
            call(channel, REPORT)
            with pytest.raises(grpc.RpcError) as refused:
                call(channel, REPORT, token=issue().text)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_without_a_certificate_of_the_authority_there_is_no_connection(
    tls: Path, tmp_path: Path
) -> None:
    init_tls(tmp_path)  # another authority
    shutil.copy(tls / "ca.crt", tmp_path / "ca.crt")
    with Stand(security(tls, mutual=True)) as stand:
        for channel in (
            secure(stand, tls),
            secure(stand, tmp_path, "client-operator"),
            secure(stand, tls, "server"),  # no client's certificate
            grpc.insecure_channel(stand.grpc),
        ):
            with channel, pytest.raises(grpc.RpcError) as refused:
                call(channel, PREDICT, timeout=30)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not stand.calls


def test_the_client_refuses_a_server_of_another_authority(tls: Path, tmp_path: Path) -> None:
    init_tls(tmp_path)
    with Stand(security(tls)) as stand:
        with secure(stand, tmp_path) as channel, pytest.raises(grpc.RpcError) as refused:
            call(channel, PREDICT, timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(ssl.SSLCertVerificationError):
            https(stand, tmp_path).request("GET", "/healthz")


def test_http_knows_the_same_callers(tls: Path) -> None:
    body = json.dumps({"questions": []})
    headers = {"Content-Type": "application/json"}
    with Stand(security(tls, mutual=True)) as stand:
        for client, path, status in (
            (None, "/healthz", 200),
            (None, "/metrics", 401),
            (None, "/v1/predict", 401),
            ("client-agent", "/v1/predict", 403),
            ("client-scheduler", "/v1/predict", 200),
            ("client-monitor", "/v1/predict", 403),
            ("client-monitor", "/metrics", 200),
            ("client-operator", "/metrics", 200),
        ):
            connection = https(stand, tls, client)
            if path.startswith("/v1"):
                connection.request("POST", path, body, headers)
            else:
                connection.request("GET", path)
            answer = connection.getresponse()
            assert (path, answer.status) == (path, status), answer.read()
            # Who shows no certificate may on the next connection.
            assert answer.will_close == (status == 401)
            connection.close()


@pytest.mark.parametrize("which", ["grpc", "http"])
def test_old_tls_is_refused(tls: Path, which: str) -> None:
    context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with Stand(security(tls)) as stand:
        address = stand.grpc if which == "grpc" else stand.http
        connection = http.client.HTTPSConnection(address, context=context, timeout=100)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            connection.connect()
        modern = ssl.create_default_context(cafile=str(tls / "ca.crt"))
        modern.set_alpn_protocols(["h2"])
        connection = http.client.HTTPSConnection(address, context=modern, timeout=100)
        connection.connect()
        assert connection.sock.version() == "TLSv1.3"
        connection.close()
        # Over HTTP, sessions of 1.2 would be resumed without a certificate.
        modern.maximum_version = ssl.TLSVersion.TLSv1_2
        connection = http.client.HTTPSConnection(address, context=modern, timeout=100)
        if which == "grpc":
            connection.connect()
            assert connection.sock.version() == "TLSv1.2"
            connection.close()
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                connection.connect()


def test_renewed_certificates_count_without_a_restart(tmp_path: Path) -> None:
    init_tls(tmp_path, days=10)
    server = tmp_path / "server.crt"

    def served() -> set[str]:
        certificates = set()
        for address in (stand.grpc, stand.http):
            host, _, port = address.rpartition(":")
            certificates.add(ssl.get_server_certificate((host, int(port))).strip())
        return certificates

    with Stand(security(tmp_path)) as stand:
        old = server.read_text().strip()
        assert served() == {old}
        init_tls(tmp_path, ["another.example"], renew=True)
        assert server.read_text().strip() != old
        assert served() == {server.read_text().strip()}
        # Half of a renewal, or a damaged one: the last good ones stay.
        last_good = server.read_text().strip()
        server.write_text("damaged")
        assert served() == {last_good}


def test_an_exchanged_authority_counts_for_those_who_had_a_connection(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    init_tls(ours)
    init_tls(theirs)
    context = ssl.create_default_context(cafile=str(ours / "ca.crt"))
    context.load_cert_chain(ours / "client-operator.crt", ours / "client-operator.key")

    def status(session: ssl.SSLSession | None) -> tuple[int, ssl.SSLSession | None, bool]:
        host, _, port = stand.http.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=100) as plain,
            context.wrap_socket(plain, server_hostname=host, session=session) as connection,
        ):
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
            if not answer:
                raise ConnectionError("closed without an answer")
            return int(answer.split()[1]), connection.session, bool(connection.session_reused)

    with Stand(security(ours, mutual=True)) as stand:
        code, session, _ = status(None)
        assert code == 200
        code, _, reused = status(session)
        assert (code, reused) == (200, False)
        shutil.copy(theirs / "ca.crt", ours / "ca.crt")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            status(session)


def test_renewing_keeps_the_authority(tmp_path: Path) -> None:
    init_tls(tmp_path)
    authority = (tmp_path / "ca.crt").read_bytes()
    written = init_tls(tmp_path, renew=True)
    assert (tmp_path / "ca.crt").read_bytes() == authority
    assert not [path for path in written.files if path.stem == "ca"]
    certificate(tmp_path / "server.crt").verify_directly_issued_by(certificate(tmp_path / "ca.crt"))
    (tmp_path / "ca.key").write_text("damaged")
    with pytest.raises(InputError, match="authority"):
        init_tls(tmp_path, renew=True)


@pytest.mark.parametrize("name", ["certificate", "client_ca"])
def test_a_file_that_is_no_certificate_is_named(tls: Path, tmp_path: Path, name: str) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    settings = security(tls, mutual=True)
    for path in (broken, tmp_path / "absent.pem"):
        values = {key: getattr(settings, key) for key in ("certificate", "key", "client_ca")}
        with pytest.raises(InputError) as refused:
            http_ssl(Security(**(values | {name: str(path)})))
        assert refused.value.field == f"security.{name}"
        assert str(path) in refused.value.message
