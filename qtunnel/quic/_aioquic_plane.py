"""Doors in aioquic for the packet plane (_aioquic.py lists the private names).

After the handshake aioquic keeps what it is good at, frames of streams and of the connection, and gives up
packets: how they are numbered, sealed, opened, acknowledged and recovered. What it still writes is sealed with the
plane's keys and numbered in the plane's space.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from aioquic import tls
from aioquic._buffer import Buffer
from aioquic._crypto import CryptoError
from aioquic.quic.connection import QuicConnectionError, QuicNetworkPath, QuicReceiveContext
from aioquic.quic.packet_builder import QuicDeliveryState, QuicPacketBuilder, QuicPacketBuilderStop

from qtunnel.quic._aioquic_quic import QuicCore

__all__ = ["ControlPacket", "OneRttSecrets", "OpenOne", "PlaneCore", "SealOne", "acknowledge", "lose"]

SealOne = Callable[[bytes, bytes, int], bytes]
"""Seals one packet: (plain header, plain payload, packet number) -> packet."""
OpenOne = Callable[[bytes], tuple[bytes, bytes, int] | None]
"""Opens one short-header packet -> (plain header, plain payload, packet number), or None."""


@dataclass(frozen=True, slots=True)
class OneRttSecrets:
    """The traffic secrets of the present key phase (RFC 9001 §5.1)."""

    cipher_suite: tls.CipherSuite
    send: bytes
    receive: bytes
    key_phase: int


@dataclass(slots=True)
class ControlPacket:
    """A sealed packet with frames of streams or of the connection. packet: aioquic's record of it."""

    data: bytes
    packet: Any

    @property
    def number(self) -> int:
        """Its packet number."""
        return int(self.packet.packet_number)


def acknowledge(packets: Iterable[Any]) -> None:
    """Tell aioquic that frames of these packets have arrived."""
    for packet in packets:
        for handler, arguments in packet.delivery_handlers:
            handler(QuicDeliveryState.ACKED, *arguments)


def lose(packets: Iterable[Any]) -> None:
    """Tell aioquic that frames of these packets are lost; it sends again what has to be."""
    for packet in packets:
        for handler, arguments in packet.delivery_handlers:
            handler(QuicDeliveryState.LOST, *arguments)


class _PlaneCrypto:
    """Stands where aioquic keeps the 1-RTT keys, for its packet builder."""

    aead_tag_size = 16

    def __init__(self, seal: SealOne, open_one: OpenOne, phase: Callable[[], int]) -> None:
        self.send = self
        self.recv = self
        self._phase = phase
        self._open = open_one
        self.encrypt_packet = seal

    @property
    def key_phase(self) -> int:
        """The phase bit of packets to come."""
        return self._phase()

    def is_valid(self) -> bool:
        """Keys are there."""
        return True

    def decrypt_packet(self, packet: bytes, offset: int, expected: int) -> tuple[bytes, bytes, int]:
        """Open a short-header packet that followed a long one in its datagram. Raises: CryptoError."""
        del offset, expected
        opened = self._open(packet)
        if opened is None:
            raise CryptoError("the packet cannot be opened, or came before")
        return opened

    def teardown(self) -> None:
        """Nothing to forget: the plane has the keys."""


class _NoPacer:
    """Stands where aioquic paces: the plane does."""

    def next_send_time(self, now: float) -> float | None:
        """Never later."""
        del now
        return None

    def update_after_send(self, now: float) -> None:
        """Nothing to update."""

    def update_rate(self, *_: Any, **__: Any) -> None:
        """Nothing to update."""


