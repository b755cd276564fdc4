"""Puts neighbouring packets of a flow together, so that one write hands many of them to the kernel.

What comes out is what the kernel can cut again into the same packets, to the byte: full TCP segments in sequence,
or UDP datagrams of one size; the last may be shorter. All else in their headers is equal, but for IPv4
identifications, which count up (with DF they may also be all the same, and then mean nothing: RFC 6864 §4.1).

A super-packet is believed: the kernel looks at none of its checksums. So the checksums of every packet are
verified before it becomes part of one; a packet that fails is left alone, for the kernel to judge and to count.

The headers are compared as numbers (qtunnel/flow_headers.py); those of a run that is a flow were already. The sums
are taken by numpy over all packets together (0.2 us a packet).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np

from qtunnel.flow_headers import (
    PSH,
    SUM,
    TCP,
    TCP_CHECK,
    UDP,
    UDP_CHECK,
    Layout,
    flow_layout,
    flow_reach,
)
from qtunnel.flow_runs import LEAST_FLOW
from qtunnel.linux.vnet_hdr import (
    HOST_SHIFT,
    MAX_SEGMENTS,
    MAX_SUPER_PACKET,
    NEEDS_CSUM,
    VNET_HEADER,
    gso_of,
    word_sum,
)
from qtunnel.packet_run import PacketRun

__all__ = ["SuperPacket", "coalesce", "coalesce_flow"]

_IPV4: Final = Struct(">2xHHHxBH").unpack_from
"""Total length, identification, flags and fragment offset, protocol, header checksum."""
_IPV6: Final = Struct(">4xHB").unpack_from
"""Payload length, next header."""
_U16: Final = Struct(">H")


@dataclass(slots=True)
class SuperPacket:
    """Packets first to first + count - 1 of the burst as one frame.

    pieces: what to write, back to back: virtio_net_hdr and header, then payloads.
    """

    first: int
    count: int
    is_tcp: bool
    pieces: list[bytes]


def coalesce(
    packets: Sequence[bytes], *, tcp: bool = True, udp: bool = True, least: int = LEAST_FLOW
) -> list[SuperPacket]:
    """Return the super-packets that can be made of a burst, in order; packets in none of them stay as they are.

    tcp, udp: what may be put together. least: how many at least, 2 or more. Packets may be any bytes; empty when
    nothing fits together.
    """
    found: list[SuperPacket] = []
    index, end = 0, len(packets) - least
    while index <= end:
        packet, last = packets[index], packets[index + least - 1]
        # Addresses and ports on IPv4, a part of the addresses on IPv6: most of what cannot fit is out here.
        if len(last) > len(packet) or packet[12:24] != last[12:24]:
            index += 1
            continue
        layout = flow_layout(packet)
        if layout is None or not (tcp if layout.is_tcp else udp):
            index += 1
            continue
        stop = _end_of_run(packets, index, layout)
        if stop - index >= least:
            _verify(packets[index:stop], index, layout, least, found)
        index = stop
    return found


def coalesce_flow(run: PacketRun, *, tcp: bool = True, udp: bool = True) -> list[SuperPacket]:
    """Return the same for a run that is a flow."""
    found: list[SuperPacket] = []
    layout = flow_layout(run[0])
    if layout is None or not (tcp if layout.is_tcp else udp):
        return found
    most = max(1, min(MAX_SEGMENTS, (MAX_SUPER_PACKET - layout.size) // (run.size - layout.size)))
    for first in range(0, run.rows, most):
        _verify(run[first : first + most], first, layout, min(LEAST_FLOW, run.rows), found)
    return found


def _end_of_run(packets: Sequence[bytes], first: int, layout: Layout) -> int:
    """Return the index after the last packet that continues the one at first; TCP's and UDP's sums aside."""
    leader = packets[first]
    size, header_size = len(leader), layout.size
    payload = size - header_size
    counts_up, most = flow_reach(leader, packets[first + 1], layout)
    most = min(most, len(packets) - first, MAX_SEGMENTS, max(1, (MAX_SUPER_PACKET - header_size) // payload))
    mask = layout.followed
    step = layout.step(payload, counts_up)
    from_bytes = int.from_bytes
    header = from_bytes(leader[:header_size], "big") & mask
    for index in range(first + 1, first + most):
        packet = packets[index]
        header += step
        if from_bytes(packet[:header_size], "big") & mask != header or len(packet) != size:
            return index + _is_last(packet, size, header, layout)
    return first + most


def _is_last(packet: bytes, size: int, header: int, layout: Layout) -> bool:
    """Return whether a packet can end a run that it does not continue: it is shorter, or has PSH, or both.

    header: the one that would continue it, but for the checksum of TCP or UDP.
    """
    length = len(packet)
    if not layout.size < length <= size:
        return False
    if (int.from_bytes(packet[: layout.size], "big") ^ header) & layout.fields:
        return False
    if not layout.is_tcp and _U16.unpack_from(packet, layout.l4 + 4)[0] != length - layout.l4:
        return False
    if not layout.is_ipv4:
        return bool(_IPV6(packet)[0] == length - 40)
    total, _, _, _, check = _IPV4(packet)
    return total == length and check != SUM and not word_sum(packet[:20])


def _verify(run: Sequence[bytes], first: int, layout: Layout, least: int, found: list[SuperPacket]) -> None:
    """Make super-packets of the packets of a run whose checksums are right. first: its place in the burst."""
    whole = len(run) if len(run[-1]) == len(run[0]) else len(run) - 1
    full = PacketRun.of(run[:whole])
    right = _are_right(full, layout)
    if whole < len(run):
        right.append(_is_right(run[whole], layout))
    begin = 0
    for end, is_right in enumerate([*right, False]):
        if is_right:
            continue
        if end - begin >= least:
            part = full[begin:end]
            pieces = [_header(run[begin], run[end - 1], end - begin, layout), _payloads(part, layout)]
            if end > whole:
                pieces.append(run[whole][layout.size :])
            found.append(SuperPacket(first + begin, end - begin, layout.is_tcp, pieces))
        begin = end + 1


def _are_right(run: PacketRun, layout: Layout) -> list[bool]:
    """Return which packets have the right checksum (see _is_right)."""
    # From the source address on; with it come 4 + 4 or 16 + 16 bytes of pseudo-header.
    summed = 12 if layout.is_ipv4 else 8
    rest = (_pseudo_rest(layout, run.size) << HOST_SHIFT) % SUM
    sums = np.add.reduce(run.array(np.uint16, summed), axis=1, dtype=np.uint32, initial=rest)
    if run.size & 1:
        sums += np.frombuffer(run.column(run.size - 1), np.uint8).astype(np.uint32) << 8 - HOST_SHIFT
    right = sums % SUM == 0
    if _never(layout)[0] in run.column(layout.check):
        right &= run.array(np.uint16, layout.check, 1)[:, 0] != int.from_bytes(_never(layout))
    return right.tolist()  # type: ignore[no-any-return]  # of an array of bool


def _payloads(run: PacketRun, layout: Layout) -> bytes:
    return run.array(np.uint8, layout.size).tobytes()


def _is_right(packet: bytes, layout: Layout) -> bool:
    """Return whether the checksum of TCP or UDP is right and the one the kernel would write."""
    total = word_sum(memoryview(packet)[12 if layout.is_ipv4 else 8 :]) + _pseudo_rest(layout, len(packet))
    return total % SUM == 0 and packet[layout.check : layout.check + 2] != _never(layout)


def _never(layout: Layout) -> bytes:
    """Return the checksum that is the other zero in TCP, and says that there is none in UDP (RFC 768)."""
    return b"\xff\xff" if layout.is_tcp else b"\0\0"


def _pseudo_rest(layout: Layout, size: int) -> int:
    """Return the sum of the pseudo-header without its addresses, for a packet of size bytes."""
    return (TCP if layout.is_tcp else UDP) + size - layout.l4


def _header(leader: bytes, last: bytes, count: int, layout: Layout) -> bytes:
    """Return virtio_net_hdr, IP and transport header of the super-packet of count packets from leader to last."""
    payload = len(leader) - layout.size
    total = len(leader) + payload * (count - 2) + len(last) - layout.size
    grown = total - len(leader)
    header = int.from_bytes(leader[: layout.size], "big") + grown * layout.length_unit
    if layout.is_tcp:
        header += (last[layout.l4 + 13] & PSH) * layout.flags_unit
    if layout.is_ipv4:
        check = int.from_bytes(leader[10:12], "big")
        # The checksum is the complement of a sum that grows by as much; it never was SUM.
        header += ((check - grown) % SUM - check) * layout.ip_check_unit
    pseudo = word_sum(leader[12:20] if layout.is_ipv4 else leader[8:40]) + _pseudo_rest(layout, total)
    check = int.from_bytes(leader[layout.check : layout.check + 2], "big")
    header += (pseudo % SUM - check) * layout.check_unit
    offset = TCP_CHECK if layout.is_tcp else UDP_CHECK
    vnet = VNET_HEADER.pack(NEEDS_CSUM, gso_of(layout), layout.size, payload, layout.l4, offset)
    return vnet + header.to_bytes(layout.size, "big")
