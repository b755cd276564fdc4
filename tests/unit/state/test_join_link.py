"""The join link: round trips, strict parsing, and a token that never shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import ConfigError
from qtunnel.state.join_link import JoinLink, looks_like_link, parse_join_link
from qtunnel.state.users import new_token

TOKEN = "abcdefghijklmnopqrstuvwxyz0123456789-_ABCDE"
FINGERPRINT = "0f" * 32
LINK = f"qtunnel://vpn.example.net:4433/?name=a1.qtunnel.invalid&fp={FINGERPRINT}&user=alice#{TOKEN}"

_label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
_host_names = st.lists(_label, min_size=2, max_size=4).map(lambda labels: ".".join([*labels, "net"]))
_addresses = st.ip_addresses().map(str)


@given(
    host=_host_names | _addresses,
    port=st.integers(1, 65535),
    server_name=_host_names,
    fingerprint=st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex),
    user=st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True),
    token=st.from_regex(r"[A-Za-z0-9._~-]{16,80}", fullmatch=True),
)
def test_every_link_is_read_back_as_it_was(
    host: str, port: int, server_name: str, fingerprint: str | None, user: str, token: str
) -> None:
    link = JoinLink(host=host, port=port, server_name=server_name, fingerprint=fingerprint, user=user, token=token)
    assert parse_join_link(link.text()) == link
    assert parse_join_link(f"\n  {link.text()}\r\n") == link


def test_the_parts_of_a_link() -> None:
    link = parse_join_link(LINK)
    assert (link.host, link.port, link.server_name) == ("vpn.example.net", 4433, "a1.qtunnel.invalid")
    assert (link.fingerprint, link.user, link.token) == (FINGERPRINT, "alice", TOKEN)
    assert link.text() == LINK


def test_what_is_left_out_has_a_default() -> None:
    link = parse_join_link(f"qtunnel://VPN.example.net?user=alice#{TOKEN}")
    assert (link.host, link.port, link.server_name) == ("vpn.example.net", 443, "vpn.example.net")
    assert link.fingerprint is None


def test_an_ipv6_host_stands_in_brackets() -> None:
    link = parse_join_link(f"qtunnel://[2001:DB8::1]/?name=x.invalid&user=a#{TOKEN}")
    assert link.host == "2001:db8::1"
    assert link.text().startswith("qtunnel://[2001:db8::1]:443/?")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("x" * 5000, "more than a join link has"),
        (LINK.replace("alice", "älice"), "ASCII"),
        (LINK.replace("#", " #"), "without blanks"),
        (LINK + "\n" + LINK, "without blanks"),
        (LINK.replace("qtunnel:", "https:"), "does not begin with qtunnel://"),
        ("qtunnel:alice", "no host"),
        (f"qtunnel:///?user=a#{TOKEN}", "no host"),
        (LINK.replace("4433", "port"), "cannot be read"),
        (LINK.replace("4433", "0"), "outside 1 to 65535"),
        (LINK.replace("4433", "65536"), "cannot be read"),
        (LINK.replace("vpn.example.net", "[2001:db8::1"), "cannot be read"),
        (LINK.replace("vpn.example.net", "vpn..net"), "neither a name nor an address"),
        (LINK.replace("vpn.example.net", "bob@vpn.example.net"), "before an @"),
        (LINK.replace("4433/", "4433/path"), "a path"),
        (LINK.partition("#")[0], "no token"),
        (LINK.replace(TOKEN, "short"), "cut short"),
        (LINK.replace(TOKEN, TOKEN + "%20"), "cut short"),
        (LINK.replace("&user=alice", ""), "user= is missing"),
        (LINK.replace("alice", "a/b"), "not a user name"),
        (LINK.replace("alice", ""), "user= is empty"),
        (LINK.replace("alice", "%ff"), "user= cannot be read"),
        (LINK.replace("user=", "name="), "there twice"),
        (LINK.replace("user=", "colour="), "unknown part 'colour'"),
        (LINK.replace(FINGERPRINT, FINGERPRINT[:-1]), "64 lower-case hexadecimal"),
        (LINK.replace("a1.qtunnel.invalid", "192.0.2.1"), "name= is missing"),
        (f"qtunnel://192.0.2.1/?user=a#{TOKEN}", "name= is missing"),
        (LINK.replace("a1.qtunnel.invalid", "a_b..c"), "not a host name"),
    ],
)
def test_a_link_that_cannot_be_used_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_join_link(text)
    assert reason in str(raised.value)
    assert TOKEN not in str(raised.value)


@given(st.text() | st.text().map(lambda text: f"qtunnel://a.net/?user=a&{text}#{text}"))
def test_any_text_gives_a_link_or_our_error(text: str) -> None:
    try:
        link = parse_join_link(text)
    except ConfigError:
        return
    assert parse_join_link(link.text()) == link


def test_the_token_is_in_neither_repr_nor_str() -> None:
    link = parse_join_link(LINK)
    assert TOKEN not in repr(link)
    assert TOKEN not in str(link)
    assert TOKEN not in f"{link}"


def test_a_new_token_fits_into_a_link() -> None:
    token = new_token()
    link = JoinLink(host="a.net", server_name="a.net", user="a", token=token)
    assert parse_join_link(link.text()).token == token


@pytest.mark.parametrize("text", [LINK, LINK.upper(), f" {LINK}", "qtunnel://x", f"--x={LINK}"])
def test_what_looks_like_a_link_is_seen(text: str) -> None:
    assert looks_like_link(text)


@pytest.mark.parametrize("text", ["alice.link", "qtunnel", "/etc/qtunnel:x", "#5", ""])
def test_what_is_no_link_is_not_taken_for_one(text: str) -> None:
    assert not looks_like_link(text)
