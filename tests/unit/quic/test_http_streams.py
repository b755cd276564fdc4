"""Requests and responses: order, ends, misuse, and what is held back."""

from __future__ import annotations

import pytest
from aioquic.h3.events import H3Event

from qtunnel.errors import LocalProtocolError
from qtunnel.quic.events import CloseCause
from tests.sim.quic_pair import GET, REQUEST, RESPONSE, QuicPair
from tests.sim.raw_peer import DATA, RawClient, frame, headers_frame

H3_MESSAGE_ERROR = 0x10E


def test_several_requests_are_told_apart() -> None:
    pair = QuicPair()
    server = pair.connect()
    first, second = pair.client.send_request(REQUEST), pair.client.send_request(GET, end=True)
    assert (first, second) == (0, 4)
    pair.run(0.1)
    server.send_headers(second, [(b":status", b"404")])
    server.send_data(second, b"not here", end=True)
    server.send_headers(first, RESPONSE)
    pair.run(0.1)
    answers = {event.stream_id: event.headers[0][1] for event in pair.of(pair.client_events, "HeadersReceived")}
    assert answers == {0: b"200", 4: b"404"}
    got = pair.of(pair.client_events, "DataReceived")
    assert [(event.stream_id, event.data) for event in got if event.data] == [(4, b"not here")]
    assert any(event.end for event in got)


def test_an_interim_response_is_reported_and_the_final_one_counts() -> None:
    pair = QuicPair()
    server = pair.connect()
    stream_id = pair.client.send_request(REQUEST)
    pair.run(0.1)
    server.send_headers(stream_id, [(b":status", b"103")])
    server.send_headers(stream_id, RESPONSE)
    pair.run(0.1)
    statuses = [event.headers[0][1] for event in pair.of(pair.client_events, "HeadersReceived")]
    assert statuses == [b"103", b"200"]


def test_writing_out_of_order_is_our_own_fault() -> None:
    pair = QuicPair()
    server = pair.connect()
    stream_id = pair.client.send_request(REQUEST)
    pair.run(0.1)
    with pytest.raises(LocalProtocolError, match="DATA frame is not allowed"):
        server.send_data(stream_id, b"before the response")
    with pytest.raises(LocalProtocolError, match="no request on stream 40"):
        server.send_data(40, b"x")
    with pytest.raises(LocalProtocolError, match="no request on stream 40"):
        pair.client.send_headers(40, GET)
    server.send_headers(stream_id, RESPONSE, end=True)
    with pytest.raises(LocalProtocolError, match="finished by us"):
        server.send_data(stream_id, b"x")


def test_a_server_cannot_send_requests() -> None:
    pair = QuicPair()
    server = pair.connect()
    with pytest.raises(LocalProtocolError):
        server.send_request(REQUEST)


def test_writing_to_a_stream_the_peer_has_reset_is_in_vain_and_no_error() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    server = pair.server_connection
    assert server is not None
    pair.client.reset_stream(stream_id, 0x10C)
    pair.run(0.5)
    server.send_data(stream_id, b"x")
    server.send_headers(stream_id, RESPONSE)
    server.reset_stream(stream_id, 0x10C)
    pair.run(0.5)
    assert pair.closed(pair.client_events) is None


def test_after_our_reset_nothing_more_comes_of_a_stream() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    server = pair.server_connection
    assert server is not None
    server.send_data(stream_id, b"on its way")
    pair.flush()
    pair.client.reset_stream(stream_id, 0x10C)
    pair.run(0.5)
    assert not pair.of(pair.client_events, "DataReceived")
    assert not pair.of(pair.client_events, "StreamReset")


def test_a_malformed_trailer_ends_the_stream_after_its_data_was_reported() -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http()
    peer.stream(0, headers_frame(GET))
    peer.exchange()
    peer.stream(0, frame(DATA, b"content"))
    peer.exchange()
    peer.stream(0, headers_frame([(b":path", b"/trailers/have/none")]))
    peer.exchange()
    assert [event.data for event in peer.of("DataReceived")] == [b"content"]
    assert [event.error_code for event in peer.of("StreamReset")] == [H3_MESSAGE_ERROR]
    peer.stream(4, headers_frame(REQUEST))
    peer.exchange()
    assert [event.stream_id for event in peer.of("HeadersReceived")] == [0, 4]


def test_a_content_length_that_does_not_match_is_malformed() -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http()
    peer.stream(0, headers_frame([*GET, (b"content-length", b"5")]) + frame(DATA, b"abc"), end=True)
    peer.exchange()
    assert [event.error_code for event in peer.of("StreamReset")] == [H3_MESSAGE_ERROR]
    assert peer.closed is None


def test_requests_are_forgotten_when_done() -> None:
    pair = QuicPair()
    server = pair.connect()
    for _ in range(300):
        stream_id = pair.client.send_request(GET, end=True)
        pair.run(0.03)
        server.send_headers(stream_id, [(b":status", b"204")], end=True)
        pair.run(0.03)
    assert stream_id == 4 * 299
    for side in (pair.client, server):
        assert len(list(side._streams.requests)) < 10
        assert len(side.quic._streams) < 20


def test_an_exception_in_http_closes_with_internal_error() -> None:
    pair = QuicPair()
    server = pair.connect()

    def fail(_event: object) -> list[H3Event]:
        raise RuntimeError("a bug")

    assert server._streams._h3 is not None
    server._streams._h3.handle_event = fail  # type: ignore[method-assign]
    pair.client.send_request(REQUEST)
    pair.run(0.1)
    closed = pair.closed(pair.client_events)
    assert closed is not None
    assert (closed.cause, closed.error_code, closed.is_application) == (CloseCause.PEER, 0x102, True)
    assert pair.closed(pair.server_events) is not None
    pair.run(5)
    assert pair.endpoint.internal_errors == 1
