"""HTTP/3 on one QUIC connection, client or server: what the tunnel sees of quic/.

    receive_from_udp  datagrams_to_send  get_timer  handle_timer  next_event

After any call that can change something, the caller sends datagrams_to_send() and re-arms get_timer(). Inner
packets travel as bursts: send_packets() takes one, and PacketsReceived brings one per receive call, however many
datagrams that was. Requests are known by their stream id.

The client creates its HTTP/3 layer only after the certificate was checked, so nothing can leave before.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import ErrorCode
from aioquic.h3.connection import Setting as H3Setting
from aioquic.h3.events import DataReceived as H3Data
from aioquic.h3.events import HeadersReceived as H3Headers
from aioquic.quic import events as quic_events

from qtunnel.burst import Transmit
from qtunnel.drops import DropCounts, DropReason
from qtunnel.errors import LocalProtocolError
from qtunnel.quic._aioquic import H3Core
from qtunnel.quic.connection import CID_SIZE, Connection, client_configuration
from qtunnel.quic.early_datagrams import EarlyDatagrams
from qtunnel.quic.events import (
    DatagramsReceived,
    DataReceived,
    GoawayReceived,
    HandshakeCompleted,
    Headers,
    HeadersReceived,
    HttpEvent,
    PacketsReceived,
    SettingsReceived,
    StreamReset,
)
from qtunnel.quic.header_rules import check_request, is_connect, is_extended_connect, is_success
from qtunnel.quic.stateless_reset import TOKEN_SIZE
from qtunnel.quic.transmits import as_transmits, canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioquic.h3.events import H3Event

    from qtunnel.burst import Address, Received
    from qtunnel.quic.settings import ConnectionSettings
    from qtunnel.quic.stats import ConnectionStats

__all__ = ["HttpConnection"]

logger = logging.getLogger(__name__)

MAX_QUARTER_STREAM_ID: Final = (1 << 60) - 1  # RFC 9297 §2.1
MIN_EARLY_TIME: Final = 0.05
"""Seconds an early datagram is kept at least, for want of a round-trip time."""


@dataclass(slots=True)
class Request:
    """One request stream, from its headers until QUIC has forgotten it."""

    stream_id: int
    is_connect: bool
    may_have_datagrams: bool
    send_is_open: bool = True
    receive_is_open: bool = True
    prefix: bytes | None = None
    """Quarter stream id and the registered prefix: what inner packets begin with."""


class HttpConnection:
    """One HTTP/3 connection. Made by client(), or by an Endpoint.

    drops: packets and datagrams dropped, by reason, both directions. on_touched is called whenever there may be
    something to send, a timer to re-arm or an event to fetch.
    """

    def __init__(
        self,
        quic: Connection,
        remote: Address,
        *,
        on_touched: Callable[[HttpConnection], None] | None = None,
        on_cid_retired: Callable[[HttpConnection, bytes], None] | None = None,
    ) -> None:
        self.quic = quic
        self.drops = DropCounts()
        quic.queue.drops = self.drops
        self._is_client: bool = quic.configuration.is_client
        self._on_touched = on_touched
        self._on_cid_retired = on_cid_retired
        self._remote = canonical(remote)
        self._edges: dict[Address, tuple[Address, str | None, int]] = {self._remote: (remote, None, 0)}
        """Canonical remote address -> as the socket gave it, local address and path id it came in by."""
        self._h3: H3Core | None = None
        self._events: deque[HttpEvent] = deque()
        self._requests: dict[int, Request] = {}
        self._early = EarlyDatagrams()
        self._early.drops = self.drops
        self._next_request_id = 0
        self._settings_seen = False
        self._datagrams_agreed = False
        self._extended_connect = False
        self._goaway_received: int | None = None
        self._goaway_sent: int | None = None
        self._closed_reported = False

    @classmethod
    def client(cls, settings: ConnectionSettings, remote: Address, now: float) -> HttpConnection:
        """Begin a connection to a server; the first flight is ready in datagrams_to_send.

        Raises: ConfigError if the settings cannot be used.
        """
        quic = Connection(
            settings,
            client_configuration(settings),
            started_at=now,
            new_cid=lambda: settings.random_bytes(CID_SIZE),
            reset_token=lambda _cid: settings.random_bytes(TOKEN_SIZE),
        )
        connection = cls(quic, remote)
        quic.connect(connection._remote, now)
        return connection

    # -- the five verbs

    def receive_from_udp(self, received: Sequence[Received], now: float) -> None:
        """Read a burst of UDP payloads, whatever they hold; fetch events afterwards."""
        for group in received:
            remote = self.note_edge(group)
            for data in group.datagrams:
                self.quic.receive_datagram(data, remote, now)
        self.after_receiving(now)

    def note_edge(self, group: Received) -> Address:
        """Remember where a group of datagrams came in; return its address as quic knows it."""
        remote = canonical(group.remote)
        edge = (group.remote, group.local, group.path_id)
        if self._edges.get(remote) != edge and (remote == self._remote or not self._is_client):
            if len(self._edges) > 16:
                known = self.quic.peer_addresses
                self._edges = {address: self._edges[address] for address in known if address in self._edges}
            self._edges[remote] = edge
        return remote

    def after_receiving(self, now: float) -> None:
        """Turn what quic received into events; the last step of a burst."""
        datagrams: list[bytes] = []
        event = self.quic.next_event()
        while event is not None:
            if isinstance(event, quic_events.DatagramFrameReceived):
                datagrams.append(event.data)
            else:
                self._on_quic_event(event, now)
            event = self.quic.next_event()
        if datagrams and self.quic.closed is None:
            self._receive_datagrams(datagrams, now)
        self._touch()

    def datagrams_to_send(self, now: float) -> list[Transmit]:
        """Return what to send now, in order; equal sizes to one address are joined. Then re-arm the timer."""
        sent = self.quic.datagrams_to_send(now)
        if self.quic.closed is not None:
            self._report_end()
        if not sent:
            return []
        return as_transmits(sent, self._edges, join=not self.quic.challenge_written)

    def get_timer(self) -> float | None:
        """Return when handle_timer is due, seconds; None: never."""
        at = self.quic.get_timer()
        early_at = self._early.get_timer()
        if early_at is None or self.quic.is_ending:
            return at
        return early_at if at is None else min(at, early_at)

    def handle_timer(self, now: float) -> None:
        """Do what is due; then send, fetch events and re-arm."""
        self._early.drop_late(now)
        self.quic.handle_timer(now)
        self.after_receiving(now)

    def next_event(self) -> HttpEvent | None:
        """Return the oldest event not fetched yet."""
        return self._events.popleft() if self._events else None

    # -- requests

    def send_request(self, headers: Headers, *, end: bool = False) -> int:
        """Open a request and return its stream id.

        Raises: LocalProtocolError before the peer is verified, after GOAWAY or the end, and for an extended
        CONNECT before the server's SETTINGS allow it (RFC 9220 §3).
        """
        h3 = self._h3
        if not self._is_client or h3 is None or self.quic.closed is not None:
            raise LocalProtocolError("no connection to send a request on")
        if self._goaway_received is not None:
            raise LocalProtocolError("the server takes no more requests (GOAWAY)")
        extended = is_extended_connect(headers)
        if extended and not self._extended_connect:
            raise LocalProtocolError("the server's SETTINGS have not enabled extended CONNECT")
        stream_id = self.quic.get_next_available_stream_id()
        self._requests[stream_id] = Request(stream_id, is_connect(headers), extended, send_is_open=not end)
        h3.send_headers(stream_id, headers, end)
        self._touch()
        return stream_id

    def send_headers(self, stream_id: int, headers: Headers, end: bool = False) -> None:
        """Send a response or trailers. In vain, without an error, if the peer has reset the stream.

        Raises: LocalProtocolError for a stream that is unknown or that we have finished.
        """
        request = self._open_request(stream_id)
        if request is None or self._h3 is None:
            return
        self._h3.send_headers(stream_id, headers, end)
        request.send_is_open = not end
        if request.is_connect and not self._is_client and is_success(headers):
            self._h3.connect_streams.add(stream_id)
        self._touch()

    def send_data(self, stream_id: int, data: bytes, end: bool = False) -> None:
        """Send content in a DATA frame; end finishes our side. Errors as send_headers."""
        request = self._open_request(stream_id)
        if request is None or self._h3 is None:
            return
        self._h3.send_data(stream_id, data, end)
        request.send_is_open = not end
        self._touch()

    def reset_stream(self, stream_id: int, error_code: int) -> None:
        """Abort a request in both directions (RESET_STREAM and STOP_SENDING); no more events come of it."""
        request = self._requests.get(stream_id)
        if request is not None:
            self._abort(request, error_code)
            self._touch()

    def _open_request(self, stream_id: int) -> Request | None:
        """Return the request if it can still be written to, None if the peer ended it."""
        request = self._requests.get(stream_id)
        if self.quic.closed is not None:
            return None
        if request is None:
            if self.quic.stream_is_discarded(stream_id):
                return None
            raise LocalProtocolError(f"no request on stream {stream_id}")
        if not request.send_is_open:
            if request.receive_is_open:
                raise LocalProtocolError(f"stream {stream_id} was finished by us")
            return None
        return request

    # -- the connection

    def close(self, error_code: int = ErrorCode.H3_NO_ERROR, reason: str = "") -> None:
        """Close with an HTTP/3 error code; ConnectionClosed follows at once."""
        self.quic.close(error_code, None, reason)
        self._touch()

    def ping(self) -> None:
        """Send a PING, which the peer acknowledges."""
        self.quic.send_ping(0)
        self._touch()

    def goaway(self) -> None:
        """Take no new requests; those open go on (RFC 9114 §5.2)."""
        if self._h3 is None or self._goaway_sent is not None or self.quic.closed is not None:
            return
        self._goaway_sent = 0 if self._is_client else self._next_request_id
        self._h3.send_goaway(self._goaway_sent)
        self._touch()

    def set_max_udp_payload(self, size: int) -> None:
        """Take another size of the path: the UDP payload it carries, bytes."""
        self.quic.set_max_udp_payload(size)
        self._touch()

    @property
    def remote(self) -> Address:
        """The peer's address now; it changes when the peer migrates."""
        addresses = self.quic.peer_addresses
        return self._edges[addresses[0]][0] if addresses and addresses[0] in self._edges else self._remote

    @property
    def peer_certificate(self) -> bytes | None:
        """The server's certificate in DER; None on a server."""
        return self.quic.peer_certificate

    @property
    def handshake_confirmed(self) -> bool:
        """Both sides are known to have completed the handshake (RFC 9001 §4.1.2)."""
        return self.quic.handshake_confirmed

    @property
    def is_terminated(self) -> bool:
        """The closing period is over, too: nothing is left to send and no timer runs."""
        return self.quic.is_terminated

    def stats(self) -> ConnectionStats:
        """Return a snapshot of the numbers."""
        return self.quic.stats()

    # -- packets

    def register_packet_stream(self, stream_id: int, prefix: bytes) -> None:
        """Take HTTP Datagrams of a stream that begin with prefix for inner packets, in both directions.

        Raises: LocalProtocolError for a stream that is not an open extended CONNECT.
        """
        request = self._requests.get(stream_id)
        if request is None or not request.may_have_datagrams:
            raise LocalProtocolError(f"stream {stream_id} has no datagrams")
        request.prefix = encode_uint_var(stream_id // 4) + prefix
        early = self._early.take(stream_id)
        if early:
            self._report_payloads(request, early)
        self._touch()

    def send_packets(self, stream_id: int, packets: Sequence[bytes], now: float) -> DropCounts:
        """Queue a burst of inner packets; return what was dropped of it at once, which is in drops, too.

        Too large ones are dropped, others take their place. Never raises and never blocks.
        """
        request = self._requests.get(stream_id)
        if request is None or not request.send_is_open or self.quic.closed is not None:
            return self._drop(DropReason.STREAM_CLOSED, len(packets))
        if request.prefix is None or not self._datagrams_agreed:
            return self._drop(DropReason.NO_SESSION, len(packets))
        drops = self.quic.queue.push(request.prefix, packets, max_payload=self.quic.max_datagram_payload, now=now)
        self._touch()
        return drops

    def max_packet_size(self, stream_id: int) -> int:
        """Return the bytes of the largest inner packet one DATAGRAM carries now; 0 before that is negotiated."""
        request = self._requests.get(stream_id)
        if request is None or request.prefix is None or not self._datagrams_agreed:
            return 0
        return max(0, self.quic.max_datagram_payload - len(request.prefix))

    def packet_queue_room(self) -> int:
        """Return how many packets the queue still takes; 0: stop reading the TUN."""
        return self.quic.queue.room

    # -- events of quic

    def _on_quic_event(self, event: quic_events.QuicEvent, now: float) -> None:
        if isinstance(event, quic_events.ConnectionIdRetired):
            if self._on_cid_retired is not None:
                self._on_cid_retired(self, event.connection_id)
            return
        if self.quic.closed is not None:
            return
        if isinstance(event, quic_events.ProtocolNegotiated):
            if not self._is_client:
                self._start_h3()  # SETTINGS leave with the handshake, half a round trip earlier
        elif isinstance(event, quic_events.HandshakeCompleted):
            self._events.append(HandshakeCompleted(self.quic.peer_certificate if self._is_client else None))
            self._start_h3()
        elif isinstance(event, quic_events.StreamDataReceived | quic_events.StreamReset):
            self._on_stream_event(event, now)
        elif isinstance(event, quic_events.StopSendingReceived):
            self._on_stop_sending(event)

    def _start_h3(self) -> None:
        if self._h3 is None:
            self._h3 = H3Core(self.quic, check_request)

    def _on_stream_event(
        self, event: quic_events.StreamDataReceived | quic_events.StreamReset, now: float
    ) -> None:
        h3, stream_id = self._h3, event.stream_id
        if h3 is None:
            return
        request = self._requests.get(stream_id)
        if request is not None and not request.receive_is_open:
            return
        if stream_id % 4 == 1:
            self.quic.close(ErrorCode.H3_STREAM_CREATION_ERROR, None, "no server-initiated bidirectional streams")
            return
        for h3_event in self._feed(h3, event):
            self._on_h3_event(h3_event)
        self._after_feeding(h3)
        if isinstance(event, quic_events.StreamReset) and stream_id % 4 == 0:
            self._on_reset(stream_id, event.error_code)

    def _feed(self, h3: H3Core, event: quic_events.QuicEvent) -> list[H3Event]:
        """Hand an event to the HTTP/3 layer; what it cannot cope with ends this connection only."""
        try:
            return h3.handle_event(event)
        except Exception:
            self.quic.internal_errors += 1
            logger.debug("connection closed after an internal error in HTTP/3", exc_info=True)
            self.quic.close(ErrorCode.H3_INTERNAL_ERROR, None, "internal error")
            return []

    def _on_h3_event(self, event: H3Event) -> None:
        if isinstance(event, H3Headers):
            self._on_headers(event)
        elif isinstance(event, H3Data):
            request = self._requests.get(event.stream_id)
            if request is not None and request.receive_is_open:
                self._events.append(DataReceived(event.stream_id, event.data or b"", event.stream_ended))
                request.receive_is_open = not event.stream_ended

    def _on_headers(self, event: H3Headers) -> None:
        stream_id, headers = event.stream_id, event.headers
        request = self._requests.get(stream_id)
        if request is None:
            request = self._admit(stream_id, headers)
            if request is None:
                return
        elif not request.receive_is_open:
            return
        elif self._is_client and request.is_connect and is_success(headers) and self._h3 is not None:
            self._h3.connect_streams.add(stream_id)
        request.receive_is_open = not event.stream_ended
        self._events.append(HeadersReceived(stream_id, headers, event.stream_ended))

    def _admit(self, stream_id: int, headers: Headers) -> Request | None:
        """Take in a client's new request, or refuse it after our GOAWAY (RFC 9114 §5.2)."""
        self._forget_discarded()
        extended = is_extended_connect(headers)
        request = Request(stream_id, is_connect(headers), extended)
        self._requests[stream_id] = request
        if self._goaway_sent is not None and stream_id >= self._goaway_sent:
            self._abort(request, ErrorCode.H3_REQUEST_REJECTED)
            return None
        self._next_request_id = max(self._next_request_id, stream_id + 4)
        if not extended and self._early.take(stream_id):
            self._abort(request, ErrorCode.H3_DATAGRAM_ERROR)
            return None
        return request

    def _after_feeding(self, h3: H3Core) -> None:
        for stream_id, reason in h3.malformed.items():
            logger.debug("stream %d: malformed message: %s", stream_id, reason)
            request = self._requests.setdefault(stream_id, Request(stream_id, False, False))
            was_known = request.receive_is_open
            self._abort(request, ErrorCode.H3_MESSAGE_ERROR)
            if was_known:
                self._events.append(StreamReset(stream_id, ErrorCode.H3_MESSAGE_ERROR))
        h3.malformed.clear()
        self._check_settings(h3)
        goaway = h3.control.goaway
        if goaway is not None and goaway != self._goaway_received:
            self._on_goaway(goaway)

    def _check_settings(self, h3: H3Core) -> None:
        settings = h3.received_settings
        if settings is None or self._settings_seen:
            return
        self._settings_seen = True
        self._extended_connect = settings.get(H3Setting.ENABLE_CONNECT_PROTOCOL) == 1
        self._datagrams_agreed = (
            settings.get(H3Setting.H3_DATAGRAM) == 1 and self.quic.peer_max_datagram_frame_size > 0
        )
        self._events.append(SettingsReceived(self._extended_connect, self._datagrams_agreed))

    def _on_goaway(self, identifier: int) -> None:
        if self._is_client and identifier % 4:
            self.quic.close(ErrorCode.H3_ID_ERROR, None, "GOAWAY names no request")
            return
        self._goaway_received = identifier
        self._events.append(GoawayReceived(identifier))
        if not self._is_client:
            return
        for request in list(self._requests.values()):
            if request.stream_id >= identifier and (request.send_is_open or request.receive_is_open):
                self._abort(request, ErrorCode.H3_REQUEST_CANCELLED)
                self._events.append(StreamReset(request.stream_id, ErrorCode.H3_REQUEST_REJECTED))

    def _on_stop_sending(self, event: quic_events.StopSendingReceived) -> None:
        if self._h3 is None:
            return
        self._feed(self._h3, event)
        if event.stream_id % 4 == 0:
            self._on_reset(event.stream_id, event.error_code)

    def _on_reset(self, stream_id: int, error_code: int) -> None:
        """Abort the other direction, too, after the peer aborted one (RFC 9114 §4.4)."""
        request = self._requests.get(stream_id)
        if request is None or not (request.send_is_open or request.receive_is_open):
            return
        self._abort(request, ErrorCode.H3_REQUEST_CANCELLED)
        self._events.append(StreamReset(stream_id, error_code))

    def _abort(self, request: Request, error_code: int) -> None:
        request.send_is_open = request.receive_is_open = False
        self.quic.abort_stream(request.stream_id, error_code)
        self._early.take(request.stream_id)

    def _forget_discarded(self) -> None:
        gone = [stream_id for stream_id in self._requests if self.quic.stream_is_discarded(stream_id)]
        for stream_id in gone:
            del self._requests[stream_id]
            if self._h3 is not None:
                self._h3.connect_streams.discard(stream_id)

    # -- datagrams

    def _receive_datagrams(self, datagrams: list[bytes], now: float) -> None:
        """Sort a burst of DATAGRAM frames by stream; those of registered streams are the fast way."""
        rest: Iterable[bytes] = datagrams
        for request in self._requests.values():
            prefix = request.prefix
            if prefix is None or not request.receive_is_open:
                continue
            size = len(prefix)
            packets = [data[size:] for data in rest if data.startswith(prefix)]
            if packets:
                self._events.append(PacketsReceived(request.stream_id, packets))
                if len(packets) == len(datagrams):
                    return
                rest = [data for data in rest if not data.startswith(prefix)]
        others: dict[int, list[bytes]] = {}
        for data in rest:
            if not self._sort_datagram(data, others, now):
                return
        for stream_id, payloads in others.items():
            self._report_payloads(self._requests[stream_id], payloads)

    def _sort_datagram(self, data: bytes, others: dict[int, list[bytes]], now: float) -> bool:
        """Decide about one datagram of no registered prefix; False once the connection is closed."""
        width = 1 << (data[0] >> 6) if data else 1
        if len(data) < width:
            self.quic.close(ErrorCode.H3_DATAGRAM_ERROR, None, "DATAGRAM without a quarter stream id")
            return False
        quarter = int.from_bytes(data[:width], "big") & ((1 << (8 * width - 2)) - 1)
        if quarter > MAX_QUARTER_STREAM_ID:
            self.quic.close(ErrorCode.H3_DATAGRAM_ERROR, None, "quarter stream id above 2^60-1")
            return False
        stream_id = 4 * quarter
        request = self._requests.get(stream_id)
        if request is None:
            return self._on_strange_datagram(stream_id, data[width:], now)
        if not request.receive_is_open:
            self._drop(DropReason.STREAM_CLOSED, 1)
        elif not request.may_have_datagrams:
            self._abort(request, ErrorCode.H3_DATAGRAM_ERROR)  # RFC 9297 §2
            self._events.append(StreamReset(stream_id, ErrorCode.H3_DATAGRAM_ERROR))
        elif request.prefix is None:
            self._keep_early(stream_id, data[width:], now)
        else:
            others.setdefault(stream_id, []).append(data[width:])
        return True

    def _on_strange_datagram(self, stream_id: int, payload: bytes, now: float) -> bool:
        """Handle a datagram whose stream has no headers yet, or none any more (RFC 9297 §2.1)."""
        if self.quic.stream_is_discarded(stream_id):
            self._drop(DropReason.STREAM_CLOSED, 1)
        elif self._is_client:
            self._drop(DropReason.UNKNOWN_STREAM, 1)  # only we open requests, and we did not
        elif stream_id // 4 >= self.quic.request_limit:
            self.quic.close(ErrorCode.H3_ID_ERROR, None, "datagram for a stream beyond the limit")
            return False
        else:
            self._keep_early(stream_id, payload, now)
        return True

    def _keep_early(self, stream_id: int, payload: bytes, now: float) -> None:
        self._early.keep(stream_id, payload, until=now + max(MIN_EARLY_TIME, self.quic.smoothed_rtt))

    def _report_payloads(self, request: Request, payloads: list[bytes]) -> None:
        """Report payloads that still lack their quarter stream id's check against the registered prefix."""
        prefix = request.prefix or b""
        prefix = prefix[len(encode_uint_var(request.stream_id // 4)) :]
        packets = [payload[len(prefix) :] for payload in payloads if payload.startswith(prefix)]
        if packets:
            self._events.append(PacketsReceived(request.stream_id, packets))
        others = [payload for payload in payloads if not payload.startswith(prefix)]
        if others:
            self._events.append(DatagramsReceived(request.stream_id, others))

    def _drop(self, reason: DropReason, count: int) -> DropCounts:
        drops = DropCounts({reason: count}) if count else DropCounts()
        self.drops.update(drops)
        return drops

    def _touch(self) -> None:
        """Tell the owner that something may have changed."""
        self._report_end()
        if self._on_touched is not None:
            self._on_touched(self)

    def _report_end(self) -> None:
        closed = self.quic.closed
        if closed is None or self._closed_reported:
            return
        self._closed_reported = True
        self._requests.clear()
        self._events.append(closed)
        if self._on_touched is not None:
            self._on_touched(self)
