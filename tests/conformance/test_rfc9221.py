"""RFC 9221: DATAGRAM frames, their limits, and what becomes of them."""

from __future__ import annotations

import pytest
from aioquic import tls
from aioquic.buffer import Buffer
from aioquic.quic.packet import QuicPacketType

from qtunnel.burst import Received
from qtunnel.drops import DropReason
from qtunnel.quic.h3 import HttpConnection
from tests.sim.quic_pair import (
    REQUEST,
    RESPONSE,
    SERVER_ADDRESS,
    QuicPair,
    client_settings,
    server_settings,
)
from tests.sim.raw_peer import RawClient, RawQuic, RawServer, headers_frame, varint

PROTOCOL_VIOLATION = 0x0A


def tunnel_to(peer: RawServer) -> int:
    """Open a packet stream from our client to a raw server."""
    peer.connect()
    peer.open_http()
    peer.exchange()
    stream_id: int = peer.subject.send_request(REQUEST)
    peer.subject.register_packet_stream(stream_id, b"\x00")
    peer.exchange()
    peer.stream(stream_id, headers_frame(RESPONSE))
    peer.exchange()
    return stream_id


def datagrams_seen(peer: RawClient | RawServer) -> list[bytes]:
    return [event.data for event in peer.quic_events if type(event).__name__ == "DatagramFrameReceived"]


def test_qdg_01_qdg_06_no_datagram_goes_to_a_peer_that_takes_none() -> None:
    peer = RawServer(max_datagram_frame_size=None)
    peer.connect()
    peer.open_http({0x08: 1})
    peer.exchange()
    stream_id = peer.subject.send_request(REQUEST)
    peer.subject.register_packet_stream(stream_id, b"\x00")
    assert [event.datagrams for event in peer.of("SettingsReceived")] == [False]  # the tunnel is refused by it
    assert peer.subject.max_packet_size(stream_id) == 0
    assert peer.subject.send_packets(stream_id, [b"x"], peer.now) == {DropReason.NO_SESSION: 1}
    assert peer.subject.quic.max_datagram_payload == 0


@pytest.mark.parametrize("limit", [20, 66, 67, 68, 69, 300, 1000, 1100])
def test_qdg_02_the_peers_limit_counts_type_length_and_data(limit: int) -> None:
    peer = RawServer(max_datagram_frame_size=limit)
    stream_id = tunnel_to(peer)
    size = peer.subject.max_packet_size(stream_id)
    overhead = 1 + (1 if size + 2 < 64 else 2) + 2
    assert limit - 1 <= size + overhead <= limit
    drops = peer.subject.send_packets(stream_id, [b"a" * size, b"b" * (size + 1)], peer.now)
    assert drops == {DropReason.DATAGRAM_TOO_LARGE: 1}
    peer.exchange()
    assert datagrams_seen(peer) == [b"\x00\x00" + b"a" * size]
    assert peer.closed is None


@pytest.mark.parametrize(("extra", "closes"), [(0, False), (1, True)])
def test_qdg_03_a_frame_of_the_advertised_size_is_taken_and_one_more_byte_closes(extra: int, closes: bool) -> None:
    limit = 100
    client = HttpConnection.client(client_settings(max_datagram_frame_size=limit), SERVER_ADDRESS, 500.0)
    peer = RawServer(client)
    tunnel_to(peer)
    peer.quic.raw_frames.append(b"\x31" + varint(limit - 3 + extra) + b"\x00\x00" + bytes(limit - 5 + extra))
    peer.exchange()
    if closes:
        assert peer.closed is not None
        assert (peer.closed.error_code, peer.closed.is_application) == (PROTOCOL_VIOLATION, False)
    else:
        assert [len(event.packets[0]) for event in peer.of("PacketsReceived")] == [limit - 5]


@pytest.mark.parametrize("kind", [RawClient, RawServer])
def test_qdg_04_we_take_datagrams_of_any_size(kind: type[RawClient | RawServer]) -> None:
    peer = kind()
    peer.connect()
    assert peer.quic._remote_max_datagram_frame_size == 65535


