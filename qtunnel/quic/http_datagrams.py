"""HTTP Datagrams of a connection's requests, and the inner packets among them (RFC 9297 §2).

On the wire: a quarter stream id, then the payload. A packet stream has a registered prefix; payloads that begin
with it are inner packets and go as bursts. All others are sorted one by one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import ErrorCode

from qtunnel.drops import DropCounts, DropReason
from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.packet_run import PacketRun, Packets
from qtunnel.quic.events import DatagramsReceived, HttpEvent, PacketsReceived, PacketsReturned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qtunnel.quic.connection import Connection
    from qtunnel.quic.early_datagrams import EarlyDatagrams
    from qtunnel.quic.http_streams import HttpStreams
    from qtunnel.quic.request import Request

__all__ = ["HttpDatagrams", "parse_http_datagram", "quarter_stream_id", "take_packets"]

MAX_QUARTER_STREAM_ID: Final = (1 << 60) - 1
MIN_EARLY_TIME: Final = 0.05
"""Seconds an early datagram is kept at least, for want of a round-trip time."""

MAX_SORTED: Final = 256
"""Datagrams of a burst without a registered prefix that are looked at; it costs microseconds each, and one packet
holds hundreds of empty ones."""


def quarter_stream_id(stream_id: int) -> bytes:
    """Return what a datagram of a request stream begins with."""
    return encode_uint_var(stream_id // 4)


def parse_http_datagram(data: bytes) -> tuple[int, bytes]:
    """Return (stream id, payload) of a DATAGRAM frame's content.

    Raises: PeerProtocolError, a connection error, if there is no quarter stream id or one too large.
    """
    width = 1 << (data[0] >> 6) if data else 1
    if len(data) < width:
        raise PeerProtocolError("DATAGRAM without a quarter stream id", error_code=ErrorCode.H3_DATAGRAM_ERROR)
    quarter = int.from_bytes(data[:width], "big") & ((1 << (8 * width - 2)) - 1)
    if quarter > MAX_QUARTER_STREAM_ID:
        raise PeerProtocolError(
            f"quarter stream id {quarter} above 2^60-1", error_code=ErrorCode.H3_DATAGRAM_ERROR
        )
    return 4 * quarter, data[width:]


def take_packets(datagrams: Packets, prefix: bytes) -> tuple[Packets, Packets]:
    """Divide a burst: (those that begin with prefix, without it; the rest), each in order."""
    size = len(prefix)
    if isinstance(datagrams, PacketRun) and datagrams.all_begin_with(prefix):
        return datagrams.without(size), []
    packets = [data[size:] for data in datagrams if data.startswith(prefix)]
    if len(packets) == len(datagrams):
        return packets, []
    return packets, [data for data in datagrams if not data.startswith(prefix)]


class HttpDatagrams:
    """Both directions. events: where events are put. drops: where drops are counted."""

    def __init__(
        self,
        quic: Connection,
        streams: HttpStreams,
        events: deque[HttpEvent],
        early: EarlyDatagrams,
        drops: DropCounts,
    ) -> None:
        self._quic = quic
        self._streams = streams
        self._events = events
        self._early = early
        self._drops = drops
        self._is_client: bool = quic.configuration.is_client

    def register(self, stream_id: int, prefix: bytes) -> None:
        """Make a packet stream of a request.

        Raises: LocalProtocolError for a stream that is not an open extended CONNECT.
        """
        request = self._streams.requests.get(stream_id)
        if request is None or not request.has_datagrams:
            raise LocalProtocolError(f"stream {stream_id} has no datagrams")
        request.prefix = quarter_stream_id(stream_id) + prefix
        self.deliver_early()

    def send(self, stream_id: int, packets: Packets, now: float) -> DropCounts:
        """Queue a burst; return what was dropped of it at once."""
        request = self._streams.requests.get(stream_id)
        if request is None or not request.send_is_open or self._quic.closed is not None:
            return self._drop(DropReason.STREAM_CLOSED, len(packets))
        if request.prefix is None or not self._streams.datagrams_agreed:
            return self._drop(DropReason.NO_SESSION, len(packets))
        return self._quic.queue_packets(request.prefix, packets, now)

    def max_packet_size(self, stream_id: int) -> int:
        """Return the bytes of the largest inner packet one DATAGRAM carries now; 0 before that is negotiated."""
        request = self._streams.requests.get(stream_id)
        if request is None or request.prefix is None or not self._streams.datagrams_agreed:
            return 0
        return max(0, self._quic.max_datagram_payload - len(request.prefix))

    def receive(self, datagrams: Packets, now: float) -> None:
        """Sort a burst of DATAGRAM frames by stream; inner packets first, which is all there is as a rule."""
        requests = self._streams.requests
        rest = datagrams
        for request in requests.packet_streams():
            packets, rest = take_packets(rest, request.prefix or b"")
            if packets:
                self._events.append(PacketsReceived(request.stream_id, packets))
            if not rest:
                return
        if len(rest) > MAX_SORTED:
            self._drop(DropReason.UNKNOWN_CONTEXT, len(rest) - MAX_SORTED)
            rest = rest[:MAX_SORTED]
        others: dict[int, list[bytes]] = {}
        for data in rest:
            try:
                stream_id, payload = parse_http_datagram(data)
            except PeerProtocolError as exc:
                self._quic.close(exc.error_code, None, str(exc))
                return
            if self._is_for_report(stream_id, payload, now):
                others.setdefault(stream_id, []).append(payload)
        for stream_id, payloads in others.items():
            known = requests.get(stream_id)
            if known is not None:
                self._report(known, payloads)

    def return_packets(self, groups: Iterable[tuple[bytes, Packets]]) -> None:
        """Report packets that were queued behind these prefixes and no longer fit the path."""
        of = {request.prefix: request.stream_id for request in self._streams.requests.packet_streams()}
        for prefix, packets in groups:
            stream_id = of.get(prefix)
            if stream_id is None:
                self._drop(DropReason.STREAM_CLOSED, len(packets))
            else:
                self._events.append(PacketsReturned(stream_id, packets))

    def deliver_early(self) -> None:
        """Report what was kept for streams that are ready by now."""
        for request in self._streams.requests.packet_streams() if self._early else ():
            payloads = self._early.take(request.stream_id)
            if payloads:
                self._report(request, payloads)

    def _is_for_report(self, stream_id: int, payload: bytes, now: float) -> bool:
        """Return True for a payload to report; others are dropped, kept, or end their stream."""
        request = self._streams.requests.get(stream_id)
        if request is None:
            self._on_strange(stream_id, payload, now)
        elif not request.receive_is_open:
            self._drop(DropReason.STREAM_CLOSED, 1)
        elif not request.has_datagrams:
            self._streams.fail(request, ErrorCode.H3_DATAGRAM_ERROR)  # RFC 9297 §2
        elif request.prefix is None or not request.is_accepted:
            self._keep(stream_id, payload, now)
        else:
            return True
        return False

    def _on_strange(self, stream_id: int, payload: bytes, now: float) -> None:
        """Handle a payload whose stream has no headers yet, or none any more (RFC 9297 §2.1)."""
        if self._quic.stream_is_discarded(stream_id):
            self._drop(DropReason.STREAM_CLOSED, 1)
        elif self._is_client:
            self._drop(DropReason.UNKNOWN_STREAM, 1)  # only we open requests, and we did not
        elif stream_id // 4 >= self._quic.request_limit:
            self._quic.close(ErrorCode.H3_ID_ERROR, None, "datagram for a stream beyond the limit")
        else:
            self._keep(stream_id, payload, now)

    def _keep(self, stream_id: int, payload: bytes, now: float) -> None:
        self._early.keep(stream_id, payload, until=now + max(MIN_EARLY_TIME, self._quic.smoothed_rtt))

    def _report(self, request: Request, payloads: list[bytes]) -> None:
        """Report payloads, divided by the registered prefix."""
        prefix = (request.prefix or b"")[len(quarter_stream_id(request.stream_id)) :]
        packets, others = take_packets(payloads, prefix)
        if packets:
            self._events.append(PacketsReceived(request.stream_id, packets))
        if others:
            self._events.append(DatagramsReceived(request.stream_id, others))

    def _drop(self, reason: DropReason, count: int) -> DropCounts:
        drops = DropCounts({reason: count}) if count else DropCounts()
        self._drops.update(drops)
        return drops
