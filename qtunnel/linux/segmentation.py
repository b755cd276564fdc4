"""Cuts the super-packets the kernel hands over into the packets it would have sent itself, to the byte.

As tcp_gso_segment, __udp_gso_segment and inet_gso_segment do: sequence numbers and IPv4 identifications count up,
FIN and PSH stay with the last segment, CWR with the first, lengths and checksums are each segment's own. The IPv4
identification counts up with DF too, where it means nothing (RFC 6864 §4.1): the kernel does so, and one vector
addition costs 0.04 us a packet.

Many segments are made as the rows of one array, few of them one by one: numpy takes some 20 us to begin with.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from qtunnel.linux.vnet_hdr import (
    GSO_ECN,
    MAX_SEGMENTS,
    NEEDS_CSUM,
    SUM,
    VNET_HEADER,
    VNET_HEADER_SIZE,
    Gso,
    swapped,
    word_sum,
)

__all__ = ["Segmenter", "complete_checksum"]

_TCP: Final = 6
_UDP: Final = 17
_UDP_HEADER: Final = 8
_TCP_CHECK: Final = 16
_UDP_CHECK: Final = 6
_FIN_PSH: Final = 0x09
_CWR: Final = 0x80
_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_FEW: Final = 4
"""Up to this many segments are made one by one (measured by tests/bench/bench_tun_offload.py)."""
_ROWS_SIZE: Final = 1 << 16
_MAX_GEOMETRIES: Final = 16
_COUNTING: Final = np.arange(MAX_SEGMENTS, dtype=np.uint32)


@dataclass(slots=True)
class _Super:
    """A super-packet, taken apart. header: IP and transport header, as they came.

    l4: where the transport header begins. size: payload bytes of each segment but the last. total: all of them.
    """

    header: bytearray
    payload: memoryview
    is_tcp: bool
    is_ipv4: bool
    l4: int
    size: int
    total: int

    @property
    def segments(self) -> int:
        return -(-self.total // self.size)


class _Rows:
    """An array of which each row is one segment, for one geometry, and the columns that differ between rows."""

    __slots__ = ("bytes", "identifications", "ip_checks", "l4_checks", "l4_words", "packets", "sequences", "views")

    def __init__(self, header_size: int, size: int, l4: int, check: int) -> None:
        length = header_size + size
        # Rows begin at even offsets; the odd byte after a packet stays zero.
        stride = length + (length & 1)
        count = max(1, min(MAX_SEGMENTS, _ROWS_SIZE // stride))
        self.bytes: NDArray[np.uint8] = np.zeros((count, stride), np.uint8)

        def column(offset: int, kind: str) -> NDArray[Any]:
            return np.ndarray((count,), kind, self.bytes, offset, (stride,))

        self.l4_words = self.bytes.view(np.uint16)[:, l4 // 2 :]
        self.l4_checks = column(l4 + check, "=u2")
        self.identifications = column(4, ">u2")
        self.ip_checks = column(10, ">u2")
        self.sequences = column(l4 + 4, ">u4")
        self.packets = column(0, f"V{length}")
        self.views = [memoryview(row) for row in self.bytes]


class Segmenter:
    """Makes packets of what was read from the TUN. Keeps the arrays of the last geometries; not thread-safe."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int, int, bool], _Rows] = {}

    def split(self, frame: memoryview) -> list[bytes]:
        """Return the IP packets of one frame, complete with checksums; none when its header makes no sense.

        frame: virtio_net_hdr and IP packet, writable; it is not needed afterwards.
        """
        if len(frame) <= VNET_HEADER_SIZE:
            return []
        flags, gso_type, _, gso_size, csum_start, csum_offset = VNET_HEADER.unpack_from(frame)
        packet = frame[VNET_HEADER_SIZE:]
        if gso_type == Gso.NONE:
            if flags & NEEDS_CSUM and not complete_checksum(packet, csum_start, csum_offset):
                return []
            return [bytes(packet)]
        if not flags & NEEDS_CSUM:
            return []
        parsed = _parse(packet, gso_type & ~GSO_ECN, gso_size, csum_start, csum_offset)
        if parsed is None:
            return []
        return _cut_few(parsed) if parsed.segments <= _FEW else self._cut_many(parsed)

    def _cut_many(self, packet: _Super) -> list[bytes]:
        rows = self._rows_for(packet)
        count = packet.segments
        packets: list[bytes] = []
        for first in range(0, count, len(rows.bytes)):
            packets += _fill(rows, packet, first, min(len(rows.bytes), count - first))
        return packets

    def _rows_for(self, packet: _Super) -> _Rows:
        key = (len(packet.header), packet.size, packet.l4, packet.is_tcp)
        rows = self._rows.get(key)
        if rows is None:
            if len(self._rows) >= _MAX_GEOMETRIES:
                self._rows.clear()
            check = _TCP_CHECK if packet.is_tcp else _UDP_CHECK
            rows = self._rows[key] = _Rows(len(packet.header), packet.size, packet.l4, check)
        return rows


