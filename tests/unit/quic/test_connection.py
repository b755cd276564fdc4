"""One connection: verification, the end and its causes, timers, sizes."""

from __future__ import annotations

from typing import NoReturn

import pytest
from aioquic import tls as aioquic_tls

from qtunnel.burst import Received
from qtunnel.drops import DropReason
from qtunnel.quic.certificate import fingerprint_of, load_private_key
from qtunnel.quic.connection import error_name
from qtunnel.quic.events import CloseCause, ConnectionClosed
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.stateless_reset import reset_token
from tests.sim.quic_pair import (
    REQUEST,
    SERVER_ADDRESS,
    QuicPair,
    certificate,
    client_settings,
    server_settings,
    split,
)
from tests.sim.raw_peer import RawClient, RawServer

OTHER = "0123456789abcdef" * 4


def end_of_client(pair: QuicPair) -> ConnectionClosed:
    pair.run_until(lambda: pair.closed(pair.client_events), limit=60)
    closed = pair.closed(pair.client_events)
    assert closed is not None
    return closed


def test_another_fingerprint_ends_the_connection_before_anything_is_sent() -> None:
    pair = QuicPair(client=client_settings(fingerprint=OTHER))
    closed = end_of_client(pair)
    assert closed.cause is CloseCause.NOT_VERIFIED
    assert OTHER in closed.reason
    assert fingerprint_of(certificate()[2]) in closed.reason
    pair.run(2)
    assert [type(event).__name__ for event in pair.client_events] == ["ConnectionClosed"]
    assert pair.server_events == []  # the server never saw the handshake complete, let alone a stream
    assert pair.endpoint.handshakes_in_progress == 0


def test_with_another_fingerprint_no_stream_data_leaves() -> None:
    client = HttpConnection.client(client_settings(fingerprint=OTHER), SERVER_ADDRESS, 500.0)
    peer = RawServer(client)
    peer.connect()
    assert peer.closed is not None
    assert peer.streams_received() == {}
    ends = [event for event in peer.quic_events if type(event).__name__ == "ConnectionTerminated"]
    peer.pass_time(3)
    ends = [event for event in peer.quic_events if type(event).__name__ == "ConnectionTerminated"]
    assert [(event.error_code, event.reason_phrase) for event in ends] == [(0x100 + 42, "certificate not trusted")]


def test_authorities_refuse_a_certificate_nobody_signed() -> None:
    pair = QuicPair(client=client_settings(fingerprint=None, cadata=certificate("other.test")[0]))
    closed = end_of_client(pair)
    assert closed.cause is CloseCause.NOT_VERIFIED
    assert pair.server_events == []


def test_a_server_with_the_certificate_but_without_its_key_is_refused() -> None:
    """The fingerprint alone is no proof: TLS's CertificateVerify is checked with it."""
    peer = RawServer()
    peer.configuration.private_key = load_private_key(certificate("thief.test")[1])
    peer.connect()
    assert peer.closed is not None
    assert peer.closed.cause in (CloseCause.NOT_VERIFIED, CloseCause.TLS_ALERT)
    assert not peer.of("HandshakeCompleted")
    assert peer.streams_received() == {}


def test_the_server_name_is_sent() -> None:
    names: list[str] = []
    peer = RawServer()
    original = peer.quic._initialize

    def initialize(peer_cid: bytes) -> None:
        original(peer_cid)
        handle = peer.quic.tls._server_handle_hello

        def spy(input_buf, initial_buf, handshake_buf):  # type: ignore[no-untyped-def]
            start = input_buf.tell()
            names.append(aioquic_tls.pull_client_hello(input_buf).server_name or "")
            input_buf.seek(start)
            handle(input_buf, initial_buf, handshake_buf)

        peer.quic.tls._server_handle_hello = spy  # type: ignore[method-assign]

    peer.quic._initialize = initialize  # type: ignore[method-assign]
    peer.connect()
    assert names == ["server.test"]


def test_no_server_gives_a_handshake_timeout() -> None:
    pair = QuicPair(lose=lambda _data, _to_server: True)
    closed = end_of_client(pair)
    assert (closed.cause, closed.error_code) == (CloseCause.HANDSHAKE_TIMEOUT, 0)
    assert closed.reason == "no handshake within 5 seconds"
    assert pair.now == pytest.approx(1005.0)


def test_a_server_that_stops_in_the_handshake_gives_a_handshake_timeout_on_both_sides() -> None:
    pair = QuicPair(lose=lambda _data, to_server: not to_server)
    closed = end_of_client(pair)
    assert closed.cause is CloseCause.HANDSHAKE_TIMEOUT
    pair.run(15)
    assert pair.endpoint.handshakes_in_progress == 0
    assert pair.server_events == []


def test_silence_ends_a_connection_after_the_idle_timeout() -> None:
    silent = [False]
    pair = QuicPair(
        client=client_settings(keep_alive=None, idle_timeout=20.0), lose=lambda _data, _to_server: silent[0]
    )
    pair.connect()
    pair.run(1)
    silent[0] = True
    began = pair.now
    closed = end_of_client(pair)
    assert closed.cause is CloseCause.IDLE_TIMEOUT
    assert closed.reason == "idle timeout"
    assert 15 < pair.now - began <= 20.5


