"""An HTTP/3 connection of aioquic's that checks what the RFCs say (_aioquic.py lists the private names)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pylsqpack
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import (
    ClosedCriticalStream,
    ErrorCode,
    FrameType,
    FrameUnexpected,
    H3Connection,
    H3Stream,
    HeadersState,
    MessageError,
    ProtocolError,
    Setting,
    StreamType,
)
from aioquic.h3.events import HeadersReceived

from qtunnel.quic.control_stream import ControlStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioquic.h3.events import H3Event, Headers

    from qtunnel.quic._aioquic_quic import QuicCore

__all__ = ["H3Core"]

MAX_HEADERS_FRAME: Final = 16384
"""Bytes of a HEADERS frame; also advertised as MAX_FIELD_SECTION_SIZE."""
MAX_CONTROL_FRAME: Final = 4096
"""Bytes of a SETTINGS or MAX_PUSH_ID frame, which aioquic keeps until it is whole."""


class ExcessiveLoad(ProtocolError):
    """The peer asks us to keep more than is reasonable (RFC 9114 §10.5)."""

    error_code = ErrorCode.H3_EXCESSIVE_LOAD


class H3Core(H3Connection):
    """An HTTP/3 connection that checks what RFC 9114 and RFC 9297 say.

    Differences from aioquic: H3_DATAGRAM=1 is sent; no server push and no QPACK dynamic table, in either
    direction (a dynamic table lets 16 KB of headers grow to megabytes, and would keep our token); GOAWAY is
    read and sent; a malformed message is an error of its stream, found in `malformed`; after CONNECT there is
    DATA only.

    check_headers(stream_id, headers) is called for each first header section, before the frame behind it is
    read; it raises MessageError for what aioquic lets pass. is_data_only(stream_id) says of a request stream that
    nothing but DATA may follow.
    """

    def __init__(
        self, quic: QuicCore, check_headers: Callable[[int, Headers], None], is_data_only: Callable[[int], bool]
    ) -> None:
        self.malformed: dict[int, str] = {}
        self.control = ControlStreamReader()
        self._check_headers = check_headers
        self._is_data_only = is_data_only
        super().__init__(quic)

    def send_goaway(self, identifier: int) -> None:
        """Send GOAWAY on the control stream (RFC 9114 §7.2.6)."""
        payload = encode_uint_var(identifier)
        frame = encode_uint_var(FrameType.GOAWAY) + encode_uint_var(len(payload)) + payload
        control_stream_id = self._local_control_stream_id
        assert control_stream_id is not None, "set when the connection is made"
        self._quic.send_stream_data(control_stream_id, frame)

    # -- set-up and SETTINGS

    def _init_connection(self) -> None:
        self._max_push_id = None
        self._max_table_capacity = 0
        self._blocked_streams = 0
        self._decoder = pylsqpack.Decoder(0, 0)
        super()._init_connection()

    def _get_local_settings(self) -> dict[int, int]:
        settings = super()._get_local_settings()
        settings[Setting.H3_DATAGRAM] = 1
        settings[Setting.MAX_FIELD_SECTION_SIZE] = MAX_HEADERS_FRAME
        return settings

    def _validate_settings(self, settings: dict[int, int]) -> None:
        super()._validate_settings(settings)
        # What follows configures our encoder by these two: it is to use no dynamic table, whatever is offered.
        settings[Setting.QPACK_MAX_TABLE_CAPACITY] = 0
        settings[Setting.QPACK_BLOCKED_STREAMS] = 0

    # -- frames

    def _check_control_frame_type(self, frame_type: int) -> None:
        super()._check_control_frame_type(frame_type)
        if frame_type in (FrameType.SETTINGS, FrameType.MAX_PUSH_ID):
            size = self._stream[self._peer_control_stream_id or 0].frame_size
            if size is not None and size > MAX_CONTROL_FRAME:
                raise ExcessiveLoad("control frame too large")

    def _check_request_or_push_frame_type(self, frame_type: int, stream: H3Stream) -> None:
        super()._check_request_or_push_frame_type(frame_type, stream)
        if frame_type in (FrameType.HEADERS, FrameType.PUSH_PROMISE):
            if self._is_data_only(stream.stream_id):
                raise FrameUnexpected("only DATA may follow a successful CONNECT")  # RFC 9114 §4.4
            if stream.frame_size is not None and stream.frame_size > MAX_HEADERS_FRAME:
                raise ExcessiveLoad("header section too large")
        elif frame_type == FrameType.WEBTRANSPORT_STREAM:
            raise FrameUnexpected("WebTransport was not negotiated")

    def _handle_request_or_push_frame(
        self, frame_type: int, frame_data: bytes | None, stream: H3Stream, stream_ended: bool
    ) -> list[H3Event]:
        if stream.stream_id in self.malformed:
            return []
        is_first = stream.headers_recv_state is HeadersState.INITIAL
        try:
            events = super()._handle_request_or_push_frame(frame_type, frame_data, stream, stream_ended)
            for event in events:
                if is_first and isinstance(event, HeadersReceived):
                    self._check_headers(stream.stream_id, event.headers)
        except MessageError as exc:
            self.malformed[stream.stream_id] = exc.reason_phrase
            return []
        return events

    def _handle_request_or_push_end(self, stream: H3Stream) -> list[H3Event]:
        if stream.stream_id in self.malformed:
            return []
        try:
            return super()._handle_request_or_push_end(stream)
        except MessageError as exc:
            self.malformed[stream.stream_id] = exc.reason_phrase
            return []

    def _receive_stream_data_uni(self, stream: H3Stream, data: bytes, stream_ended: bool) -> list[H3Event]:
        was_control = stream.stream_id == self._peer_control_stream_id
        unread = b"" if was_control else stream.buffer
        events = super()._receive_stream_data_uni(stream, data, stream_ended)
        if stream.stream_id == self._peer_control_stream_id:
            self.control.receive(unread + data)
        elif stream_ended and stream.stream_type in (StreamType.QPACK_ENCODER, StreamType.QPACK_DECODER):
            raise ClosedCriticalStream("closing a QPACK stream is not allowed")  # RFC 9204 §4.2
        return events
