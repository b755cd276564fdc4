"""The frames of one 1-RTT packet: DATAGRAM and ACK are read here, all others by aioquic (RFC 9000 §12.4).

Nothing raises for what the peer sent: what breaks a rule closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from aioquic.quic.packet import QuicErrorCode

from qtunnel.packet_run import PacketRun, Packets
from qtunnel.quic.ack_frames import ACK, ACK_ECN, decode_ack, decode_varint

if TYPE_CHECKING:
    from qtunnel.quic._aioquic_plane import PlaneCore
    from qtunnel.quic.path import Path

__all__ = ["MAX_ACKS", "FrameReader"]

PADDING: Final = 0x00
PING: Final = 0x01
DATAGRAM: Final = 0x30
DATAGRAM_BYTE: Final = bytes((DATAGRAM,))
DATAGRAM_WITH_LENGTH: Final = 0x31
MAX_ACKS: Final = 8
"""ACK frames in one packet; a peer needs one, and more of them only cost time (RFC 9000 §21.9)."""

OnAck = Callable[[list[tuple[int, int]], float, float], None]
"""Takes an ACK: (first, last) ranges, highest first; the peer's delay, seconds; now."""


class FrameReader:
    """Of one path. on_ack: called for each ACK frame of packets that were sent.

    datagrams: payloads of DATAGRAM frames received and not taken yet, in groups.
    """

    def __init__(self, core: PlaneCore, path: Path, on_ack: OnAck) -> None:
        self.datagrams: list[Packets] = []
        self._core = core
        self._path = path
        self._on_ack = on_ack
        self._largest_frame = core.configuration.max_datagram_frame_size or 0
        self._acks_left = MAX_ACKS  # that the packet being read may have

    def take_datagrams(self) -> list[Packets]:
        """Return the payloads received since the last call, in groups."""
        taken, self.datagrams = self.datagrams, []
        return taken

    def begin_packet(self) -> None:
        """Note that frames of another packet follow, which aioquic reads alone."""
        self._acks_left = MAX_ACKS

    def read_datagrams(self, payloads: PacketRun) -> bool:
        """Read packets that are a DATAGRAM frame each; return False, doing nothing, if any is not."""
        if not payloads.all_begin_with(DATAGRAM_BYTE):
            return False
        self._check_datagram(payloads.size)
        if not self._core.has_end:
            self.datagrams.append(payloads.without(1))
        return True

    def _append(self, datagram: bytes) -> None:
        groups = self.datagrams
        if groups and isinstance(groups[-1], list):
            groups[-1].append(datagram)
        else:
            groups.append([datagram])

    def read(self, payload: bytes, network: Any, host_cid: bytes, now: float) -> tuple[bool, bool]:
        """Read the frames of one packet; return (asks for an ACK, has probing frames only)."""
        at, end = 0, len(payload)
        asks = False
        self._acks_left = MAX_ACKS
        try:
            while at < end:
                kind = payload[at]
                if kind == DATAGRAM:
                    self._check_datagram(end - at)
                    self._append(payload[at + 1 :])
                    return True, False
                if kind == DATAGRAM_WITH_LENGTH:
                    start = at
                    length, at = decode_varint(payload, at + 1)
                    if at + length > end:
                        raise ValueError("the frame is cut short")
                    self._check_datagram(at + length - start)
                    self._append(payload[at : at + length])
                    at += length
                    asks = True
                elif kind in (ACK, ACK_ECN):
                    at = self._read_ack(payload, at, now)
                elif kind == PADDING:
                    at = end - len(payload[at:].lstrip(b"\x00"))
                elif kind == PING:
                    asks = True
                    at += 1
                else:
                    more, probing = self._core.read_frames(payload[at:], network, host_cid, now)
                    return asks or more, probing and not asks
        except ValueError as error:
            self._core.close(QuicErrorCode.FRAME_ENCODING_ERROR, None, str(error))
            return asks, False
        if not end:
            self._core.close(QuicErrorCode.PROTOCOL_VIOLATION, None, "a packet without frames")
        return asks, False

    def _read_ack(self, payload: bytes, at: int, now: float) -> int:
        """Read the ACK frame there; return where the next frame begins, the end if nothing more is of use."""
        core, start = self._core, at + 1
        ranges, delay, _, at = decode_ack(payload, at, exponent=core.ack_delay_exponent)
        if ranges[0][1] >= self._path.next_number:
            core.close(QuicErrorCode.PROTOCOL_VIOLATION, ACK, "acknowledged a packet that was not sent")
            return len(payload)
        if core.has_own_packets:
            core.acknowledge_own_packets(payload[start:at], now)
        self.on_ack(ranges, delay, now)
        return len(payload) if self._acks_left < 0 else at

    def _check_datagram(self, size: int) -> None:
        """Close if a DATAGRAM frame, type and length included, is larger than we said we take (RFC 9221 §3)."""
        if size > self._largest_frame:
            text = f"a DATAGRAM frame of {size} bytes, {self._largest_frame} are allowed"
            self._core.close(QuicErrorCode.PROTOCOL_VIOLATION, DATAGRAM, text)

    def on_ack(self, ranges: list[tuple[int, int]], delay: float, now: float) -> None:
        """Take an ACK that was read, here or by aioquic, unless its packet has had too many."""
        self._acks_left -= 1
        if self._acks_left < 0:
            self._core.close(QuicErrorCode.PROTOCOL_VIOLATION, ACK, "too many ACK frames in a packet")
            return
        self._on_ack(ranges, delay, now)
