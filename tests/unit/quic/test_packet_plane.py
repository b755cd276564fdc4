"""The packet plane of whole connections in virtual time: loss, reordering, key updates, small packets, limits."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import cast

from qtunnel.burst import Address, Received
from qtunnel.drops import DropReason
from qtunnel.quic.events import PacketsReceived
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.packet_plane import PTO_PROBES, PacketPlane
from qtunnel.quic.plane_connection import PlaneConnection
from tests.sim.quic_pair import REQUEST, RESPONSE, QuicPair, client_settings, server_settings, split
from tests.sim.raw_peer import headers_frame, raw_server, varint


def plane_of(connection: HttpConnection) -> PacketPlane:
    plane = cast(PlaneConnection, connection.quic).plane
    assert plane is not None
    return plane


def received(events: list[object]) -> list[bytes]:
    return [packet for event in events if isinstance(event, PacketsReceived) for packet in event.packets]


def open_pair(pair: QuicPair) -> tuple[int, HttpConnection]:
    stream_id = pair.open_tunnel()
    pair.run(1)
    assert pair.server_connection is not None
    return stream_id, pair.server_connection


def settings(**changes: object) -> dict[str, object]:
    return {
        "client": replace(client_settings(max_udp_payload=1472), **changes),  # type: ignore[arg-type]
        "server": replace(server_settings(max_udp_payload=1472), **changes),  # type: ignore[arg-type]
    }


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


def test_qdg_11_datagrams_are_acknowledged_and_not_sent_again() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, _ = open_pair(pair)
    pair.lose = lambda data, to_server: to_server and len(data) > 1000
    pair.client.send_packets(stream_id, [b"x" * 1400] * 5, pair.now)
    pair.run(5)
    assert received(pair.server_events) == []
    assert pair.client.quic.bytes_in_flight == 0
    assert pair.client.stats().lost >= 5


def test_everything_is_acknowledged_and_nothing_stays_in_flight() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, server = open_pair(pair)
    for _ in range(30):
        pair.client.send_packets(stream_id, [b"x" * 1400] * 10, pair.now)
        server.send_packets(stream_id, [b"y" * 900] * 10, pair.now)
        pair.run(0.02)
    pair.run(1)
    assert len(received(pair.server_events)) == len(received(pair.client_events)) == 300
    assert pair.client.quic.bytes_in_flight == server.quic.bytes_in_flight == 0
    assert pair.client.stats().lost == server.stats().lost == 0


def test_key_updates_of_either_side_lose_no_packet() -> None:
    pair = QuicPair(**settings(key_update_after=40))  # type: ignore[arg-type]
    stream_id, server = open_pair(pair)
    for number in range(100):
        pair.client.send_packets(stream_id, [b"c%03d" % number * 50] * 4, pair.now)
        server.send_packets(stream_id, [b"s%03d" % number * 50] * 4, pair.now)
        pair.run(0.05)
    pair.run(1)
    assert len(received(pair.server_events)) == len(received(pair.client_events)) == 400
    assert plane_of(pair.client).keys.updates >= 3
    assert plane_of(pair.client).keys.updates == plane_of(server).keys.updates
    assert pair.client.quic.closed is None


def test_streams_arrive_whole_under_loss_and_reordering(seed: int) -> None:
    rng = random.Random(seed)
    pair = QuicPair(**settings(), lose=lambda _data, _to_server: rng.random() < 0.1)  # type: ignore[arg-type]
    stream_id, server = open_pair(pair)
    sent = rng.randbytes(200_000)
    for start in range(0, len(sent), 10_000):
        server.send_data(stream_id, sent[start : start + 10_000])
        server.send_packets(stream_id, [b"x" * 1000] * 3, pair.now)
        pair.run(0.05)
    pair.run(20)
    got = b"".join(event.data for event in pair.of(pair.client_events, "DataReceived"))
    assert got == sent


def test_one_forged_datagram_costs_no_other_of_its_burst() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, server = open_pair(pair)
    forged = bytearray(pair.wire[-1][2])

    def corrupt(data: bytes, to_server: bool) -> bool:
        if to_server and len(data) > 1000 and not forged:
            forged.extend(data[:-1] + bytes((data[-1] ^ 1,)))
            pair.inject(bytes(forged), to_server=True)
            return True
        return False

    forged.clear()
    pair.lose = corrupt
    pair.client.send_packets(stream_id, [bytes([n]) * 1400 for n in range(10)], pair.now)
    pair.run(1)
    assert len(received(pair.server_events)) == 9
    assert plane_of(server).keys.receive.failed >= 1


def test_a_duplicate_is_delivered_once() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, _ = open_pair(pair)

    def twice(data: bytes, to_server: bool) -> bool:
        pair.inject(data, to_server=to_server)
        return False

    pair.lose = twice
    pair.client.send_packets(stream_id, [b"once" * 100] * 6, pair.now)
    pair.run(1)
    assert len(received(pair.server_events)) == 6


def test_a_client_at_a_new_address_is_followed_and_validated() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, server = open_pair(pair)
    new: Address = ("198.18.0.77", 7777)
    pair.address = new
    pair.client.send_packets(stream_id, [b"from here" * 20] * 3, pair.now)
    pair.run(1)
    assert server.remote == new
    server.send_packets(stream_id, [b"to there" * 20], pair.now)
    pair.run(1)
    assert received(pair.client_events)[-1] == b"to there" * 20
    assert server.quic.active_path.is_validated


def test_rec_08_no_more_than_the_window_is_in_flight() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, _ = open_pair(pair)
    pair.lose = lambda data, to_server: not to_server
    pair.client.send_packets(stream_id, [b"x" * 1400] * 200, pair.now)
    for _ in range(20):
        pair.run(0.005)
        assert pair.client.quic.bytes_in_flight <= pair.client.quic.congestion_window + PTO_PROBES * 1472


def test_without_the_plane_all_is_aioquics() -> None:
    pair = QuicPair(**settings(packet_plane=False))  # type: ignore[arg-type]
    stream_id, _ = open_pair(pair)
    assert not isinstance(pair.client.quic, PlaneConnection)
    pair.client.send_packets(stream_id, [b"x" * 1000], pair.now)
    pair.run(1)
    assert received(pair.server_events) == [b"x" * 1000]


def test_the_plane_works_with_a_peer_that_has_none(seed: int) -> None:
    for side in ("client", "server"):
        rng = random.Random(seed)
        pair = QuicPair(
            client=client_settings(max_udp_payload=1472, packet_plane=side == "client"),
            server=server_settings(max_udp_payload=1472, packet_plane=side == "server"),
        )
        stream_id, server = open_pair(pair)
        pair.lose = lambda _data, _to_server, rng=rng: rng.random() < 0.05
        for _ in range(50):
            pair.client.send_packets(stream_id, [b"x" * 1300] * 4, pair.now)
            server.send_packets(stream_id, [b"y" * 1300] * 4, pair.now)
            pair.run(0.02)
        pair.run(2)
        assert len(received(pair.server_events)) > 150
        assert len(received(pair.client_events)) > 150
        assert pair.client.quic.closed is None


def test_what_follows_the_reason_to_close_in_a_burst_is_not_read() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    open_pair(pair)
    sender, reader = plane_of(pair.client), plane_of(pair.server_connection)  # type: ignore[arg-type]
    payloads = [b"\x02\x80\xff\xff\xff\x00\x00\x00", b"\x30\x00\x00packet"]
    sealed = sender.keys.send.seal(payloads, sender.path.next_number, sender.core.peer_cid, spin=0)
    assert reader.receive(sealed, reader.path.network.addr, pair.now) == 1
    assert reader.frames.datagrams == []


def test_in_a_one_way_flow_the_receiver_has_its_acks_acknowledged() -> None:
    pair = QuicPair(**settings())  # type: ignore[arg-type]
    stream_id, server = open_pair(pair)
    for _ in range(400):
        pair.client.send_packets(stream_id, [b"x" * 100] * 2, pair.now)
        pair.run(0.002)
    pair.run(1)
    plane = plane_of(server)
    assert plane.acks_sent > 90
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
