"""What leaves together, what an ACK rides on, and how much may go to whom."""

from __future__ import annotations

from qtunnel.burst import Address, Received
from qtunnel.drops import DropReason
from qtunnel.quic.h3 import HttpConnection
from tests.sim.quic_pair import REQUEST, RESPONSE, QuicPair, split
from tests.sim.raw_peer import headers_frame, raw_server, varint
from tests.unit.quic.planes import open_pair, plane_of, received, settings


def test_full_packets_leave_as_one_segmented_send() -> None:
    pair = QuicPair(**settings(congestion_control="none"))  # type: ignore[arg-type]
    stream_id, _ = open_pair(pair)
    size = pair.client.max_packet_size(stream_id)
    packets = [bytes([n]) * size for n in range(8)]
    pair.transmits.clear()
    pair.client.send_packets(stream_id, packets, pair.now)
    pair.flush()
    first = pair.transmits[0][1]
    assert first.segment_size == 1472
    assert len(first.data) == 8 * 1472
    pair.run(1)
    assert received(pair.server_events) == packets


def test_small_packets_that_wait_together_share_a_quic_packet() -> None:
    pair = QuicPair()
    stream_id, _ = open_pair(pair)
    packets = [b"%02d" % n * 20 for n in range(20)]
    before = len(pair.wire)
    pair.client.send_packets(stream_id, packets, pair.now)
    pair.flush()
    assert len(pair.wire) - before == 1
    pair.run(1)
    assert received(pair.server_events) == packets


def test_in_a_one_way_flow_the_receiver_has_its_acks_acknowledged() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, server = open_pair(pair)
    for _ in range(400):
        pair.client.send_packets(stream_id, [b"x" * 100] * 2, pair.now)
        pair.run(0.002)
    pair.run(1)
    plane = plane_of(server)
    assert plane.writer.acks_sent > 90
    oldest = plane.path.recovery.first_outstanding()
    assert oldest is None or plane.path.next_number - oldest < 70
    assert server.quic.bytes_in_flight == 0


def test_a_peer_that_never_acknowledges_makes_no_heap_of_records() -> None:
    pair = QuicPair(**settings(idle_timeout=600.0))  # type: ignore[arg-type]
    _, server = open_pair(pair)
    plane = plane_of(server)
    for number in range(20_000):
        plane.path.received.add(100_000 + number, pair.now)
        plane.path.received.received(eliciting=2, out_of_order=False, now=pair.now)
        plane.send(pair.now)
    assert len(plane.path.recovery._flight.sent) < 10_000


def test_no_more_than_three_times_goes_to_an_address_that_is_not_validated() -> None:
    """RFC 9000 §9.3: whoever repeats a client's packet from a victim's address must not have it flooded."""
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, server = open_pair(pair)
    victim: Address = ("203.0.113.9", 9)
    pair.client.ping()
    spoofed = [data for transmit in pair.client.datagrams_to_send(pair.now) for data in split(transmit)]
    pair.endpoint.receive_from_udp([Received(spoofed, victim)], pair.now)
    assert server.remote == victim
    sent = 0
    now = pair.now
    while now < pair.now + 10.0 and server.remote == victim:
        server.send_packets(stream_id, [b"x" * 1300, b"small"], now)
        sent += sum(len(each.data) for each in server.datagrams_to_send(now) if each.remote == victim)
        at = server.get_timer()
        assert at is not None
        now = max(now, at)
        server.handle_timer(now)
    assert server.remote != victim
    assert 0 < sent <= 3 * sum(map(len, spoofed))


def test_a_longer_connection_id_of_the_peer_makes_packets_shorter_and_no_datagram_larger() -> None:
    peer = raw_server()
    client: HttpConnection = peer.subject
    client.send_request(REQUEST)
    client.register_packet_stream(0, b"\x00")
    peer.exchange()
    peer.stream(0, headers_frame(RESPONSE))
    peer.exchange()
    before = client.max_packet_size(0)
    client.send_packets(0, [b"x" * before] * 8, peer.now)
    peer.quic.raw_frames.append(b"\x18" + varint(9) + varint(9) + b"\x14" + b"L" * 20 + b"T" * 16)
    peer._peer_to_subject()
    after = client.max_packet_size(0)
    assert before - after == 12
    client.send_packets(0, [b"y" * after] * 8, peer.now)
    sent = [data for transmit in client.datagrams_to_send(peer.now) for data in split(transmit)]
    assert {data[1:21] for data in sent} == {b"L" * 20}
    assert [len(data) for data in sent if len(data) > 1000] == [1200] * 8
    assert client.drops[DropReason.DATAGRAM_TOO_LARGE] == 8


def test_acks_are_repeated_beside_other_packets_now_and_then_only() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, server = open_pair(pair)
    server.send_packets(stream_id, [b"x" * 1000] * 2, pair.now)
    pair.run(0.2)
    writer, pto = plane_of(pair.client).writer, plane_of(pair.client).path.recovery.pto()
    before = writer.acks_sent
    for _ in range(40):
        pair.client.send_packets(stream_id, [b"y" * 1000], pair.now)
        pair.run(pto / 40)
    assert 1 <= writer.acks_sent - before <= 5
    for _ in range(40):
        pair.client.send_packets(stream_id, [b"y" * 1000], pair.now)
        pair.run(pto / 8)
    assert writer.acks_sent - before <= 14  # three probe timeouts after what it is about, no more
