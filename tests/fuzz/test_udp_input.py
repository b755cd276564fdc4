"""Any bytes to the UDP port: random ones, valid packets spoilt, and valid packets with anything inside.

The contract: receive_from_udp, handle_timer and datagrams_to_send never raise. Besides, internal_errors counts
every exception caught on the way, each a bug in aioquic that cost the peer its connection: it has to stay zero.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.burst import Received
from qtunnel.quic.endpoint import Endpoint
from qtunnel.quic.h3 import HttpConnection
from tests.sim.quic_pair import (
    CLIENT_ADDRESS,
    GET,
    REQUEST,
    RESPONSE,
    SERVER_ADDRESS,
    QuicPair,
    client_settings,
    server_settings,
)
from tests.sim.raw_peer import RawClient, RawServer, frame, headers_frame, settings_frame, varint

Peer = RawClient | RawServer

frame_types = st.one_of(st.integers(0, 0x31), st.sampled_from([0x40, 0x3E, 0x3F, 0xFC00, (1 << 62) - 1]))
small = st.one_of(st.integers(0, 70), st.sampled_from([0, 1, 63, 64, 16383, 16384, (1 << 30), (1 << 62) - 1]))


@st.composite
def quic_frames(draw: st.DrawFn) -> bytes:
    """Return a QUIC frame: a known type, plausible varints, some bytes."""
    kind = draw(frame_types)
    fields = draw(st.lists(small, max_size=5))
    tail = draw(st.binary(max_size=60))
    return varint(kind) + b"".join(varint(value) for value in fields) + tail


@st.composite
def http_frames(draw: st.DrawFn) -> bytes:
    """Return HTTP/3 stream bytes: a frame, perhaps with a length that lies."""
    kind = draw(st.sampled_from([0, 1, 3, 4, 5, 7, 13, 2, 6, 0x21, 0x41, 0x33, 1 << 40]))
    payload = draw(
        st.one_of(
            st.binary(max_size=80),
            st.sampled_from([headers_frame(REQUEST)[2:], headers_frame(GET)[2:], headers_frame(RESPONSE)[2:]]),
            st.lists(small, max_size=6).map(lambda values: b"".join(map(varint, values))),
        )
    )
    length = draw(st.one_of(st.just(len(payload)), small))
    return varint(kind) + varint(length) + payload


def errors_of(peer: Peer) -> int:
    if isinstance(peer, RawServer):
        return int(peer.subject.quic.internal_errors)
    endpoint: Endpoint = peer.subject
    return endpoint.internal_errors + sum(each.quic.internal_errors for each in endpoint._cids)


def ready(kind: type[Peer]) -> Peer:
    """Return a raw peer with a connection, SETTINGS and a packet stream on stream 0."""
    peer: Any = kind()
    peer.connect()
    peer.open_http()
    peer.exchange()
    if isinstance(peer, RawServer):
        peer.subject.send_request(REQUEST)
        peer.subject.register_packet_stream(0, b"\x00")
        peer.exchange()
        peer.stream(0, headers_frame(RESPONSE))
    else:
        peer.stream(0, headers_frame(REQUEST))
        peer.exchange()
        peer.connection.send_headers(0, RESPONSE)
        peer.connection.register_packet_stream(0, b"\x00")
    peer.exchange()
    return peer


def run_on(peer: Peer) -> None:
    """Let everything happen that is going to happen, closing included."""
    peer.exchange()
    for _ in range(4):
        peer.pass_time(1.0)
        peer.exchange()


# -- outside the encryption


@given(st.lists(st.binary(max_size=1500), max_size=20))
def test_random_bytes_to_an_endpoint(datagrams: list[bytes]) -> None:
    endpoint = Endpoint(server_settings())
    endpoint.receive_from_udp([Received(datagrams, CLIENT_ADDRESS)], 1.0)
    endpoint.datagrams_to_send(1.0)
    assert endpoint.handshakes_in_progress == 0
    assert endpoint.drops.total() == len(datagrams)


@given(st.lists(st.binary(max_size=1500), max_size=20), st.booleans())
def test_random_bytes_to_a_client(datagrams: list[bytes], addressed: bool) -> None:
    client = HttpConnection.client(client_settings(), SERVER_ADDRESS, 1.0)
    client.datagrams_to_send(1.0)
    if addressed:
        datagrams = [b"\x40" + client.quic.host_cid + data for data in datagrams]
    client.receive_from_udp([Received(datagrams, SERVER_ADDRESS)], 1.0)
    assert client.next_event() is None
    assert client.quic.internal_errors == 0


@pytest.mark.seeds(ci=25, long=3000)
def test_a_connection_survives_spoilt_copies_of_its_own_packets(seed: int) -> None:
    chance = random.Random(seed)

    def spoil(data: bytes, to_server: bool) -> bool:
        if chance.random() < 0.5:
            spoilt = bytearray(data)
            for _ in range(chance.randrange(4)):
                spoilt[chance.randrange(min(len(spoilt), 60))] ^= 1 << chance.randrange(8)
            cut = spoilt[: chance.randrange(len(spoilt))] if chance.random() < 0.4 else spoilt
            more = cut + chance.randbytes(chance.randrange(100)) if chance.random() < 0.2 else cut
            pair.inject(bytes(more), to_server=to_server)
        return False

    pair = QuicPair(
        lose=spoil, server=server_settings(retry_threshold=1 if seed % 2 else 32, initials_per_second=5000.0)
    )
    stream_id = pair.open_tunnel()
    server = pair.server_connection
    assert server is not None
    for _ in range(20):
        pair.client.send_packets(stream_id, [b"up"], pair.now)
        server.send_packets(stream_id, [b"down"], pair.now)
        pair.run(0.05)
    assert len(pair.packets(pair.server_events)) == 20
    assert len(pair.packets(pair.client_events)) == 20
    assert pair.client.quic.internal_errors == server.quic.internal_errors == 0


@pytest.mark.seeds(ci=25, long=3000)
def test_a_handshake_out_of_spoilt_packets_only_ends_or_succeeds_and_never_raises(seed: int) -> None:
    chance = random.Random(seed)

    def spoil(data: bytes, to_server: bool) -> bool:
        if chance.random() < 0.2:
            spoilt = bytearray(data)
            spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
            pair.inject(bytes(spoilt), to_server=to_server)
            return True
        return chance.random() < 0.05

    pair = QuicPair(lose=spoil)
    pair.run_until(
        lambda: pair.closed(pair.client_events) or pair.of(pair.client_events, "SettingsReceived"), limit=60
    )
    assert pair.client.quic.internal_errors == 0


# -- inside the encryption


@pytest.mark.parametrize("kind", [RawClient, RawServer])
@given(data=st.data())
def test_any_quic_frames_in_valid_packets(kind: type[Peer], data: st.DataObject) -> None:
    peer = ready(kind)
    for frames in data.draw(st.lists(st.lists(quic_frames(), min_size=1, max_size=4), max_size=6)):
        peer.quic.raw_frames.append(b"".join(frames)[:1000])
        peer.exchange(rounds=3)
    run_on(peer)
    assert errors_of(peer) == 0


@pytest.mark.parametrize("kind", [RawClient, RawServer])
@given(data=st.data())
def test_any_bytes_in_valid_packets(kind: type[Peer], data: st.DataObject) -> None:
    peer = ready(kind)
    for payload in data.draw(st.lists(st.binary(min_size=4, max_size=1000), max_size=6)):
        peer.quic.raw_frames.append(payload)
        peer.exchange(rounds=3)
    run_on(peer)
    assert errors_of(peer) == 0


@pytest.mark.parametrize("kind", [RawClient, RawServer])
@given(data=st.data())
def test_any_http_frames_on_any_stream(kind: type[Peer], data: st.DataObject) -> None:
    peer = ready(kind)
    own = 2 if kind is RawClient else 3
    streams = [0, 4, 8, own, own + 4, own + 8, own + 12, own + 16]
    if kind is RawServer:
        peer.subject.send_request(GET, end=True)
        peer.subject.send_request(REQUEST)
        peer.exchange()
        streams.append(1)
    steps = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(streams), st.one_of(http_frames(), st.binary(max_size=40)), st.integers(0, 9)
            ),
            max_size=12,
        )
    )
    for stream_id, payload, how in steps:
        try:
            if how == 9:
                peer.quic.reset_stream(stream_id, 0x10C)
            elif how == 8:
                peer.quic.stop_stream(stream_id, 0x10C)
            else:
                peer.stream(stream_id, payload, end=how == 7)
        except (ValueError, RuntimeError, AssertionError):
            continue  # aioquic keeps the raw peer itself from misusing its own stream
        peer.exchange(rounds=3)
    run_on(peer)
    assert errors_of(peer) == 0


@given(settings=st.lists(st.tuples(small, small), max_size=8), cut=st.integers(0, 200))
def test_any_settings(settings: list[tuple[int, int]], cut: int) -> None:
    for kind in (RawClient, RawServer):
        peer: Any = kind()
        peer.connect()
        peer.stream(peer.control_stream, (b"\x00" + settings_frame(settings))[: cut or None])
        run_on(peer)
        assert errors_of(peer) == 0


@given(st.lists(st.binary(max_size=300), max_size=10))
def test_any_handshake_bytes_in_crypto_frames(pieces: list[bytes]) -> None:
    for kind in (RawClient, RawServer):
        peer = ready(kind)
        offset = 0
        for piece in pieces:
            peer.quic.raw_frames.append(b"\x06" + varint(offset) + varint(len(piece)) + piece)
            offset += len(piece)
            peer.exchange(rounds=3)
        run_on(peer)
        assert errors_of(peer) == 0


@pytest.mark.parametrize("kind", [RawClient, RawServer])
@given(data=st.data())
def test_a_tls_handshake_with_spoilt_messages(kind: type[Peer], data: st.DataObject) -> None:
    """The messages are spoilt before they are encrypted, so the other side's TLS reads them."""
    peer: Any = kind()
    changes = data.draw(st.lists(st.tuples(st.integers(0, 1200), st.integers(1, 255)), min_size=1, max_size=4))
    longer = data.draw(st.one_of(st.just(b""), st.binary(max_size=50)))
    push = peer.quic._push_crypto_data

    def push_spoilt() -> None:
        for buf in peer.quic._crypto_buffers.values():
            spoilt = bytearray(buf.data)
            for position, flip in changes:
                if spoilt:
                    spoilt[position % len(spoilt)] ^= flip
            buf.seek(0)
            buf.push_bytes(bytes(spoilt) + (longer if spoilt else b""))
        push()

    peer.quic._push_crypto_data = push_spoilt
    peer.connect()
    run_on(peer)
    peer.pass_time(20.0)
    run_on(peer)
    assert errors_of(peer) == 0


@given(st.lists(st.one_of(st.binary(max_size=30), http_frames()), max_size=20))
def test_any_datagrams(payloads: list[bytes]) -> None:
    for kind in (RawClient, RawServer):
        peer = ready(kind)
        peer.quic.raw_frames += [b"\x31" + varint(len(data)) + data for data in payloads]
        run_on(peer)
        assert errors_of(peer) == 0


def test_frames_of_this_file_are_whole() -> None:
    assert frame(1, b"ab") == b"\x01\x02ab"
