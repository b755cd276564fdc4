"""Bounds that aioquic lacks: what a peer can make us keep, or believe."""

from __future__ import annotations

import tracemalloc

import pytest

from qtunnel.quic.endpoint import Endpoint
from qtunnel.quic.multipath.transport_parameter import encode_parameter
from tests.sim.quic_pair import REQUEST, QuicPair, client_settings, server_settings
from tests.sim.raw_peer import RawClient, headers_frame, raw_client, varint

FLOW_CONTROL_ERROR = 0x03
PROTOCOL_VIOLATION = 0x0A
CRYPTO_BUFFER_EXCEEDED = 0x0D
TRANSPORT_PARAMETER_ERROR = 0x08
MIB = 1024 * 1024


def transport_error(peer: RawClient) -> int | None:
    if peer.closed is None:
        return None
    assert not peer.closed.is_application
    return peer.closed.error_code


def test_the_stream_window_does_not_grow_by_gaps() -> None:
    """One byte far ahead of a gap: aioquic alone would double its window and its buffer each time."""
    peer = raw_client()
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    tracemalloc.start()
    for _ in range(30):
        limit = peer.quic._streams[0].max_stream_data_remote
        peer.quic.raw_frames.append(b"\x0e" + varint(0) + varint(limit - 1) + varint(1) + b"x")
        peer.exchange()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert limit <= 2 * MIB
    assert peak < 8 * MIB
    assert peer.closed is None


def test_all_streams_together_hold_no_more_than_the_connections_window() -> None:
    peer = raw_client()
    for stream_id in range(0, 120 * 4, 4):
        peer.quic.raw_frames.append(b"\x0e" + varint(stream_id) + varint(MIB - 2) + varint(1) + b"x")
        peer.exchange()
    assert transport_error(peer) == FLOW_CONTROL_ERROR


def test_more_than_the_window_flows_when_it_is_read() -> None:
    pair = QuicPair(delay=0.001)
    stream_id = pair.open_tunnel()
    data = bytes(5 * MIB)
    pair.client.send_data(stream_id, data, end=True)
    pair.run_until(lambda: pair.server_events and getattr(pair.server_events[-1], "end", False), limit=120)
    assert sum(len(event.data) for event in pair.of(pair.server_events, "DataReceived")) == len(data)


@pytest.mark.parametrize("offset", [70_000, 400_000])
def test_handshake_data_far_ahead_closes_the_connection(offset: int) -> None:
    peer = raw_client()
    peer.quic.raw_frames.append(b"\x06" + varint(offset) + varint(10) + bytes(10))
    peer.exchange()
    assert transport_error(peer) == CRYPTO_BUFFER_EXCEEDED


def test_a_handshake_message_without_end_closes_the_connection() -> None:
    """16 MB announced, sent in order: aioquic alone keeps it all."""
    peer = raw_client()
    offset = 0
    head = b"\x04\xff\xff\xff"
    while peer.closed is None and offset < 200_000:
        piece = (head if offset == 0 else b"") + bytes(1000)
        peer.quic.raw_frames.append(b"\x06" + varint(offset) + varint(len(piece)) + piece)
        offset += len(piece)
        peer.exchange()
    assert transport_error(peer) == CRYPTO_BUFFER_EXCEEDED
    assert offset < 80_000


def test_an_acknowledgement_of_a_packet_never_sent_closes_the_connection() -> None:
    peer = raw_client()
    peer.quic.raw_frames.append(b"\x02" + varint(100_000) + varint(0) + varint(0) + varint(0))
    peer.exchange()
    assert transport_error(peer) == PROTOCOL_VIOLATION


def test_a_flood_of_path_challenges_takes_no_memory() -> None:
    peer = raw_client()
    assert peer.connection is not None
    tracemalloc.start()
    for _ in range(10):
        peer.quic.raw_frames += [b"\x1a" + bytes(7) + bytes([index]) for index in range(40)]
        peer.exchange()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert all(len(path.remote_challenges) <= 32 for path in peer.connection.quic._network_paths)
    assert kept < 4 * MIB


