"""The packet plane of whole connections in virtual time: loss, reordering, key updates, small packets, limits."""

from __future__ import annotations

import random

from qtunnel.burst import Address
from qtunnel.quic.packet_plane import PTO_PROBES
from qtunnel.quic.plane_connection import PlaneConnection
from tests.sim.quic_pair import QuicPair, client_settings, server_settings
from tests.unit.quic.planes import open_pair, plane_of, received, settings


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
