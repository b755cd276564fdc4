"""The streams of an HTTP/3 connection: SETTINGS, GOAWAY, requests and responses (RFC 9114, RFC 9220).

Turns aioquic's stream events into ours. A fault of one message ends its stream, a fault of the connection ends the
connection, and nothing raises for what the peer sent.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from aioquic.h3.connection import ErrorCode, ProtocolError, Setting
from aioquic.h3.events import DataReceived as H3Data
from aioquic.h3.events import HeadersReceived as H3Headers
from aioquic.quic.events import StopSendingReceived, StreamDataReceived
from aioquic.quic.events import StreamReset as QuicStreamReset

from qtunnel.errors import LocalProtocolError
from qtunnel.quic._aioquic_h3 import H3Core
from qtunnel.quic.early_datagrams import EarlyDatagrams
from qtunnel.quic.events import (
    DataReceived,
    GoawayReceived,
    Headers,
    HeadersReceived,
    HttpEvent,
    SettingsReceived,
    StreamReset,
)
from qtunnel.quic.header_rules import check_request, is_connect, is_extended_connect, is_success
from qtunnel.quic.request import Request, Requests

if TYPE_CHECKING:
    from aioquic.h3.events import H3Event
    from aioquic.quic.events import QuicEvent

    from qtunnel.quic.connection import Connection

__all__ = ["HttpStreams", "StreamEvent"]

logger = logging.getLogger(__name__)


MAX_HELD: Final = 64
"""Events of request streams kept until the client's SETTINGS; each is at most a packet, or what a gap held up."""
MAX_HELD_BYTES: Final = 65536

StreamEvent = StreamDataReceived | QuicStreamReset | StopSendingReceived


