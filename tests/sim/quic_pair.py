"""A client and a server of qtunnel.quic joined by a network in virtual time, in memory.

    pair = QuicPair()
    pair.run_until(lambda: pair.server_connection is not None)

Every datagram is delivered after `delay`, in order, unless `lose` says otherwise. Nothing here sleeps.
"""

from __future__ import annotations

import datetime
import functools
import heapq
import random
from collections.abc import Callable, Iterator
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from qtunnel.burst import Address, Received, Transmit
from qtunnel.quic.certificate import fingerprint_of
from qtunnel.quic.endpoint import Endpoint
from qtunnel.quic.events import ConnectionClosed, HttpEvent, SettingsReceived
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.settings import ConnectionSettings, EndpointSettings

SERVER_NAME = "server.test"
CLIENT_ADDRESS: Address = ("198.18.0.1", 40000)
SERVER_ADDRESS: Address = ("198.18.0.2", 443)
SERVER_LOCAL = "198.18.0.2"

REQUEST = [
    (b":method", b"CONNECT"),
    (b":protocol", b"connect-ip"),
    (b":scheme", b"https"),
    (b":authority", b"server.test:443"),
    (b":path", b"/.well-known/masque/ip/*/*/"),
    (b"capsule-protocol", b"?1"),
]
RESPONSE = [(b":status", b"200"), (b"capsule-protocol", b"?1")]
GET = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":authority", b"server.test:443"),
    (b":path", b"/"),
]


@functools.cache
def certificate(name: str = SERVER_NAME) -> tuple[bytes, bytes, bytes]:
    """Return (certificate PEM, key PEM, certificate DER): self-signed, ECDSA P-256, made once per name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 1))
        .not_valid_after(datetime.datetime(2120, 1, 1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM), key_pem, made.public_bytes(Encoding.DER)


def client_settings(seed: int = 1, **changes: Any) -> ConnectionSettings:
    """Return a client's settings that trust certificate() by its fingerprint."""
    values: dict[str, Any] = {
        "random_bytes": random.Random(seed).randbytes,
        "server_name": SERVER_NAME,
        "fingerprint": fingerprint_of(certificate()[2]),
    }
    return ConnectionSettings(**values | changes)


def server_settings(seed: int = 2, **changes: Any) -> EndpointSettings:
    """Return a server's settings with certificate()."""
    pem, key, _ = certificate()
    values: dict[str, Any] = {
        "random_bytes": random.Random(seed).randbytes,
        "certificate": pem,
        "private_key": key,
        "stateless_reset_key": b"r" * 32,
        "retry_key": b"k" * 16,
    }
    return EndpointSettings(**values | changes)


def split(transmit: Transmit) -> list[bytes]:
    """Return the datagrams of a Transmit."""
    size = transmit.segment_size or len(transmit.data)
    return [transmit.data[start : start + size] for start in range(0, len(transmit.data), size)]


