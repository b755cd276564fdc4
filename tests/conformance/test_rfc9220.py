"""RFC 9220 and RFC 8441: what an extended CONNECT request must look like. SETTINGS are tested with HTTP/3."""

from __future__ import annotations

import pytest

from qtunnel.errors import PeerProtocolError
from qtunnel.masque.events import SessionEnded
from qtunnel.masque.request import Headers, RequestRejectedError, build_request, parse_request
from qtunnel.masque.session import Session
from qtunnel.masque.uri_template import default_template

H3_MESSAGE_ERROR = 0x10E


def changed(**values: bytes | None) -> Headers:
    headers = {
        "method": b"CONNECT",
        "protocol": b"connect-ip",
        "scheme": b"https",
        "authority": b"proxy.example",
        "path": b"/.well-known/masque/ip/*/*/",
        **values,
    }
    return [(b":" + name.encode(), value) for name, value in headers.items() if value is not None]


def assert_malformed(headers: Headers) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        parse_request(headers)
    assert caught.value.error_code == H3_MESSAGE_ERROR


def rejected_with(headers: Headers) -> int:
    with pytest.raises(RequestRejectedError) as caught:
        parse_request(headers)
    return caught.value.status


def test_exc_04_extended_connect_has_scheme_and_path() -> None:
    assert_malformed(changed(scheme=None))
    assert_malformed(changed(path=None))
    names = [name for name, _ in build_request(template=default_template("proxy.example", 443))]
    assert {b":scheme", b":path"} <= set(names)


def test_exc_04_plain_connect_has_neither() -> None:
    assert_malformed(changed(protocol=None))
    assert_malformed(changed(protocol=None, scheme=None))
    assert rejected_with(changed(protocol=None, scheme=None, path=None)) == 501


def test_exc_05_the_authority_names_the_proxy_and_is_no_target() -> None:
    parsed = parse_request(changed(authority=b"192.0.2.99:22"))
    assert parsed.authority == "192.0.2.99:22"
    assert (parsed.target, parsed.target_network, parsed.target_name) == ("*", None, None)


def test_exc_05_an_authority_is_required() -> None:
    assert_malformed(changed(authority=None))
    assert_malformed(changed(authority=b""))


@pytest.mark.parametrize("method", [b"GET", b"POST", b"OPTIONS", b"connect"])
def test_exc_06_protocol_stands_on_connect_only(method: bytes) -> None:
    assert_malformed(changed(method=method))


@pytest.mark.parametrize("value", [b"connect-ip, websocket", b"connect-ip websocket", b"", b"connect-ip;q=1"])
def test_exc_06_protocol_has_one_value(value: bytes) -> None:
    assert_malformed(changed(protocol=value))


def test_exc_06_protocol_is_there_once() -> None:
    assert_malformed([(b":protocol", b"connect-ip"), *changed()])


@pytest.mark.parametrize("protocol", [b"websocket", b"connect-udp", b"mqvpn-tcp", b"connect-ip/2"])
def test_exc_07_an_unknown_protocol_is_answered_with_501(protocol: bytes) -> None:
    assert rejected_with(changed(protocol=protocol, path=b"/chat")) == 501


def test_exc_07_a_known_protocol_in_capitals_is_known() -> None:
    assert parse_request(changed(protocol=b"Connect-IP")).target == "*"


def test_exc_08_the_end_of_the_stream_is_orderly_and_its_reset_abrupt() -> None:
    ended, reset = Session(is_client=True), Session(is_client=True)
    ended.receive_stream_data(b"", True)
    reset.receive_reset()
    assert ended.next_event() == SessionEnded(True, "ended by the peer")
    assert reset.next_event() == SessionEnded(False, "reset by the peer")
