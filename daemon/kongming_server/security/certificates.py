"""Certificates: who holds one, and a private authority that makes them for trying TLS out."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kongming.records import moments
from kongming.records.errors import AccessError, InputError
from kongming_server.security.roles import Role
from kongming_server.security.tokens import FINGERPRINT_DIGITS

__all__ = ["Holder", "Written", "holder", "init_tls"]

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
ROLE_URI = "kongming:role/"
"""Before a role, in a URI among a client certificate's alternative names."""

_AUTHORITY = "ca"
_AUTHORITY_DAYS = 3650
_LONGEST_COMMON_NAME = 64
_SKEW = timedelta(minutes=10)
"""A certificate counts from so long ago: the clocks of other machines differ."""


class Holder(NamedTuple):
    """Holder of a certificate. ``role`` None where it names none, or more than one; ``fingerprint``
    the first 16 hexadecimal digits of its SHA-256; ``until`` in unix seconds."""

    name: str
    role: Role | None
    fingerprint: str
    until: float


@lru_cache(maxsize=16384)
def holder(certificate: bytes) -> Holder:
    """The holder of a certificate in PEM or DER that TLS has checked. The role is that of the URI
    ``kongming:role/ROLE`` among its alternative names, else of its organizational unit.

    Raises:
        AccessError: it cannot be read, or it is not made for clients (RFC 5280, clientAuth).
    """
    try:
        if certificate.startswith(b"-----BEGIN"):
            parsed = x509.load_pem_x509_certificate(certificate)
        else:
            parsed = x509.load_der_x509_certificate(certificate)
        subject = parsed.subject
        names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        units = {
            str(unit.value)
            for unit in subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
        }
        der = parsed.public_bytes(serialization.Encoding.DER)
        until = parsed.not_valid_after_utc.timestamp()
        uris = _uris(parsed)
        for_clients = _is_for_clients(parsed)
    except (ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension) as error:
        raise AccessError(
            "The client certificate cannot be read.", reason="unauthenticated"
        ) from error
    if not for_clients:
        raise AccessError(
            "The certificate is not made for clients.",
            reason="unauthenticated",
            hint="Its extended key usage must name clientAuth.",
        )
    # An authority that signs units as they are asked for may well check URIs, and what is named
    # in our own scheme is meant for us.
    named = {uri.removeprefix(ROLE_URI) for uri in uris if uri.startswith(ROLE_URI)} or units
    roles = [role for role in Role if role.value in named]
    if len(named) > 1 and named != units:
        roles = []
    fingerprint = hashlib.sha256(der).hexdigest()[:FINGERPRINT_DIGITS]
    return Holder(
        names[0] if names else fingerprint,
        roles[0] if len(roles) == 1 else None,
        fingerprint,
        until,
    )


@lru_cache(maxsize=4096)
def names_of(certificate: bytes) -> tuple[str, ...]:
    """The DNS names that a certificate in PEM or DER, which TLS has checked, is for."""
    try:
        if certificate.startswith(b"-----BEGIN"):
            parsed = x509.load_pem_x509_certificate(certificate)
        else:
            parsed = x509.load_der_x509_certificate(certificate)
        extension = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, x509.ExtensionNotFound):
        return ()
    return tuple(extension.value.get_values_for_type(x509.DNSName))


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return list(names.get_values_for_type(x509.UniformResourceIdentifier))


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage


@dataclass(frozen=True, slots=True)
class Written:
    """Files that ``init_tls`` wrote. ``names``: what the server's certificate is good for."""

    directory: Path
    files: tuple[Path, ...]
    names: tuple[str, ...]
    until: str


