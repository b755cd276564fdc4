"""HTTP/3 beneath: no dynamic table, no push, bounded frames."""

from __future__ import annotations

import tracemalloc

import pylsqpack

from tests.sim.quic_pair import REQUEST, QuicPair
from tests.sim.raw_peer import HEADERS, RawClient, RawServer, frame, headers_frame, raw_client, varint

MIB = 1024 * 1024
QPACK_ENCODER_STREAM_ERROR = 0x201


def test_our_settings_allow_no_dynamic_table_and_bound_header_sections() -> None:
    peer = RawClient()
    peer.connect()
    control = peer.streams_received()[3]
    assert varint(0x01) + varint(0) in control
    assert varint(0x07) + varint(0) in control
    assert varint(0x06) + varint(16384) in control


def test_a_peer_that_uses_a_dynamic_table_all_the_same_is_refused() -> None:
    peer = raw_client()
    peer.stream(6, b"\x3f\xe1\x1f" + b"\x4a" + b"custom-nam" + b"\x05value")
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == QPACK_ENCODER_STREAM_ERROR


def test_we_use_no_dynamic_table_whatever_the_peer_offers() -> None:
    peer = RawServer()
    peer.connect()
    peer.open_http({0x01: 1 << 40, 0x07: 1 << 40, 0x08: 1, 0x33: 1})
    peer.exchange()
    for _ in range(3):
        peer.subject.send_request([*REQUEST, (b"authorization", b"Bearer secret")])
    peer.exchange()
    encoder_stream = next(data for data in peer.streams_received().values() if data[:1] == b"\x02")
    assert encoder_stream == b"\x02"
    decoder = pylsqpack.Decoder(0, 0)
    section = peer.streams_received()[8]
    _, headers = decoder.feed_header(8, section[2 if section[1] < 64 else 3 :])
    assert (b"authorization", b"Bearer secret") in headers


def test_the_client_offers_no_push() -> None:
    peer = RawServer()
    peer.connect()
    control = peer.streams_received()[2]
    assert frame(0x0D, b"\x08") not in control  # MAX_PUSH_ID


def test_a_header_section_just_within_the_bound_is_read_and_takes_little_memory() -> None:
    peer = raw_client()
    head = headers_frame(REQUEST)
    section = head[2 if head[1] < 64 else 3 :] + b"\xff\x16" * 8000  # static entry 85, 8,000 times
    tracemalloc.start()
    peer.stream(0, frame(HEADERS, section[:16384]))
    peer.exchange()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peer.closed is None
    assert peak < 16 * MIB


def test_a_request_survives_being_cut_anywhere() -> None:
    data = headers_frame(REQUEST) + frame(0, b"capsule bytes")
    peer = RawClient()
    peer.connect()
    peer.open_http()
    for byte in data:
        peer.stream(0, bytes([byte]))
        peer.exchange(rounds=4)
    assert [event.headers for event in peer.of("HeadersReceived")] == [REQUEST]
    assert b"".join(event.data for event in peer.of("DataReceived")) == b"capsule bytes"


def test_goaway_leaves_on_the_control_stream() -> None:
    pair = QuicPair()
    pair.open_tunnel()
    pair.client.goaway()
    pair.run(0.1)
    assert [event.stream_id for event in pair.of(pair.server_events, "GoawayReceived")] == [0]
