"""RFC 9297 where it meets QUIC: quarter stream ids, the H3_DATAGRAM setting, datagrams early and late."""

from __future__ import annotations

import pytest

from qtunnel.drops import DropReason
from qtunnel.errors import LocalProtocolError
from qtunnel.quic.early_datagrams import MAX_EARLY
from tests.sim.quic_pair import GET, REQUEST, RESPONSE, QuicPair
from tests.sim.raw_peer import (
    DATA,
    RawClient,
    RawServer,
    frame,
    headers_frame,
    raw_client,
    raw_server,
    settings_frame,
    varint,
)

H3_DATAGRAM_ERROR = 0x33
H3_ID_ERROR = 0x108
H3_SETTINGS_ERROR = 0x109


def datagram(payload: bytes) -> bytes:
    """Return a DATAGRAM frame with a length (0x31)."""
    return b"\x31" + varint(len(payload)) + payload


def test_hdg_01_datagrams_are_sent_for_extended_connect_only() -> None:
    pair = QuicPair()
    pair.connect()
    stream_id = pair.client.send_request(GET, end=True)
    drops = pair.client.send_packets(stream_id, [b"packet"], pair.now)
    assert drops == {DropReason.STREAM_CLOSED: 1}
    stream_id = pair.client.send_request(GET)
    with pytest.raises(LocalProtocolError, match="has no datagrams"):
        pair.client.register_packet_stream(stream_id, b"\x00")
    assert pair.client.send_packets(stream_id, [b"packet"], pair.now) == {DropReason.NO_SESSION: 1}
    assert pair.client.max_packet_size(stream_id) == 0


def test_hdg_02_a_datagram_for_a_get_request_ends_it() -> None:
    peer = raw_client()
    peer.stream(0, headers_frame(GET))
    peer.exchange()
    peer.quic.raw_frames.append(datagram(b"\x00packet"))
    peer.exchange()
    assert [(event.stream_id, event.error_code) for event in peer.of("StreamReset")] == [(0, H3_DATAGRAM_ERROR)]
    assert peer.closed is None
    resets = [event for event in peer.quic_events if type(event).__name__ == "StreamReset"]
    assert [(event.stream_id, event.error_code) for event in resets] == [(0, H3_DATAGRAM_ERROR)]


def test_hdg_02_a_datagram_that_came_before_the_get_request_ends_it() -> None:
    peer = raw_client()
    peer.quic.raw_frames.append(datagram(b"\x00packet"))
    peer.exchange()
    peer.stream(0, headers_frame(GET))
    peer.exchange()
    assert not peer.of("HeadersReceived")
    resets = [event for event in peer.quic_events if type(event).__name__ == "StreamReset"]
    assert [(event.stream_id, event.error_code) for event in resets] == [(0, H3_DATAGRAM_ERROR)]


def test_hdg_03_a_quarter_stream_id_above_the_limit_closes_the_connection() -> None:
    peer = raw_client()
    peer.quic.raw_frames.append(datagram(varint(1 << 60) + b"packet"))
    peer.exchange()
    assert peer.closed is not None
    assert (peer.closed.error_code, peer.closed.is_application) == (H3_DATAGRAM_ERROR, True)


@pytest.mark.parametrize("payload", [b"", b"\x40", b"\x80\x00\x00", b"\xc0"])
def test_hdg_04_a_datagram_too_short_for_its_quarter_stream_id_closes_the_connection(payload: bytes) -> None:
    peer = raw_client()
    peer.quic.raw_frames.append(datagram(payload))
    peer.exchange()
    assert peer.closed is not None
    assert (peer.closed.error_code, peer.closed.is_application) == (H3_DATAGRAM_ERROR, True)


def test_hdg_05_nothing_is_sent_after_our_end_of_the_stream() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.client.send_data(stream_id, b"", end=True)
    assert pair.client.send_packets(stream_id, [b"packet"], pair.now) == {DropReason.STREAM_CLOSED: 1}
    pair.run(1)
    assert not pair.packets(pair.server_events)


def test_hdg_05_nothing_is_sent_after_our_reset() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.client.reset_stream(stream_id, 0x10C)
    assert pair.client.send_packets(stream_id, [b"packet"] * 3, pair.now) == {DropReason.STREAM_CLOSED: 3}
    assert pair.client.drops[DropReason.STREAM_CLOSED] == 3


def test_hdg_06_datagrams_after_the_peers_end_of_the_stream_are_dropped_and_counted() -> None:
    peer = raw_client()
    peer.stream(0, headers_frame(REQUEST), end=True)
    peer.exchange()
    assert peer.connection is not None
    peer.connection.register_packet_stream(0, b"\x00")
    peer.connection.send_headers(0, RESPONSE)
    peer.quic.raw_frames.append(datagram(b"\x00\x00late"))
    peer.exchange()
    assert not peer.of("PacketsReceived")
    assert peer.connection.drops == {DropReason.STREAM_CLOSED: 1}
    assert peer.closed is None


def test_hdg_06_datagrams_for_a_stream_long_gone_are_dropped_and_counted() -> None:
    peer = raw_client()
    peer.stream(0, headers_frame(REQUEST), end=True)
    peer.exchange()
    assert peer.connection is not None
    peer.connection.send_headers(0, [(b":status", b"403")], end=True)
    peer.exchange()
    peer.pass_time(1)
    peer.exchange()
    peer.quic.raw_frames.append(datagram(b"\x00\x00late"))
    peer.exchange()
    assert peer.connection.drops == {DropReason.STREAM_CLOSED: 1}
    assert peer.closed is None


