"""RFC 9297: the rules of the Capsule Protocol. Those on QUIC DATAGRAM frames are tested beside their code."""

from __future__ import annotations

import tracemalloc
from ipaddress import IPv4Interface

import pytest

from qtunnel.drops import DropReason
from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.masque.capsule import CapsuleParser, encode_capsule
from qtunnel.masque.events import AddressesAssigned, PacketsInCapsules, SessionEnded, SessionEvent
from qtunnel.masque.request import build_response, check_response, parse_request, reject_response
from qtunnel.masque.session import Session, SessionState
from qtunnel.masque.varint import decode_varint
from tests.unit.masque.sessions import taken

H3_MESSAGE_ERROR = 0x10E
A = IPv4Interface("192.0.2.11/32")
ASSIGN = bytes.fromhex("01 07 00 04 c000020b 20")
ASSIGN_BOTH = bytes.fromhex("01 1a 00 04 c0000203 20 00 06 20010db8000000000000000012341234 80")
REQUEST = bytes.fromhex("02 07 01 04 00000000 20")
ROUTES = bytes.fromhex("03 14 04 c0000200 c0000229 00 04 c000022b c00002ff 00")
REQUEST_HEADERS = [
    (b":method", b"CONNECT"),
    (b":protocol", b"connect-ip"),
    (b":scheme", b"https"),
    (b":authority", b"proxy.example"),
    (b":path", b"/.well-known/masque/ip/*/*/"),
]


def events_of(data: bytes) -> list[SessionEvent]:
    session = Session(is_client=True)
    session.receive_stream_data(data)
    return taken(session)


def assert_malformed(data: bytes, *, end: bool = False) -> None:
    session = Session(is_client=False)
    with pytest.raises(PeerProtocolError) as caught:
        session.receive_stream_data(data, end)
    assert caught.value.error_code == H3_MESSAGE_ERROR


def test_hdg_06_a_datagram_after_the_end_of_the_stream_is_dropped() -> None:
    session = Session(is_client=True)
    session.receive_stream_data(b"", True)
    assert session.receive_datagram(b"\x00E") is None
    assert session.drops == {DropReason.STREAM_CLOSED: 1}


@pytest.mark.parametrize(
    "field", [(b"content-length", b"0"), (b"content-type", b"text/plain"), (b"transfer-encoding", b"chunked")]
)
def test_hdg_13_a_message_in_capsule_mode_with_content_fields_is_malformed(field: tuple[bytes, bytes]) -> None:
    for check, headers in ((check_response, build_response()), (parse_request, REQUEST_HEADERS)):
        with pytest.raises(PeerProtocolError) as caught:
            check([*headers, field])
        assert caught.value.error_code == H3_MESSAGE_ERROR


@pytest.mark.parametrize("status", [204, 205, 206])
def test_hdg_13_a_success_without_whole_content_is_malformed(status: int) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        check_response([(b":status", b"%d" % status), (b"capsule-protocol", b"?1")])
    assert caught.value.error_code == H3_MESSAGE_ERROR
    with pytest.raises(LocalProtocolError):
        build_response(status)


@pytest.mark.parametrize("value", [b"?1", b"?1;a", b"?1; a=1;b=?0", b'?1;x="y, z"'])
def test_hdg_14_a_boolean_with_any_parameters_is_capsule_protocol(value: bytes) -> None:
    assert parse_request([*REQUEST_HEADERS, (b"capsule-protocol", value)]).capsule_protocol


@pytest.mark.parametrize(
    "value", [b"?0", b"1", b"true", b"?1, ?1", b"(?1)", b"?1;", b"?1;A", b"?2", b'"?1"', b"", b"?"]
)
def test_hdg_14_anything_else_counts_as_absent(value: bytes) -> None:
    assert not parse_request([*REQUEST_HEADERS, (b"capsule-protocol", value)]).capsule_protocol
    assert check_response([(b":status", b"200"), (b"capsule-protocol", value)]) is None


def test_hdg_14_two_lines_make_a_list_and_count_as_absent() -> None:
    twice = [(b"capsule-protocol", b"?1")] * 2
    assert not parse_request([*REQUEST_HEADERS, *twice]).capsule_protocol


def test_hdg_14_a_missing_field_is_no_failure() -> None:
    assert not parse_request(REQUEST_HEADERS).capsule_protocol
    assert check_response([(b":status", b"200")]) is None


@pytest.mark.parametrize("status", [400, 401, 404, 503])
def test_hdg_14_the_field_is_sent_on_success_and_never_on_a_refusal(status: int) -> None:
    assert (b"capsule-protocol", b"?1") in build_response()
    assert b"capsule-protocol" not in dict(reject_response(status))


@pytest.mark.parametrize("number", [0, 1, 2, 5, 1 << 20, (1 << 56) - 1])
def test_hdg_15_capsules_of_unknown_types_are_skipped(number: int) -> None:
    grease = encode_capsule(0x29 * number + 0x17, b"\x01\x02")
    assert events_of(grease + ASSIGN + grease + grease) == events_of(ASSIGN)