def test_qdg_07_frames_without_a_length_are_taken() -> None:
    peer = RawServer()
    tunnel_to(peer)
    peer.quic.raw_frames += [b"\x30\x00\x00to the end of the packet", b"\x31\x08\x00\x00packet"]
    peer.exchange()
    got = [packet for event in peer.of("PacketsReceived") for packet in event.packets]
    assert got == [b"to the end of the packet", b"packet"]


def test_qdg_07_an_empty_datagram_frame_is_legal_for_quic() -> None:
    peer = RawServer()
    peer.connect()
    connection = peer.subject.quic
    peer.quic.raw_frames.append(b"\x31\x00")
    for data, _ in peer.quic.datagrams_to_send(peer.now):
        connection.receive_datagram(data, SERVER_ADDRESS, peer.now)
    events = []
    while (event := connection.next_event()) is not None:
        events.append(event)
    assert [event.data for event in events if type(event).__name__ == "DatagramFrameReceived"] == [b""]
    assert connection.closed is None


def test_qdg_08_packets_leave_with_the_next_flush_and_arrive_with_the_next_burst() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    sent_at = pair.now
    pair.client.send_packets(stream_id, [b"packet"], pair.now)
    pair.run_until(lambda: pair.packets(pair.server_events))
    assert pair.now - sent_at == pytest.approx(pair.delay)


class EarlyBird(RawQuic):
    """Puts a DATAGRAM frame into its first Initial packet."""

    def _write_handshake(self, builder: object, epoch: tls.Epoch, now: float) -> None:
        crypto = self._cryptos[epoch]
        if epoch == tls.Epoch.INITIAL and self.raw_frames and crypto.send.is_valid():
            builder.start_packet(QuicPacketType.INITIAL, crypto)  # type: ignore[attr-defined]
            self._write_crypto_frame(
                builder=builder,  # type: ignore[arg-type]
                space=self._spaces[epoch],
                stream=self._crypto_streams[epoch],
            )
            buf: Buffer = builder.start_frame(0x31, capacity=20)  # type: ignore[attr-defined]
            buf.push_bytes(self.raw_frames.pop()[1:])
        super()._write_handshake(builder, epoch, now)  # type: ignore[arg-type]


def test_qdg_09_a_datagram_in_an_initial_packet_closes_the_connection() -> None:
    peer = RawClient()
    peer.quic = EarlyBird(configuration=peer.configuration)
    peer.quic.raw_frames = [b"\x31\x02\x00\x00"]
    peer.connect()
    ends = [event for event in peer.quic_events if type(event).__name__ == "ConnectionTerminated"]
    peer.pass_time(3)
    peer.exchange()
    ends = [event for event in peer.quic_events if type(event).__name__ == "ConnectionTerminated"]
    assert [event.error_code for event in ends] == [PROTOCOL_VIOLATION]
    assert not peer.of("HandshakeCompleted")


def test_qdg_09_we_send_none_before_the_handshake_is_complete() -> None:
    pair = QuicPair()
    assert pair.client.quic.max_datagram_payload == 0
    assert pair.client.send_packets(0, [b"x"], pair.now) == {DropReason.STREAM_CLOSED: 1}


@pytest.mark.parametrize(
    ("ours", "theirs", "frame_limit", "inner"),
    [
        (1472, 1472, 65535, 1446),
        (1452, 1472, 65535, 1426),
        (1472, 1300, 65535, 1274),
        (1200, 65527, 65535, 1174),
        (1472, 1472, 1000, 1000 - 5),
        (9000, 9000, 65535, 9000 - 26),
    ],
)
def test_qdg_10_the_usable_size_is_the_least_of_path_peer_and_frame_limit(
    ours: int, theirs: int, frame_limit: int, inner: int
) -> None:
    pair = QuicPair(
        client=client_settings(max_udp_payload=ours),
        server=server_settings(max_udp_payload=theirs, max_datagram_frame_size=frame_limit),
    )
    stream_id = pair.open_tunnel()
    assert pair.client.max_packet_size(stream_id) == inner
    pair.client.send_packets(stream_id, [b"x" * inner], pair.now)
    pair.run(0.2)
    assert pair.packets(pair.server_events) == [b"x" * inner]
    assert max(len(data) for _, to_server, data in pair.wire if to_server) <= min(ours, theirs)