def test_hdg_07_datagrams_before_their_request_are_held_and_then_delivered() -> None:
    peer = raw_client()
    peer.quic.raw_frames += [datagram(b"\x00\x00first"), datagram(b"\x00\x00second")]
    peer.exchange()
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    assert peer.connection is not None
    peer.connection.register_packet_stream(0, b"\x00")
    assert not peer.of("PacketsReceived")
    peer.connection.send_headers(0, RESPONSE)
    peer.exchange()
    assert [event.packets for event in peer.of("PacketsReceived")] == [[b"first", b"second"]]


def test_hdg_07_held_datagrams_are_dropped_after_about_a_round_trip() -> None:
    peer = raw_client()
    peer.quic.raw_frames.append(datagram(b"\x00\x00first"))
    peer.exchange()
    peer.pass_time(0.5)
    peer.exchange()
    assert peer.connection is not None
    assert peer.connection.drops == {DropReason.UNKNOWN_STREAM: 1}


def test_hdg_07_the_number_of_held_datagrams_is_bounded() -> None:
    peer = raw_client()
    peer.quic.raw_frames += [datagram(b"\x00\x00" + bytes(10)) for _ in range(100)]
    peer.exchange(rounds=2)
    assert peer.connection is not None
    assert peer.connection.drops[DropReason.UNKNOWN_STREAM] == 100 - MAX_EARLY


def test_hdg_07_a_client_holds_datagrams_until_the_response() -> None:
    peer = raw_server()
    stream_id = peer.subject.send_request(REQUEST)
    peer.subject.register_packet_stream(stream_id, b"\x00")
    peer.exchange()
    peer.quic.raw_frames.append(datagram(b"\x00\x00early"))
    peer.exchange()
    assert not peer.of("PacketsReceived")
    peer.stream(0, headers_frame(RESPONSE))
    peer.exchange()
    assert [event.packets for event in peer.of("PacketsReceived")] == [[b"early"]]


def test_hdg_07_a_client_drops_datagrams_for_requests_it_never_made() -> None:
    peer = RawServer()
    peer.connect()
    peer.open_http()
    peer.quic.raw_frames.append(datagram(b"\x05\x00stray"))
    peer.exchange()
    assert peer.subject.drops == {DropReason.UNKNOWN_STREAM: 1}
    assert peer.closed is None


def test_hdg_08_a_datagram_for_a_stream_beyond_the_limit_closes_the_connection() -> None:
    peer = raw_client()
    peer.quic.raw_frames.append(datagram(varint(100_000) + b"packet"))
    peer.exchange()
    assert peer.closed is not None
    assert (peer.closed.error_code, peer.closed.is_application) == (H3_ID_ERROR, True)


@pytest.mark.parametrize("value", [2, 63, 1 << 40])
def test_hdg_09_the_setting_is_0_or_1(value: int) -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http({0x33: value})
    peer.exchange()
    assert peer.closed is not None
    assert (peer.closed.error_code, peer.closed.is_application) == (H3_SETTINGS_ERROR, True)


def test_hdg_10_packets_before_the_peers_setting_are_not_sent() -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http({0x08: 1})  # no H3_DATAGRAM
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    connection = peer.connection
    assert connection is not None
    connection.register_packet_stream(0, b"\x00")
    connection.send_headers(0, RESPONSE)
    assert connection.max_packet_size(0) == 0
    assert connection.send_packets(0, [b"packet"], peer.now) == {DropReason.NO_SESSION: 1}
    peer.exchange()
    assert not [event for event in peer.quic_events if type(event).__name__ == "DatagramFrameReceived"]
    assert [event.datagrams for event in peer.of("SettingsReceived")] == [False]


def test_hdg_10_with_the_setting_on_both_sides_packets_are_sent() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    assert not pair.client.send_packets(stream_id, [b"packet"], pair.now)
    pair.run(0.1)
    assert pair.packets(pair.server_events) == [b"packet"]


def test_hdg_10_a_request_that_overtook_the_settings_is_reported_after_them() -> None:
    peer = RawClient()
    peer.connect()
    peer.stream(0, headers_frame(REQUEST) + frame(DATA, b"capsules"))
    peer.exchange()
    assert not peer.of("HeadersReceived")
    peer.open_http()
    peer.exchange()
    kinds = [type(event).__name__ for event in peer.events]
    assert kinds == ["HandshakeCompleted", "SettingsReceived", "HeadersReceived", "DataReceived"]


def test_hdg_11_there_is_no_0_rtt_and_no_session_ticket() -> None:
    tickets: list[object] = []
    peer = RawClient()
    peer.quic._session_ticket_handler = tickets.append
    peer.connect()
    peer.open_http()
    peer.exchange()
    assert not tickets
    completed = [event for event in peer.quic_events if type(event).__name__ == "HandshakeCompleted"]
    assert [(event.early_data_accepted, event.session_resumed) for event in completed] == [(False, False)]


@pytest.mark.parametrize("kind", [RawClient, RawServer])
def test_hdg_12_the_setting_is_always_sent_as_1(kind: type[RawClient | RawServer]) -> None:
    peer = kind()
    peer.connect()
    peer.exchange()
    control = peer.streams_received()[3 if kind is RawClient else 2]
    assert control.startswith(b"\x00\x04")
    assert varint(0x33) + varint(1) in control[: 3 + control[2]]
    assert settings_frame({}) not in control
