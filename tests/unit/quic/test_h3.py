"""HTTP/3 connections over the in-memory network: requests, capsule bytes and packets."""

from __future__ import annotations

import pytest

from qtunnel.errors import LocalProtocolError
from qtunnel.quic.events import CloseCause, DataReceived, HandshakeCompleted
from tests.sim.quic_pair import REQUEST, RESPONSE, QuicPair, certificate, client_settings, server_settings


def test_handshake_completes_and_reports_the_certificate() -> None:
    pair = QuicPair()
    pair.connect()
    assert pair.client_events[0] == HandshakeCompleted(certificate()[2])
    assert pair.server_events[0] == HandshakeCompleted(None)


def test_request_response_and_data_go_both_ways() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    server = pair.server_connection
    assert server is not None
    assert pair.of(pair.server_events, "HeadersReceived")[0].headers == REQUEST
    assert pair.of(pair.client_events, "HeadersReceived")[0].headers == RESPONSE
    pair.client.send_data(stream_id, b"up")
    server.send_data(stream_id, b"down")
    pair.run(0.1)
    assert DataReceived(stream_id, b"up", False) in pair.server_events
    assert DataReceived(stream_id, b"down", False) in pair.client_events


def test_packets_go_both_ways_in_bursts() -> None:
    pair = QuicPair(client=client_settings(max_udp_payload=1472), server=server_settings(max_udp_payload=1472))
    stream_id = pair.open_tunnel()
    server = pair.server_connection
    assert server is not None
    size = pair.client.max_packet_size(stream_id)
    assert size == 1472 - 26
    up = [bytes([index]) * size for index in range(5)]
    down = [bytes([index]) * 100 for index in range(5)]
    assert not pair.client.send_packets(stream_id, up, pair.now)
    assert not server.send_packets(stream_id, down, pair.now)
    pair.run(0.2)
    assert pair.packets(pair.server_events) == up
    assert pair.packets(pair.client_events) == down


def test_extended_connect_before_settings_is_refused_locally() -> None:
    pair = QuicPair()
    with pytest.raises(LocalProtocolError):
        pair.client.send_request(REQUEST)


def test_close_is_reported_on_both_sides() -> None:
    pair = QuicPair()
    pair.connect()
    pair.client.close(0x100, "done")
    pair.run(1.0)
    ours, theirs = pair.closed(pair.client_events), pair.closed(pair.server_events)
    assert ours is not None
    assert theirs is not None
    assert ours.cause is CloseCause.LOCAL
    assert (theirs.cause, theirs.error_code, theirs.is_application, theirs.reason) == (
        CloseCause.PEER,
        0x100,
        True,
        "done",
    )
    assert not pair.endpoint.connections
