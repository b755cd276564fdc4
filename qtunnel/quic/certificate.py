"""Certificates: reading PEM, and the check of a server by its certificate's fingerprint.

A fingerprint is the SHA-256 of the certificate in DER, 64 hex digits. It replaces the authorities' signature and
the name check, not the proof of the private key: TLS's CertificateVerify is checked either way.
"""

from __future__ import annotations

import hmac
import ssl
from hashlib import sha256
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates

from qtunnel.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

__all__ = [
    "check_authorities",
    "fingerprint_matches",
    "fingerprint_of",
    "load_certificate_chain",
    "load_private_key",
    "system_authorities",
]


def fingerprint_of(der: bytes) -> str:
    """Return the fingerprint of a certificate in DER: 64 lower-case hex digits."""
    return sha256(der).hexdigest()


def fingerprint_matches(der: bytes, expected: str) -> bool:
    """Return whether the certificate has that fingerprint; takes the same time for any wrong one."""
    return hmac.compare_digest(fingerprint_of(der).encode(), expected.lower().encode())


def load_certificate_chain(pem: bytes) -> list[Certificate]:
    """Return the certificates in a PEM text, in its order.

    Raises: ConfigError if there is none or one cannot be read.
    """
    try:
        return load_pem_x509_certificates(pem)
    except ValueError as exc:
        raise ConfigError(f"no certificate in PEM: {exc}", field="certificate") from exc


def load_private_key(pem: bytes) -> PrivateKeyTypes:
    """Return the private key in a PEM text.

    Raises: ConfigError if it cannot be read, is encrypted, or is of a kind TLS 1.3 servers cannot sign with.
    """
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as exc:
        raise ConfigError(f"no unencrypted private key in PEM: {exc}", field="private_key") from exc
    usable = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
    if not isinstance(key, usable):
        raise ConfigError(f"{type(key).__name__} cannot sign for TLS 1.3", field="private_key")
    if isinstance(key, ec.EllipticCurvePrivateKey) and not isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1):
        raise ConfigError(f"curve {key.curve.name} is not usable; take P-256 or P-384", field="private_key")
    return key


def system_authorities() -> tuple[str | None, str | None]:
    """Return the file and the directory of the authorities this system trusts; both None if it names none."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile, paths.capath


def check_authorities(cafile: str | None, cadata: bytes | None) -> None:
    """Check that certification authorities can be read, before a handshake fails for it.

    Raises: ConfigError saying which file and why.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=cafile, cadata=None if cadata is None else cadata.decode("ascii"))
    except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
        where = f"{cafile}: " if cafile is not None else ""
        raise ConfigError(f"{where}no certificates in PEM: {exc}", field="ca_file") from exc
