"""RFC 9114 on the connection: CONNECT streams, resets, GOAWAY, control streams, SETTINGS, unknown things."""

from __future__ import annotations

import random

import pytest

from qtunnel.errors import LocalProtocolError
from qtunnel.quic.events import CloseCause, Headers
from tests.sim.quic_pair import GET, REQUEST, RESPONSE, SERVER_ADDRESS, QuicPair, certificate, client_settings
from tests.sim.raw_peer import (
    DATA,
    GOAWAY,
    HEADERS,
    MAX_PUSH_ID,
    PUSH_PROMISE,
    SETTINGS,
    RawClient,
    RawServer,
    frame,
    headers_frame,
    raw_client,
    raw_server,
    settings_frame,
    varint,
)

H3_STREAM_CREATION_ERROR = 0x103
H3_CLOSED_CRITICAL_STREAM = 0x104
H3_FRAME_UNEXPECTED = 0x105
H3_FRAME_ERROR = 0x106
H3_EXCESSIVE_LOAD = 0x107
H3_ID_ERROR = 0x108
H3_SETTINGS_ERROR = 0x109
H3_MISSING_SETTINGS = 0x10A
H3_REQUEST_REJECTED = 0x10B
H3_REQUEST_CANCELLED = 0x10C
H3_MESSAGE_ERROR = 0x10E

Peer = RawClient | RawServer


def resets_seen(peer: Peer) -> list[tuple[int, int]]:
    """Return (stream id, error code) of the resets the raw peer received."""
    return [
        (event.stream_id, event.error_code) for event in peer.quic_events if type(event).__name__ == "StreamReset"
    ]


def without(headers: Headers, name: bytes) -> Headers:
    return [header for header in headers if header[0] != name]


@pytest.mark.parametrize(
    "headers",
    [
        without(REQUEST, b":scheme"),
        without(REQUEST, b":path"),
        without(REQUEST, b":method"),
        without(REQUEST, b":authority"),
        [*GET, (b":protocol", b"connect-ip")],
        [(b":method", b"GET"), *without(REQUEST, b":method")],
        without(REQUEST, b":protocol"),
        without(GET, b":path"),
        [*REQUEST, (b"Upper", b"x")],
        [*REQUEST, (b"connection", b"close")],
        [*REQUEST, (b":late", b"x")],
        [*REQUEST, (b"x", b"a\x00b")],
    ],
)
def test_h3_01_h3_02_a_malformed_request_is_an_error_of_its_stream(headers: Headers) -> None:
    peer = raw_client()
    peer.stream(0, headers_frame(headers))
    peer.stream(4, headers_frame(REQUEST))
    peer.exchange()
    assert resets_seen(peer) == [(0, H3_MESSAGE_ERROR)]
    assert [event.stream_id for event in peer.of("HeadersReceived")] == [4]
    assert peer.closed is None


@pytest.mark.parametrize(
    "headers",
    [[(b":status", b"20")], [(b":status", b"101")], [*RESPONSE, (b":path", b"/")], [(b"x", b"y")]],
)
def test_h3_01_a_malformed_response_is_an_error_of_its_stream(headers: Headers) -> None:
    peer = raw_server()
    stream_id = peer.subject.send_request(REQUEST)
    peer.exchange()
    peer.stream(stream_id, headers_frame(headers))
    peer.exchange()
    assert [event.error_code for event in peer.of("StreamReset")] == [H3_MESSAGE_ERROR]
    assert resets_seen(peer) == [(stream_id, H3_MESSAGE_ERROR)]
    assert not peer.of("HeadersReceived")
    assert peer.closed is None


@pytest.mark.parametrize("what", [headers_frame([(b"trailer", b"x")]), headers_frame(REQUEST)])
def test_h3_03_headers_after_a_successful_connect_close_the_connection(what: bytes) -> None:
    peer = raw_client()
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    assert peer.connection is not None
    peer.connection.send_headers(0, RESPONSE)
    peer.stream(0, what)
    peer.exchange()
    assert peer.closed is not None
    assert (peer.closed.error_code, peer.closed.is_application) == (H3_FRAME_UNEXPECTED, True)


def test_h3_03_trailers_from_the_server_after_a_successful_connect_close_the_connection() -> None:
    peer = raw_server()
    stream_id = peer.subject.send_request(REQUEST)
    peer.exchange()
    peer.stream(stream_id, headers_frame(RESPONSE) + headers_frame([(b"trailer", b"x")]))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_FRAME_UNEXPECTED


def test_h3_03_data_and_unknown_frames_may_follow_a_successful_connect() -> None:
    peer = raw_client()
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    assert peer.connection is not None
    peer.connection.send_headers(0, RESPONSE)
    peer.stream(0, frame(0x21, b"grease") + frame(DATA, b"cap") + frame(DATA, b"sule"))
    peer.exchange()
    assert b"".join(event.data for event in peer.of("DataReceived")) == b"capsule"
    assert peer.closed is None