class PlaneCore(QuicCore):
    """A QUIC connection whose 1-RTT packets are somebody else's, once hand_over() was called."""

    _is_handed_over = False
    is_control_waiting = False
    """Whether aioquic may have frames to write; set whenever it was given something."""

    def one_rtt_secrets(self) -> OneRttSecrets | None:
        """Return the present secrets, once both directions have one."""
        pair = self._cryptos[tls.Epoch.ONE_RTT]
        send, receive = pair.send, pair.recv
        if send.secret is None or receive.secret is None or send.cipher_suite is None:
            return None
        return OneRttSecrets(send.cipher_suite, send.secret, receive.secret, receive.key_phase)

    def hand_over(self, seal: SealOne, open_one: OpenOne, phase: Callable[[], int]) -> list[tuple[int, int]]:
        """Stop numbering, sealing and pacing 1-RTT packets; return the (first, last) numbers received so far."""
        self._is_handed_over = True
        self._cryptos[tls.Epoch.ONE_RTT] = _PlaneCrypto(seal, open_one, phase)  # type: ignore[assignment]  # what it uses
        self._loss._pacer = _NoPacer()  # type: ignore[assignment]  # what it uses
        space = self._spaces[tls.Epoch.ONE_RTT]
        space.ack_at = None
        self.is_control_waiting = True
        return [(numbers.start, numbers.stop - 1) for numbers in space.ack_queue]

    last_now = 0.0
    """The time of the last call that had one, for timers that are asked for without."""

    @property
    def known_cids(self) -> set[bytes]:
        """Our connection ids that the peer may use."""
        return {entry.cid for entry in self._host_cids}

    @property
    def has_end(self) -> bool:
        """Whether the end has begun, by either side, or is over: what else arrives is of no use."""
        return self._close_event is not None

    @property
    def is_close_pending(self) -> bool:
        """Whether CONNECTION_CLOSE waits to be sent."""
        return self._close_pending

    def stop_own_acks(self) -> None:
        """Leave acknowledging to the plane, also after a 1-RTT packet that aioquic read itself."""
        if self._is_handed_over:
            self._spaces[tls.Epoch.ONE_RTT].ack_at = None
            self.is_control_waiting = True

    @property
    def next_packet_number(self) -> int:
        """The number of the next packet; aioquic numbers all epochs together."""
        return self._packet_number

    @next_packet_number.setter
    def next_packet_number(self, number: int) -> None:
        self._packet_number = number

    @property
    def peer_cid(self) -> bytes:
        """The connection id to send to."""
        return self._peer_cid.cid

    @property
    def spin_bit(self) -> int:
        """The spin bit to send (RFC 9000 §17.4)."""
        return int(self._spin_bit)

    @property
    def has_own_packets(self) -> bool:
        """Whether packets that aioquic sent by itself are not acknowledged yet."""
        return bool(self._spaces[tls.Epoch.ONE_RTT].sent_packets)

    @property
    def active_path(self) -> QuicNetworkPath:
        """Where packets go."""
        return self._network_paths[0]

    @property
    def ack_delay_exponent(self) -> int:
        """The peer's, for its ACK frames (RFC 9000 §18.2)."""
        return self._remote_ack_delay_exponent

    @property
    def peer_max_ack_delay(self) -> float:
        """How long the peer may keep an ACK, seconds."""
        return self._loss.max_ack_delay

    def find_path(self, addr: Any) -> QuicNetworkPath:
        """Return the record of a peer address, a new one for a new address."""
        return self._find_network_path(addr)

    def restart_idle_timer(self, now: float, *, sent: bool) -> None:
        """Restart it for a packet that arrived, or for the first that asks for an ACK since (RFC 9000 §10.1)."""
        if not sent:
            self._close_at = now + self._idle_timeout()
            self._ack_eliciting_sent_since_receipt = False
        elif not self._ack_eliciting_sent_since_receipt:
            self._close_at = now + self._idle_timeout()
            self._ack_eliciting_sent_since_receipt = True

    def follow_peer(self, path: QuicNetworkPath, host_cid: bytes, *, is_probing: bool, is_newest: bool) -> bool:
        """Move a server's connection to where its client sends from (RFC 9000 §9.3); return whether it moved."""
        if self._is_client:
            return False
        if not is_probing and host_cid != self.host_cid:
            self.host_cid = host_cid
            if path.peer_cid is None:
                self.change_connection_id()
        if path not in self._network_paths:
            self._add_network_path(path)
        index = self._network_paths.index(path)
        if not index or is_probing or not is_newest:
            return False
        self._network_paths.pop(index)
        self._network_paths.insert(0, path)
        if path.peer_cid is not None:
            self._use_reserved_peer_cid(path)
        if not path.is_validated:
            path.local_challenge_sent = False
            path.validation_deadline = None
        self.is_control_waiting = True
        return True

    def read_frames(self, plain: bytes, path: QuicNetworkPath, host_cid: bytes, now: float) -> tuple[bool, bool]:
        """Let aioquic handle frames of a 1-RTT packet; return (asks for an ACK, has probing frames only).

        What breaks a rule closes the connection.
        """
        self.is_control_waiting = True
        context = QuicReceiveContext(
            epoch=tls.Epoch.ONE_RTT,
            host_cid=host_cid,
            network_path=path,
            quic_logger_frames=[] if self._quic_logger is not None else None,
            time=now,
            version=self._version,
        )
        try:
            return self._payload_received(context, plain)
        except QuicConnectionError as error:
            self.close(error_code=error.error_code, frame_type=error.frame_type, reason_phrase=error.reason_phrase)
            return True, False

    def acknowledge_own_packets(self, frame: bytes, now: float) -> None:
        """Let aioquic see an ACK frame, without its type byte, for the packets it sent by itself."""
        context = QuicReceiveContext(
            epoch=tls.Epoch.ONE_RTT,
            host_cid=self.host_cid,
            network_path=self._network_paths[0],
            quic_logger_frames=[] if self._quic_logger is not None else None,
            time=now,
            version=self._version,
        )
        with contextlib.suppress(QuicConnectionError):
            super()._handle_ack_frame(context, 0x02, Buffer(data=frame))

    def write_control(self, path: QuicNetworkPath, now: float, *, room: int, size: int) -> Iterator[ControlPacket]:
        """Yield packets with what aioquic has to send, sealed and numbered; room: bytes the window allows."""
        assert self._version is not None
        builder = QuicPacketBuilder(
            host_cid=self.host_cid,
            is_client=self._is_client,
            max_datagram_size=size,
            packet_number=self._packet_number,
            peer_cid=self._peer_cid.cid,
            peer_token=b"",
            quic_logger=self._quic_logger,
            spin_bit=self._spin_bit,
            version=self._version,
        )
        builder.max_flight_bytes = room
        if not path.is_validated:
            builder.max_total_bytes = path.bytes_received * 3 - path.bytes_sent
        self.is_control_waiting = False
        try:
            self._write_application(builder, path, now)
        except QuicPacketBuilderStop:
            self.is_control_waiting = True
        if self.stream_data_is_waiting():
            self.is_control_waiting = True  # what found no room in the window raises nothing
        datagrams, packets = builder.flush()
        self._packet_number = builder.packet_number
        for data, packet in zip(datagrams, packets, strict=True):
            packet.sent_time = now
            path.bytes_sent += len(data)
            yield ControlPacket(data, packet)

    def write_probing(self, now: float) -> list[tuple[bytes, Any]]:
        """Return path validation packets for addresses that are not the active one, as (data, address)."""
        sent: list[tuple[bytes, Any]] = []
        for path in self._network_paths[1:]:
            if path.remote_challenges or not (path.is_validated or path.local_challenge_sent):
                if path.peer_cid is None and self._peer_cid_available:
                    path.peer_cid = self._peer_cid_available.pop(0)
                if path.peer_cid is not None:
                    sent += self._send_probing_frames(network_path=path, now=now)
        return sent

    # what gives aioquic something to write

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        """Queue stream data."""
        self.is_control_waiting = True
        super().send_stream_data(stream_id, data, end_stream)

    def send_ping(self, uid: int) -> None:
        """Queue a PING."""
        self.is_control_waiting = True
        super().send_ping(uid)

    def reset_stream(self, stream_id: int, error_code: int) -> None:
        """Queue RESET_STREAM."""
        self.is_control_waiting = True
        super().reset_stream(stream_id, error_code)

    def stop_stream(self, stream_id: int, error_code: int) -> None:
        """Queue STOP_SENDING."""
        self.is_control_waiting = True
        super().stop_stream(stream_id, error_code)

    def abort_stream(self, stream_id: int, error_code: int) -> None:
        """Queue both."""
        self.is_control_waiting = True
        super().abort_stream(stream_id, error_code)

    def on_ack(self, ranges: list[tuple[int, int]], delay: float, now: float) -> None:
        """Take an ACK that came among frames aioquic reads. For the subclass."""

    def _handle_ack_frame(self, context: QuicReceiveContext, frame_type: int, buf: Buffer) -> None:
        start = buf.tell()
        super()._handle_ack_frame(context, frame_type, buf)
        if self._is_handed_over and context.epoch is tls.Epoch.ONE_RTT:
            end = buf.tell()
            buf.seek(start)
            largest, delay = buf.pull_uint_var(), buf.pull_uint_var()
            count, length = buf.pull_uint_var(), buf.pull_uint_var()
            smallest = largest - length
            ranges = [(smallest, largest)]
            for _ in range(count):
                last = smallest - buf.pull_uint_var() - 2
                smallest = last - buf.pull_uint_var()
                ranges.append((smallest, last))
            buf.seek(end)
            self.on_ack(ranges, (delay << self._remote_ack_delay_exponent) / 1_000_000, context.time)
