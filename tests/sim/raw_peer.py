"""A peer that may do anything: plain aioquic, plus frames and streams written by hand.

    peer = RawClient()                 or RawServer(): attacks HttpConnection.client
    peer.connect()                     the handshake, over a network without delay
    peer.quic.raw_frames.append(b"\x30...")   goes out in a 1-RTT packet of its own
    peer.stream(0, frame(HEADERS, ...))
    peer.exchange()

The subject (peer.subject) is an Endpoint or a client's HttpConnection; its events are in peer.events.
"""

from __future__ import annotations

import ssl
from typing import Any

import pylsqpack
from aioquic import tls
from aioquic.buffer import encode_uint_var
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicPacketType

from qtunnel.burst import Address, Received
from qtunnel.quic.certificate import load_certificate_chain, load_private_key
from qtunnel.quic.endpoint import Endpoint
from qtunnel.quic.events import ConnectionClosed, HttpEvent
from qtunnel.quic.h3 import HttpConnection
from tests.sim.quic_pair import (
    CLIENT_ADDRESS,
    SERVER_ADDRESS,
    SERVER_NAME,
    certificate,
    client_settings,
    server_settings,
    split,
)

DATA, HEADERS, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, GOAWAY, MAX_PUSH_ID = 0, 1, 3, 4, 5, 7, 13
CONTROL, QPACK_ENCODER, QPACK_DECODER = b"\x00", b"\x02", b"\x03"
GOOD_SETTINGS = {0x08: 1, 0x33: 1}


def varint(value: int) -> bytes:
    return encode_uint_var(value)


def frame(frame_type: int, payload: bytes) -> bytes:
    """Return an HTTP/3 frame."""
    return varint(frame_type) + varint(len(payload)) + payload


def settings_frame(settings: dict[int, int] | list[tuple[int, int]]) -> bytes:
    pairs = settings.items() if isinstance(settings, dict) else settings
    return frame(SETTINGS, b"".join(varint(key) + varint(value) for key, value in pairs))


def headers_frame(headers: list[tuple[bytes, bytes]], stream_id: int = 0) -> bytes:
    """Return a HEADERS frame without use of the dynamic table."""
    encoder = pylsqpack.Encoder()
    _, data = encoder.encode(stream_id, headers)
    return frame(HEADERS, data)


class RawQuic(QuicConnection):
    """raw_frames: whole QUIC frames, each sent in a 1-RTT packet of its own."""

    raw_frames: list[bytes]

    def _write_application(self, builder: Any, network_path: Any, now: float) -> None:
        crypto = self._cryptos[tls.Epoch.ONE_RTT]
        while self.raw_frames and crypto.send.is_valid():
            data = self.raw_frames.pop(0)
            builder.start_packet(QuicPacketType.ONE_RTT, crypto)
            buf = builder.start_frame(data[0], capacity=len(data)) if data[0] < 64 else None
            if buf is None:  # a type of more than one byte
                buf = builder.start_frame(1, capacity=len(data) + 1)
            buf.push_bytes(data[1:] if data[0] < 64 else data)
        super()._write_application(builder, network_path, now)