@dataclass(frozen=True, slots=True)
class _Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def init_tls(
    directory: Path,
    names: Sequence[str] = (),
    *,
    days: int = 365,
    renew: bool = False,
    agents: Sequence[str] = (),
) -> Written:
    """Make an authority, and certificates of the server and of one client for each role.

    ``names``: host names and addresses of the server next to those of loopback. ``days``: how long
    they are valid; the authority ten years. Keys are readable by their owner alone. ``renew``
    keeps the authority that is there and writes the rest again. ``agents``: names of nodes, each of
    which gets a certificate of its own, ``agent-NAME``; where there is an authority already it
    signs them, and nothing else is written.

    Raises:
        InputError: a name is none, files are in the way, or there is no authority to renew from.
        OSError: the directory cannot be written.
    """
    if not 1 <= days <= _AUTHORITY_DAYS:
        raise InputError(
            "is not allowed.", field="days", value=days, allowed=f"1 to {_AUTHORITY_DAYS}"
        )
    wanted = tuple(dict.fromkeys((*LOOPBACK_NAMES, *names)))
    alternatives = [_alternative(name) for name in wanted]
    for agent in agents:
        if not isinstance(_alternative(agent), x509.DNSName) or agent.startswith("*"):
            raise InputError(
                "is no name of a node.", field="agent", value=agent, allowed="a host name"
            )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    agents_alone = bool(agents) and (directory / f"{_AUTHORITY}.crt").exists()
    stems = [f"agent-{agent}" for agent in agents]
    if not agents_alone:
        stems += [_AUTHORITY, "server", *(f"client-{role}" for role in Role)]
    written: list[Path] = []
    if not renew:
        for stem in stems:
            for path in (directory / f"{stem}.crt", directory / f"{stem}.key"):
                if path.exists():
                    raise InputError(
                        f"{path} exists already.",
                        field="directory",
                        hint="Give --renew to make new certificates of the authority there, "
                        "or another directory.",
                    )
    if renew or agents_alone:
        authority = _read_pair(directory)
    else:
        authority = _authority(days=_AUTHORITY_DAYS)
        written += _write(directory, _AUTHORITY, authority)
    until = min(datetime.now(UTC) + timedelta(days=days), authority.certificate.not_valid_after_utc)
    if not agents_alone:
        server = _leaf(authority, "kongming-server", None, alternatives, until)
        written += _write(directory, "server", server)
        for role in Role:
            pair = _leaf(authority, f"kongming-{role}", role, [], until)
            written += _write(directory, f"client-{role}", pair)
    for agent in agents:
        pair = _leaf(authority, _common_name(agent), Role.AGENT, [x509.DNSName(agent)], until)
        written += _write(directory, f"agent-{agent}", pair)
    return Written(directory, tuple(written), wanted, moments.format(until, "seconds"))


def _authority(days: int) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "KONGMING private authority")])
    now = datetime.now(UTC)
    authority = (
        _builder(name, name, key, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _Pair(authority, key)


def _common_name(host: str) -> str:
    """A host's name; of one that is longer than a common name may be (RFC 5280) its first part and
    a digest, the same for each renewal."""
    if len(host) <= _LONGEST_COMMON_NAME:
        return host
    ending = f"-{hashlib.sha256(host.encode()).hexdigest()[:FINGERPRINT_DIGITS]}"
    return host[: _LONGEST_COMMON_NAME - len(ending)] + ending


def _leaf(
    authority: _Pair,
    name: str,
    role: Role | None,
    alternatives: Sequence[x509.GeneralName],
    until: datetime,
) -> _Pair:
    """A server's certificate for a role of None, else a client's."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if role is not None:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role.value))
        alternatives = [*alternatives, x509.UniformResourceIdentifier(f"{ROLE_URI}{role}")]
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if role is None else ExtendedKeyUsageOID.CLIENT_AUTH
    issuer = authority.certificate
    builder = (
        _builder(x509.Name(attributes), issuer.subject, key, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _Pair(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    labels = name.removeprefix("*.").split(".")
    if len(name) <= 253 and all(
        0 < len(label) <= 63
        and label.isascii()
        and label.replace("-", "").isalnum()
        and not label.startswith("-")
        and not label.endswith("-")
        for label in labels
    ):
        return x509.DNSName(name)
    raise InputError(
        "is not the name of a host.",
        field="name",
        value=name,
        allowed="a host name or an IP address",
    )


def _write(directory: Path, stem: str, pair: _Pair) -> list[Path]:
    key = pair.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    certificate = pair.certificate.public_bytes(serialization.Encoding.PEM)
    files = (
        (directory / f"{stem}.key", key, 0o600),
        (directory / f"{stem}.crt", certificate, 0o644),
    )
    for path, content, mode in files:
        # A key is never readable by others, not for a moment; and who reads during a renewal
        # finds the old file or the new one, whole.
        temporary = path.with_name(f".{path.name}.new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    return [path for path, _, _ in files]


def _read_pair(directory: Path) -> _Pair:
    try:
        certificate = x509.load_pem_x509_certificate((directory / f"{_AUTHORITY}.crt").read_bytes())
        key = serialization.load_pem_private_key(
            (directory / f"{_AUTHORITY}.key").read_bytes(), password=None
        )
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{directory} has no authority that can be read.",
            field="directory",
            hint="Leave out --renew to make a new one.",
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != certificate.public_key()
    ):
        raise InputError(
            f"{_AUTHORITY}.key in {directory} is not the key of {_AUTHORITY}.crt.",
            field="directory",
        )
    return _Pair(certificate, key)
