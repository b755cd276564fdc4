"""Certificates and keys in PEM, and fingerprints."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from qtunnel.errors import ConfigError
from qtunnel.quic.certificate import (
    check_authorities,
    fingerprint_matches,
    fingerprint_of,
    load_certificate_chain,
    load_private_key,
    system_authorities,
)
from tests.sim.quic_pair import certificate


def test_a_fingerprint_is_the_sha_256_of_the_der() -> None:
    der = certificate()[2]
    assert fingerprint_of(der) == sha256(der).hexdigest()
    assert fingerprint_matches(der, fingerprint_of(der))
    assert fingerprint_matches(der, fingerprint_of(der).upper())


@pytest.mark.parametrize("wrong", ["", "00" * 32, "not hex", "f" * 63])
def test_any_other_text_does_not_match(wrong: str) -> None:
    assert not fingerprint_matches(certificate()[2], wrong)


def test_a_chain_is_read_in_order() -> None:
    first, second = certificate("a.test")[0], certificate("b.test")[0]
    names = [each.subject.rfc4514_string() for each in load_certificate_chain(first + b"\n" + second)]
    assert names == ["CN=a.test", "CN=b.test"]


@pytest.mark.parametrize(
    "pem", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_a_clear_error(pem: bytes) -> None:
    with pytest.raises(ConfigError, match=r"certificate: no certificate in PEM"):
        load_certificate_chain(pem)


def test_a_private_key_is_read() -> None:
    assert isinstance(load_private_key(certificate()[1]), ec.EllipticCurvePrivateKey)


def test_keys_that_cannot_be_used_are_clear_errors() -> None:
    encrypted = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    plain = [
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        for key in (
            ec.generate_private_key(ec.SECP521R1()),
            x25519.X25519PrivateKey.generate(),
            dsa.generate_private_key(1024),
        )
    ]
    for pem in (encrypted, b"nothing", *plain):
        with pytest.raises(ConfigError, match="private_key"):
            load_private_key(pem)


def test_authorities_that_cannot_be_read_are_clear_errors(tmp_path: Path) -> None:
    check_authorities(None, certificate()[0])
    with pytest.raises(ConfigError, match="ca_file: "):
        check_authorities(None, b"nothing")
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        check_authorities(str(tmp_path / "missing.pem"), None)


def test_the_system_names_its_authorities_or_none() -> None:
    for path in system_authorities():
        assert path is None or Path(path).exists()
