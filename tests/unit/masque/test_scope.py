from ipaddress import IPv4Network, IPv6Network

import pytest

from qtunnel.masque.scope import InvalidScopeError, Scope, parse_scope


def test_two_wildcards_are_everything() -> None:
    assert parse_scope("*", "*") == Scope()


@pytest.mark.parametrize(
    ("target", "network"),
    [
        ("192.0.2.1", IPv4Network("192.0.2.1/32")),
        ("0.0.0.0/0", IPv4Network("0.0.0.0/0")),
        ("10.0.0.0/08", IPv4Network("10.0.0.0/8")),
        ("::", IPv6Network("::/128")),
        ("2001:DB8::/032", IPv6Network("2001:db8::/32")),
    ],
)
def test_addresses_and_prefixes_are_networks(target: str, network: IPv4Network | IPv6Network) -> None:
    assert parse_scope(target, "*") == Scope(network=network)


@pytest.mark.parametrize(
    "name", ["a", "proxy.example", "proxy.example.", "_srv.x-y.example", "1.example", "a" * 63]
)
def test_host_names_are_kept_as_they_are(name: str) -> None:
    assert parse_scope(name, "*") == Scope(name=name)


@pytest.mark.parametrize(
    "target",
    [
        "",
        ".",
        "..",
        "a..b",
        "-a",
        "a-",
        "a" * 64,
        ".".join(["a" * 60] * 5),
        "**",
        "a*",
        "a b",
        "bücher.example",
        "1.2.3",
        "1.2.3.4.5",
        "01.2.3.4",
        "192.0.2.1.",
        "999.1.1.1",
        "12345",
        "[::1]",
        ":",
        ":::",
        "1::2::3",
        "fe80::1%eth0",
        "::1/",
        "/8",
        "a.example/8",
        "10.0.0.0/8/8",
        "10.0.0.0/ 8",
        "10.0.0.0/+8",
        "10.0.0.0/255.0.0.0",
        "\u0661.2.3.4",
    ],
)
def test_what_is_no_target_is_refused(target: str) -> None:
    with pytest.raises(InvalidScopeError) as caught:
        parse_scope(target, "*")
    assert caught.value.field == "target"


@pytest.mark.parametrize("ipproto", ["", "**", "256", "1000", "-1", " 6", "6 ", "0x6", "٦", "tcp", "44"])
def test_what_is_no_protocol_is_refused(ipproto: str) -> None:
    with pytest.raises(InvalidScopeError) as caught:
        parse_scope("*", ipproto)
    assert caught.value.field == "ipproto"


@pytest.mark.parametrize(("ipproto", "protocol"), [("1", 1), ("006", 6), ("17", 17), ("51", 51), ("255", 255)])
def test_a_protocol_is_its_number(ipproto: str, protocol: int) -> None:
    assert parse_scope("*", ipproto) == Scope(protocol=protocol)


def test_the_longest_name_has_253_characters() -> None:
    name = ".".join(["a" * 63] * 3 + ["a" * 61])
    assert parse_scope(name, "*") == Scope(name=name)
    with pytest.raises(InvalidScopeError):
        parse_scope(name + "a", "*")