@pytest.mark.parametrize("kind", [SETTINGS, GOAWAY, MAX_PUSH_ID, PUSH_PROMISE, 0x02, 0x06, 0x41])
def test_h3_03_control_frames_on_a_request_stream_close_the_connection(kind: int) -> None:
    peer = raw_client()
    peer.stream(0, headers_frame(REQUEST) + frame(kind, b"\x00"))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_FRAME_UNEXPECTED


def test_h3_04_a_request_does_not_end_our_side() -> None:
    pair = QuicPair()
    pair.open_tunnel()
    assert [event.end for event in pair.of(pair.server_events, "HeadersReceived")] == [False]


def test_h3_05_a_reset_by_the_peer_resets_our_direction_too() -> None:
    peer = raw_client()
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    peer.quic.reset_stream(0, 0x1234)
    peer.exchange()
    assert [(event.stream_id, event.error_code) for event in peer.of("StreamReset")] == [(0, 0x1234)]
    assert resets_seen(peer) == [(0, H3_REQUEST_CANCELLED)]


def test_h3_05_a_stop_sending_by_the_peer_ends_both_directions() -> None:
    peer = raw_client()
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    peer.quic.stop_stream(0, 0x1234)
    peer.exchange()
    assert [(event.stream_id, event.error_code) for event in peer.of("StreamReset")] == [(0, 0x1234)]
    stopped = [event for event in peer.quic_events if type(event).__name__ == "StopSendingReceived"]
    assert [(event.stream_id, event.error_code) for event in stopped] == [(0, H3_REQUEST_CANCELLED)]


def test_h3_05_our_reset_is_seen_by_the_peer_as_the_end_of_both_directions() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.client.reset_stream(stream_id, H3_REQUEST_CANCELLED)
    pair.run(1)
    ends = pair.of(pair.server_events, "StreamReset")
    assert [(event.stream_id, event.error_code) for event in ends] == [(stream_id, H3_REQUEST_CANCELLED)]
    assert not pair.of(pair.client_events, "StreamReset")
    assert pair.closed(pair.server_events) is None


def test_h3_06_after_goaway_the_client_sends_no_new_request() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    assert pair.server_connection is not None
    pair.server_connection.goaway()
    pair.run(0.5)
    assert [event.stream_id for event in pair.of(pair.client_events, "GoawayReceived")] == [stream_id + 4]
    with pytest.raises(LocalProtocolError, match="GOAWAY"):
        pair.client.send_request(REQUEST)
    assert not pair.client.send_packets(stream_id, [b"still open"], pair.now)
    pair.run(0.5)
    assert pair.packets(pair.server_events) == [b"still open"]


def test_h3_06_requests_that_cross_our_goaway_are_rejected() -> None:
    peer = raw_client()
    assert peer.connection is not None
    peer.connection.goaway()
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    assert resets_seen(peer) == [(0, H3_REQUEST_REJECTED)]
    assert not peer.of("HeadersReceived")


def test_h3_06_a_goaway_identifier_must_not_grow() -> None:
    peer = raw_server()
    peer.stream(3, frame(GOAWAY, varint(8)) + frame(GOAWAY, varint(4)))
    peer.exchange()
    assert [event.stream_id for event in peer.of("GoawayReceived")][-1] == 4
    peer.stream(3, frame(GOAWAY, varint(8)))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_ID_ERROR


def test_h3_06_a_goaway_that_names_no_request_closes_the_connection() -> None:
    peer = raw_server()
    peer.stream(3, frame(GOAWAY, varint(3)))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_ID_ERROR


@pytest.mark.parametrize("payload", [b"", b"\x04\x00", b"\x40", b"\x04" * 20])
def test_h3_06_a_goaway_that_is_not_one_identifier_closes_the_connection(payload: bytes) -> None:
    peer = raw_server()
    peer.stream(3, frame(GOAWAY, payload))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_FRAME_ERROR


def test_h3_06_goaway_is_found_when_it_arrives_byte_by_byte() -> None:
    peer = raw_server()
    for byte in frame(0x21, b"grease") + frame(GOAWAY, varint(400)):
        peer.stream(3, bytes([byte]))
        peer.exchange()
    assert [event.stream_id for event in peer.of("GoawayReceived")] == [400]


@pytest.mark.parametrize("kind", [RawClient, RawServer])
def test_h3_07_settings_come_first_on_the_control_stream(kind: type[Peer]) -> None:
    peer = kind()
    peer.connect()
    peer.stream(peer.control_stream, b"\x00" + frame(GOAWAY, b"\x00"))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_MISSING_SETTINGS


@pytest.mark.parametrize("kind", [RawClient, RawServer])
def test_h3_07_there_is_one_control_stream_each(kind: type[Peer]) -> None:
    peer = kind()
    peer.connect()
    peer.open_http()
    peer.stream(peer.control_stream + 12, b"\x00" + settings_frame({}))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_STREAM_CREATION_ERROR


@pytest.mark.parametrize("offset", [0, 4, 8])
@pytest.mark.parametrize("how", ["end", "reset"])
def test_h3_07_closing_a_critical_stream_closes_the_connection(offset: int, how: str) -> None:
    peer = raw_client()
    if how == "end":
        peer.stream(2 + offset, b"", end=True)
    else:
        peer.quic.reset_stream(2 + offset, 0)
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_CLOSED_CRITICAL_STREAM


