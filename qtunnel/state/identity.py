"""What makes a server that server: its key, its certificate, and a secret only it knows.

On disk: identity/certificate.pem and identity/private_key.pem (made together, or not at all), and secret, from
which the keys of stateless resets and Retry are derived. Losing the first two means every client joins again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from qtunnel.errors import ConfigError, StateError
from qtunnel.state.join_link import JoinLink
from qtunnel.state.private_file import ensure_private_directory, read_private, write_private

__all__ = [
    "ServerIdentity",
    "certificate_covers",
    "certificate_fingerprint",
    "certificate_names",
    "generate_server_name",
    "kept_server_name",
    "load_or_create_identity",
    "load_secret",
    "make_identity",
    "operator_identity",
]

SECRET_BYTES: Final = 32
LIFETIME: Final = timedelta(days=20 * 365 + 5)
"""Clients trust the fingerprint, not a date: a certificate that runs out would only lock everybody out."""
CLOCK_SKEW: Final = timedelta(days=1)
MAX_PEM: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """A server's certificate chain and private key in PEM, and its secret of 32 random bytes."""

    certificate_pem: bytes
    private_key_pem: bytes = field(repr=False)
    secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate in DER, 64 hex digits."""
        return certificate_fingerprint(self.certificate_pem)

    @property
    def server_name(self) -> str:
        """The first name the certificate is made for; what clients send as SNI."""
        certificate = x509.load_pem_x509_certificate(self.certificate_pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return names.get_values_for_type(x509.DNSName)[0]

    def join_link(self, host: str, port: int, user: str, token: str) -> JoinLink:
        """Return the link with which a client of this user joins; host and port as clients reach the server."""
        return JoinLink(
            host=host,
            port=port,
            server_name=self.server_name,
            fingerprint=self.fingerprint,
            user=user,
            token=token,
        )


def make_identity(state: Path, *, server_name: str) -> ServerIdentity:
    """Return the identity kept in a directory, made there at the first call; for servers inside applications.

    Raises: StateError, ConfigError as load_or_create_identity does.
    """
    return load_or_create_identity(state, server_name=server_name, now=datetime.now(UTC))


def generate_server_name() -> str:
    """Return a name that means nothing and resolves nowhere (RFC 6761 §6.4), to be sent as SNI."""
    return f"{secrets.token_hex(6)}.qtunnel.invalid"


def load_or_create_identity(state: Path, *, server_name: str, now: datetime) -> ServerIdentity:
    """Return the server's own identity, made at the first call.

    server_name: the name the certificate is made for. now: aware, for the certificate's dates.

    Raises:
        StateError: files are damaged, or one of the pair is missing.
        ConfigError: the certificate that exists is for another name.
    """
    directory = state / "identity"
    if not directory.exists():
        _create(directory, server_name, now)
    certificate = read_private(directory / "certificate.pem", max_bytes=MAX_PEM)
    key = read_private(directory / "private_key.pem", max_bytes=MAX_PEM)
    if certificate is None or key is None:
        missing = "certificate.pem" if certificate is None else "private_key.pem"
        raise StateError(
            f"{directory} lacks {missing}. Restore it from a backup, or remove {directory}: "
            "a new identity is made, and every client must join again"
        )
    _check_pair(certificate, key, StateError(f"{directory} holds a certificate and a key that are not a pair"))
    if not certificate_covers(certificate, server_name):
        raise ConfigError(
            f"{server_name!r} is not the name in {directory}/certificate.pem. Leave the name as it was, or "
            f"remove {directory}: a new identity is made, and every client must join again",
            field="server_name",
        )
    return ServerIdentity(certificate, key, load_secret(state))


def operator_identity(state: Path, *, certificate: Path, private_key: Path, server_name: str) -> ServerIdentity:
    """Return an identity with the operator's own certificate chain and key; the CAs vouch for it.

    Raises:
        ConfigError: a file cannot be read, they are no pair, or the certificate is for another name.
    """
    chain = _read_operator_file(certificate, "certificate")
    key = _read_operator_file(private_key, "private_key")
    _check_pair(
        chain,
        key,
        ConfigError(
            f"{private_key} is not the key of the first certificate in {certificate}", field="private_key"
        ),
    )
    if not certificate_covers(chain, server_name):
        raise ConfigError(f"{server_name!r} is not a name in {certificate}", field="server_name")
    return ServerIdentity(chain, key, load_secret(state))


def load_secret(state: Path) -> bytes:
    """Return the server's secret, 32 bytes, made at the first call.

    Raises:
        StateError: the file has another length.
    """
    path = state / "secret"
    secret = read_private(path, max_bytes=SECRET_BYTES)
    if secret is None:
        secret = secrets.token_bytes(SECRET_BYTES)
        write_private(path, secret)
    if len(secret) != SECRET_BYTES:
        raise StateError(f"{path} has {len(secret)} bytes instead of {SECRET_BYTES}; remove it, a new one is made")
    return secret


def certificate_fingerprint(certificate_pem: bytes) -> str:
    """Return the SHA-256 of the first certificate's DER form, 64 hex digits.

    Raises:
        StateError: there is no certificate in it.
    """
    try:
        return x509.load_pem_x509_certificate(certificate_pem).fingerprint(hashes.SHA256()).hex()
    except ValueError as error:
        raise StateError("there is no certificate in PEM form") from error


def certificate_names(certificate_pem: bytes) -> list[str]:
    """Return the host names the first certificate is for, in its order; empty when there is no certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return []
    return extension.value.get_values_for_type(x509.DNSName)


def certificate_covers(certificate_pem: bytes, server_name: str) -> bool:
    """Tell whether the first certificate is for that host name, exactly or by one wildcard label."""
    name = server_name.lower()
    wildcard = f"*.{name.partition('.')[2]}"
    return any(known.lower() in (name, wildcard) for known in certificate_names(certificate_pem))


def kept_server_name(state: Path) -> str | None:
    """Return the name the server's own certificate is for, None when there is no such certificate (yet)."""
    certificate = read_private(state / "identity" / "certificate.pem", max_bytes=MAX_PEM)
    names = [] if certificate is None else certificate_names(certificate)
    return names[0] if names else None


def _create(directory: Path, server_name: str, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, server_name[:64])])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(server_name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    # Both files or neither: a directory is filled under another name, then renamed.
    temporary = directory.with_name(f".identity.{secrets.token_hex(4)}")
    ensure_private_directory(temporary)
    try:
        write_private(temporary / "certificate.pem", certificate.public_bytes(serialization.Encoding.PEM))
        write_private(
            temporary / "private_key.pem",
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )
        os.rename(temporary, directory)
    except OSError as error:
        raise StateError(f"{directory} cannot be made: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary)


def _read_operator_file(path: Path, field_name: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PEM + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", field=field_name) from error
    if len(data) > MAX_PEM:
        raise ConfigError(f"{path} is longer than {MAX_PEM} bytes", field=field_name)
    return data


def _check_pair(certificate_pem: bytes, key_pem: bytes, problem: StateError | ConfigError) -> None:
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        is_pair = key.public_key() == certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise problem from None  # the cause could quote key material
    if not is_pair:
        raise problem
