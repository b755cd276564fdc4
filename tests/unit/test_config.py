"""Every setting that cannot be used is refused by its name, before anything is done with it."""

from __future__ import annotations

import math
import re
from dataclasses import FrozenInstanceError
from ipaddress import IPv4Interface, IPv6Interface
from typing import Any

import pytest

from qtunnel.config import (
    BlackHoles,
    ClientConfig,
    HostConfig,
    LabConfig,
    QuicConfig,
    ServerConfig,
    SocketBuffer,
    User,
)
from qtunnel.errors import ConfigError

DIGEST = "0123456789abcdef" * 4
TOKEN = "a-token-nobody-guesses"


def client(**settings: Any) -> ClientConfig:
    return ClientConfig(**{"server": "192.0.2.1", "server_name": "vpn.example.net", "token": TOKEN, **settings})


def server(**settings: Any) -> ServerConfig:
    return ServerConfig(**{"pool4": IPv4Interface("10.77.1.1/24"), **settings})


def test_every_cure_is_on_until_it_is_switched_off() -> None:
    assert client().lab.switched_off() == server().lab.switched_off() == []
    assert client().lab.receive_buffer(4096) == 4096
    assert LabConfig(black_holes=BlackHoles.OFF).switched_off() == ["black_holes=off"]
    without = LabConfig(rcvbuf=SocketBuffer.DEFAULT)
    assert without.receive_buffer(4096) is None
    assert without.switched_off() == ["rcvbuf=default"]


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1", "fe80::1", "::ffff:0.0.0.0"]
)
def test_an_address_that_is_no_servers_is_refused_with_what_to_do(host: str) -> None:
    with pytest.raises(ConfigError, match=rf"server: {re.escape(host)} .*; (give|add)"):
        client(server=host)


@pytest.mark.parametrize("host", ["vpn.example.net", "127.0.0.1", "2001:db8::1", "fe80::1%eth0", "169.254.1.1"])
def test_an_address_that_may_be_a_servers_is_taken(host: str) -> None:
    assert client(server=host).server == host