def test_keep_alive_keeps_an_idle_connection() -> None:
    pair = QuicPair(client=client_settings(keep_alive=5.0, idle_timeout=12.0))
    pair.connect()
    pair.run(120)
    assert pair.closed(pair.client_events) is None
    assert pair.closed(pair.server_events) is None
    assert pair.client.stats().datagrams_sent < 150


def test_ping_is_acknowledged() -> None:
    pair = QuicPair()
    pair.connect()
    pair.run(1)
    before = pair.client.stats().datagrams_received
    pair.client.ping()
    pair.run(0.2)
    assert pair.client.stats().datagrams_received == before + 1


def test_a_restarted_server_ends_the_connection_by_a_stateless_reset_at_once() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.run(1)
    pair.endpoint = type(pair.endpoint)(server_settings(seed=77))
    pair.client.send_packets(stream_id, [b"anybody there?"], pair.now)
    began = pair.now
    closed = end_of_client(pair)
    assert closed.cause is CloseCause.STATELESS_RESET
    assert pair.now - began == pytest.approx(2 * pair.delay)
    assert pair.client.is_terminated
    assert pair.client.datagrams_to_send(pair.now) == []
    assert pair.client.get_timer() is None


def test_a_reset_with_a_wrong_token_is_ignored() -> None:
    pair = QuicPair()
    pair.open_tunnel()
    pair.inject(b"\x40" + bytes(26) + b"not the token!!!", to_server=False)
    pair.inject(b"\x40" + bytes(26) + reset_token(b"x" * 32, b"abcd"), to_server=False)
    pair.run(1)
    assert pair.closed(pair.client_events) is None


def test_a_reset_from_another_address_is_ignored_unless_its_token_is_right() -> None:
    pair = QuicPair()
    pair.open_tunnel()
    pair.client.receive_from_udp([Received([b"\x40" + bytes(42)], ("203.0.113.9", 443))], pair.now)
    assert pair.closed(pair.client_events) is None


def test_a_long_reason_is_cut_and_the_close_still_leaves() -> None:
    pair = QuicPair()
    pair.connect()
    pair.client.close(0x10C, "\N{SNOWMAN}" * 5000)
    pair.run(1)
    closed = pair.closed(pair.server_events)
    assert closed is not None
    assert closed.reason == "\N{SNOWMAN}" * 53
    assert closed.error_code == 0x10C


@pytest.mark.parametrize(
    ("reason", "reported"),
    [
        ("Over stream data limit", "over stream data limit"),
        ("ClientHello is bad", "ClientHello is bad"),
        ("x", "x"),
    ],
)
def test_what_aioquic_says_is_reported_as_it_reads_after_a_colon_and_sent_as_it_is(
    reason: str, reported: str
) -> None:
    pair = QuicPair()
    pair.connect()
    pair.client.close(0x10C, reason)
    pair.run(1)
    at_client, at_server = pair.closed(pair.client_events), pair.closed(pair.server_events)
    assert at_client is not None
    assert at_client.reason == reported
    assert at_server is not None
    assert at_server.reason == reason


def test_close_is_reported_once_and_later_calls_do_nothing() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.client.close(0x100, "first")
    pair.client.close(0x10C, "second")
    assert pair.client.send_packets(stream_id, [b"x"], pair.now) == {DropReason.STREAM_CLOSED: 1}
    pair.client.send_data(stream_id, b"x")
    pair.client.reset_stream(stream_id, 0)
    pair.client.goaway()
    pair.run(5)
    assert [event.reason for event in pair.of(pair.client_events, "ConnectionClosed")] == ["first"]
    assert pair.client.is_terminated


def test_packets_still_queued_at_the_end_are_counted() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.client.send_packets(stream_id, [b"x"] * 7, pair.now)
    pair.client.close()
    assert pair.client.drops == {DropReason.NO_SESSION: 7}


def test_an_alert_of_the_peer_is_a_tls_alert() -> None:
    pair = QuicPair(client=client_settings(alpn=("h4",)))
    closed = end_of_client(pair)
    assert closed.cause is CloseCause.TLS_ALERT
    assert closed.error_code == 0x100 + 120
    assert closed.reason


def test_events_before_the_peers_close_are_not_lost() -> None:
    pair = QuicPair()
    server = pair.connect()
    pair.run(1)
    stream_id = pair.client.send_request(REQUEST)
    pair.run_until(lambda: pair.of(pair.server_events, "HeadersReceived"))
    server.send_headers(stream_id, [(b":status", b"403")], end=True)
    for transmit in pair.endpoint.datagrams_to_send(pair.now):
        for data in split(transmit):
            pair.inject(data, to_server=False)
    server.close(0x10B, "go away")
    pair.run(1)
    kinds = [type(event).__name__ for event in pair.client_events]
    assert kinds[-2:] == ["HeadersReceived", "ConnectionClosed"]