def complete_checksum(packet: memoryview, start: int, offset: int) -> bool:
    """Complete the checksum the sender left to its device; return False when start or offset is out of range.

    As skb_checksum_help: a sum of zero is sent as 0xFFFF, whatever the protocol.
    """
    field = start + offset
    if field + 2 > len(packet):
        return False
    _U16.pack_into(packet, field, SUM - word_sum(packet[start:]))
    return True


def _parse(packet: memoryview, kind: int, size: int, l4: int, check: int) -> _Super | None:
    """Take a super-packet apart; None when it is not what its virtio_net_hdr says."""
    is_tcp = kind in (Gso.TCPV4, Gso.TCPV6)
    if not size or not (is_tcp or kind == Gso.UDP_L4) or check != (_TCP_CHECK if is_tcp else _UDP_CHECK):
        return None
    length = len(packet)
    if length < l4 + (20 if is_tcp else _UDP_HEADER):
        return None
    version = packet[0] >> 4
    if version == 4:
        # l4 is 20 at least: the other fields are there.
        protocol = _TCP if is_tcp else _UDP
        if kind == Gso.TCPV6 or l4 < 20 or l4 != (packet[0] & 15) * 4 or packet[9] != protocol:
            return None
    elif version != 6 or kind == Gso.TCPV4 or l4 < 40 or l4 & 1:
        return None
    header_size = l4 + ((packet[l4 + 12] >> 4) * 4 if is_tcp else _UDP_HEADER)
    if header_size < l4 + _UDP_HEADER or (is_tcp and header_size < l4 + 20) or header_size >= length:
        return None
    return _Super(
        header=bytearray(packet[:header_size]),
        payload=packet[header_size:],
        is_tcp=is_tcp,
        is_ipv4=version == 4,
        l4=l4,
        size=size,
        total=length - header_size,
    )


def _flags(packet: _Super, index: int) -> int:
    """Return the TCP flags of a segment: FIN and PSH end the data, CWR is said once (RFC 3168 §6.1.2)."""
    flags = packet.header[packet.l4 + 13]
    if index:
        flags &= ~_CWR
    return flags if index == packet.segments - 1 else flags & ~_FIN_PSH


def _length_correction(packet: _Super, size: int) -> int:
    """Return what makes up for the length in the pseudo-header, which is the super-packet's, modulo SUM."""
    return (size - packet.total) % SUM


def _set_lengths(packet: _Super, header: bytearray | memoryview, size: int) -> None:
    """Write the lengths of a segment with size bytes of payload."""
    l4, header_size = packet.l4, len(packet.header)
    if packet.is_ipv4:
        _U16.pack_into(header, 2, header_size + size)
    else:
        _U16.pack_into(header, 4, header_size + size - 40)
    if not packet.is_tcp:
        _U16.pack_into(header, l4 + 4, header_size + size - l4)


def _set_ip_checksum(packet: _Super, header: bytearray | memoryview) -> None:
    _U16.pack_into(header, 10, 0)
    _U16.pack_into(header, 10, SUM - (word_sum(header[: packet.l4]) or SUM))


def _l4_checksum(packet: _Super, total: int) -> int:
    """Return the checksum for a sum; where it is zero, UDP sends the other zero (RFC 768)."""
    return SUM - (total % SUM or (SUM if packet.is_tcp else 0))


