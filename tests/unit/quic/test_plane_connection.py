"""When the plane takes over, and what passes it by."""

from __future__ import annotations

from typing import NoReturn, cast

from qtunnel.drops import DropReason
from qtunnel.quic.events import CloseCause
from qtunnel.quic.packet_plane import PacketPlane
from qtunnel.quic.plane_connection import PlaneConnection
from tests.sim.quic_pair import QuicPair, client_settings, server_settings


def test_the_plane_begins_when_the_handshake_is_confirmed() -> None:
    pair = QuicPair()
    quic = cast(PlaneConnection, pair.client.quic)
    assert quic.plane is None
    server = pair.connect()
    pair.run(1)
    assert quic.plane is not None
    assert quic.handshake_confirmed
    assert cast(PlaneConnection, server.quic).plane is not None


def test_packet_numbers_go_on_where_aioquic_stopped() -> None:
    pair = QuicPair()
    pair.connect()
    pair.run(1)
    quic = cast(PlaneConnection, pair.client.quic)
    assert quic.plane is not None
    assert quic.plane.path.first_number > 0
    assert quic.next_packet_number == quic.plane.path.next_number >= quic.plane.path.first_number


def test_packets_waiting_at_the_end_are_counted() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.run(1)
    pair.client.send_packets(stream_id, [b"x" * 100] * 3, pair.now)
    pair.client.close(0x100, "bye")
    assert pair.client.drops[DropReason.NO_SESSION] == 3


def test_the_packet_size_is_two_bytes_more_than_aioquics() -> None:
    ours = QuicPair(client=client_settings(max_udp_payload=1400), server=server_settings(max_udp_payload=1400))
    theirs = QuicPair(
        client=client_settings(max_udp_payload=1400, packet_plane=False),
        server=server_settings(max_udp_payload=1400),
    )
    sizes = []
    for pair in (ours, theirs):
        stream_id = pair.open_tunnel()
        pair.run(1)
        sizes.append(pair.client.max_packet_size(stream_id))
    assert sizes == [1400 - 26, 1400 - 28]


def test_a_stateless_reset_ends_it_at_once() -> None:
    pair = QuicPair()
    pair.open_tunnel()
    pair.run(1)
    quic = cast(PlaneConnection, pair.client.quic)
    token = quic._peer_cid.stateless_reset_token
    assert token is not None
    pair.inject(b"\x40" + b"r" * 40 + token, to_server=False)
    pair.run(0.5)
    assert pair.client.quic.closed is not None
    assert pair.client.quic.closed.cause.value == "stateless-reset"


# -- exceptions from beneath


def fail(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("a bug")


def plane_pair() -> tuple[QuicPair, PlaneConnection, PacketPlane]:
    """Return a connected pair and the server's side, from which nothing waits to be sent."""
    pair = QuicPair()
    quic = cast(PlaneConnection, pair.connect().quic)
    pair.run(0.5)
    assert quic.plane is not None
    return pair, quic, quic.plane


def assert_peer_was_told(pair: QuicPair, quic: PlaneConnection) -> None:
    pair.run(0.1)
    for closed, cause in ((quic.closed, CloseCause.LOCAL), (pair.closed(pair.client_events), CloseCause.PEER)):
        assert closed is not None
        assert (closed.cause, closed.error_code, closed.reason) == (cause, 0x01, "internal error")
    pair.run(5)
    assert quic.is_terminated
    assert pair.endpoint.internal_errors == 1


def test_an_exception_while_reading_closes_with_internal_error() -> None:
    pair, quic, plane = plane_pair()
    plane.reader.receive = fail  # type: ignore[method-assign]
    pair.client.ping()
    assert_peer_was_told(pair, quic)


def test_an_exception_in_the_timer_of_the_plane_closes_with_internal_error() -> None:
    pair, quic, plane = plane_pair()
    pair.lose = lambda _data, to_server: to_server
    next(iter(pair.endpoint.connections)).ping()
    pair.run(0.01)
    plane.handle_timer = fail  # type: ignore[method-assign]
    pair.run(1)
    assert_peer_was_told(pair, quic)


def test_an_exception_while_sending_ends_the_connection_in_silence() -> None:
    pair, quic, plane = plane_pair()
    plane.send = fail  # type: ignore[method-assign]
    next(iter(pair.endpoint.connections)).ping()
    sent = len(pair.wire)
    pair.run(0.1)
    assert len(pair.wire) == sent
    closed = pair.closed(pair.server_events)
    assert closed is not None
    assert (closed.cause, closed.error_code) == (CloseCause.LOCAL, 0x01)
    assert quic.is_terminated
    assert pair.endpoint.internal_errors == 1
