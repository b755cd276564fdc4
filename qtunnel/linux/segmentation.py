"""Cuts the super-packets the kernel hands over into the packets it would have sent itself, to the byte.

As tcp_gso_segment, __udp_gso_segment and inet_gso_segment do: sequence numbers and IPv4 identifications count up,
FIN and PSH stay with the last segment, CWR with the first, lengths and checksums are each segment's own. The IPv4
identification counts up with DF too, where it means nothing (RFC 6864 §4.1): the kernel does so, and one vector
addition costs 0.04 us a packet.

Many segments are made as the rows of one array, few of them one by one: an array takes some 15 us to begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from qtunnel.flow_headers import PSH, SUM, TCP, TCP_CHECK, UDP, UDP_CHECK, UDP_HEADER_SIZE, Layout, layout_of
from qtunnel.linux.vnet_hdr import (
    CWR,
    FIN_PSH,
    GSO_ECN,
    HOST_SHIFT,
    MAX_SEGMENTS,
    NEEDS_CSUM,
    VNET_HEADER,
    VNET_HEADER_SIZE,
    Gso,
    word_sum,
)
from qtunnel.packet_run import PacketRun, Packets

__all__ = ["Segmenter", "complete_checksums"]

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_MANY: Final = 16
"""From so many segments on, rows are faster (measured by tests/bench/bench_tun_offload.py)."""
_MANY_ODD: Final = 5
"""The same for payloads of odd size, which numpy cannot sum where they are."""
_MANY_CHECKSUMS: Final = 8
_ROWS_SIZE: Final = 1 << 16
_MAX_GEOMETRIES: Final = 16
_COUNTING: Final = np.arange(MAX_SEGMENTS, dtype=np.uint32)


@dataclass(slots=True)
class _Super:
    """A super-packet, taken apart. size: payload bytes of each segment but the last.

    first_flags, last_flags: TCP flags that only the first and the last segment have. header: of a full segment
    with the super-packet's sequence number and identification, without those flags and with zero for checksums.
    pseudo: the sum of the pseudo-header of a full segment. missing: bytes that the last segment is shorter.
    """

    layout: Layout
    header: bytearray
    payload: memoryview
    size: int
    segments: int
    first_flags: int
    last_flags: int
    pseudo: int
    missing: int

    @property
    def sequence(self) -> int:
        return int(_U32.unpack_from(self.header, self.layout.l4 + 4)[0]) if self.layout.is_tcp else 0

    @property
    def identification(self) -> int:
        return int(_U16.unpack_from(self.header, 4)[0]) if self.layout.is_ipv4 else 0


class Segmenter:
    """Makes packets of what was read from the TUN. Keeps the arrays of the last geometries; not thread-safe."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[tuple[Layout, int], _Rows] = {}

    def split(self, frame: memoryview) -> list[Packets]:
        """Return the segments of a super-packet, complete with checksums; none when the frame makes no sense.

        Many of them come as a run, which is a flow, and the last, if it is shorter, behind it.

        frame: virtio_net_hdr with a gso_type, and IP packet; it is not needed afterwards.
        """
        if len(frame) <= VNET_HEADER_SIZE:
            return []
        flags, gso_type, _, size, l4, check = VNET_HEADER.unpack_from(frame)
        if not flags & NEEDS_CSUM:
            return []
        packet = frame[VNET_HEADER_SIZE:]
        layout = _layout(packet, gso_type & ~GSO_ECN, l4, check)
        if layout is None or not size:
            return []
        parsed = _parse(packet, layout, size)
        if parsed.segments < (_MANY_ODD if size & 1 else _MANY) and not _may_overflow(parsed):
            return [_cut_few(parsed)]
        return self._cut_many(parsed)

    def _cut_many(self, packet: _Super) -> list[Packets]:
        key = (packet.layout, packet.size)
        rows = self._rows.get(key)
        if rows is None:
            if len(self._rows) >= _MAX_GEOMETRIES:
                self._rows.clear()
            rows = self._rows[key] = _Rows(packet.layout, packet.size)
        packets: list[Packets] = []
        for first in range(0, packet.segments, rows.count):
            packets += rows.fill(packet, first, min(rows.count, packet.segments - first))
        return packets


