"""RFC 9114 §4.1.2 to §4.4: malformed messages, field names, and capsules across DATA frames."""

from __future__ import annotations

from ipaddress import IPv4Interface

import pytest

from qtunnel.errors import PeerProtocolError
from qtunnel.masque.events import SessionEvent
from qtunnel.masque.request import Headers, RequestRejectedError, check_response, parse_request
from qtunnel.masque.session import Session
from tests.unit.masque.sessions import taken

H3_MESSAGE_ERROR = 0x10E
REQUEST: Headers = [
    (b":method", b"CONNECT"),
    (b":protocol", b"connect-ip"),
    (b":scheme", b"https"),
    (b":authority", b"proxy.example"),
    (b":path", b"/.well-known/masque/ip/*/*/"),
]
CAPSULES = [
    bytes.fromhex("01 07 00 04 c000020b 20"),
    bytes.fromhex("03 0a 04 00000000 ffffffff 00"),
    bytes.fromhex("00 03 00 4500"),
]


def assert_malformed_request(headers: Headers) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        parse_request(headers)
    assert caught.value.error_code == H3_MESSAGE_ERROR


def events_of(pieces: list[bytes]) -> list[SessionEvent]:
    session = Session(is_client=True)
    for piece in pieces:
        session.receive_stream_data(piece)
    return taken(session)


def test_h3_01_a_malformed_request_is_a_stream_error() -> None:
    assert_malformed_request([])
    assert_malformed_request([*REQUEST, (b"x", b"a\nb")])


def test_h3_01_the_server_may_answer_400_instead() -> None:
    with pytest.raises(RequestRejectedError) as caught:
        parse_request([*REQUEST[:4], (b":path", b"/.well-known/masque/ip/192.0.2.1%2F24/*/")])
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b":status", b"20")],
        [(b":status", b"2000")],
        [(b":status", b"ok")],
        [(b":status", b"600")],
        [(b":status", b"101")],
        [(b":status", b"200"), (b":status", b"200")],
        [(b"server", b"x"), (b":status", b"200")],
        [(b":status", b"200"), (b":path", b"/")],
        [(b":status", b"200"), (b"Server", b"x")],
        [(b":status", b"200"), (b"x", b" leading")],
    ],
)
def test_h3_01_a_malformed_response_is_never_accepted(headers: Headers) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        check_response(headers)
    assert caught.value.error_code == H3_MESSAGE_ERROR


@pytest.mark.parametrize("name", [b"X-Upper", b"Authorization", b"", b"a b", b"a:b", b"\xe9", b"a\x00"])
def test_h3_02_field_names_are_lower_case_tokens(name: bytes) -> None:
    assert_malformed_request([*REQUEST, (name, b"value")])


@pytest.mark.parametrize("index", range(5))
def test_h3_02_pseudo_header_fields_come_first(index: int) -> None:
    moved = [*REQUEST[:index], *REQUEST[index + 1 :], (b"user-agent", b"x"), REQUEST[index]]
    assert_malformed_request(moved)


@pytest.mark.parametrize("name", [b":status", b":unknown", b":", b":Method"])
def test_h3_02_undefined_pseudo_header_fields_are_malformed(name: bytes) -> None:
    assert_malformed_request([*REQUEST, (name, b"200")])


@pytest.mark.parametrize(
    "name", [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"]
)
def test_h3_02_connection_specific_fields_are_malformed(name: bytes) -> None:
    assert_malformed_request([*REQUEST, (name, b"x")])
    with pytest.raises(PeerProtocolError):
        check_response([(b":status", b"200"), (name, b"x")])


def test_h3_02_te_may_only_say_trailers() -> None:
    assert parse_request([*REQUEST, (b"te", b"trailers")]).target == "*"
    assert_malformed_request([*REQUEST, (b"te", b"gzip")])


def test_h3_02_host_and_authority_agree() -> None:
    assert parse_request([*REQUEST, (b"host", b"proxy.example")]).authority == "proxy.example"
    assert_malformed_request([*REQUEST, (b"host", b"other.example")])


def test_h3_02_an_authority_names_no_user() -> None:
    assert_malformed_request([*REQUEST[:3], (b":authority", b"bob@proxy.example"), REQUEST[4]])


def test_h3_03_one_capsule_may_span_many_data_frames() -> None:
    whole = events_of([CAPSULES[0]])
    assert whole[0].addresses == (IPv4Interface("192.0.2.11/32"),)
    for first in range(len(CAPSULES[0])):
        for second in range(first, len(CAPSULES[0])):
            pieces = [CAPSULES[0][:first], CAPSULES[0][first:second], CAPSULES[0][second:]]
            assert events_of(pieces) == whole


def test_h3_03_one_data_frame_may_hold_many_capsules() -> None:
    assert events_of([b"".join(CAPSULES)]) == events_of(CAPSULES)
    assert len(events_of(CAPSULES)) == 3
