"""The flags and the TOML keys say the same things, and all of them."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import Any

import click
import pytest

from qtunnel.cli.flag_tables import CONNECT_FLAGS, SERVE_FLAGS
from qtunnel.cli.flags import Flag, values_said
from qtunnel.cli.load import ConnectOptions, ServeOptions, Settings, build
from qtunnel.config import ClientConfig, HostConfig, QuicConfig, ServerConfig

TABLES = {"quic": QuicConfig, "host": HostConfig}

SERVER_TOML = """
listen = ["192.0.2.1", "2001:db8::1"]
port = 4433
server_name = "vpn.example.net"
pool4 = "10.77.1.1/24"
pool6 = "fd77::1/64"
certificate = "/etc/ssl/chain.pem"
private_key = "/etc/ssl/key.pem"
advertise = ["192.168.7.0/24", "default"]
masquerade = true
forward = true
client_to_client = true
max_sessions = 7
max_handshakes = 8
retry_threshold = 9
path_prefix = "/vpn"
peer_quirks = "mqvpn"
icmp_rate = 5.5
icmp_burst = 6
state_dir = "/srv/state"
public_name = "vpn.example.net:4433"
first_user = "alice"
name = "other"
use_tun = false
log_level = "debug"
log_file = "/tmp/log"
"""

CLIENT_TOML = """
server = "192.0.2.1"
port = 4433
server_name = "vpn.example.net"
token = "token"
fingerprint = "0000000000000000000000000000000000000000000000000000000000000000"
uri_template = "https://vpn.example.net/x/{target}/{ipproto}/"
target = "10.0.0.0/8"
ipproto = "17"
routes = ["10.0.0.0/8"]
route_mode = "none"
advertise = ["192.168.7.0/24"]
masquerade = true
want_ipv4 = false
want_ipv6 = true
peer_quirks = "mqvpn"
handshake_timeout = 3.0
reconnect = false
reconnect_min = 1.5
reconnect_max = 9
route_table = 77
rule_priority = 88
name = "other"
use_tun = false
log_level = "error"
log_file = "/tmp/log"
"""

SHARED_TOML = """
[quic]
path_mtu = 1400
min_path_mtu = 1300
max_path_mtu = 1450
path_mtu_search = "sequential"
idle_timeout = 20.0
keep_alive = 5
congestion_control = "reno"
gso = false
gro = false
receive_buffer = 100000
send_buffer = 200000
qlog_dir = "/tmp/qlog"
secrets_log_file = "/tmp/keys"

[host]
tun_name = "vpn0"
tun_offload = false
drop_privileges = false
"""


def keys_of(*kinds: type) -> set[str]:
    keys: set[str] = set()
    for kind in kinds:
        for field in dataclasses.fields(kind):
            if field.name == "lab":  # for experiments alone, and in no help
                continue
            inner = TABLES.get(field.name)
            keys |= {field.name} if inner is None else {f"{field.name}.{key}" for key in keys_of(inner)}
    return keys


def flatten(values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def read(instances: tuple[Any, ...], key: str) -> Any:
    table, _, name = key.rpartition(".")
    for instance in instances:
        owner = getattr(instance, table, None) if table else instance
        if hasattr(owner, name):
            return getattr(owner, name)
    raise AssertionError(key)


def test_every_server_setting_has_a_flag_and_every_flag_a_setting() -> None:
    assert {flag.key for flag in SERVE_FLAGS} == keys_of(ServerConfig, ServeOptions)


def test_every_client_setting_but_the_token_has_a_flag_and_every_flag_a_setting() -> None:
    assert {flag.key for flag in CONNECT_FLAGS} == keys_of(ClientConfig, ConnectOptions) - {"token"}


@pytest.mark.parametrize("flags", [SERVE_FLAGS, CONNECT_FLAGS])
def test_no_flag_or_key_is_there_twice(flags: tuple[Flag, ...]) -> None:
    assert len({flag.flag for flag in flags}) == len({flag.key for flag in flags}) == len(flags)


@pytest.mark.parametrize(
    ("text", "kinds", "never_said"),
    [
        (SERVER_TOML, (ServeOptions, ServerConfig), set()),
        (CLIENT_TOML, (ConnectOptions, ClientConfig), {"ca_file"}),  # at odds with fingerprint
    ],
)
def test_a_file_can_say_every_setting(text: str, kinds: tuple[type, ...], never_said: set[str]) -> None:
    values = tomllib.loads(text + SHARED_TOML)
    settings = Settings()
    settings.add(values, "f.toml")
    built = build(settings, kinds)
    flat = flatten(values)
    assert set(flat) == keys_of(*kinds) - never_said
    for key, value in flat.items():
        found = read(built, key)
        if isinstance(value, list):
            expanded = [item for item in value if item != "default"]
            assert [str(item) for item in found][: len(expanded)] == expanded
        else:
            assert str(found) == str(float(value) if isinstance(found, float) else value), key


def test_a_file_can_name_a_ca_instead_of_a_fingerprint() -> None:
    settings = Settings()
    settings.add({"server": "a", "server_name": "a.net", "token": "t", "ca_file": "/ca.pem"}, "f.toml")
    (config,) = build(settings, (ClientConfig,))
    assert config.ca_file == "/ca.pem"


@pytest.mark.parametrize("flags", [SERVE_FLAGS, CONNECT_FLAGS])
def test_every_choice_of_a_flag_is_one_of_the_setting(flags: tuple[Flag, ...]) -> None:
    choices = [flag for flag in flags if isinstance(flag.kind, click.Choice)]
    assert choices
    for flag in choices:
        assert isinstance(flag.kind, click.Choice)
        for choice in flag.kind.choices:
            said = values_said([flag], {flag.parameter: choice})
            settings = Settings()
            if flags is SERVE_FLAGS:
                settings.add({"pool4": "10.7.0.1/24"} | said, "--x")
                build(settings, (ServeOptions, ServerConfig))
            else:
                settings.add({"server": "a", "server_name": "a.net", "token": "t"} | said, "--x")
                build(settings, (ConnectOptions, ClientConfig))