def complete_checksums(packets: Sequence[bytes], start: int, offset: int) -> list[bytes]:
    """Complete the checksums a sender left to its device, in packets of one size; none if the field is outside.

    start: where the sum begins. offset: of the checksum from there. As skb_checksum_help: a sum of zero is sent as
    0xFFFF, whatever the protocol.
    """
    field, size = start + offset, len(packets[0])
    if field + 2 > size:
        return []
    if len(packets) < _MANY_CHECKSUMS or start & 1 or field & 1:
        return [_complete(packet, start, field) for packet in packets]
    pad = b"\0" * (size & 1)
    words = np.frombuffer(bytearray(pad.join(packets) + pad), np.uint16).reshape(len(packets), -1)
    words[:, field // 2] = SUM - np.add.reduce(words[:, start // 2 :], axis=1, dtype=np.uint32) % SUM
    return _as_bytes(np.ndarray((len(packets),), f"V{size}", words, 0, words.strides[:1]))


def _complete(packet: bytes, start: int, field: int) -> bytes:
    check = SUM - word_sum(memoryview(packet)[start:])
    return packet[:field] + _U16.pack(check) + packet[field + 2 :]


def _as_bytes(packets: NDArray[Any]) -> list[bytes]:
    """Return the items of an array of void: one call, 0.09 us a packet."""
    found: list[bytes] = packets.tolist()
    return found


def _layout(packet: memoryview, kind: int, l4: int, check: int) -> Layout | None:
    """Return the layout of a super-packet's header; None when it is not what its virtio_net_hdr says."""
    is_tcp = kind in (Gso.TCPV4, Gso.TCPV6)
    if check != (TCP_CHECK if is_tcp else UDP_CHECK) or not (is_tcp or kind == Gso.UDP_L4):
        return None
    if l4 < 20 or len(packet) < l4 + (20 if is_tcp else UDP_HEADER_SIZE):
        return None
    version = packet[0] >> 4
    if version == 4:
        if kind == Gso.TCPV6 or l4 != (packet[0] & 15) * 4 or packet[9] != (TCP if is_tcp else UDP):
            return None
    elif version != 6 or kind == Gso.TCPV4 or l4 < 40 or l4 & 1:
        # Which header precedes l4 is not checked: extension headers may be there, and the kernel knew.
        return None
    size = l4 + ((packet[l4 + 12] >> 4) * 4 if is_tcp else UDP_HEADER_SIZE)
    if size >= len(packet) or (is_tcp and size < l4 + 20):
        return None
    return layout_of(version == 4, is_tcp, l4, size)


def _parse(packet: memoryview, layout: Layout, size: int) -> _Super:
    header = bytearray(packet[: layout.size])
    payload = packet[layout.size :]
    l4, total = layout.l4, len(payload)
    size = min(size, total)
    full = layout.size + size
    # The pseudo-header's sum is in the checksum field, with the length of the super-packet.
    pseudo = _U16.unpack_from(header, layout.check)[0] + size - total
    header[layout.check : layout.check + 2] = b"\0\0"
    first_flags = last_flags = 0
    if layout.is_tcp:
        flags = header[l4 + 13]
        first_flags, last_flags = flags & CWR, flags & FIN_PSH
        header[l4 + 13] = flags & ~(CWR | FIN_PSH)
    else:
        _U16.pack_into(header, l4 + 4, full - l4)
    if layout.is_ipv4:
        _U16.pack_into(header, 2, full)
        header[10:12] = b"\0\0"
    else:
        _U16.pack_into(header, 4, full - 40)
    segments = -(-total // size)
    return _Super(
        layout, header, payload, size, segments, first_flags, last_flags, pseudo, segments * size - total
    )


def _cut_few(packet: _Super) -> list[bytes]:
    """Make the segments one by one: header and sums of each are those before and a step.

    No counted field may overflow.
    """
    layout, payload, size = packet.layout, packet.payload, packet.size
    number = int.from_bytes(packet.header, "big")
    step = layout.sequence_unit * size + layout.identification_unit
    l4_sum = packet.pseudo + word_sum(packet.header[layout.l4 :])
    l4_step = size if layout.is_tcp else 0
    no_sum = SUM if layout.is_tcp else 0  # for a sum of zero TCP sends zero, UDP the other zero (RFC 768)
    ip_sum = word_sum(packet.header[: layout.l4])
    missing, flags = 0, packet.first_flags
    last = packet.segments - 1
    packets = []
    for index, payload_sum in enumerate(_payload_sums(packet)):
        if index == last:
            flags |= packet.last_flags
            missing = packet.missing
        # In UDP the length is there twice, in its header and in the pseudo-header.
        total = l4_sum + flags + payload_sum - (missing if layout.is_tcp else 2 * missing)
        header = number + (SUM - (total % SUM or no_sum)) * layout.check_unit
        if layout.is_ipv4:
            header += (SUM - ((ip_sum - missing) % SUM or SUM)) * layout.ip_check_unit
        if flags or missing:
            header += flags * layout.flags_unit - missing * layout.length_unit
        start = index * size
        packets.append(header.to_bytes(layout.size, "big") + payload[start : start + size])
        number += step
        l4_sum += l4_step
        ip_sum += 1
        flags = 0
    return packets


def _payload_sums(packet: _Super) -> list[int]:
    """Return a sum over big-endian words for the payload of each segment."""
    payload, size = packet.payload, packet.size
    if size & 1:
        return [word_sum(payload[start : start + size]) for start in range(0, len(payload), size)]
    whole = len(payload) // size
    words = np.frombuffer(payload, np.uint16, whole * size >> 1).reshape(whole, size >> 1)
    sums = [total << HOST_SHIFT for total in np.add.reduce(words, axis=1, dtype=np.uint32).tolist()]
    if packet.missing:
        sums.append(word_sum(payload[whole * size :]))
    return sums


def _may_overflow(packet: _Super) -> bool:
    """Return whether, of a few segments, a sequence number or an identification could pass its largest value."""
    header, layout = packet.header, packet.layout
    return (layout.is_tcp and header[layout.l4 + 4] == 0xFF) or (layout.is_ipv4 and header[4] == 0xFF)


class _Rows:
    """An array of which each row is one segment, for one geometry, and the columns that differ between rows.

    Rows begin at even offsets; the odd byte after a packet stays zero.
    """

    __slots__ = (
        "_array",
        "_headers",
        "_identifications",
        "_ip_checks",
        "_l4_checks",
        "_l4_words",
        "_layout",
        "_packets",
        "_payloads",
        "_sequences",
        "_size",
        "_steps",
        "_views",
        "count",
    )

    def __init__(self, layout: Layout, size: int) -> None:
        length = layout.size + size
        stride = length + (length & 1)
        count = min(MAX_SEGMENTS, _ROWS_SIZE // size + 1)
        array = np.zeros((count, stride), np.uint8)

        def column(offset: int, kind: str) -> NDArray[Any]:
            return np.ndarray((count,), kind, array, offset, (stride,))

        self.count = count
        self._layout = layout
        self._size = size
        self._steps = _COUNTING[:count] * np.uint32(size)
        self._array = array
        self._headers = array[:, : layout.size]
        self._payloads = array[:, layout.size : length]
        self._l4_words = array.view(np.uint16)[:, layout.l4 // 2 :]
        self._l4_checks = column(layout.check, "=u2")
        self._sequences = column(layout.l4 + 4, ">u4") if layout.is_tcp else None
        self._identifications = column(4, ">u2") if layout.is_ipv4 else None
        self._ip_checks = column(10, ">u2")
        self._packets = column(0, f"V{length}")
        self._views = [array[index].data for index in range(count)]

    def fill(self, packet: _Super, first: int, count: int) -> list[Packets]:
        """Return count segments from number first on, at most self.count."""
        layout, size, payload = self._layout, self._size, packet.payload
        self._headers[:count] = np.frombuffer(packet.header, np.uint8)
        start = first * size
        whole = min(count, (len(payload) - start) // size)
        self._payloads[:whole] = np.frombuffer(payload, np.uint8, whole * size, start).reshape(whole, size)
        if self._sequences is not None:
            sequence = (packet.sequence + start) & 0xFFFFFFFF
            self._sequences[:count] = self._steps[:count] + np.uint32(sequence)
        if self._identifications is not None:
            identifications = (_COUNTING[:count] + (packet.identification + first)) & 0xFFFF
            self._identifications[:count] = identifications
            # The sum is never zero, so its complement never 0xFFFF.
            total = (word_sum(packet.header[: layout.l4]) - packet.identification) % SUM + SUM - 1
            self._ip_checks[:count] = SUM - 1 - (identifications + total) % SUM
        if first == 0 and packet.first_flags:
            self._views[0][layout.l4 + 13] |= packet.first_flags
        if first + count == packet.segments:
            self._finish_last(packet, count - 1)
        # As _cut_few has it: for a sum of zero TCP sends zero, UDP the other zero.
        bias = SUM - 1 if layout.is_tcp else 0
        pseudo = (packet.pseudo << HOST_SHIFT) % SUM + bias
        totals = np.add.reduce(self._l4_words[:count], axis=1, dtype=np.uint32, initial=pseudo)
        if whole < count:  # the last has another length in its pseudo-header
            totals[whole] += (-packet.missing << HOST_SHIFT) % SUM
        self._l4_checks[:count] = (bias or SUM) - totals % SUM
        packets: list[Packets] = []
        if (first == 0 and packet.first_flags) or (whole == count and packet.last_flags & ~PSH):
            packets.append(_as_bytes(self._packets[:whole]))
        elif whole:
            data, stride = self._array[:whole].tobytes(), self._array.shape[1]
            packets.append(PacketRun(data, layout.size + size, whole, stride=stride, is_flow=True))
        if whole < count:
            packets.append([bytes(self._views[whole][: layout.size + size - packet.missing])])
        return packets

    def _finish_last(self, packet: _Super, index: int) -> None:
        """Write what only the last segment has: its flags, its lengths, what there is of payload and zeros."""
        layout, row = self._layout, self._views[index]
        if packet.last_flags:
            row[layout.l4 + 13] |= packet.last_flags
        if not packet.missing:
            return
        rest = self._size - packet.missing
        end = layout.size + rest
        row[layout.size : end] = packet.payload[-rest:]
        row[end:] = bytes(len(row) - end)
        if not layout.is_tcp:
            _U16.pack_into(row, layout.l4 + 4, end - layout.l4)
        if not layout.is_ipv4:
            _U16.pack_into(row, 4, end - 40)
            return
        _U16.pack_into(row, 2, end)
        row[10:12] = b"\0\0"
        _U16.pack_into(row, 10, SUM - (word_sum(row[: layout.l4]) or SUM))
