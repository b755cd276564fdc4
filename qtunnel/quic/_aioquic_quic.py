"""A QUIC connection of aioquic's with doors where qtunnel needs them (_aioquic.py lists the private names)."""

from __future__ import annotations

import hmac
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from aioquic import tls
from aioquic._buffer import Buffer
from aioquic.buffer import encode_uint_var
from aioquic.quic.connection import (
    CONNECTION_LIMIT_FRAME_CAPACITY,
    MAX_STREAM_DATA_FRAME_CAPACITY,
    QuicConnection,
    QuicConnectionAdapter,
    QuicConnectionError,
    QuicConnectionId,
    QuicConnectionState,
    QuicNetworkPath,
    QuicReceiveContext,
)
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.packet import (
    QuicErrorCode,
    QuicFrameType,
    QuicTransportParameters,
    pull_quic_transport_parameters,
)
from cryptography.hazmat.primitives.serialization import Encoding

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.multipath.transport_parameter import check_offer, encode_parameter, find_parameter
from qtunnel.quic.qlog import LineTrace

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable

    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.packet_builder import QuicPacketBuilder, QuicSentPacket
    from aioquic.quic.recovery import QuicPacketSpace
    from aioquic.quic.stream import QuicStream

__all__ = ["QuicCore"]

logger = logging.getLogger(__name__)

MAX_UDP_PAYLOAD_SIZE: Final = 0x03  # RFC 9000 §18.2
MAX_CRYPTO_BUFFER: Final = 65536
"""Handshake bytes kept per encryption level, in order or not. A chain of certificates takes a few thousand."""
MAX_HOST_CIDS: Final = 8
"""Connection ids a peer may hold of us."""
INITIAL_DCID_SIZE: Final = 8
"""Bytes of the connection id a client chooses for the server (RFC 9000 §7.2)."""


class DebugLogger(QuicConnectionAdapter):
    """Turns all that aioquic logs into DEBUG: what strangers cause must not fill a log."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log at DEBUG, whatever the level was."""
        del level
        super().log(logging.DEBUG, msg, *args, **kwargs)


