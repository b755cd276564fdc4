"""What a server decides once and keeps."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import IPv4Interface, IPv6Interface, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.cli import first_start
from qtunnel.cli.first_start import fill_in, identity_of, parse_public_name, record_of
from qtunnel.cli.load import ServeOptions, Settings, build
from qtunnel.config import IPNetwork, ServerConfig
from qtunnel.errors import ConfigError
from qtunnel.state.identity import load_or_create_identity
from qtunnel.state.server_record import ServerRecord, load_server_record, save_server_record

NOW = datetime(2026, 12, 1, tzinfo=UTC)
KNOWN = ServerRecord(
    server_name="a.qtunnel.invalid",
    pool4=IPv4Interface("10.77.1.1/24"),
    pool6=None,
    public_name="vpn.example.net",
    public_host="vpn.example.net",
    public_port=443,
)


def start(state: Path, taken: tuple[IPNetwork, ...] = (), **said: object) -> ServerRecord:
    """Do what `serve` does, and return what it would keep."""
    settings = Settings()
    settings.add(said, "f.toml")
    fill_in(settings, state, lambda: taken)
    options, config = build(settings, (ServeOptions, ServerConfig))
    identity = identity_of(config, state, NOW)
    record = record_of(config, options, identity, load_server_record(state))
    save_server_record(state, record)
    return record


def test_the_first_start_chooses_and_later_starts_keep(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert first.pool4 is not None
    assert first.pool6 is not None
    assert first.server_name.endswith(".qtunnel.invalid")
    assert first.public_host == "192.0.2.7"
    assert first.public_name is None
    assert start(tmp_path) == first


def test_pools_keep_clear_of_the_host(tmp_path: Path) -> None:
    taken = (ip_network("10.0.0.0/8"), ip_network("fd00::/9"))
    record = start(tmp_path, taken)
    assert record.pool4 is not None
    assert record.pool6 is not None
    assert not record.pool4.network.overlaps(taken[0])
    assert record.pool6 not in taken[1]


def test_what_is_said_counts_and_is_kept(tmp_path: Path) -> None:
    said = start(tmp_path, pool4="10.9.9.1/24", server_name="vpn.example.net", public_name="vpn.example.net:4433")
    assert said.pool4 == IPv4Interface("10.9.9.1/24")
    again = start(tmp_path)
    assert again == said
    assert (again.public_host, again.public_port) == ("vpn.example.net", 4433)


def test_a_public_name_without_a_port_follows_the_port(tmp_path: Path) -> None:
    assert start(tmp_path, public_name="vpn.example.net", port=1111).public_port == 1111
    assert start(tmp_path, port=2222).public_port == 2222


def test_a_pool_that_was_switched_off_stays_off(tmp_path: Path) -> None:
    assert start(tmp_path, pool6="none").pool6 is None
    assert start(tmp_path).pool6 is None
    assert start(tmp_path, pool6="fd77::1/64").pool6 == IPv6Interface("fd77::1/64")


def test_the_address_it_listens_on_is_the_better_guess(tmp_path: Path) -> None:
    assert start(tmp_path, listen=["::", "198.51.100.3"]).public_host == "198.51.100.3"


def test_without_a_default_route_the_public_name_must_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_start, "source_address", lambda: None)
    with pytest.raises(ConfigError, match="--public-name"):
        start(tmp_path)
    assert start(tmp_path, public_name="vpn.example.net").public_host == "vpn.example.net"


def test_an_operators_certificate_gives_the_name_and_no_fingerprint(tmp_path: Path) -> None:
    load_or_create_identity(tmp_path / "ca", server_name="vpn.example.net", now=NOW)
    directory = tmp_path / "ca" / "identity"
    files = {"certificate": str(directory / "certificate.pem"), "private_key": str(directory / "private_key.pem")}
    record = start(tmp_path, **files)
    assert (record.server_name, record.public_host) == ("vpn.example.net", "vpn.example.net")
    assert record.fingerprint is None
    back = start(tmp_path)
    assert back.fingerprint is not None
    assert back.server_name != "vpn.example.net"


def test_a_certificate_that_cannot_be_read_is_left_for_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        start(tmp_path, certificate=str(tmp_path / "no"), private_key=str(tmp_path / "no"))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("vpn.example.net", "vpn.example.net", 443),
        ("VPN.example.net:4433", "vpn.example.net", 4433),
        ("192.0.2.1", "192.0.2.1", 443),
        ("192.0.2.1:1", "192.0.2.1", 1),
        ("2001:db8::1", "2001:db8::1", 443),
        ("[2001:db8::1]", "2001:db8::1", 443),
        ("[2001:db8::1]:65535", "2001:db8::1", 65535),
    ],
)
def test_a_public_name_is_taken_apart(text: str, host: str, port: int) -> None:
    assert parse_public_name(text, 443) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        ":443",
        "a.net:",
        "a.net:0",
        "a.net:65536",
        "a.net:x",
        "a b",
        "[2001:db8::1",
        "[x]y",
        "[::1]:",
        "a/b",
    ],
)
def test_what_is_no_public_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"public_name: found .*; allowed: a name or address"):
        parse_public_name(text, 443)


@given(st.text())
def test_any_text_gives_a_usable_host_and_port_or_our_error(text: str) -> None:
    try:
        host, port = parse_public_name(text, 443)
    except ConfigError:
        return
    assert host
    assert 1 <= port <= 65535


def test_this_host_has_an_address_or_none() -> None:
    address = first_start.source_address()
    assert address is None or ip_network(address)
