"""HTTP Datagrams: parsing, bursts, prefixes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.drops import DropReason
from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.quic.http_datagrams import MAX_SORTED, parse_http_datagram, quarter_stream_id, take_packets
from tests.sim.quic_pair import GET, REQUEST, RESPONSE, QuicPair
from tests.sim.raw_peer import RawClient, headers_frame


@given(st.integers(0, (1 << 60) - 1), st.binary(max_size=20))
def test_what_is_written_is_read(quarter: int, payload: bytes) -> None:
    assert parse_http_datagram(quarter_stream_id(4 * quarter) + payload) == (4 * quarter, payload)


@given(st.binary(max_size=20))
def test_any_bytes_are_a_datagram_or_our_error(data: bytes) -> None:
    try:
        stream_id, payload = parse_http_datagram(data)
    except PeerProtocolError:
        return
    assert stream_id % 4 == 0
    assert data.endswith(payload)


def test_what_is_no_datagram_carries_the_code_to_close_with() -> None:
    with pytest.raises(PeerProtocolError) as caught:
        parse_http_datagram(b"")
    assert caught.value.error_code == 0x33


def test_a_quarter_stream_id_may_be_written_long() -> None:
    assert parse_http_datagram(b"\x40\x01x") == parse_http_datagram(b"\x80\x00\x00\x01x") == (4, b"x")


@given(st.lists(st.binary(max_size=4), max_size=20))
def test_a_burst_is_divided_in_order(datagrams: list[bytes]) -> None:
    packets, rest = take_packets(datagrams, b"\x00")
    assert packets == [data[1:] for data in datagrams if data[:1] == b"\x00"]
    assert rest == [data for data in datagrams if data[:1] != b"\x00"]


def test_a_burst_is_one_event_per_stream() -> None:
    pair = QuicPair(delay=0.001)
    stream_id = pair.open_tunnel()
    pair.run(1)
    server = pair.server_connection
    assert server is not None
    pair.client.send_packets(stream_id, [bytes([index]) for index in range(5)], pair.now)
    pair.run(0.05)
    events = pair.of(pair.server_events, "PacketsReceived")
    assert b"".join(packet for event in events for packet in event.packets) == bytes(range(5))
    assert len(events) == 1


def test_payloads_with_another_context_are_reported_apart() -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http()
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    assert peer.connection is not None
    peer.connection.send_headers(0, RESPONSE)
    peer.connection.register_packet_stream(0, b"\x00")
    peer.quic.raw_frames += [
        b"\x31\x03\x00\x00a",
        b"\x31\x03\x00\x02b",
        b"\x31\x04\x40\x00\x00c",
        b"\x31\x01\x00",
    ]
    peer.exchange()
    packets = [packet for event in peer.of("PacketsReceived") for packet in event.packets]
    payloads = [payload for event in peer.of("DatagramsReceived") for payload in event.payloads]
    assert sorted(packets) == [b"a", b"c"]
    assert payloads == [b"\x02b", b""]


def test_of_payloads_that_are_sorted_one_by_one_a_burst_has_a_bound() -> None:
    """Sorting one costs microseconds, and a packet has room for 400 of them."""
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    datagrams = [b"\x00\x00packet", *[b"\x00\x02"] * (MAX_SORTED + 44)]
    server = pair.server_connection
    assert server is not None
    server._datagrams.receive(datagrams, pair.now)
    server.ping()  # has the endpoint look for events
    pair.flush()
    assert pair.packets(pair.server_events) == [b"packet"]
    (event,) = pair.of(pair.server_events, "DatagramsReceived")
    assert (event.stream_id, event.payloads) == (stream_id, [b"\x02"] * MAX_SORTED)
    assert server.drops[DropReason.UNKNOWN_CONTEXT] == 44


def test_two_packet_streams_share_a_connection() -> None:
    pair = QuicPair()
    server = pair.connect()
    streams = [pair.client.send_request(REQUEST) for _ in range(2)]
    pair.run(0.1)
    for stream_id in streams:
        server.send_headers(stream_id, RESPONSE)
        server.register_packet_stream(stream_id, b"\x00")
        pair.client.register_packet_stream(stream_id, b"\x00")
    pair.run(0.1)
    for stream_id in streams:
        pair.client.send_packets(stream_id, [b"on %d" % stream_id], pair.now)
    pair.run(0.2)
    got = {event.stream_id: event.packets for event in pair.of(pair.server_events, "PacketsReceived")}
    assert got == {0: [b"on 0"], 4: [b"on 4"]}


def test_only_an_extended_connect_can_be_a_packet_stream() -> None:
    pair = QuicPair()
    pair.connect()
    stream_id = pair.client.send_request(GET)
    with pytest.raises(LocalProtocolError, match="has no datagrams"):
        pair.client.register_packet_stream(stream_id, b"\x00")
    with pytest.raises(LocalProtocolError, match="has no datagrams"):
        pair.client.register_packet_stream(400, b"\x00")