def test_h3_07_we_open_one_control_stream_with_settings_first() -> None:
    peer = RawServer()
    peer.connect()
    peer.exchange()
    streams = peer.streams_received()
    assert [stream_id for stream_id, data in streams.items() if data[:1] == b"\x00"] == [2]
    assert streams[2][1] == SETTINGS


@pytest.mark.parametrize("setting", [0x00, 0x02, 0x03, 0x04, 0x05])
def test_h3_08_settings_of_http2_are_refused(setting: int) -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http({setting: 1})
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_SETTINGS_ERROR


def test_h3_08_a_setting_that_comes_twice_is_refused() -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http([(0x33, 1), (0x33, 1)])
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_SETTINGS_ERROR


def test_h3_08_unknown_settings_are_ignored() -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http({0x08: 1, 0x33: 1, 0x21: 7, 0x1F00: (1 << 62) - 1})
    peer.exchange()
    assert [event.datagrams for event in peer.of("SettingsReceived")] == [True]
    assert peer.closed is None


def test_h3_09_settings_are_sent_without_waiting_for_the_peers() -> None:
    peer = RawClient()
    peer.connect()
    assert peer.streams_received()[3].startswith(b"\x00\x04")
    peer_server = RawServer()
    peer_server.connect()
    assert peer_server.streams_received()[2].startswith(b"\x00\x04")


def test_h3_10_unknown_stream_types_and_frames_are_ignored() -> None:
    peer = raw_client()
    peer.stream(14, varint(0x21) + b"whatever this is", end=True)
    peer.stream(18, varint(0x40 + 0x21) + random.Random(3).randbytes(500))
    peer.stream(2, frame(0x21, b"grease") + frame(0x1F * 7 + 0x21, b"x" * 300))
    peer.stream(0, frame(0x21, b"grease") + headers_frame(REQUEST) + frame(0x5F, b""))
    peer.exchange()
    assert len(peer.of("HeadersReceived")) == 1
    assert peer.closed is None


def test_h3_11_a_certificate_for_another_name_is_refused_by_authorities() -> None:
    pem, _, _ = certificate()
    settings = client_settings(fingerprint=None, cadata=pem, server_name="other.test")
    pair = QuicPair(client=settings)
    pair.run_until(lambda: pair.closed(pair.client_events))
    closed = pair.closed(pair.client_events)
    assert closed is not None
    assert closed.cause is CloseCause.NOT_VERIFIED
    assert "other.test" in closed.reason
    assert not pair.of(pair.client_events, "HandshakeCompleted")


def test_h3_11_a_certificate_of_a_trusted_authority_for_the_name_is_accepted() -> None:
    pem, _, _ = certificate()
    pair = QuicPair(client=client_settings(fingerprint=None, cadata=pem))
    pair.connect()


def test_h3_12_requests_above_a_goaway_are_reported_as_rejected() -> None:
    peer = raw_server()
    first = peer.subject.send_request(REQUEST)
    second = peer.subject.send_request(REQUEST)
    peer.exchange()
    peer.stream(3, frame(GOAWAY, varint(second)))
    peer.exchange()
    ends = [(event.stream_id, event.error_code) for event in peer.of("StreamReset")]
    assert ends == [(second, H3_REQUEST_REJECTED)]
    peer.quic.reset_stream(first, H3_REQUEST_CANCELLED)
    peer.exchange()
    ends = [(event.stream_id, event.error_code) for event in peer.of("StreamReset")]
    assert ends[1:] == [(first, H3_REQUEST_CANCELLED)]


def test_server_push_is_refused() -> None:
    peer = raw_server()
    stream_id = peer.subject.send_request(REQUEST)
    peer.exchange()
    peer.stream(stream_id, frame(PUSH_PROMISE, b"\x00\x00\x00"))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_ID_ERROR


def test_server_initiated_bidirectional_streams_are_refused() -> None:
    peer = raw_server()
    peer.stream(1, b"hello")
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_STREAM_CREATION_ERROR


def test_a_huge_header_section_is_refused_before_it_is_kept() -> None:
    peer = raw_client()
    peer.stream(0, varint(HEADERS) + varint(1 << 30) + bytes(1000))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_EXCESSIVE_LOAD


def test_a_huge_control_frame_is_refused_before_it_is_kept() -> None:
    peer = RawClient()
    peer.connect()
    peer.stream(2, b"\x00" + varint(SETTINGS) + varint(1 << 30))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_EXCESSIVE_LOAD


def test_requests_without_any_settings_are_held_within_a_bound() -> None:
    peer = RawClient()
    peer.connect()
    for index in range(100):
        peer.stream(4 * index, headers_frame(REQUEST))
        peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_MISSING_SETTINGS


def test_the_client_connects_to_the_address_it_was_given() -> None:
    pair = QuicPair()
    pair.connect()
    assert pair.client.remote == SERVER_ADDRESS