def test_a_flood_of_retired_connection_ids_leaves_eight_and_forgets_the_rest() -> None:
    peer = raw_client()
    assert peer.connection is not None
    for sequence in range(1, 400):
        peer.quic.raw_frames.append(b"\x19" + varint(sequence))
        peer.quic._peer_cid_available.clear()  # or the raw client would find them too many
        peer.exchange(rounds=3)
    assert peer.closed is None
    assert len(peer.connection.quic.host_cids) == 8
    assert len(peer.subject._by_cid) == 9  # those, and the one the client chose


def test_new_connection_ids_beyond_the_limit_close_the_connection() -> None:
    peer = raw_client()
    for sequence in range(8, 30):
        frame = b"\x18" + varint(sequence) + varint(0) + b"\x08" + bytes([sequence]) * 8 + bytes(16)
        peer.quic.raw_frames.append(frame)
        peer.exchange()
    assert transport_error(peer) == 0x09  # CONNECTION_ID_LIMIT_ERROR


def test_the_client_offers_two_key_exchange_groups() -> None:
    pair = QuicPair()
    pair.flush()
    assert [group.name for group in pair.client.quic.tls._supported_groups] == ["X25519", "SECP256R1"]


def test_connection_ids_and_the_first_destination_come_from_the_random_source_given() -> None:
    one, other = QuicPair(), QuicPair()
    assert one.client.quic.host_cids == other.client.quic.host_cids
    assert one.client.quic.original_destination_connection_id == (
        other.client.quic.original_destination_connection_id
    )


def test_what_peers_cause_is_logged_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="qtunnel"):
        peer = raw_client()
        peer.quic.raw_frames.append(b"\x02" + varint(100_000) + varint(0) + varint(0) + varint(0))
        peer.exchange()
    assert peer.closed is not None
    ours = [record for record in caplog.records if record.name.startswith("qtunnel")]
    assert ours
    assert {record.levelname for record in ours} == {"DEBUG"}


@pytest.mark.parametrize(("ours", "peers"), [(None, None), (8, None), (None, 8), (8, 0), (0, 1)])
def test_mpq_01_multipath_is_on_if_both_ends_offer_it(ours: int | None, peers: int | None) -> None:
    pair = QuicPair(
        client=client_settings(initial_max_path_id=ours), server=server_settings(initial_max_path_id=peers)
    )
    server = pair.connect()
    both = ours is not None and peers is not None
    assert pair.client.quic.peer_max_path_id == (peers if both else None)
    assert server.quic.peer_max_path_id == (ours if both else None)


def offer(extra: bytes, *, cid_size: int = 8) -> RawClient:
    """Return a client whose transport parameters end with these bytes, after it tried to connect."""
    peer = RawClient(Endpoint(server_settings(initial_max_path_id=8)), connection_id_length=cid_size)
    peer.quic._peer_cid.cid = peer.quic._original_destination_connection_id = bytes(8)  # of any size it may be
    serialize = peer.quic._serialize_transport_parameters
    peer.quic._serialize_transport_parameters = lambda: serialize() + extra  # type: ignore[method-assign]
    peer.connect()
    return peer


def test_mpq_02_an_offer_above_32_bits_ends_the_handshake() -> None:
    peer = offer(bytes.fromhex("3e08 c000000100000000"))
    assert peer.quic._close_event is not None
    assert peer.quic._close_event.error_code == TRANSPORT_PARAMETER_ERROR
    assert offer(encode_parameter(8)).quic._handshake_confirmed


def test_mpq_03_an_offer_without_a_connection_id_is_a_violation() -> None:
    peer = offer(encode_parameter(8), cid_size=0)
    assert peer.quic._close_event is not None
    assert peer.quic._close_event.error_code == PROTOCOL_VIOLATION
    assert offer(b"", cid_size=0).quic._handshake_complete


def test_mpq_05_an_offer_remembered_with_a_ticket_counts_for_nothing() -> None:
    pair = QuicPair(client=client_settings(initial_max_path_id=8))
    pair.client.quic._parse_transport_parameters(encode_parameter(5), from_session_ticket=True)
    assert pair.client.quic.peer_max_path_id is None