class QuicCore(QuicConnection):
    """A QUIC connection with doors where qtunnel needs them.

    new_cid: returns a connection id unique among all that share the socket. reset_token: its stateless reset
    token. Subclasses may override on_transport_parameters().
    """

    local_max_path_id: int | None = None
    """initial_max_path_id to offer (RFC 10069 §2.1); None: multipath is not offered."""
    peer_max_path_id: int | None = None
    """What the peer offers; None before its transport parameters, without its offer, and without ours."""

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        new_cid: Callable[[], bytes],
        reset_token: Callable[[bytes], bytes],
        random_bytes: Callable[[int], bytes],
        original_cid: bytes | None = None,
        retry_cid: bytes | None = None,
    ) -> None:
        super().__init__(
            configuration=replace(configuration, quic_logger=None),
            original_destination_connection_id=original_cid,
            retry_source_connection_id=retry_cid,
        )
        self.packets_opened = 0
        self.packets_lost = 0
        self.closed_by_peer = False
        self.challenge_written = False
        self._new_cid = new_cid
        self._reset_token = reset_token
        self._take_own_connection_ids(random_bytes)
        self._logger = DebugLogger(logger, {"id": self._original_destination_connection_id.hex()})
        self._loss._logger = self._logger
        if configuration.quic_logger is not None:
            self._configuration.quic_logger = configuration.quic_logger
            self._quic_logger = configuration.quic_logger.start_trace(
                is_client=self._is_client, odcid=self._original_destination_connection_id
            )
            self._loss._quic_logger = self._quic_logger
        self._stream_window = configuration.max_stream_data
        self._data_window = configuration.max_data
        self._count_losses()

    # -- numbers and states

    @property
    def handshake_complete(self) -> bool:
        """Both sides have proved to share the keys; a server calls it confirmed."""
        return self._handshake_complete

    @property
    def handshake_confirmed(self) -> bool:
        """The peer is known to have completed the handshake, too (RFC 9001 §4.1.2)."""
        return self._handshake_confirmed

    @property
    def is_untouched(self) -> bool:
        """No packet of the peer could be opened so far."""
        return self._state is QuicConnectionState.FIRSTFLIGHT

    @property
    def is_ending(self) -> bool:
        """Closing, draining or over: nothing is received any more."""
        return self._state in (
            QuicConnectionState.CLOSING,
            QuicConnectionState.DRAINING,
            QuicConnectionState.TERMINATED,
        )

    @property
    def is_terminated(self) -> bool:
        """Over: nothing is left to send or to wait for."""
        return self._state is QuicConnectionState.TERMINATED

    @property
    def termination(self) -> tuple[int, bool, str]:
        """(error code, whether it is the application's, reason) of the end aioquic found or was told."""
        event = self._close_event
        if event is None:
            return 0, False, ""
        return event.error_code, event.frame_type is None, event.reason_phrase

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, once TLS received it."""
        if not self._spaces:
            return None
        certificate = self.tls._peer_certificate
        return None if certificate is None else certificate.public_bytes(Encoding.DER)

    @property
    def peer_cid_size(self) -> int:
        """Bytes of the connection id in the packets we send."""
        return len(self._peer_cid.cid)

    @property
    def peer_addresses(self) -> list[Any]:
        """Addresses of the peer in use or being validated, the active one first."""
        return [path.addr for path in self._network_paths]

    @property
    def peer_max_datagram_frame_size(self) -> int:
        """The largest DATAGRAM frame the peer takes; 0 if none (RFC 9221 §3)."""
        return self._remote_max_datagram_frame_size or 0

    @property
    def request_limit(self) -> int:
        """How many bidirectional streams the peer may have opened in all."""
        return self._local_max_streams_bidi.value

    @property
    def smoothed_rtt(self) -> float:
        """Seconds; 0.0 before the first sample (RFC 9002 §5.3)."""
        return self._loss._rtt_smoothed

    @property
    def congestion_window(self) -> int:
        """Bytes."""
        return self._loss.congestion_window

    @property
    def bytes_in_flight(self) -> int:
        """Bytes."""
        return self._loss.bytes_in_flight

    @property
    def host_cids(self) -> list[bytes]:
        """Our connection ids that the peer may use."""
        return [entry.cid for entry in self._host_cids]

    def only_acks_are_unacknowledged(self, count: int) -> bool:
        """Return whether at least that many packets wait for an acknowledgement that none of them asks for."""
        space = self._spaces.get(tls.Epoch.ONE_RTT)
        return space is not None and not space.ack_eliciting_in_flight and len(space.sent_packets) >= count

    def is_reset_token(self, token: bytes) -> bool:
        """Return whether the peer gave us this stateless reset token for a connection id we may use."""
        entries = (self._peer_cid, *self._peer_cid_available)
        matches = [hmac.compare_digest(entry.stateless_reset_token, token) for entry in entries]
        return True in matches  # all are compared, each in constant time (RFC 9000 §10.3.1)

    def stream_is_discarded(self, stream_id: int) -> bool:
        """Return whether the stream existed and is finished in both directions, with all acknowledged."""
        return self._stream_is_discarded(stream_id)

    def stream_backlog(self, stream_id: int) -> int:
        """Return the bytes a stream has to send for the first time or again; 0 for a stream that is gone."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else len(stream.sender._buffer)

    def stream_data_is_waiting(self) -> bool:
        """Return whether any stream has something to send."""
        return any(
            not stream.sender.buffer_is_empty or stream.sender.reset_pending or stream.receiver.stop_pending
            for stream in self._streams_queue
            if not stream.is_blocked
        )

    # -- changes

    @property
    def datagram_size(self) -> int:
        """The UDP payload of full packets, bytes."""
        return self._max_datagram_size

    @datagram_size.setter
    def datagram_size(self, size: int) -> None:
        self._max_datagram_size = size
        self._loss._pacer._max_datagram_size = size
        congestion_control: Any = self._loss._cc  # the attribute is not in the base class
        congestion_control._max_datagram_size = size

    def use_datagram_queue(self, frames: deque[bytes]) -> None:
        """Take DATAGRAM frames to send from the left of this deque."""
        self._datagrams_pending = frames

    def trust_address(self) -> None:
        """Lift the anti-amplification limit: the client came back with a token (RFC 9000 §8.1)."""
        self._network_paths[0].is_validated = True

    def abort_stream(self, stream_id: int, error_code: int) -> None:
        """Reset our side of a bidirectional stream and ask the peer to stop its own, as far as they are open."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        stream.sender.reset(error_code)
        if not stream.receiver.is_finished:
            stream.receiver.stop(error_code)

    def terminate(self) -> None:
        """End at once and in silence; without effect if it is over."""
        if self.is_terminated:
            return
        if self._close_event is None:
            self._close_event = ConnectionTerminated(
                error_code=QuicErrorCode.NO_ERROR, frame_type=QuicFrameType.PADDING, reason_phrase=""
            )
        self._close_end()

    def is_foreign_negotiation(self, data: bytes) -> bool:
        """Whether a datagram is a Version Negotiation that answers no packet of ours (RFC 9000 §17.2.1).

        A server repeats both connection ids of the packet it answers; aioquic does not compare the one we chose.
        """
        if not self._is_client or data[:1] < b"\x80" or data[1:5] != bytes(4) or len(data) < 6:
            return False
        at = 6 + data[5]
        source = data[at + 1 : at + 1 + data[at]] if at < len(data) else b""
        return source != self._original_destination_connection_id

    def release(self) -> None:
        """After the end: let go of what refers back to this object.

        Of a handshake that came to nothing nothing is left then for the cyclic collector, which comes rarely where
        many objects live long: in a flood of spoofed Initials a quarter of all memory would be garbage before.
        """
        self._QuicConnection__frame_handlers: dict[int, Any] = {}
        self._cryptos.clear()
        self._cryptos_initial.clear()
        self._spaces.clear()
        if hasattr(self, "tls"):  # made by the first datagram
            del self.tls
        del self._loss._send_probe, self._loss._on_packets_lost
        del self._new_cid

    def set_log_time(self, now: float) -> None:
        """Give the trace the time of what happens next."""
        if isinstance(self._quic_logger, LineTrace):
            self._quic_logger.now = now

    # -- for subclasses

    def on_transport_parameters(self, parameters: QuicTransportParameters) -> None:
        """Note the peer's transport parameters; called once, after aioquic has checked them."""

    def local_max_udp_payload(self) -> int:
        """Return the max_udp_payload_size to advertise, bytes."""
        return 65527

    # -- connection ids

    def _take_own_connection_ids(self, random_bytes: Callable[[int], bytes]) -> None:
        """Replace the ids aioquic drew from os.urandom by ours."""
        first = self._host_cids[0]
        first.cid = self._new_cid()
        if not self._is_client:
            first.stateless_reset_token = self._reset_token(first.cid)
        self.host_cid = first.cid
        self._local_initial_source_connection_id = first.cid
        if self._is_client:
            self._peer_cid.cid = random_bytes(INITIAL_DCID_SIZE)
            self._original_destination_connection_id = self._peer_cid.cid

    def _replenish_connection_ids(self) -> None:
        limit = min(MAX_HOST_CIDS, self._remote_active_connection_id_limit)
        while len(self._host_cids) < limit:
            cid = self._new_cid()
            if cid in self.host_cids:
                continue
            self._host_cids.append(
                QuicConnectionId(
                    cid=cid,
                    sequence_number=self._host_cid_seq,
                    stateless_reset_token=self._reset_token(cid),
                )
            )
            self._host_cid_seq += 1

    # -- transport parameters and TLS

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        if self._is_client:
            # aioquic makes a key share for every group it knows: two leave room for a Retry token in the
            # first datagram and save the time for the large ones.
            self.tls._supported_groups = [tls.Group.X25519, tls.Group.SECP256R1]

    def _serialize_transport_parameters(self) -> bytes:
        value = encode_uint_var(self.local_max_udp_payload())
        extra = encode_uint_var(MAX_UDP_PAYLOAD_SIZE) + encode_uint_var(len(value)) + value
        if self.local_max_path_id is not None:
            extra += encode_parameter(self.local_max_path_id)
        return super()._serialize_transport_parameters() + extra

    def _parse_transport_parameters(self, data: bytes, from_session_ticket: bool = False) -> None:
        super()._parse_transport_parameters(data, from_session_ticket)
        if self.local_max_path_id is not None and not from_session_ticket:
            self._take_multipath_offer(data)
        parameters = pull_quic_transport_parameters(Buffer(data=data))
        if parameters.ack_delay_exponent is not None:
            self._remote_ack_delay_exponent = parameters.ack_delay_exponent
        self.on_transport_parameters(parameters)

    def _take_multipath_offer(self, data: bytes) -> None:
        try:
            offer = find_parameter(data)
            if offer is not None:
                check_offer(
                    peer_cid_size=len(self._peer_cid.cid), local_cid_size=self._configuration.connection_id_length
                )
        except PeerProtocolError as error:
            raise QuicConnectionError(
                error_code=error.error_code, frame_type=QuicFrameType.CRYPTO, reason_phrase=str(error)
            ) from error
        self.peer_max_path_id = offer

    # -- received packets

    def _payload_received(
        self, context: QuicReceiveContext, plain: bytes, crypto_frame_required: bool = False
    ) -> tuple[bool, bool]:
        self.packets_opened += 1
        return super()._payload_received(context, plain, crypto_frame_required)

    def _handle_crypto_frame(self, context: QuicReceiveContext, frame_type: int, buf: Buffer) -> None:
        start = buf.tell()
        end = buf.pull_uint_var() + buf.pull_uint_var()
        buf.seek(start)
        received = self._crypto_streams[context.epoch].receiver.starting_offset()
        if end - received + len(self.tls._receive_buffer) > MAX_CRYPTO_BUFFER:
            raise QuicConnectionError(
                error_code=QuicErrorCode.CRYPTO_BUFFER_EXCEEDED,
                frame_type=frame_type,
                reason_phrase="too much handshake data",
            )
        super()._handle_crypto_frame(context, frame_type, buf)

    def _handle_ack_frame(self, context: QuicReceiveContext, frame_type: int, buf: Buffer) -> None:
        start = buf.tell()
        if buf.pull_uint_var() >= self._packet_number:
            raise QuicConnectionError(
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
                frame_type=frame_type,
                reason_phrase="acknowledged a packet that was not sent",  # RFC 9000 §13.1
            )
        buf.seek(start)
        super()._handle_ack_frame(context, frame_type, buf)

    def _handle_connection_close_frame(self, context: QuicReceiveContext, frame_type: int, buf: Buffer) -> None:
        super()._handle_connection_close_frame(context, frame_type, buf)
        if self._state is QuicConnectionState.DRAINING:
            self.closed_by_peer = True

    # -- sent frames

    def _write_path_challenge_frame(self, builder: QuicPacketBuilder, network_path: QuicNetworkPath) -> None:
        super()._write_path_challenge_frame(builder, network_path)
        self.challenge_written = True

    def _write_stream_limits(self, builder: QuicPacketBuilder, space: QuicPacketSpace, stream: QuicStream) -> None:
        """Send MAX_STREAM_DATA so that the window begins at what was delivered (RFC 9000 §4.1).

        aioquic doubles the window whenever half of it was *reached*, also by one byte far ahead, and keeps a
        buffer up to there: a peer could have gigabytes allocated with thirty packets.
        """
        if not stream.max_stream_data_local or stream.receiver.is_finished:
            return
        wanted = stream.receiver.starting_offset() + self._stream_window
        if wanted - stream.max_stream_data_local >= self._stream_window // 2:
            stream.max_stream_data_local = wanted
        if stream.max_stream_data_local_sent == stream.max_stream_data_local:
            return
        buf = builder.start_frame(
            QuicFrameType.MAX_STREAM_DATA,
            capacity=MAX_STREAM_DATA_FRAME_CAPACITY,
            handler=self._on_max_stream_data_delivery,
            handler_args=(stream,),
        )
        buf.push_uint_var(stream.stream_id if stream.stream_id is not None else 0)
        buf.push_uint_var(stream.max_stream_data_local)
        stream.max_stream_data_local_sent = stream.max_stream_data_local
        if self._quic_logger is not None and builder.quic_logger_frames is not None:
            builder.quic_logger_frames.append(
                self._quic_logger.encode_max_stream_data_frame(
                    maximum=stream.max_stream_data_local, stream_id=stream.stream_id or 0
                )
            )

    def _write_connection_limits(self, builder: QuicPacketBuilder, space: QuicPacketSpace) -> None:
        """Send MAX_DATA and MAX_STREAMS; the data window begins at what was delivered, as for streams."""
        max_data = self._local_max_data
        if max_data.value - max_data.used < self._data_window // 2:
            max_data.value = max(max_data.value, max_data.used - self._undelivered() + self._data_window)
        for limit in (max_data, self._local_max_streams_bidi, self._local_max_streams_uni):
            # As aioquic: wait until the peer has fewer streams left to open than the update would grant.
            batched = limit is not max_data and limit.sent - limit.used >= limit.value - limit.sent
            if batched or limit.value == limit.sent:
                continue
            buf = builder.start_frame(
                limit.frame_type,
                capacity=CONNECTION_LIMIT_FRAME_CAPACITY,
                handler=self._on_connection_limit_delivery,
                handler_args=(limit,),
            )
            buf.push_uint_var(limit.value)
            limit.sent = limit.value
            if self._quic_logger is not None and builder.quic_logger_frames is not None:
                builder.quic_logger_frames.append(
                    self._quic_logger.encode_connection_limit_frame(
                        frame_type=limit.frame_type, maximum=limit.value
                    )
                )

    def _undelivered(self) -> int:
        """Return the bytes of flow control held by gaps in streams that still receive."""
        return sum(
            stream.receiver.highest_offset - stream.receiver.starting_offset()
            for stream in self._streams.values()
            if not stream.receiver.is_finished
        )

    def _count_losses(self) -> None:
        """Count what the loss detection declares lost; packets taken back for a probe are not lost."""
        declare = self._loss._on_packets_lost

        def declare_and_count(*, packets: Iterable[QuicSentPacket], **kwargs: Any) -> None:
            lost = list(packets)
            if kwargs.get("congestion_event", True):
                self.packets_lost += len(lost)
            declare(packets=lost, **kwargs)

        self._loss._on_packets_lost = declare_and_count  # type: ignore[method-assign]  # aioquic has no hook