class QuicPair:
    """One client, one endpoint, one clock.

    lose(data, to_server) returns whether the network loses a datagram. client_events and server_events keep all
    events seen, in order; wire keeps (time, to_server, datagram). Pairs with one endpoint share a list of
    siblings, so that each gets what the endpoint sends and reports for its client.
    """

    def __init__(
        self,
        *,
        client: ConnectionSettings | None = None,
        server: EndpointSettings | None = None,
        endpoint: Endpoint | None = None,
        delay: float = 0.01,
        lose: Callable[[bytes, bool], bool] | None = None,
        address: Address = CLIENT_ADDRESS,
        start: float = 1000.0,
        siblings: list[QuicPair] | None = None,
    ) -> None:
        self.siblings = [] if siblings is None else siblings
        self.siblings.append(self)
        self.now = start
        self.delay = delay
        self.lose = lose
        self.address = address
        self.addresses = {address}
        self.endpoint = endpoint if endpoint is not None else Endpoint(server or server_settings())
        self.client = HttpConnection.client(client or client_settings(), SERVER_ADDRESS, self.now)
        self.server_connection: HttpConnection | None = None
        self.client_events: list[HttpEvent] = []
        self.server_events: list[HttpEvent] = []
        self.wire: list[tuple[float, bool, bytes]] = []
        self.transmits: list[tuple[bool, Transmit]] = []
        self._in_flight: list[tuple[float, int, bool, bytes]] = []
        self._count = 0

    def flush(self) -> None:
        """Send what either side has to send, and fetch all events."""
        for transmit in self.client.datagrams_to_send(self.now):
            self._send(transmit, to_server=True)
        for transmit in self.endpoint.datagrams_to_send(self.now):
            for pair in self.siblings:
                if pair.has_address(transmit.remote):
                    pair._send(transmit, to_server=False)
        self._fetch_events()

    def has_address(self, address: Address) -> bool:
        """Return whether the client has, or had, that address."""
        self.addresses.add(self.address)
        return address in self.addresses

    def _send(self, transmit: Transmit, *, to_server: bool) -> None:
        self.transmits.append((to_server, transmit))
        for data in split(transmit):
            self.wire.append((self.now, to_server, data))
            if self.lose is None or not self.lose(data, to_server):
                self.inject(data, to_server=to_server)

    def inject(self, data: bytes, *, to_server: bool) -> None:
        """Put a datagram on the network."""
        self._count += 1
        heapq.heappush(self._in_flight, (self.now + self.delay, self._count, to_server, data))

    def step(self) -> bool:
        """Go on to the next thing that happens; False if nothing ever will."""
        self.flush()
        times = [at for at in (self.client.get_timer(), self.endpoint.get_timer()) if at is not None]
        if self._in_flight:
            times.append(self._in_flight[0][0])
        if not times:
            return False
        self.now = max(self.now, min(times))
        self._deliver()
        for side in (self.client, self.endpoint):
            at = side.get_timer()
            if at is not None and at <= self.now:
                side.handle_timer(self.now)
        self.flush()
        return True

    def run(self, seconds: float) -> None:
        """Let that much time pass."""
        end = self.now + seconds
        while self._next_time() <= end and self.step():
            pass
        self.now = max(self.now, end)
        self.flush()

    def run_until(self, condition: Callable[[], object], limit: float = 30.0) -> None:
        """Go on until the condition holds; AssertionError after limit seconds."""
        end = self.now + limit
        self.flush()
        while not condition():
            assert self.step(), "nothing more happens"
            assert self.now <= end, "the condition did not come about in time"

    def connect(self) -> HttpConnection:
        """Run until both sides have each other's SETTINGS; return the server's connection."""
        self.run_until(
            lambda: (
                any(isinstance(event, SettingsReceived) for event in self.client_events)
                and any(isinstance(event, SettingsReceived) for event in self.server_events)
                and self.client.handshake_confirmed
            )
        )
        assert self.server_connection is not None
        return self.server_connection

    def open_tunnel(self) -> int:
        """Connect, send a CONNECT-IP request, accept it, register its packets; return the stream id."""
        server = self.connect()
        stream_id = self.client.send_request(REQUEST)
        self.run_until(lambda: self.of(self.server_events, "HeadersReceived"))
        server.send_headers(stream_id, RESPONSE)
        server.register_packet_stream(stream_id, b"\x00")
        self.run_until(lambda: self.of(self.client_events, "HeadersReceived"))
        self.client.register_packet_stream(stream_id, b"\x00")
        return stream_id

    @staticmethod
    def of(events: list[HttpEvent], kind: str) -> list[Any]:
        """Return the events of one kind."""
        return [event for event in events if type(event).__name__ == kind]

    def packets(self, events: list[HttpEvent]) -> list[bytes]:
        """Return all inner packets in a list of events."""
        return [packet for event in self.of(events, "PacketsReceived") for packet in event.packets]

    def closed(self, events: list[HttpEvent]) -> ConnectionClosed | None:
        """Return the end, if it has come."""
        found = self.of(events, "ConnectionClosed")
        return found[0] if found else None

    def _next_time(self) -> float:
        self.flush()
        times = [at for at in (self.client.get_timer(), self.endpoint.get_timer()) if at is not None]
        if self._in_flight:
            times.append(self._in_flight[0][0])
        return min(times, default=float("inf"))

    def _deliver(self) -> None:
        for to_server in (True, False):
            datagrams = list(self._due(to_server))
            if datagrams and to_server:
                self.endpoint.receive_from_udp(
                    [Received(datagrams, self.address, SERVER_LOCAL, path_id=3)], self.now
                )
            elif datagrams:
                self.client.receive_from_udp([Received(datagrams, SERVER_ADDRESS)], self.now)
            self._fetch_events()

    def _due(self, to_server: bool) -> Iterator[bytes]:
        due = [entry for entry in self._in_flight if entry[0] <= self.now and entry[2] is to_server]
        for entry in sorted(due):
            self._in_flight.remove(entry)
            yield entry[3]
        heapq.heapify(self._in_flight)

    def _fetch_events(self) -> None:
        while (event := self.client.next_event()) is not None:
            self.client_events.append(event)
        while (item := self.endpoint.next_event()) is not None:
            connection, server_event = item
            for pair in self.siblings:
                if pair.has_address(connection.remote):
                    pair.server_connection = connection
                    pair.server_events.append(server_event)
