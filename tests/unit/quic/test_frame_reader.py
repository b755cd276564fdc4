"""The frames of one packet: what is taken, what is refused, what goes on to aioquic."""

from __future__ import annotations

import pytest

from qtunnel.packet_run import flatten
from qtunnel.quic.frame_reader import MAX_ACKS
from tests.sim.quic_pair import QuicPair
from tests.sim.raw_peer import varint
from tests.unit.quic.planes import plane_of


def test_datagrams_of_both_kinds_are_taken_in_order_and_once() -> None:
    pair = QuicPair()
    pair.open_tunnel()
    pair.run(1)
    plane = plane_of(pair.client)
    payload = b"\x31\x03one\x00\x00\x01\x31\x40\x03two\x30three"
    assert plane.frames.read(payload, plane.path.network, b"", pair.now) == (True, False)
    assert flatten(plane.frames.take_datagrams()) == [b"one", b"two", b"three"]
    assert plane.frames.take_datagrams() == []


def test_padding_and_acks_ask_for_nothing() -> None:
    pair = QuicPair()
    pair.open_tunnel()
    pair.run(1)
    plane = plane_of(pair.client)
    ack = b"\x02" + varint(plane.path.next_number - 1) + b"\x00\x00\x00"
    assert plane.frames.read(ack + bytes(9), plane.path.network, b"", pair.now) == (False, False)
    assert plane.frames.read(ack + b"\x01", plane.path.network, b"", pair.now) == (True, False)
    assert pair.client.quic.closed is None


def test_an_ack_of_a_packet_never_sent_closes_the_connection() -> None:
    pair = QuicPair()
    pair.open_tunnel()
    pair.run(1)
    plane = plane_of(pair.client)
    plane.frames.read(b"\x02\x80\xff\xff\xff\x00\x00\x00", plane.path.network, b"", pair.now)
    assert pair.client.quic.closed is not None
    assert pair.client.quic.closed.error_code == 0x0A


@pytest.mark.parametrize("payload", [b"\x02\x05", b"\x31\x40\xff\x00", b"", b"\x02\x01\x00\x00\x05"])
def test_a_frame_that_cannot_be_read_closes_the_connection(payload: bytes) -> None:
    pair = QuicPair()
    pair.open_tunnel()
    pair.run(1)
    plane = plane_of(pair.client)
    plane.frames.read(payload, plane.path.network, b"", pair.now)
    assert pair.client.quic.closed is not None


def test_an_ack_behind_other_frames_counts() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.run(1)
    pair.client.send_packets(stream_id, [b"x" * 1100], pair.now)
    pair.client.datagrams_to_send(pair.now)
    assert pair.client.quic.bytes_in_flight > 1100
    plane = plane_of(pair.client)
    ack = b"\x02" + varint(plane.path.next_number - 1) + b"\x00\x00\x00"
    plane.frames.read(b"\x10" + varint(1 << 22) + ack, plane.path.network, b"", pair.now)
    assert pair.client.quic.bytes_in_flight == 0


@pytest.mark.parametrize("before", [b"", b"\x10\x50\x00\x00\x00"])
def test_a_packet_full_of_acks_closes_the_connection(before: bytes) -> None:
    """Each costs microseconds, and 200 of them what 150 full packets do (RFC 9000 §21.9)."""
    pair = QuicPair()
    pair.open_tunnel()
    pair.run(1)
    plane = plane_of(pair.client)
    ack = b"\x02" + varint(plane.path.next_number - 1) + b"\x00\x00\x00"
    for _ in range(3):
        plane.frames.read(before + ack * MAX_ACKS, plane.path.network, b"", pair.now)
    assert pair.client.quic.closed is None
    plane.frames.read(before + ack * (MAX_ACKS + 1), plane.path.network, b"", pair.now)
    assert pair.client.quic.closed is not None
    assert pair.client.quic.closed.error_code == 0x0A
