"""RFC 9000 section 14: sizes of datagrams with Initials, and before the size of the path is known."""

from __future__ import annotations

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from qtunnel.burst import Received
from qtunnel.drops import DropReason
from qtunnel.quic.endpoint import Endpoint
from qtunnel.quic.h3 import HttpConnection
from tests.sim.quic_pair import (
    CLIENT_ADDRESS,
    SERVER_ADDRESS,
    QuicPair,
    client_settings,
    server_settings,
)
from tests.sim.raw_peer import RawClient


def is_initial(data: bytes) -> bool:
    return data[0] & 0xF0 == 0xC0


@pytest.mark.parametrize("size", [1, 20, 43, 600, 1199, 1201, 1453, 9000, 65507])
@pytest.mark.parametrize("first", [0x40, 0xC0, 0xE0, 0x00])
def test_qtr_12_a_datagram_of_unexpected_size_closes_nothing(size: int, first: int) -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    assert pair.server_connection is not None
    cid = pair.server_connection.quic.host_cid
    client_cid = pair.client.quic.host_cid
    for to_server, known in ((True, cid), (False, client_cid)):
        header = bytes([first]) + (known if first < 0x80 else b"\x00\x00\x00\x01\x04" + known + b"\x00")
        pair.inject((header + bytes(size))[:size], to_server=to_server)
    pair.run(0.1)
    pair.client.send_packets(stream_id, [b"still there"], pair.now)
    pair.run(0.1)
    assert pair.packets(pair.server_events) == [b"still there"]
    assert pair.closed(pair.client_events) is None


def test_qtr_13_every_datagram_of_the_client_with_an_initial_has_1200_bytes() -> None:
    pair = QuicPair(lose=lambda data, to_server: not to_server and pair.now < 1000.5)
    pair.connect()
    initials = [data for _, to_server, data in pair.wire if to_server and is_initial(data)]
    assert len(initials) > 2
    assert {len(data) for data in initials} == {1200}


def test_qtr_13_every_datagram_of_the_server_with_an_ack_eliciting_initial_has_1200_bytes() -> None:
    pair = QuicPair(lose=lambda data, to_server: to_server and 1000 < pair.now < 1000.5)
    pair.connect()
    initials = [data for _, to_server, data in pair.wire if not to_server and is_initial(data)]
    assert len(initials) >= 2
    assert all(len(data) == 1200 for data in initials)


@pytest.mark.parametrize("size", [100, 1000, 1199])
def test_qtr_13_a_cut_initial_is_dropped_without_an_answer(size: int) -> None:
    client = HttpConnection.client(client_settings(), SERVER_ADDRESS, 1.0)
    assert_is_dropped(client.datagrams_to_send(1.0)[0].data[:size])


def assert_is_dropped(data: bytes) -> None:
    for retry_threshold in (32, 0):  # 0: whoever begins a handshake is answered with a Retry
        endpoint = Endpoint(server_settings(retry_threshold=retry_threshold))
        endpoint.receive_from_udp([Received([data], CLIENT_ADDRESS)], 1.0)
        assert endpoint.datagrams_to_send(1.0) == []
        assert endpoint.handshakes_in_progress == 0
        assert endpoint.drops == {DropReason.BAD_UDP_DATAGRAM: 1}


@pytest.mark.parametrize("size", [600, 1000, 1199, 1200])
def test_qtr_13_a_whole_initial_in_a_smaller_datagram_is_dropped_without_an_answer(size: int) -> None:
    quic = QuicConnection(configuration=QuicConfiguration(is_client=True, alpn_protocols=["h3"]))
    quic._max_datagram_size = size  # what it pads its Initials to
    quic.connect(SERVER_ADDRESS, 1.0)
    ((data, _),) = quic.datagrams_to_send(1.0)
    assert len(data) == size
    if size < 1200:
        assert_is_dropped(data)
        return
    endpoint = Endpoint(server_settings())
    endpoint.receive_from_udp([Received([data], CLIENT_ADDRESS)], 1.0)
    assert endpoint.handshakes_in_progress == 1
    assert endpoint.datagrams_to_send(1.0)


def test_qtr_14_first_flights_have_at_most_1200_bytes_whatever_the_path_is_told_to_carry() -> None:
    pair = QuicPair(client=client_settings(max_udp_payload=9000), server=server_settings(max_udp_payload=9000))
    pair.connect()
    assert max(len(data) for _, _, data in pair.wire) == 1200
    assert pair.client.stats().max_udp_payload == 9000


def test_qtr_14_without_a_told_size_nothing_exceeds_1200_bytes() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    size = pair.client.max_packet_size(stream_id)
    pair.client.send_packets(stream_id, [bytes(size)] * 20, pair.now)
    pair.client.send_data(stream_id, bytes(50_000))
    pair.run(1)
    assert max(len(data) for _, _, data in pair.wire) == 1200
    assert len(pair.packets(pair.server_events)) == 20


def test_qtr_14_the_peers_max_udp_payload_size_is_kept() -> None:
    pair = QuicPair(client=client_settings(max_udp_payload=1472), server=server_settings(max_udp_payload=1330))
    stream_id = pair.open_tunnel()
    pair.client.send_data(stream_id, bytes(50_000))
    pair.run(1)
    assert max(len(data) for _, to_server, data in pair.wire if to_server) == 1330


def test_connection_ids_of_ours_have_4_bytes_and_the_clients_first_choice_8() -> None:
    pair = QuicPair()
    pair.connect()
    first = pair.wire[0][2]
    assert first[5] == 8
    assert first[14] == 4
    assert {len(cid) for cid in pair.client.quic.host_cids} == {4}
    assert len(pair.client.quic.host_cids) == 8
    assert pair.server_connection is not None
    assert {len(cid) for cid in pair.server_connection.quic.host_cids} == {4}


def test_an_initial_to_a_short_connection_id_is_dropped() -> None:
    """RFC 9000 §7.2: a client's first choice has at least 8 bytes."""
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], connection_id_length=7)
    quic = QuicConnection(configuration=configuration)
    quic.connect(SERVER_ADDRESS, 1.0)
    endpoint = Endpoint(server_settings())
    data = [data for data, _ in quic.datagrams_to_send(1.0)]
    endpoint.receive_from_udp([Received(data, CLIENT_ADDRESS)], 1.0)
    assert endpoint.datagrams_to_send(1.0) == []


def test_the_transport_parameter_max_udp_payload_size_is_sent() -> None:
    peer = RawClient(endpoint=Endpoint(server_settings(max_udp_payload=1400)))
    seen: list[bytes] = []
    original = peer.quic._parse_transport_parameters
    peer.quic._parse_transport_parameters = lambda data, **more: (  # type: ignore[method-assign]
        seen.append(data),
        original(data, **more),
    )[1]
    peer.connect()
    assert b"\x03\x02\x45\x78" in seen[0]