class HttpStreams:
    """All streams of one connection.

    A server reads requests once it has the client's SETTINGS, so that whether datagrams may be used is known when
    a request is reported.

    events: where events are put, in order. early: datagrams kept for streams without headers; those of a stream
    that ends are dropped. The attributes say what SETTINGS have agreed.
    """

    def __init__(self, quic: Connection, events: deque[HttpEvent], early: EarlyDatagrams) -> None:
        self.requests = Requests(quic.stream_is_discarded)
        self.datagrams_agreed = False
        self.extended_connect = False
        self._quic = quic
        self._events = events
        self._early = early
        self._is_client: bool = quic.configuration.is_client
        self._h3: H3Core | None = None
        self._settings_seen = False
        self._held: list[StreamEvent] = []
        self._next_request_id = 0
        self._goaway_received: int | None = None
        self._goaway_sent: int | None = None

    def start(self) -> None:
        """Open the control stream and send SETTINGS. A client does so only when it has verified the server."""
        if self._h3 is None:
            self._h3 = H3Core(self._quic, self._check_headers, self._is_data_only)

    def release(self) -> None:
        """After the end: let go of what refers back to this object."""
        self._h3 = None

    # -- sending

    def send_request(self, headers: Headers, *, end: bool) -> int:
        """Open a request and return its stream id.

        Raises: LocalProtocolError if none can be sent (now).
        """
        h3 = self._h3
        if not self._is_client or h3 is None or self._quic.closed is not None:
            raise LocalProtocolError("no connection to send a request on")
        if self._goaway_received is not None:
            raise LocalProtocolError("the server takes no more requests (GOAWAY)")
        extended = is_extended_connect(headers)
        if extended and not self.extended_connect:
            raise LocalProtocolError("the server's SETTINGS have not enabled extended CONNECT")
        request = Request(
            self._quic.get_next_available_stream_id(),
            is_connect=is_connect(headers),
            has_datagrams=extended,
            send_is_open=not end,
        )
        h3.send_headers(request.stream_id, headers, end)
        self.requests.add(request)
        return request.stream_id

    def send_headers(self, stream_id: int, headers: Headers, *, end: bool) -> None:
        """Send a response or trailers; in vain if the peer has reset the stream.

        Raises: LocalProtocolError for a stream that is unknown, that we have finished, or out of order.
        """
        request = self._writable(stream_id)
        if request is None or self._h3 is None:
            return
        try:
            self._h3.send_headers(stream_id, headers, end)
        except ProtocolError as exc:
            raise LocalProtocolError(f"stream {stream_id}: {exc.reason_phrase}") from exc
        request.send_is_open = not end
        if not self._is_client and is_success(headers):
            request.is_accepted = True

    def send_data(self, stream_id: int, data: bytes, *, end: bool) -> None:
        """Send content in a DATA frame. Errors as send_headers."""
        request = self._writable(stream_id)
        if request is None or self._h3 is None:
            return
        try:
            self._h3.send_data(stream_id, data, end)
        except ProtocolError as exc:
            raise LocalProtocolError(f"stream {stream_id}: {exc.reason_phrase}") from exc
        request.send_is_open = not end

    def send_goaway(self) -> None:
        """Take no new requests from now on (RFC 9114 §5.2)."""
        if self._h3 is None or self._goaway_sent is not None or self._quic.closed is not None:
            return
        self._goaway_sent = 0 if self._is_client else self._next_request_id
        self._h3.send_goaway(self._goaway_sent)

    def _writable(self, stream_id: int) -> Request | None:
        """Return the request if it can still be written to, None if the peer ended it."""
        request = self.requests.get(stream_id)
        if self._quic.closed is not None or (request is None and self._quic.stream_is_discarded(stream_id)):
            return None
        if request is None:
            raise LocalProtocolError(f"no request on stream {stream_id}")
        if not request.send_is_open:
            if not request.was_aborted:
                raise LocalProtocolError(f"stream {stream_id} was finished by us")
            return None
        return request

    # -- ending

    def abort(self, request: Request, error_code: int) -> None:
        """End a request in both directions, without an event."""
        request.send_is_open = request.receive_is_open = False
        request.was_aborted = True
        self._quic.abort_stream(request.stream_id, error_code)
        self._early.forget(request.stream_id)

    def fail(self, request: Request, error_code: int, *, reported_as: int | None = None) -> None:
        """End a request in both directions and report it."""
        self.abort(request, error_code)
        reported = error_code if reported_as is None else reported_as
        self._events.append(StreamReset(request.stream_id, int(reported)))

    # -- receiving

    def on_stream_event(self, event: StreamEvent) -> None:
        """Take in stream data, a reset, or the request to stop sending."""
        if not self._is_client and not self._settings_seen and event.stream_id % 4 == 0:
            self._hold(event)
            return
        self._read(event)
        if self._settings_seen and self._held:
            held, self._held = self._held, []
            for earlier in held:
                self._read(earlier)

    def _hold(self, event: StreamEvent) -> None:
        self._held.append(event)
        held_bytes = sum(len(held.data) for held in self._held if isinstance(held, StreamDataReceived))
        if len(self._held) > MAX_HELD or held_bytes > MAX_HELD_BYTES:
            self._held.clear()
            self._quic.close(ErrorCode.H3_MISSING_SETTINGS, None, "requests, but no SETTINGS")

    def _read(self, event: StreamEvent) -> None:
        h3, stream_id = self._h3, event.stream_id
        if h3 is None:
            return
        if isinstance(event, StopSendingReceived):
            self._feed(h3, event)
        else:
            request = self.requests.get(stream_id)
            if request is not None and not request.receive_is_open:
                return
            if stream_id % 4 == 1:
                reason = "no server-initiated bidirectional streams"  # RFC 9114 §6.1
                self._quic.close(ErrorCode.H3_STREAM_CREATION_ERROR, None, reason)
                return
            for h3_event in self._feed(h3, event):
                self._on_h3_event(h3_event)
            self._after_feeding(h3)
        if not isinstance(event, StreamDataReceived) and stream_id % 4 == 0:
            self._on_reset(stream_id, event.error_code)

    def _on_reset(self, stream_id: int, error_code: int) -> None:
        """Abort the other direction, too, after the peer aborted one (RFC 9114 §4.4)."""
        request = self.requests.get(stream_id)
        if request is None:
            self._quic.abort_stream(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
        elif request.is_open:
            self.fail(request, ErrorCode.H3_REQUEST_CANCELLED, reported_as=error_code)

    def _feed(self, h3: H3Core, event: QuicEvent) -> list[H3Event]:
        """Hand an event to aioquic's HTTP/3; what it cannot cope with ends this connection only."""
        try:
            return h3.handle_event(event)
        except Exception:  # it closes by itself for the faults it knows; which others there are is not known
            self._quic.internal_errors += 1
            logger.debug("connection closed after an internal error in HTTP/3", exc_info=True)
            self._quic.close(ErrorCode.H3_INTERNAL_ERROR, None, "internal error")
            return []

    def _after_feeding(self, h3: H3Core) -> None:
        """Act on what aioquic's HTTP/3 found besides events."""
        for stream_id, reason in h3.malformed.items():
            logger.debug("stream %d: malformed message: %s", stream_id, reason)
            request = self.requests.get(stream_id)
            if request is None:
                request = Request(stream_id)
                self.requests.add(request)
                self.abort(request, ErrorCode.H3_MESSAGE_ERROR)
            elif request.is_open:
                self.fail(request, ErrorCode.H3_MESSAGE_ERROR)
        h3.malformed.clear()
        if not self._settings_seen and h3.received_settings is not None:
            self._on_settings(h3.received_settings)
        goaway = h3.control.goaway
        if goaway is not None and goaway != self._goaway_received:
            self._on_goaway(goaway)

    def _on_settings(self, settings: dict[int, int]) -> None:
        self._settings_seen = True
        self.extended_connect = settings.get(Setting.ENABLE_CONNECT_PROTOCOL) == 1
        self.datagrams_agreed = (
            settings.get(Setting.H3_DATAGRAM) == 1 and self._quic.peer_max_datagram_frame_size > 0
        )
        self._events.append(SettingsReceived(self.extended_connect, self.datagrams_agreed))

    def _on_goaway(self, identifier: int) -> None:
        if self._is_client and identifier % 4:
            self._quic.close(ErrorCode.H3_ID_ERROR, None, "GOAWAY names no request")
            return
        self._goaway_received = identifier
        self._events.append(GoawayReceived(identifier))
        if not self._is_client:
            return
        for request in self.requests:
            if request.stream_id >= identifier and request.is_open:
                rejected = ErrorCode.H3_REQUEST_REJECTED
                self.fail(request, ErrorCode.H3_REQUEST_CANCELLED, reported_as=rejected)

    def _check_headers(self, stream_id: int, headers: Headers) -> None:
        """Look at the first header section of a message before the frame behind it is read.

        Raises: MessageError (aioquic's) if the message is malformed.
        """
        if not self._is_client:
            check_request(headers)
            return
        request = self.requests.get(stream_id)
        if request is not None and is_success(headers):
            request.is_accepted = True

    def _on_h3_event(self, event: H3Event) -> None:
        if isinstance(event, H3Headers):
            self._on_headers(event)
        elif isinstance(event, H3Data):
            request = self.requests.get(event.stream_id)
            if request is not None and request.receive_is_open:
                self._events.append(DataReceived(event.stream_id, event.data or b"", event.stream_ended))
                request.receive_is_open = not event.stream_ended

    def _on_headers(self, event: H3Headers) -> None:
        stream_id, headers = event.stream_id, event.headers
        request = self.requests.get(stream_id)
        if request is None:
            request = self._admit(stream_id, headers)
        if request is None or not request.receive_is_open:
            return
        request.receive_is_open = not event.stream_ended
        self._events.append(HeadersReceived(stream_id, headers, event.stream_ended))

    def _admit(self, stream_id: int, headers: Headers) -> Request | None:
        """Take in a client's new request; refuse it after our GOAWAY or with datagrams it cannot have."""
        request = Request(stream_id, is_connect=is_connect(headers), has_datagrams=is_extended_connect(headers))
        self.requests.add(request)
        if self._goaway_sent is not None and stream_id >= self._goaway_sent:
            self.abort(request, ErrorCode.H3_REQUEST_REJECTED)  # RFC 9114 §5.2
            return None
        self._next_request_id = max(self._next_request_id, stream_id + 4)
        if not request.has_datagrams and self._early.has(stream_id):
            self.abort(request, ErrorCode.H3_DATAGRAM_ERROR)  # RFC 9297 §2
            return None
        return request

    def _is_data_only(self, stream_id: int) -> bool:
        """Return whether it is a CONNECT that succeeded: DATA follows, and datagrams flow (RFC 9114 §4.4)."""
        request = self.requests.get(stream_id)
        return request is not None and request.is_connect and request.is_accepted
