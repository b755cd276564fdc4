"""A server's identity: made once, kept, checked."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from qtunnel.errors import ConfigError, StateError
from qtunnel.state.identity import (
    certificate_covers,
    certificate_fingerprint,
    certificate_names,
    generate_server_name,
    kept_server_name,
    load_or_create_identity,
    load_secret,
    operator_identity,
)

NOW = datetime(2026, 12, 1, tzinfo=UTC)
NAME = "a1b2.qtunnel.invalid"


def test_the_first_call_makes_what_later_calls_return(tmp_path: Path) -> None:
    made = load_or_create_identity(tmp_path, server_name=NAME, now=NOW)
    again = load_or_create_identity(tmp_path, server_name=NAME, now=NOW + timedelta(days=900))
    assert made == again
    assert kept_server_name(tmp_path) == NAME
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert sorted(path.name for path in files) == ["certificate.pem", "private_key.pem", "secret"]


def test_the_certificate_is_p256_for_the_name_and_lasts_twenty_years(tmp_path: Path) -> None:
    identity = load_or_create_identity(tmp_path, server_name=NAME, now=NOW)
    certificate = x509.load_pem_x509_certificate(identity.certificate_pem)
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert certificate_names(identity.certificate_pem) == [NAME]
    assert certificate.not_valid_before_utc < NOW
    assert certificate.not_valid_after_utc >= NOW + timedelta(days=20 * 365)
    assert certificate_fingerprint(identity.certificate_pem) == certificate.fingerprint(hashes.SHA256()).hex()


def test_two_servers_share_nothing(tmp_path: Path) -> None:
    first = load_or_create_identity(tmp_path / "1", server_name=NAME, now=NOW)
    second = load_or_create_identity(tmp_path / "2", server_name=NAME, now=NOW)
    assert first.secret != second.secret
    assert first.private_key_pem != second.private_key_pem


def test_key_and_secret_are_not_in_the_repr(tmp_path: Path) -> None:
    identity = load_or_create_identity(tmp_path, server_name=NAME, now=NOW)
    assert "PRIVATE KEY" not in repr(identity)
    assert repr(identity.secret) not in repr(identity)


@pytest.mark.parametrize("missing", ["certificate.pem", "private_key.pem"])
def test_half_an_identity_is_refused_and_not_replaced(tmp_path: Path, missing: str) -> None:
    load_or_create_identity(tmp_path, server_name=NAME, now=NOW)
    (tmp_path / "identity" / missing).unlink()
    with pytest.raises(StateError, match=f"lacks {missing}"):
        load_or_create_identity(tmp_path, server_name=NAME, now=NOW)


def test_a_damaged_identity_is_refused(tmp_path: Path) -> None:
    load_or_create_identity(tmp_path, server_name=NAME, now=NOW)
    path = tmp_path / "identity" / "private_key.pem"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StateError, match="not a pair"):
        load_or_create_identity(tmp_path, server_name=NAME, now=NOW)


def test_another_name_than_the_certificates_is_refused(tmp_path: Path) -> None:
    load_or_create_identity(tmp_path, server_name=NAME, now=NOW)
    with pytest.raises(ConfigError, match="every client must join again"):
        load_or_create_identity(tmp_path, server_name="other.example", now=NOW)


def test_a_secret_of_another_length_is_refused(tmp_path: Path) -> None:
    assert len(load_secret(tmp_path)) == 32
    (tmp_path / "secret").write_bytes(b"short")
    with pytest.raises(StateError, match="5 bytes instead of 32"):
        load_secret(tmp_path)


def operator_files(tmp_path: Path, name: str = NAME) -> tuple[Path, Path]:
    load_or_create_identity(tmp_path / name, server_name=name, now=NOW)
    directory = tmp_path / name / "identity"
    return directory / "certificate.pem", directory / "private_key.pem"


def test_an_operators_certificate_is_used_with_the_servers_own_secret(tmp_path: Path) -> None:
    certificate, key = operator_files(tmp_path)
    identity = operator_identity(tmp_path, certificate=certificate, private_key=key, server_name=NAME)
    assert identity.certificate_pem == certificate.read_bytes()
    assert identity.secret == load_secret(tmp_path)
    assert not (tmp_path / "identity").exists()


def test_an_operators_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    certificate, key = operator_files(tmp_path)
    _, other_key = operator_files(tmp_path, "other.example")
    with pytest.raises(ConfigError, match="is not the key of"):
        operator_identity(tmp_path, certificate=certificate, private_key=other_key, server_name=NAME)
    with pytest.raises(ConfigError, match="is not the key of"):
        operator_identity(tmp_path, certificate=key, private_key=key, server_name=NAME)
    with pytest.raises(ConfigError, match="is not a name in"):
        operator_identity(tmp_path, certificate=certificate, private_key=key, server_name="b.example")
    with pytest.raises(ConfigError, match=r"certificate: .*cannot be read"):
        operator_identity(tmp_path, certificate=tmp_path / "no", private_key=key, server_name=NAME)


def test_a_wildcard_covers_one_label(tmp_path: Path) -> None:
    certificate, _ = operator_files(tmp_path, "*.example.net")
    pem = certificate.read_bytes()
    assert certificate_covers(pem, "VPN.example.net")
    assert not certificate_covers(pem, "a.b.example.net")
    assert not certificate_covers(pem, "example.net")
    assert not certificate_covers(b"no certificate", "example.net")


def test_no_certificate_has_no_fingerprint() -> None:
    with pytest.raises(StateError):
        certificate_fingerprint(b"nothing")


def test_a_generated_name_is_a_reserved_one_and_never_the_same() -> None:
    names = {generate_server_name() for _ in range(50)}
    assert len(names) == 50
    assert all(name.endswith(".qtunnel.invalid") for name in names)