def test_qdg_10_a_packet_that_no_longer_fits_does_not_hold_up_the_others() -> None:
    pair = QuicPair(client=client_settings(max_udp_payload=1472), server=server_settings(max_udp_payload=1472))
    stream_id = pair.open_tunnel()
    pair.client.send_packets(stream_id, [b"x" * 1400, b"small", b"y" * 1444], pair.now)
    pair.client.set_max_udp_payload(1300)
    pair.run(0.2)
    assert pair.packets(pair.server_events) == [b"small"]
    assert pair.client.drops == {DropReason.DATAGRAM_TOO_LARGE: 2}


def test_qdg_10_a_longer_connection_id_of_the_peer_leaves_less_room() -> None:
    peer = RawServer()
    stream_id = tunnel_to(peer)
    size = peer.subject.max_packet_size(stream_id)
    peer.quic.raw_frames.append(b"\x18" + varint(20) + varint(20) + b"\x14" + b"c" * 20 + bytes(16))
    sent = [data for data, _ in peer.quic.datagrams_to_send(peer.now)]
    peer.subject.send_packets(stream_id, [bytes(size), b"small"], peer.now)
    peer.subject.receive_from_udp([Received(sent, SERVER_ADDRESS)], peer.now)
    assert peer.subject.max_packet_size(stream_id) == size - 12
    peer.quic._host_cids[0].cid = b"c" * 20
    peer.subject.datagrams_to_send(peer.now)
    assert peer.subject.drops == {DropReason.DATAGRAM_TOO_LARGE: 1}
    assert peer.subject.stats().queued == 0


def test_qdg_11_datagrams_are_ack_eliciting_and_not_sent_again() -> None:
    lost: list[bytes] = []

    def lose(data: bytes, to_server: bool) -> bool:
        if to_server and losing:
            lost.append(data)
            return True
        return False

    losing = False
    pair = QuicPair(lose=lose)
    stream_id = pair.open_tunnel()
    pair.run(0.5)
    losing = True
    pair.client.send_packets(stream_id, [b"lost"], pair.now)
    pair.flush()
    losing = False
    assert len(lost) == 1
    in_flight = pair.client.stats().bytes_in_flight
    assert in_flight > 0  # it waits for an acknowledgement
    pair.client.send_packets(stream_id, [b"after"], pair.now)
    pair.run(5)
    assert pair.packets(pair.server_events) == [b"after"]
    assert pair.client.stats().bytes_in_flight == 0


def test_qdg_12_qdg_13_above_the_congestion_window_packets_wait_and_are_dropped_when_old_or_too_many() -> None:
    pair = QuicPair(client=client_settings(queue_packets=100, queue_delay=0.2), delay=1.0)
    stream_id = pair.open_tunnel()
    window = pair.client.stats().congestion_window
    drops = pair.client.send_packets(stream_id, [bytes(1100)] * 150, pair.now)
    assert drops == {DropReason.QUEUE_FULL: 50}
    assert not pair.client.has_room_for_read()
    pair.flush()
    stats = pair.client.stats()
    assert stats.bytes_in_flight <= window
    assert 0 < stats.queued < 100
    pair.run(0.9)
    stats = pair.client.stats()
    assert stats.bytes_in_flight <= window
    pair.run(2)
    assert pair.client.drops[DropReason.QUEUE_TOO_OLD] > 0
    dropped = pair.client.drops[DropReason.QUEUE_TOO_OLD] + pair.client.drops[DropReason.QUEUE_DELAY]
    assert len(pair.packets(pair.server_events)) + dropped == 100


def test_qdg_14_stream_data_is_not_starved_by_packets() -> None:
    pair = QuicPair(delay=0.02)
    stream_id = pair.open_tunnel()
    pair.client.send_data(stream_id, b"c" * 20_000)
    end = pair.now + 0.4
    while pair.now < end:
        pair.client.send_packets(stream_id, [bytes(1100)] * 20, pair.now)
        pair.run(0.005)
    capsules = b"".join(event.data for event in pair.of(pair.server_events, "DataReceived"))
    assert len(capsules) == 20_000
    assert len(pair.packets(pair.server_events)) > 50
