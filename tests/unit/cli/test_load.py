"""Settings from files and flags: all errors at once, each with place, value and what is allowed."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from qtunnel.cli.load import ConnectOptions, ServeOptions, Settings, build, parse_toml, read_toml_file
from qtunnel.config import ClientConfig, RouteMode, ServerConfig
from qtunnel.errors import ConfigError

CLIENT = {"server": "a.net", "server_name": "a.net", "token": "secret-token-value"}
SERVER = {"pool4": "10.77.1.1/24"}


def client(**values: Any) -> ClientConfig:
    settings = Settings()
    settings.add(CLIENT | values, "f.toml")
    _, config = build(settings, (ConnectOptions, ClientConfig))
    assert isinstance(config, ClientConfig)
    return config


def server(*layers: dict[str, Any]) -> ServerConfig:
    settings = Settings()
    settings.add(SERVER, "defaults")
    for number, layer in enumerate(layers):
        settings.add(layer, f"layer{number}")
    _, config = build(settings, (ServeOptions, ServerConfig))
    assert isinstance(config, ServerConfig)
    return config


def problems(values: dict[str, Any], *, kinds: tuple[type, ...] = (ServeOptions, ServerConfig)) -> list[str]:
    settings = Settings()
    settings.add(values, "f.toml")
    with pytest.raises(ConfigError) as raised:
        build(settings, kinds)
    return [line.strip() for line in str(raised.value).splitlines()]


def test_later_layers_count_more_and_tables_are_merged() -> None:
    config = server({"port": 1, "quic": {"gso": False, "gro": False}}, {"port": 2, "quic": {"gso": True}})
    assert config.port == 2
    assert (config.quic.gso, config.quic.gro) == (True, False)


def test_lists_are_replaced() -> None:
    assert server({"listen": ["192.0.2.1"]}, {"listen": ["192.0.2.2"]}).listen == ("192.0.2.2",)


def test_every_bad_setting_is_reported_in_one_go() -> None:
    lines = problems(
        SERVER
        | {
            "port": "443",
            "first_usr": "x",
            "advertise": ["10.0.0.1/8"],
            "peer_quirks": "other",
            "pool6": "fd77::1/129",
            "certificate": "/a.pem",
            "quic": {"path_mtu": 100, "gso": "yes", "foo": 1},
            "host": {"tun_name": "/"},
        }
    )
    assert lines[0] == "10 settings cannot be used:"
    assert sorted(lines[1:]) == [
        "f.toml: advertise: found '10.0.0.1/8'; allowed: a list, each item a network without host bits, "
        "such as 10.0.0.0/8 or fd00::/8",
        "f.toml: certificate: certificate and private_key go together",
        "f.toml: host.tun_name: '/' is no interface name (1 to 15 characters, no slash)",
        "f.toml: peer_quirks: found 'other'; allowed: one of none, mqvpn",
        "f.toml: pool6: found 'fd77::1/129'; allowed: an address and length such as fd77::1/64",
        "f.toml: port: found '443'; allowed: a whole number",
        "f.toml: quic.gso: found 'yes'; allowed: true or false",
        "f.toml: quic.path_mtu: 100 is outside 1228 to 65535 (QUIC needs 1228 bytes on IPv4, 1248 on IPv6)",
        "f.toml: there is no setting 'first_usr'; did you mean first_user?",
        "f.toml: there is no setting 'foo' in [quic]; known: congestion_control, gro, gso, idle_timeout, "
        "keep_alive, max_path_mtu, min_path_mtu, path_mtu, path_mtu_search, qlog_dir, receive_buffer, "
        "secrets_log_file, send_buffer",
    ]


def test_a_flag_is_named_as_it_was_typed() -> None:
    settings = Settings()
    settings.add(SERVER | {"port": 70000}, "command line", {"port": "--port"})
    with pytest.raises(ConfigError, match=r"^--port: 70000 is outside \d to 65535"):
        build(settings, (ServeOptions, ServerConfig))


def test_a_default_at_odds_with_a_setting_is_named() -> None:
    (line,) = problems(SERVER | {"quic": {"idle_timeout": 5.0}})
    assert line == "quic.keep_alive: 10.0 must be at least 0.5 and below idle_timeout (5.0)"


def test_what_is_missing_is_named() -> None:
    lines = problems({"port": 1}, kinds=(ConnectOptions, ClientConfig))
    assert lines[1:] == ["server: is missing", "server_name: is missing", "token: is missing"]


def test_a_setting_of_a_table_at_the_top_is_shown_its_place() -> None:
    (line,) = problems(SERVER | {"path_mtu": 1400})
    assert line == "f.toml: there is no setting 'path_mtu'; it belongs into the table [quic]"


def test_a_key_with_a_dot_in_quotes_is_just_unknown() -> None:
    lines = problems(SERVER | {"host": {"a.b": 1, ".": {".": 2}}, "quic.gso": True})
    assert [line.partition(";")[0] for line in lines[1:]] == [
        "f.toml: there is no setting 'quic.gso'",
        "f.toml: there is no setting 'a.b' in [host]",
        "f.toml: there is no setting '.' in [host]",
    ]


@pytest.mark.parametrize("value", [5, ["x"], True, "text"])
def test_something_else_than_a_table_is_reported_even_under_a_flag(value: object) -> None:
    settings = Settings()
    settings.add(SERVER | {"quic": value}, "f.toml")
    settings.add({"quic": {"gso": False}}, "command line", {"quic.gso": "--gso"})
    with pytest.raises(ConfigError, match=r"quic: found .*; allowed: a table"):
        build(settings, (ServeOptions, ServerConfig))


@pytest.mark.parametrize(
    "values",
    [
        CLIENT | {"token": ["secret-token-value"]},
        CLIENT | {"token": "secret-token-value with blank"},
        {"server": "a", "server_name": "a.net", "tokn": "secret-token-value"},
        CLIENT | {"port": "x", "quic": {"token": "secret-token-value"}},
    ],
)
def test_a_token_is_in_no_message(values: dict[str, Any]) -> None:
    lines = problems(values, kinds=(ConnectOptions, ClientConfig))
    assert "secret-token-value" not in "\n".join(lines)


def test_default_and_none_stand_for_routes() -> None:
    config = client(routes=["default", "10.0.0.0/8"])
    assert config.routes == (ip_network("0.0.0.0/0"), ip_network("::/0"), ip_network("10.0.0.0/8"))
    assert config.route_mode is RouteMode.ADVERTISED
    config = client(routes=["none", "10.0.0.0/8"])
    assert config.routes == (ip_network("10.0.0.0/8"),)
    assert config.route_mode is RouteMode.NONE


def test_none_stands_for_no_pool() -> None:
    config = server({"pool6": "fd77::1/64"}, {"pool6": "none"})
    assert config.pool6 is None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 10**400])
def test_numbers_that_are_none_are_refused(number: float) -> None:
    assert problems(SERVER | {"quic": {"idle_timeout": number}})


def test_a_missing_or_binary_or_endless_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_toml_file(tmp_path / "missing.toml")
    path = tmp_path / "f.toml"
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 5\)"):
        read_toml_file(path)
    path.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="longer than"):
        read_toml_file(path)
    path.write_text("port = 1\n")
    assert read_toml_file(path) == {"port": 1}


@pytest.mark.parametrize(
    "text", ["a =", "a = 1\na = 2", "[" * 9000, "a = " + "[" * 9000, "a = " + "9" * 9000, "a = 1979-13-01"]
)
def test_what_is_not_toml_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=r"f\.toml is n"):
        parse_toml(text, "f.toml")


def test_a_date_is_a_value_like_any_other() -> None:
    settings = Settings()
    settings.add(parse_toml("pool4 = '10.7.0.1/24'\nport = 2026-11-30", "f.toml"), "f.toml")
    with pytest.raises(ConfigError, match="port: found '2026-11-30'"):
        build(settings, (ServeOptions, ServerConfig))
