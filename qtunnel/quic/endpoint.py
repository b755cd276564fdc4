"""A server for many HTTP/3 connections on one set of sockets: who gets which datagram, and who may come in.

    receive_from_udp  datagrams_to_send  get_timer  handle_timer  next_event

A datagram's connection id decides. Per burst the order is: established connections, handshakes, strangers; so a
flood of strangers costs the others its reading only. Strangers get, in this order and each within a rate: a
handshake while few are in progress, a Retry when many are (RFC 9000 §8.1.2, no state kept), a stateless reset
for a short header (§10.3), Version Negotiation, or nothing. A client that comes back from a Retry and finds no
room in its burst waits for the next call (waiting_clients.py).

Connections are serviced when something happened to them: a set of touched ones, and a heap of timers.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from aioquic.quic.packet import QuicErrorCode

from qtunnel.burst import Transmit
from qtunnel.drops import DropCounts, DropReason
from qtunnel.packet_run import PacketRun, Packets
from qtunnel.quic.address_token import AddressTokens, TokenFault
from qtunnel.quic.connection import CID_SIZE, Connection, server_configuration
from qtunnel.quic.events import ConnectionClosed, HandshakeCompleted, HttpEvent
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.long_header import (
    QUIC_V1,
    InitialHeader,
    encode_initial_close,
    encode_retry,
    encode_version_negotiation,
    parse_initial,
)
from qtunnel.quic.plane_connection import PlaneConnection
from qtunnel.quic.settings import MIN_UDP_PAYLOAD, EndpointSettings
from qtunnel.quic.stateless_reset import StatelessResetter, reset_token
from qtunnel.quic.token_bucket import TokenBucket
from qtunnel.quic.transmits import canonical
from qtunnel.quic.waiting_clients import WaitingClients

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from qtunnel.burst import Address, Received

__all__ = ["Endpoint"]

MIN_INITIAL_DCID: Final = 8
"""Bytes of a connection id a client chooses (RFC 9000 §7.2)."""
RETRY_CID_SIZE: Final = 8
MAX_NEW_PER_BURST: Final = 4
"""Handshakes begun per call; each costs some milliseconds, during which nobody else is served. While clients with
a token wait, receive_from_udp begins none, and handle_timer begins theirs."""
MAX_ANSWERS: Final = 256
"""Answers to strangers kept until datagrams_to_send."""
CLOSES_PER_SECOND: Final = 50.0
NEGOTIATIONS_PER_SECOND: Final = 50.0
"""Answers to strangers that need keys, or are of no use to well-behaved ones."""


class Endpoint:
    """All connections of a server.

    drops counts what belonged to no connection; each connection has its own. connections: those whose handshake
    is complete, until they are closed. internal_errors: exceptions caught that a peer's bytes provoked beneath us;
    each is a bug, and cost that peer its connection.

    Raises: ConfigError if certificate or key cannot be used.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        self.drops = DropCounts()
        self.retries_sent = 0
        self.internal_errors = 0
        self._settings = settings
        self._configuration = server_configuration(settings)
        self._by_cid: dict[bytes, HttpConnection] = {}
        self._cids: dict[HttpConnection, set[bytes]] = {}
        self._handshaking: dict[HttpConnection, None] = {}
        self._established: dict[HttpConnection, None] = {}
        self._touched: dict[HttpConnection, None] = {}
        self._eventful: dict[HttpConnection, None] = {}
        self._timers: list[tuple[float, int, HttpConnection]] = []
        self._timer_of: dict[HttpConnection, float] = {}
        self._timer_count = 0
        self._answers: list[Transmit] = []
        self._waiting = WaitingClients()
        self._tokens = AddressTokens(
            key=settings.retry_key, lifetime=settings.token_lifetime, random_bytes=settings.random_bytes
        )
        self._resetter = StatelessResetter(key=settings.stateless_reset_key, random_bytes=settings.random_bytes)
        self._rate_exceeded = False
        rate = settings.initials_per_second
        self._unproven = TokenBucket(rate=rate, burst=rate)
        self._closes = TokenBucket(rate=CLOSES_PER_SECOND, burst=CLOSES_PER_SECOND)
        self._negotiations = TokenBucket(rate=NEGOTIATIONS_PER_SECOND, burst=NEGOTIATIONS_PER_SECOND)

    # -- the five verbs

    def receive_from_udp(self, received: Sequence[Received], now: float) -> None:
        """Read a burst of UDP payloads, whatever they hold; fetch events and send afterwards."""
        handshakes: list[tuple[HttpConnection, Received, bytes]] = []
        strangers: list[tuple[Received, bytes]] = []
        runs: list[tuple[HttpConnection, Packets, Address, int]] = []
        run: list[bytes] = []
        by_cid, established, touched = self._by_cid, self._established, self._touched
        for group in received:
            last: HttpConnection | None = None
            remote = canonical(group.remote)
            datagrams = group.datagrams
            if isinstance(datagrams, PacketRun):
                owner = self._owner_of_all(datagrams)
                if owner is not None:
                    owner.note_edge(group)
                    runs.append((owner, datagrams, remote, group.ecn))
                    continue
            for data in datagrams:
                connection = by_cid.get(_destination_cid(data))
                if connection is None:
                    strangers.append((group, data))
                elif connection in established:
                    if connection is not last:
                        connection.note_edge(group)
                        run = []
                        runs.append((connection, run, remote, group.ecn))
                        last = connection
                    run.append(data)
                else:
                    handshakes.append((connection, group, data))
        for connection, packets, remote, ecn in runs:
            connection.quic.receive_datagrams(packets, remote, now, ecn)
            touched[connection] = None
        for connection, group, data in handshakes:
            connection.quic.receive_datagram(data, connection.note_edge(group), now)
            touched[connection] = None
        if strangers:
            self._receive_strangers(strangers, MAX_NEW_PER_BURST if self._waiting else 0, now)
        for connection in list(touched):
            connection.after_receiving(now)

    def _owner_of_all(self, datagrams: PacketRun) -> HttpConnection | None:
        """Return the established connection all datagrams of a run are for, if there is one."""
        first = datagrams[0]
        owner = self._by_cid.get(_destination_cid(first))
        if owner not in self._established or first[0] >= 0x80 or max(datagrams.column(0)) >= 0x80:
            return None
        return owner if datagrams.without(1).all_begin_with(first[1 : 1 + CID_SIZE]) else None

    def datagrams_to_send(self, now: float) -> list[Transmit]:
        """Return what to send now: answers to strangers, then that of all connections touched since."""
        transmits, self._answers = self._answers, []
        while self._touched:
            touched, self._touched = self._touched, {}
            for connection in touched:
                transmits += connection.datagrams_to_send(now)
                self._keep_books(connection)
        return transmits

    def get_timer(self) -> float | None:
        """Return when handle_timer is due, seconds; None: never. Call datagrams_to_send first."""
        at, waiting_at = self._connections_timer(), self._waiting.get_timer()
        if at is None or waiting_at is None:
            return waiting_at if at is None else at
        return min(at, waiting_at)

    def _connections_timer(self) -> float | None:
        timers = self._timers
        while timers and self._timer_of.get(timers[0][2]) != timers[0][0]:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def handle_timer(self, now: float) -> None:
        """Do what is due; then send, fetch events and re-arm."""
        at = self._connections_timer()
        while at is not None and at <= now:
            _, _, connection = heapq.heappop(self._timers)
            del self._timer_of[connection]
            connection.handle_timer(now)
            self._touched[connection] = None
            at = self._connections_timer()
        if self._waiting:
            self._begin_waiting(now)

    def on_stall(self, duration: float, now: float) -> None:
        """Take note that this process slept so long; to be called before what came meanwhile is given to it."""
        for connection in self._cids:
            connection.on_stall(duration, now)

    def on_refused(self, transmit: Transmit, now: float) -> None:
        """Take note that the kernel refused to send this as too large (EMSGSIZE)."""
        for connection in self._established:
            if connection.remote == transmit.remote:
                connection.on_refused(transmit.segment_size or len(transmit.data), now)

    def on_packet_too_big(self, remote: Address, mtu: int, quoted: bytes, now: float) -> None:
        """Take an ICMP message about a packet to remote whose UDP payload begins with quoted: a hint, no more."""
        for connection in self._established:
            if connection.remote == remote:
                connection.on_packet_too_big(mtu, quoted, now)

    def next_event(self) -> tuple[HttpConnection, HttpEvent] | None:
        """Return the oldest event of some connection; a connection's own events keep their order.

        A connection is reported from its HandshakeCompleted on; those that never get there are not.
        """
        while self._eventful:
            connection = next(iter(self._eventful))
            event = connection.next_event()
            if event is None:
                del self._eventful[connection]
            elif isinstance(event, HandshakeCompleted):
                self._handshaking.pop(connection, None)
                self._established[connection] = None
                return connection, event
            elif connection in self._established:
                if isinstance(event, ConnectionClosed):
                    del self._established[connection]
                return connection, event
            elif isinstance(event, ConnectionClosed):
                self._handshaking.pop(connection, None)
        return None

    # -- what the tunnel asks

    @property
    def connections(self) -> Collection[HttpConnection]:
        """Connections with a complete handshake that are not closed."""
        return self._established.keys()

    @property
    def handshakes_in_progress(self) -> int:
        """Connections between their first packet and the end of the handshake."""
        return len(self._handshaking)

    @property
    def retry_active(self) -> bool:
        """Whether new clients must prove their address first."""
        return self._rate_exceeded or len(self._handshaking) >= self._settings.retry_threshold

    def close_all(self, error_code: int = 0x100, reason: str = "") -> None:
        """Close every connection with an HTTP/3 error code; send datagrams_to_send afterwards."""
        for connection in list(self._cids):
            connection.close(error_code, reason)

    # -- strangers

    def _begin_waiting(self, now: float) -> None:
        """Begin the handshakes of clients that proved their address and found no room in an earlier burst."""
        late = self._waiting.drop_late(now)
        if late:
            self.drops[DropReason.HANDSHAKES_FULL] += late
        self._receive_strangers(self._waiting.take(MAX_NEW_PER_BURST, now), 0, now)
        for connection in list(self._touched):
            connection.after_receiving(now)

    def _receive_strangers(self, strangers: list[tuple[Received, bytes]], begun: int, now: float) -> None:
        """Answer or drop datagrams of no connection; several of one new connection may be among them.

        begun: how many of the handshakes one call may begin are taken already.
        """
        for group, data in strangers:
            if not data:
                self.drops[DropReason.BAD_UDP_DATAGRAM] += 1
                continue
            known = self._by_cid.get(_destination_cid(data))
            if known is not None:  # begun by an earlier one of this burst
                known.quic.receive_datagram(data, known.note_edge(group), now)
            elif not data[0] & 0x80:
                self._answer_short_header(group, data, now)
            else:
                begun += self._receive_long_header(group, data, begun, now)

    def _answer_short_header(self, group: Received, data: bytes, now: float) -> None:
        self.drops[DropReason.UNKNOWN_CONNECTION] += 1
        reset = self._resetter.answer(data, data[1 : 1 + CID_SIZE], now)
        if reset is not None:
            self._answer(group, reset)

    def _receive_long_header(self, group: Received, data: bytes, begun: int, now: float) -> int:
        """Return 1 if a handshake was begun, else 0."""
        if len(data) < MIN_UDP_PAYLOAD:  # RFC 9000 §14.1; and no answer is larger than what it answers
            self.drops[DropReason.BAD_UDP_DATAGRAM] += 1
            return 0
        header = parse_initial(data)
        if header is None:
            self.drops[DropReason.BAD_UDP_DATAGRAM] += 1
        elif header.version != QUIC_V1:
            self._negotiate_version(group, header, now)
        elif not header.is_initial:
            self.drops[DropReason.UNKNOWN_CONNECTION] += 1
        elif len(header.destination_cid) < MIN_INITIAL_DCID:
            self.drops[DropReason.BAD_UDP_DATAGRAM] += 1
        else:
            return self._receive_initial(group, data, header, begun, now)
        return 0

    def _negotiate_version(self, group: Received, header: InitialHeader, now: float) -> None:
        self.drops[DropReason.BAD_UDP_DATAGRAM] += 1
        if header.version != 0 and self._negotiations.allow(now):  # never answer a negotiation with one
            self._answer(
                group,
                encode_version_negotiation(
                    source_cid=header.destination_cid,
                    destination_cid=header.source_cid,
                    versions=(QUIC_V1,),
                    random_bytes=self._settings.random_bytes,
                ),
            )

    def _receive_initial(self, group: Received, data: bytes, header: InitialHeader, begun: int, now: float) -> int:
        proof = self._original_cid(group, header, now)
        if proof is TokenFault.NOT_GOOD:
            self.drops[DropReason.BAD_UDP_DATAGRAM] += 1
            self._refuse(group, header, QuicErrorCode.INVALID_TOKEN, now)
            return 0
        if isinstance(proof, bytes):
            original_cid = proof
            retry_cid: bytes | None = header.destination_cid
            is_full = len(self._handshaking) >= self._settings.max_handshakes
            if is_full or begun >= MAX_NEW_PER_BURST:
                if is_full or not self._waiting.keep(header.destination_cid, group, data, now):
                    self.drops[DropReason.HANDSHAKES_FULL] += 1
                return 0
        else:
            original_cid, retry_cid = header.destination_cid, None
            self._rate_exceeded = not self._unproven.allow(now)
            if self.retry_active or begun >= MAX_NEW_PER_BURST:
                self._send_retry(group, header, now)
                return 0
        if len(self._established) + len(self._handshaking) >= self._settings.max_sessions:
            self.drops[DropReason.HANDSHAKES_FULL] += 1
            self._refuse(group, header, QuicErrorCode.CONNECTION_REFUSED, now)
            return 0
        self._begin(group, data, header, original_cid, retry_cid, now)
        return 1

    def _original_cid(self, group: Received, header: InitialHeader, now: float) -> bytes | TokenFault:
        """Return the connection id the client used before our Retry, if its token proves that it got one."""
        if not header.token:
            return TokenFault.FOREIGN
        return self._tokens.original_cid(
            header.token, address=group.remote, destination_cid=header.destination_cid, now=now
        )

    def _send_retry(self, group: Received, header: InitialHeader, now: float) -> None:
        retry_cid = self._settings.random_bytes(RETRY_CID_SIZE)
        token = self._tokens.issue(
            address=group.remote, original_cid=header.destination_cid, retry_cid=retry_cid, now=now
        )
        self.retries_sent += 1
        self._answer(
            group,
            encode_retry(
                source_cid=retry_cid,
                destination_cid=header.source_cid,
                original_cid=header.destination_cid,
                token=token,
            ),
        )

    def _refuse(self, group: Received, header: InitialHeader, error_code: int, now: float) -> None:
        """Tell a client why it is not let in, as far as the rate allows: it costs a key derivation."""
        if self._closes.allow(now):
            self._answer(group, encode_initial_close(header, error_code))

    def _answer(self, group: Received, data: bytes) -> None:
        if len(self._answers) < MAX_ANSWERS:
            self._answers.append(Transmit(data, group.remote, group.local, path_id=group.path_id))

    # -- connections

    def _begin(
        self,
        group: Received,
        data: bytes,
        header: InitialHeader,
        original_cid: bytes,
        retry_cid: bytes | None,
        now: float,
    ) -> None:
        """Make a connection for an Initial, unless it cannot be opened."""
        cids: set[bytes] = set()
        kind = PlaneConnection if self._settings.packet_plane else Connection
        quic = kind(
            self._settings,
            self._configuration,
            started_at=now,
            new_cid=lambda: self._new_cid(cids),
            reset_token=lambda cid: reset_token(self._settings.stateless_reset_key, cid),
            original_cid=original_cid,
            retry_cid=retry_cid,
        )
        connection = HttpConnection(
            quic, group.remote, on_touched=self._on_touched, on_cid_retired=self._on_cid_retired
        )
        quic.receive_datagram(data, connection.note_edge(group), now)
        self.internal_errors += quic.internal_errors if quic.is_untouched else 0
        if quic.is_untouched:  # keys come from the header, so anybody can write one; the rest did not open
            self.drops[DropReason.BAD_UDP_DATAGRAM] += 1
            return
        if retry_cid is not None:
            quic.trust_address()
        cids.add(header.destination_cid)
        self._cids[connection] = cids
        for cid in cids:
            self._by_cid[cid] = connection
        self._handshaking[connection] = None
        self._touched[connection] = None

    def _new_cid(self, cids: set[bytes]) -> bytes:
        cid = self._settings.random_bytes(CID_SIZE)
        while cid in self._by_cid or cid in cids:
            cid = self._settings.random_bytes(CID_SIZE)
        cids.add(cid)
        return cid

    def _on_cid_retired(self, connection: HttpConnection, cid: bytes) -> None:
        self._by_cid.pop(cid, None)
        self._cids[connection].discard(cid)

    def _on_touched(self, connection: HttpConnection) -> None:
        self._touched[connection] = None
        self._eventful[connection] = None

    def _keep_books(self, connection: HttpConnection) -> None:
        """After a connection was serviced: its timer, its new connection ids, its end."""
        cids = self._cids.get(connection)
        if cids is None:
            return
        if connection.is_terminated:
            self._forget(connection)
            return
        for cid in cids:
            self._by_cid[cid] = connection
        at = connection.get_timer()
        if at is None:
            self._timer_of.pop(connection, None)
        elif self._timer_of.get(connection) != at:
            self._timer_of[connection] = at
            self._timer_count += 1
            heapq.heappush(self._timers, (at, self._timer_count, connection))
            if len(self._timers) > 64 + 4 * len(self._timer_of):
                self._drop_stale_timers()

    def _drop_stale_timers(self) -> None:
        """Rebuild the heap from the timers that are still meant; every re-arming leaves an old one behind."""
        self._timers = [
            (at, count, connection)
            for at, count, connection in self._timers
            if self._timer_of.get(connection) == at
        ]
        heapq.heapify(self._timers)

    def _forget(self, connection: HttpConnection) -> None:
        self.internal_errors += connection.quic.internal_errors
        for cid in self._cids.pop(connection):
            if self._by_cid.get(cid) is connection:
                del self._by_cid[cid]
        self._timer_of.pop(connection, None)
        self._handshaking.pop(connection, None)
        connection.release()


def _destination_cid(data: bytes) -> bytes:
    """Return the destination connection id; of a datagram that has none, something that is none."""
    if data[:1] >= b"\x80":
        return data[6 : 6 + data[5]] if len(data) > 5 else b""
    return data[1 : 1 + CID_SIZE]