class RawPeer:
    """What both roles share. Virtual time, no delay, no loss."""

    subject: Any
    quic: RawQuic
    events: list[HttpEvent]

    def __init__(self, configuration: QuicConfiguration) -> None:
        self.configuration = configuration
        self.events = []
        self.quic_events: list[Any] = []
        self.now = 500.0
        self.received: list[bytes] = []

    def exchange(self, rounds: int = 20) -> None:
        """Pass datagrams to and fro until nothing more comes."""
        for _ in range(rounds):
            sent = self._peer_to_subject() + self._subject_to_peer()
            if not sent:
                return
            self.pass_time(0.002)

    def pass_time(self, seconds: float) -> None:
        """Let timers run."""
        self.now += seconds
        for side in (self.subject, self.quic):
            at = side.get_timer()
            if at is not None and at <= self.now:
                side.handle_timer(self.now)
        self._fetch()

    def stream(self, stream_id: int, data: bytes, end: bool = False) -> None:
        """Write stream data, whatever state the stream has for HTTP/3."""
        self.quic.send_stream_data(stream_id, data, end)

    def open_http(self, settings: dict[int, int] | list[tuple[int, int]] | None = None) -> None:
        """Open control and QPACK streams and send SETTINGS."""
        base = 2 if self.configuration.is_client else 3
        self.stream(base, CONTROL + settings_frame(GOOD_SETTINGS if settings is None else settings))
        self.stream(base + 4, QPACK_ENCODER)
        self.stream(base + 8, QPACK_DECODER)

    @property
    def control_stream(self) -> int:
        return 2 if self.configuration.is_client else 3

    @property
    def closed(self) -> ConnectionClosed | None:
        """How the subject saw the end."""
        found = [event for event in self.events if isinstance(event, ConnectionClosed)]
        return found[0] if found else None

    def of(self, kind: str) -> list[Any]:
        """Return the subject's events of one kind."""
        return [event for event in self.events if type(event).__name__ == kind]

    def streams_received(self) -> dict[int, bytes]:
        """Return what the subject sent on each stream."""
        found: dict[int, bytes] = {}
        for event in self.quic_events:
            if type(event).__name__ == "StreamDataReceived":
                found[event.stream_id] = found.get(event.stream_id, b"") + event.data
        return found

    def _peer_to_subject(self) -> int:
        datagrams = [data for data, _ in self.quic.datagrams_to_send(self.now)]
        if datagrams:
            self.subject.receive_from_udp([Received(datagrams, self._peer_address())], self.now)
        self._fetch()
        return len(datagrams)

    def _subject_to_peer(self) -> int:
        datagrams = [data for transmit in self.subject.datagrams_to_send(self.now) for data in split(transmit)]
        for data in datagrams:
            self.received.append(data)
            self._to_quic(data)
        self._fetch()
        return len(datagrams)

    def _to_quic(self, data: bytes) -> None:
        self.quic.receive_datagram(data, self._subject_address(), self.now)

    def _fetch(self) -> None:
        while (event := self.quic.next_event()) is not None:
            self.quic_events.append(event)

    def _peer_address(self) -> Address:
        return CLIENT_ADDRESS if self.configuration.is_client else SERVER_ADDRESS

    def _subject_address(self) -> Address:
        return SERVER_ADDRESS if self.configuration.is_client else CLIENT_ADDRESS


class RawClient(RawPeer):
    """A client that attacks an Endpoint."""

    def __init__(self, endpoint: Endpoint | None = None, **changes: Any) -> None:
        configuration = QuicConfiguration(
            is_client=True,
            alpn_protocols=["h3"],
            server_name=SERVER_NAME,
            verify_mode=ssl.CERT_NONE,
            max_datagram_frame_size=65535,
        )
        for name, value in changes.items():
            setattr(configuration, name, value)
        super().__init__(configuration)
        self.subject = endpoint if endpoint is not None else Endpoint(server_settings())
        self.quic = RawQuic(configuration=configuration)
        self.quic.raw_frames = []
        self.connection: HttpConnection | None = None

    def connect(self) -> None:
        """Complete the handshake; no stream is opened."""
        self.quic.connect(SERVER_ADDRESS, self.now)
        self.exchange()

    def _fetch(self) -> None:
        super()._fetch()
        while (pair := self.subject.next_event()) is not None:
            self.connection, event = pair
            self.events.append(event)


class RawServer(RawPeer):
    """A server that attacks a client's HttpConnection."""

    def __init__(self, client: HttpConnection | None = None, **changes: Any) -> None:
        pem, key, _ = certificate()
        configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"], max_datagram_frame_size=65535)
        configuration.certificate = load_certificate_chain(pem)[0]
        configuration.private_key = load_private_key(key)
        for name, value in changes.items():
            setattr(configuration, name, value)
        super().__init__(configuration)
        self.subject = client or HttpConnection.client(client_settings(), SERVER_ADDRESS, self.now)
        first = self.subject.datagrams_to_send(self.now)[0].data
        self.quic = RawQuic(configuration=configuration, original_destination_connection_id=first[6:14])
        self.quic.raw_frames = []
        self.first_flight = first

    def connect(self) -> None:
        """Complete the handshake; no stream is opened."""
        self.quic.receive_datagram(self.first_flight, CLIENT_ADDRESS, self.now)
        self.exchange()

    def _fetch(self) -> None:
        super()._fetch()
        while (event := self.subject.next_event()) is not None:
            self.events.append(event)


def raw_client() -> RawClient:
    """Return a client that has opened HTTP/3 with an Endpoint, and no request stream."""
    peer = RawClient()
    _open(peer)
    return peer


def raw_server() -> RawServer:
    """Return a server with which a client of ours has opened HTTP/3."""
    peer = RawServer()
    _open(peer)
    return peer


def _open(peer: RawClient | RawServer) -> None:
    peer.connect()
    peer.open_http()
    peer.exchange()