def test_the_size_may_fall_and_grow_again() -> None:
    pair = QuicPair(client=client_settings(max_udp_payload=1472), server=server_settings(max_udp_payload=1472))
    stream_id = pair.open_tunnel()
    for told, inner in ((1300, 1274), (100, 1174), (9000, 1446)):
        pair.client.set_max_udp_payload(told)
        assert pair.client.max_packet_size(stream_id) == inner


def test_errors_have_names() -> None:
    assert error_name(0x10C, is_application=True) == "H3_REQUEST_CANCELLED"
    assert error_name(0x0A, is_application=False) == "PROTOCOL_VIOLATION"
    assert error_name(0x12A, is_application=False) == "TLS alert 42"
    assert error_name(0xABCDEF, is_application=True) == "error 0xabcdef"


def test_a_peers_ack_delay_exponent_is_used() -> None:
    peer = RawClient()
    peer.quic._local_ack_delay_exponent = 7
    peer.connect()
    assert peer.connection is not None
    assert peer.connection.quic._remote_ack_delay_exponent == 7


def test_a_one_way_flow_leaves_no_records_behind() -> None:
    pair = QuicPair(delay=0.001)
    stream_id = pair.open_tunnel()
    for _ in range(1000):
        pair.client.send_packets(stream_id, [b"x"], pair.now)
        pair.run(0.01)
    assert pair.server_connection is not None
    for quic in (pair.server_connection.quic, pair.client.quic):
        assert sum(len(space.sent_packets) for space in quic._spaces.values()) < 100
    assert len(pair.packets(pair.server_events)) == 1000


# -- exceptions from beneath


def fail(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("a bug")


def aioquic_pair() -> tuple[QuicPair, HttpConnection]:
    """Return a connected pair without packet plane, and the server's side, from which nothing waits to be sent."""
    pair = QuicPair(server=server_settings(packet_plane=False))
    server = pair.connect()
    pair.run(0.5)
    return pair, server


def assert_peer_was_told(pair: QuicPair, server: HttpConnection) -> None:
    pair.run(0.1)
    for closed, cause in (
        (server.quic.closed, CloseCause.LOCAL),
        (pair.closed(pair.server_events), CloseCause.LOCAL),
        (pair.closed(pair.client_events), CloseCause.PEER),
    ):
        assert closed is not None
        assert (closed.cause, closed.error_code, closed.reason) == (cause, 0x01, "internal error")
    pair.run(5)
    assert server.is_terminated
    assert pair.endpoint.internal_errors == 1


def test_an_exception_while_reading_closes_with_internal_error() -> None:
    pair, server = aioquic_pair()
    server.quic._payload_received = fail  # type: ignore[method-assign]
    pair.client.ping()
    assert_peer_was_told(pair, server)


def test_an_exception_in_a_timer_closes_with_internal_error() -> None:
    pair, server = aioquic_pair()
    pair.lose = lambda _data, to_server: to_server
    server.ping()
    pair.run(0.01)
    server.quic._loss.on_loss_detection_timeout = fail  # type: ignore[method-assign]
    assert server.quic.closed is None
    pair.run(1)
    assert_peer_was_told(pair, server)


def test_an_exception_while_sending_ends_the_connection_in_silence() -> None:
    pair, server = aioquic_pair()
    server.quic._write_application = fail  # type: ignore[method-assign]
    server.ping()
    sent = len(pair.wire)
    pair.run(0.1)
    assert len(pair.wire) == sent
    closed = pair.closed(pair.server_events)
    assert closed is not None
    assert (closed.cause, closed.error_code) == (CloseCause.LOCAL, 0x01)
    assert server.is_terminated
    assert pair.endpoint.internal_errors == 1
    assert pair.endpoint._by_cid == {}


@pytest.mark.parametrize(
    ("changed", "ends"),
    [(None, True), (6, False), (-6, False), (5, False)],
    ids=["of ours", "another client's", "of another packet", "broken lengths"],
)
def test_only_a_version_negotiation_that_answers_our_packet_is_believed(changed: int | None, ends: bool) -> None:
    client = HttpConnection.client(client_settings(), SERVER_ADDRESS, 1000.0)
    (first,) = [transmit.data for transmit in client.datagrams_to_send(1000.0)]
    theirs = first[6 : 6 + first[5]]
    ours = first[7 + first[5] :][: first[6 + first[5]]]
    version = b"\x6b\x33\x43\xcf"  # not one that we have
    packet = bytearray(b"\xc0" + bytes(4) + bytes((len(ours),)) + ours + bytes((len(theirs),)) + theirs + version)
    if changed is not None:
        packet[changed] ^= 0x40
    client.quic.receive_datagram(bytes(packet), SERVER_ADDRESS, 1000.1)
    assert client.quic.is_ending is ends


def test_what_is_too_short_for_a_version_negotiation_is_none() -> None:
    client = HttpConnection.client(client_settings(), SERVER_ADDRESS, 1000.0)
    client.datagrams_to_send(1000.0)
    for size in range(20):
        client.quic.receive_datagram((b"\xc0" + bytes(20))[:size], SERVER_ADDRESS, 1000.1)
    assert not client.quic.is_ending