def _cut_few(packet: _Super) -> list[bytes]:
    """Make the segments one by one."""
    header, l4 = packet.header, packet.l4
    header_size = len(header)
    sequence = _U32.unpack_from(header, l4 + 4)[0]
    identification = _U16.unpack_from(header, 4)[0]
    check = l4 + (_TCP_CHECK if packet.is_tcp else _UDP_CHECK)
    packets = []
    for index, start in enumerate(range(0, packet.total, packet.size)):
        payload = packet.payload[start : start + packet.size]
        segment = bytearray(header_size + len(payload))
        segment[:header_size] = header
        segment[header_size:] = payload
        _set_lengths(packet, segment, len(payload))
        if packet.is_ipv4:
            _U16.pack_into(segment, 4, (identification + index) & 0xFFFF)
            _set_ip_checksum(packet, segment)
        if packet.is_tcp:
            _U32.pack_into(segment, l4 + 4, (sequence + start) & 0xFFFFFFFF)
            segment[l4 + 13] = _flags(packet, index)
        total = word_sum(memoryview(segment)[l4:]) + _length_correction(packet, len(payload))
        _U16.pack_into(segment, check, _l4_checksum(packet, total))
        packets.append(bytes(segment))
    return packets


def _fill(rows: _Rows, packet: _Super, first: int, count: int) -> list[bytes]:
    """Make count segments from number first on, as rows."""
    header_size, size = len(packet.header), packet.size
    rows.bytes[:count, :header_size] = np.frombuffer(_template(packet), np.uint8)
    start = first * size
    whole = min(count, (packet.total - start) // size)
    payload = np.frombuffer(packet.payload, np.uint8, whole * size, start)
    rows.bytes[:whole, header_size : header_size + size] = payload.reshape(whole, size)
    if packet.is_tcp:
        _count_sequences(rows, packet, first, count)
    if packet.is_ipv4:
        _count_identifications(rows, packet, first, count)
    rest = packet.payload[start + whole * size : start + count * size]
    if rest:
        _fill_last(rows, packet, whole, rest)
    totals = np.add.reduce(rows.l4_words[:count], axis=1, dtype=np.uint32)
    correction = np.uint32(swapped(_length_correction(packet, size)))
    if packet.is_tcp:  # as in _l4_checksum
        rows.l4_checks[:count] = SUM - 1 - (totals + (correction + np.uint32(SUM - 1))) % SUM
    else:
        rows.l4_checks[:count] = SUM - (totals + correction) % SUM
    if not rest:
        return _bytes_of(rows.packets[:whole])
    total = int(totals[whole]) + swapped(_length_correction(packet, len(rest)))
    rows.l4_checks[whole] = _l4_checksum(packet, total)
    return [*_bytes_of(rows.packets[:whole]), bytes(rows.views[whole][: header_size + len(rest)])]


def _bytes_of(packets: NDArray[Any]) -> list[bytes]:
    """Return an array of void items as bytes; one call, 0.09 us a packet."""
    found: list[bytes] = packets.tolist()
    return found


def _template(packet: _Super) -> bytearray:
    """Return the header of a segment in the middle, with its place among them and its checksums still to come."""
    header = bytearray(packet.header)
    _set_lengths(packet, header, packet.size)
    if packet.is_tcp:
        header[packet.l4 + 13] &= ~(_CWR | _FIN_PSH)
    return header


def _count_sequences(rows: _Rows, packet: _Super, first: int, count: int) -> None:
    """Write sequence numbers, and the flags of the first and the last segment."""
    l4, size = packet.l4, packet.size
    sequence = (_U32.unpack_from(packet.header, l4 + 4)[0] + first * size) & 0xFFFFFFFF
    rows.sequences[:count] = _COUNTING[:count] * np.uint32(size) + np.uint32(sequence)
    for index in (0, count - 1):
        rows.views[index][l4 + 13] = _flags(packet, first + index)


def _count_identifications(rows: _Rows, packet: _Super, first: int, count: int) -> None:
    """Write IPv4 identifications and header checksums."""
    identification = _U16.unpack_from(packet.header, 4)[0]
    identifications = (_COUNTING[:count] + np.uint32(identification + first)) & 0xFFFF
    rows.identifications[:count] = identifications
    header = _template(packet)[: packet.l4]
    header[4:6] = header[10:12] = b"\0\0"
    # As in _l4_checksum for TCP: the sum is never zero, so its complement is never 0xFFFF.
    total = np.uint32(word_sum(header) + SUM - 1)
    rows.ip_checks[:count] = SUM - 1 - (identifications + total) % SUM


def _fill_last(rows: _Rows, packet: _Super, index: int, rest: memoryview) -> None:
    """Write payload and lengths of a segment shorter than the others, and zeros after it."""
    row = rows.views[index]
    header_size = len(packet.header)
    end = header_size + len(rest)
    row[header_size:end] = rest
    row[end:] = bytes(len(row) - end)
    _set_lengths(packet, row, len(rest))
    if packet.is_ipv4:
        _set_ip_checksum(packet, row)