def test_what_is_needed_is_enough() -> None:
    assert client().port == 443
    assert server().port == 443
    assert User(name="alice", token_sha256=DIGEST).prefixes == ()


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"server": ""}, "server"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"server_name": ""}, "server_name"),
        ({"server_name": "ümlaut.example"}, "server_name"),
        ({"server_name": "a b"}, "server_name"),
        ({"server_name": "192.0.2.1"}, "server_name"),
        ({"server_name": "2001:db8::1"}, "server_name"),
        ({"token": ""}, "token"),
        ({"token": "with blank"}, "token"),
        ({"token": "with\nnewline"}, "token"),
        ({"token": "ümlaut"}, "token"),
        ({"fingerprint": "12"}, "fingerprint"),
        ({"fingerprint": DIGEST.upper()}, "fingerprint"),
        ({"fingerprint": DIGEST, "ca_file": "ca.pem"}, "ca_file"),
        ({"want_ipv4": False, "want_ipv6": False}, "want_ipv4"),
        ({"handshake_timeout": 0.0}, "handshake_timeout"),
        ({"handshake_timeout": math.nan}, "handshake_timeout"),
        ({"handshake_timeout": math.inf}, "handshake_timeout"),
        ({"reconnect_min": math.nan}, "reconnect_min"),
        ({"reconnect_max": math.inf}, "reconnect_min"),
        ({"reconnect_min": 0.0}, "reconnect_min"),
        ({"reconnect_min": 31.0}, "reconnect_min"),
        ({"route_table": 0}, "route_table"),
        ({"route_table": 254}, "route_table"),
        ({"rule_priority": 0}, "rule_priority"),
        ({"rule_priority": 32764}, "rule_priority"),
    ],
    ids=str,
)
def test_client_setting_that_cannot_be_used_is_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"listen": ()}, "listen"),
        ({"listen": ("vpn.example.net",)}, "listen"),
        ({"port": 70000}, "port"),
        ({"pool4": None}, "pool4"),
        ({"pool4": IPv4Interface("10.77.1.1/31")}, "pool4"),
        ({"pool6": IPv6Interface("fd77::1/127")}, "pool6"),
        ({"certificate": "chain.pem"}, "certificate"),
        ({"private_key": "key.pem"}, "certificate"),
        ({"max_sessions": 0}, "max_sessions"),
        ({"max_handshakes": 0}, "max_handshakes"),
        ({"retry_threshold": -1}, "retry_threshold"),
        ({"icmp_rate": -1.0}, "icmp_rate"),
        ({"icmp_rate": math.nan}, "icmp_rate"),
        ({"icmp_rate": math.inf}, "icmp_rate"),
        ({"icmp_burst": -1}, "icmp_burst"),
        ({"server_name": ""}, "server_name"),
        ({"server_name": "ümlaut.example"}, "server_name"),
        ({"server_name": "a..b"}, "server_name"),
        ({"server_name": "x" * 64}, "server_name"),
        ({"server_name": "a b"}, "server_name"),
        ({"pool4": IPv4Interface("10.0.0.0/8")}, "pool4"),
        ({"pool4": IPv4Interface("10.1.0.255/24")}, "pool4"),
        ({"pool4": IPv4Interface("127.0.0.1/8")}, "pool4"),
        ({"pool4": IPv4Interface("224.0.0.1/24")}, "pool4"),
        ({"pool4": IPv4Interface("10.0.0.1/0")}, "pool4"),
        ({"pool6": IPv6Interface("fe80::1/64")}, "pool6"),
        ({"pool6": IPv6Interface("ff02::1/64")}, "pool6"),
        ({"pool6": IPv6Interface("2001:db8::/64")}, "pool6"),
        ({"pool6": IPv6Interface("2001:db8::1/0")}, "pool6"),
        ({"path_prefix": ""}, "path_prefix"),
        ({"path_prefix": "vpn"}, "path_prefix"),
        ({"path_prefix": "/a b"}, "path_prefix"),
        ({"path_prefix": "/ü"}, "path_prefix"),
        ({"path_prefix": "/vpn?x"}, "path_prefix"),
    ],
    ids=str,
)
def test_server_setting_that_cannot_be_used_is_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"path_mtu": 1227}, "path_mtu"),
        ({"path_mtu": 65536}, "path_mtu"),
        ({"min_path_mtu": 1000}, "min_path_mtu"),
        ({"max_path_mtu": 70000}, "max_path_mtu"),
        ({"min_path_mtu": 1500, "max_path_mtu": 1400}, "min_path_mtu"),
        ({"idle_timeout": 0.5}, "idle_timeout"),
        ({"idle_timeout": 601.0}, "idle_timeout"),
        ({"keep_alive": 0.1}, "keep_alive"),
        ({"keep_alive": 30.0}, "keep_alive"),
        ({"congestion_control": "vegas"}, "congestion_control"),
        ({"receive_buffer": 0}, "receive_buffer"),
        ({"send_buffer": 1 << 31}, "send_buffer"),
    ],
    ids=str,
)
def test_quic_setting_that_cannot_be_used_is_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        QuicConfig(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize("path_mtu", [1228, 1500, 9000, 65535])
def test_path_mtu_from_1228_to_65535_is_taken(path_mtu: int) -> None:
    assert QuicConfig(path_mtu=path_mtu).path_mtu == path_mtu


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"tun_name": ""}, "tun_name"),
        ({"tun_name": "sixteen-letters!"}, "tun_name"),
        ({"tun_name": "a/b"}, "tun_name"),
    ],
    ids=str,
)
def test_host_setting_that_cannot_be_used_is_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HostConfig(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 65])
def test_user_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no user name"):
        User(name=name, token_sha256=DIGEST)


def test_token_hash_of_a_user_is_64_hex_digits() -> None:
    with pytest.raises(ConfigError, match="64 hexadecimal"):
        User(name="alice", token_sha256=TOKEN)


def test_secrets_are_not_shown() -> None:
    assert TOKEN not in repr(client())
    assert DIGEST not in repr(User(name="alice", token_sha256=DIGEST))


def test_configuration_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        client().port = 1  # type: ignore[misc]
