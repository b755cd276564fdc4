"""HTTP/3 on one QUIC connection, client or server: what the tunnel sees of quic/.

    receive_from_udp  datagrams_to_send  get_timer  handle_timer  next_event

After any call that can change something, the caller sends datagrams_to_send() and re-arms get_timer(). Inner
packets travel as bursts: send_packets() takes one, and PacketsReceived brings one per receive call, however many
datagrams that was. Requests are known by their stream id.

The client creates its HTTP/3 layer only after the certificate was checked, so nothing can leave before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioquic.quic import events as quic_events

from qtunnel.burst import Transmit
from qtunnel.drops import DropCounts
from qtunnel.pmtud.states import State
from qtunnel.quic.connection import CID_SIZE, Connection, client_configuration
from qtunnel.quic.early_datagrams import EarlyDatagrams
from qtunnel.quic.events import CloseCause, HandshakeCompleted, Headers, HttpEvent, PacketSizeChanged
from qtunnel.quic.http_datagrams import HttpDatagrams
from qtunnel.quic.http_streams import HttpStreams, StreamEvent
from qtunnel.quic.path_mtu_status import path_mtu_status
from qtunnel.quic.plane_connection import PlaneConnection
from qtunnel.quic.stateless_reset import TOKEN_SIZE
from qtunnel.quic.transmits import Edge, as_transmits, canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qtunnel.burst import Address, Received
    from qtunnel.packet_run import Packets
    from qtunnel.quic.path_mtu import PathMtu
    from qtunnel.quic.sending_limit import SendingLimit
    from qtunnel.quic.settings import ConnectionSettings
    from qtunnel.quic.stats import ConnectionStats

__all__ = ["HttpConnection"]

H3_NO_ERROR: Final = 0x100
MAX_EDGES: Final = 16
"""Addresses of a peer remembered; aioquic keeps half as many."""


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
        quic.count_drops_in(self.drops)
        self._is_client: bool = quic.configuration.is_client
        self._on_touched = on_touched
        self._on_cid_retired = on_cid_retired
        self._remote = canonical(remote)
        self._edges: dict[Address, Edge] = {self._remote: Edge(remote)}
        self._events: deque[HttpEvent] = deque()
        self._early = EarlyDatagrams(self.drops)
        self._streams = HttpStreams(quic, self._events, self._early)
        self._datagrams = HttpDatagrams(quic, self._streams, self._events, self._early, self.drops)
        self._end_is_reported = False

    @classmethod
    def client(cls, settings: ConnectionSettings, remote: Address, now: float) -> HttpConnection:
        """Begin a connection to a server; the first flight is ready in datagrams_to_send.

        Raises: ConfigError if the settings cannot be used.
        """
        kind = PlaneConnection if settings.packet_plane else Connection
        quic = kind(
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
            self.quic.receive_datagrams(group.datagrams, remote, now, group.ecn)
        self.after_receiving(now)

    def note_edge(self, group: Received) -> Address:
        """Remember where a group of datagrams came in; return its address as quic knows it.

        A server answers from the address the client spoke to. A client leaves the choice to the kernel, for
        its own address may change.
        """
        remote = canonical(group.remote)
        if not self._is_client:
            edge = self._edges.get(remote)
            if edge is None or not edge.is_of(group):
                if len(self._edges) >= MAX_EDGES:
                    known = self.quic.peer_addresses
                    self._edges = {at: edge for at, edge in self._edges.items() if at in known}
                self._edges[remote] = Edge(group.remote, group.local, group.path_id)
        return remote

    def after_receiving(self, now: float) -> None:
        """Turn what quic received into events; the last step of a burst."""
        datagrams = self.quic.take_datagrams()
        event = self.quic.next_event()
        while event is not None:
            if isinstance(event, quic_events.DatagramFrameReceived):
                datagrams.append([event.data])
            else:
                self._on_quic_event(event)
            event = self.quic.next_event()
        self._report_size()
        if not self._is_deaf:
            self._datagrams.deliver_early()
            for group in datagrams:
                self._datagrams.receive(group, now)
        self._touch()

    def _report_size(self) -> None:
        """Report another packet size, and what is not sent because of it."""
        quic = self.quic
        if quic.size_changed:
            quic.size_changed = False
            self._events.append(PacketSizeChanged())
            self._datagrams.return_packets(quic.take_returned())

    def datagrams_to_send(self, now: float) -> list[Transmit]:
        """Return what to send now, in order; equal sizes to one address are joined. Then re-arm the timer."""
        sent = self.quic.batches_to_send(now)
        if self.quic.size_changed:
            self._report_size()
        if self.quic.closed is not None:
            self._report_end()
        if not sent:
            return []
        return as_transmits(sent, self._edges, join=self.quic.joins_datagrams)

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

    def on_stall(self, duration: float, now: float) -> None:
        """Take note that this process slept so long; to be called before what came meanwhile is given to it."""
        self.quic.on_stall(duration, now)

    def on_refused(self, size: int, now: float) -> None:
        """Take note that this host's kernel refused a datagram of size bytes as too large (EMSGSIZE)."""
        self.quic.on_refused(size, now)
        self.after_receiving(now)

    def on_packet_too_big(self, mtu: int, quoted: bytes, now: float) -> None:
        """Take an ICMP message about a packet to the peer: IP packets of mtu bytes fit, or so it says."""
        self.quic.on_packet_too_big(mtu, quoted, now)
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
        stream_id = self._streams.send_request(headers, end=end)
        self._touch()
        return stream_id

    def send_headers(self, stream_id: int, headers: Headers, end: bool = False) -> None:
        """Send a response or trailers. In vain, without an error, if the peer has reset the stream.

        Raises: LocalProtocolError for a stream that is unknown or that we have finished, or out of order.
        """
        self._streams.send_headers(stream_id, headers, end=end)
        self._datagrams.deliver_early()
        self._touch()

    def send_data(self, stream_id: int, data: bytes, end: bool = False) -> None:
        """Send content in a DATA frame; end finishes our side. Errors as send_headers."""
        self._streams.send_data(stream_id, data, end=end)
        self._touch()

    def reset_stream(self, stream_id: int, error_code: int) -> None:
        """Abort a request in both directions (RESET_STREAM and STOP_SENDING); no more events come of it."""
        request = self._streams.requests.get(stream_id)
        if request is not None:
            self._streams.abort(request, error_code)
            self._touch()

    # -- the connection

    def close(self, error_code: int = H3_NO_ERROR, reason: str = "") -> None:
        """Close with an HTTP/3 error code; ConnectionClosed follows at once."""
        self.quic.close(error_code, None, reason)
        self._touch()

    def ping(self) -> None:
        """Send a PING, which the peer acknowledges."""
        self.quic.send_ping(0)
        self._touch()

    def goaway(self) -> None:
        """Take no new requests; those open go on (RFC 9114 §5.2)."""
        self._streams.send_goaway()
        self._touch()

    def set_max_udp_payload(self, size: int) -> None:
        """Take another size of the path: the UDP payload it carries, bytes."""
        self.quic.set_max_udp_payload(size)
        self._touch()

    @property
    def remote(self) -> Address:
        """The peer's address now; it changes when the peer migrates."""
        addresses = self.quic.peer_addresses
        edge = self._edges.get(addresses[0]) if addresses else None
        return self._remote if edge is None else edge.remote

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

    def release(self) -> None:
        """After the end: free the memory at once, without the cyclic collector."""
        self._streams.release()
        self.quic.release()

    def stats(self) -> ConnectionStats:
        """Return a snapshot of the numbers."""
        return self.quic.stats()

    def sending_limit(self, now: float) -> SendingLimit:
        """Return what keeps inner packets from leaving, to be asked after datagrams_to_send."""
        return self.quic.sending_limit(now)

    @property
    def has_given_up_gso(self) -> bool:
        """Whether the peer lost what was sent segmented, so that nothing is any more."""
        return self.quic.has_given_up_gso

    # -- packets

    def register_packet_stream(self, stream_id: int, prefix: bytes) -> None:
        """Take HTTP Datagrams of a stream that begin with prefix for inner packets, in both directions.

        Raises: LocalProtocolError for a stream that is not an open extended CONNECT.
        """
        self._datagrams.register(stream_id, prefix)
        self._touch()

    def send_packets(self, stream_id: int, packets: Packets, now: float) -> DropCounts:
        """Queue a burst of inner packets; return what was dropped of it at once, which is in drops, too.

        Too large ones are dropped, others take their place. Never raises and never blocks.
        """
        drops = self._datagrams.send(stream_id, packets, now)
        self._touch()
        return drops

    def max_packet_size(self, stream_id: int) -> int:
        """Return the bytes of the largest inner packet one DATAGRAM carries now; 0 before that is negotiated."""
        return self._datagrams.max_packet_size(stream_id)

    @property
    def round_trip(self) -> float:
        """Seconds until a packet of ours is acknowledged: the smoothed RTT and the peer's delay."""
        return self.quic.smoothed_rtt + self.quic.peer_max_ack_delay

    @property
    def is_size_settled(self) -> bool:
        """Whether max_packet_size is not about to grow: it was told, or the search for it has ended."""
        path_mtu = self.quic.path_mtu
        return path_mtu is None or path_mtu.state is State.SEARCH_COMPLETE

    def path_mtu_status(self, now: float) -> dict[str, Any]:
        """Return what `qtunnel status` shows of the path's MTU."""
        quic = self.quic
        return path_mtu_status(
            quic.path_mtu, quic.datagram_size, is_ipv6=":" in self.remote[0], counts=quic.size_counts, now=now
        )

    @property
    def is_size_proved(self) -> bool:
        """Whether max_packet_size is one that was seen to get through, and not just the least there can be."""
        path_mtu = self.quic.path_mtu
        return self.is_size_settled or (path_mtu is not None and path_mtu.size > path_mtu.base)

    @property
    def path_mtu(self) -> PathMtu | None:
        """The discovery at work; None: the size was told, or the handshake is not confirmed."""
        plane = getattr(self.quic, "plane", None)
        return None if plane is None else plane.path_mtu

    def stream_backlog(self, stream_id: int) -> int:
        """Return how many bytes given to send_data have not left yet."""
        return self.quic.stream_backlog(stream_id)

    def has_room_for_read(self) -> bool:
        """Return whether the queue takes all that one read of the TUN gives; if not, stop reading it."""
        return self.quic.has_room_for_read

    # -- events of quic

    @property
    def _is_deaf(self) -> bool:
        """We ended the connection, so nothing received counts; what came before the peer's end still does."""
        closed = self.quic.closed
        return closed is not None and closed.cause not in (CloseCause.PEER, CloseCause.STATELESS_RESET)

    def _on_quic_event(self, event: quic_events.QuicEvent) -> None:
        if isinstance(event, quic_events.ConnectionIdRetired):
            if self._on_cid_retired is not None:
                self._on_cid_retired(self, event.connection_id)
        elif self._is_deaf:
            return
        elif isinstance(event, quic_events.ProtocolNegotiated):
            if not self._is_client:
                self._streams.start()  # SETTINGS leave with the handshake, half a round trip earlier
        elif isinstance(event, quic_events.HandshakeCompleted):
            self._events.append(HandshakeCompleted(self.quic.peer_certificate if self._is_client else None))
            self._streams.start()
        elif isinstance(event, StreamEvent):
            self._streams.on_stream_event(event)

    def _touch(self) -> None:
        """Report the end once it has come, and tell the owner that something may have changed."""
        self._report_end()
        if self._on_touched is not None:
            self._on_touched(self)

    def _report_end(self) -> None:
        closed = self.quic.closed
        if closed is None or self._end_is_reported:
            return
        self._end_is_reported = True
        self._streams.requests.clear()
        self._events.append(closed)
        if self._on_touched is not None:
            self._on_touched(self)