def test_hdg_15_the_unknown_capsule_of_the_checklist_is_skipped() -> None:
    assert events_of(bytes.fromhex("17 02 01 02")) == []


def test_hdg_16_an_unknown_capsule_of_a_mebibyte_takes_no_memory() -> None:
    session = Session(is_client=True)
    piece = bytes(1024)
    session.receive_stream_data(bytes.fromhex("17 80100000"))
    tracemalloc.start()
    try:
        for _ in range(1024):
            session.receive_stream_data(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024
    session.receive_stream_data(ASSIGN)
    assert [type(event) for event in taken(session)] == [AddressesAssigned]


@pytest.mark.parametrize(
    "capsule", [ASSIGN, ASSIGN_BOTH, REQUEST, ROUTES], ids=["assign", "both", "request", "routes"]
)
def test_hdg_17_a_value_cut_inside_an_entry_or_too_long_is_malformed(capsule: bytes) -> None:
    kind, value = capsule[0], capsule[2:]
    whole_entries = {
        ASSIGN: {0, 7},
        ASSIGN_BOTH: {0, 7, 26},
        REQUEST: {7},
        ROUTES: {0, 10, 20},
    }[capsule]
    for length in range(len(value)):
        cut = encode_capsule(kind, value[:length])
        if length in whole_entries:
            Session(is_client=False).receive_stream_data(cut)
        else:
            assert_malformed(cut)
    assert_malformed(encode_capsule(kind, value + b"\x00"))


def test_hdg_17_a_value_cut_between_two_fields_is_malformed() -> None:
    for fields in ("01", "01 04", "01 04 c000020b"):
        assert_malformed(encode_capsule(2, bytes.fromhex(fields)))


@pytest.mark.parametrize("capsule", [ASSIGN, ROUTES, bytes.fromhex("17 02 01 02"), bytes.fromhex("00 03 004500")])
def test_hdg_18_an_end_inside_a_capsule_is_malformed(capsule: bytes) -> None:
    for length in range(1, len(capsule)):
        assert_malformed(capsule[:length], end=True)


def test_hdg_18_an_end_between_capsules_is_clean() -> None:
    for data in (b"", ASSIGN, ASSIGN + ROUTES):
        session = Session(is_client=True)
        session.receive_stream_data(data, True)
        assert taken(session)[-1] == SessionEnded(True, "ended by the peer")


def test_hdg_19_a_capsule_error_ends_its_own_stream_only() -> None:
    broken, other = Session(is_client=True), Session(is_client=True)
    with pytest.raises(PeerProtocolError) as caught:
        broken.receive_stream_data(bytes.fromhex("01 01 00"))
    assert caught.value.error_code == H3_MESSAGE_ERROR
    assert broken.state is SessionState.ABORTED
    other.receive_stream_data(ASSIGN)
    assert taken(other)[0].addresses == (A,)


def test_hdg_20_a_packet_in_a_capsule_follows_the_rules_of_one_in_a_datagram() -> None:
    session = Session(is_client=True)
    for payload in (b"\x00one", b"\x02unknown context", b"", b"\x40\x00two"):
        session.receive_stream_data(encode_capsule(0, payload))
    assert taken(session) == [PacketsInCapsules([b"one"]), PacketsInCapsules([b"two"])]
    assert session.drops == {DropReason.UNKNOWN_CONTEXT: 1, DropReason.MALFORMED: 1}
    assert session.state is SessionState.OPEN


def test_hdg_21_a_datagram_capsule_too_large_for_a_packet_is_discarded_unbuffered() -> None:
    parser = CapsuleParser()
    assert list(parser.receive_data(bytes.fromhex("00 c000000040000000"))) == []
    for _ in range(64):
        assert list(parser.receive_data(bytes(16384))) == []
    assert parser.buffered == 0
    assert parser.oversize_datagrams == 1


def test_hdg_21_what_follows_a_discarded_capsule_is_read() -> None:
    session = Session(is_client=True)
    session.receive_stream_data(encode_capsule(0, bytes(65537)) + ASSIGN)
    assert taken(session)[0].addresses == (A,)
    assert session.drops == {DropReason.MALFORMED: 1}


@pytest.mark.parametrize("value", [0, 1, 7, 44])
def test_hdg_23_integers_are_read_in_all_four_widths(value: int) -> None:
    for width, mark in ((1, 0), (2, 1), (4, 2), (8, 3)):
        encoded = (value | mark << (8 * width - 2)).to_bytes(width, "big")
        assert decode_varint(encoded) == (value, width)


def test_hdg_23_capsules_may_use_wide_integers_everywhere() -> None:
    wide = bytes.fromhex("4001 c00000000000000e c000000000000000 04 c000020b 20")
    assert events_of(wide) == events_of(ASSIGN)
