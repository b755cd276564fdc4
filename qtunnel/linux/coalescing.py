"""Puts neighbouring packets of a flow together, so that one write hands many of them to the kernel.

What comes out is what the kernel can cut again into the same packets, to the byte: full TCP segments in sequence,
or UDP datagrams of one size; the last may be shorter. All else in their headers is equal, but for IPv4
identifications, which count up (with DF they may also be all the same, and then mean nothing: RFC 6864 §4.1).

A super-packet is believed: the kernel looks at none of its checksums. So the checksums of every packet are
verified before it becomes part of one; a packet that fails is left alone, for the kernel to judge and to count.

The headers are compared as numbers. A whole header, read as one big integer, tells its successor: the sequence
number is so much higher, the identification one higher and its checksum one lower, which is one addition. That is
0.3 us a packet for every rule at once. The sums are taken by numpy over all packets together (0.2 us a packet).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qtunnel.linux.vnet_hdr import (
    MAX_SEGMENTS,
    MAX_SUPER_PACKET,
    NEEDS_CSUM,
    SUM,
    VNET_HEADER,
    VNET_HEADER_SIZE,
    Gso,
    swapped,
    word_sum,
)

__all__ = ["SuperPacket", "coalesce"]

_TCP: Final = 6
_UDP: Final = 17
_UDP_HEADER: Final = 8
_TCP_CHECK: Final = 16
_UDP_CHECK: Final = 6
_ACK: Final = 0x10
_PSH: Final = 0x08
_DONT_FRAGMENT: Final = 0x4000
_IPV4: Final = Struct(">2xHHHxBH").unpack_from
"""Total length, identification, flags and fragment offset, protocol, header checksum."""
_IPV6: Final = Struct(">4xHB").unpack_from
"""Payload length, next header."""
_U16: Final = Struct(">H")
_U32: Final = Struct(">I")


@dataclass(slots=True)
class SuperPacket:
    """Packets first to first + count - 1 of the burst as one frame: virtio_net_hdr, header, payloads."""

    first: int
    count: int
    kind: Gso
    frame: memoryview


@dataclass(slots=True)
class _Shape:
    """Where things are in headers of one kind and size, as offsets and as masks over the header as a big number.

    same: all bits of a header that a follower has equal to, or one step from, its predecessor's. Left out are the
    checksum of TCP or UDP and the PSH bit. same_but_size: the lengths and the IPv4 checksum are left out as well.
    sequence_step: one byte of payload. identification_step: the next identification and its header checksum.
    """

    kind: Gso
    is_ipv4: bool
    is_tcp: bool
    l4: int
    header_size: int
    check: int
    same: int
    same_but_size: int
    sequence_step: int
    identification_step: int


def coalesce(packets: Sequence[bytes], *, tcp: bool = True, udp: bool = True) -> list[SuperPacket]:
    """Return the super-packets that can be made of a burst, in order; packets in none of them stay as they are.

    tcp, udp: what may be put together. Packets may be any bytes; empty when nothing fits together.
    """
    found: list[SuperPacket] = []
    index, end = 0, len(packets) - 1
    while index < end:
        packet, follower = packets[index], packets[index + 1]
        # Addresses and ports on IPv4, a part of the addresses on IPv6: most of what cannot fit is out here.
        if len(follower) > len(packet) or packet[12:24] != follower[12:24]:
            index += 1
            continue
        shape = _shape_of(packet)
        if shape is None or not (tcp if shape.is_tcp else udp):
            index += 1
            continue
        stop = _end_of_run(packets, index, shape)
        if stop - index > 1:
            _verify(packets, index, stop, shape, found)
        index = stop
    return found


@cache
def _shape(is_ipv4: bool, is_tcp: bool, header_size: int) -> _Shape:
    l4 = 20 if is_ipv4 else 40
    check = _TCP_CHECK if is_tcp else _UDP_CHECK

    def field(offset: int, size: int = 2, value: int = -1) -> int:
        return (value & ((1 << size * 8) - 1)) << (header_size - offset - size) * 8

    same = field(0, header_size) & ~field(l4 + check)
    if is_tcp:
        same &= ~field(l4 + 13, 1, _PSH)
        kind = Gso.TCPV4 if is_ipv4 else Gso.TCPV6
    else:
        kind = Gso.UDP_L4
    sizes = (field(2) | field(10)) if is_ipv4 else field(4)
    if not is_tcp:
        sizes |= field(l4 + 4)
    return _Shape(
        kind=kind,
        is_ipv4=is_ipv4,
        is_tcp=is_tcp,
        l4=l4,
        header_size=header_size,
        check=check,
        same=same,
        same_but_size=same & ~sizes,
        sequence_step=field(l4 + 4, 4, 1) if is_tcp else 0,
        identification_step=field(4, 2, 1) - field(10, 2, 1) if is_ipv4 else 0,
    )


def _shape_of(packet: bytes) -> _Shape | None:
    """Return the shape of a packet that may begin a super-packet, else None."""
    size = len(packet)
    if size <= 28:
        return None
    if packet[0] == 0x45:
        total, _, fragment, protocol, check = _IPV4(packet)
        # A checksum of 0xFFFF is right where 0 is (RFC 1624), but the kernel would write 0.
        if total != size or fragment & ~_DONT_FRAGMENT or check == SUM or word_sum(packet[:20]):
            return None
        l4 = 20
    elif packet[0] >> 4 == 6 and size > 48:
        total, protocol = _IPV6(packet)
        if total + 40 != size:
            return None
        l4 = 40
    else:
        return None
    if protocol == _TCP:
        header_size = _tcp_header_end(packet, l4)
    elif protocol == _UDP and _U16.unpack_from(packet, l4 + 4)[0] == size - l4:
        header_size = l4 + _UDP_HEADER
    else:
        return None
    if not l4 < header_size < size:
        return None
    return _shape(l4 == 20, protocol == _TCP, header_size)


def _tcp_header_end(packet: bytes, l4: int) -> int:
    """Return where the payload of a segment begins, or 0 unless its flags are ACK and nothing else.

    A segment with PSH can be the last of a super-packet, never the first of two.
    """
    if len(packet) <= l4 + 20 or packet[l4 + 13] != _ACK or packet[l4 + 12] & 0x0F:
        return 0
    size = (packet[l4 + 12] >> 4) * 4
    return l4 + size if size >= 20 else 0


def _end_of_run(packets: Sequence[bytes], first: int, shape: _Shape) -> int:
    """Return the index after the last packet that continues the one at first; checksums of TCP and UDP not seen.

    Two neighbours whose headers are equal but for one step have the step in its field, unless it carried over into
    the next one: so a run ends before any of the counted fields would overflow.
    """
    leader = packets[first]
    size, header_size, same = len(leader), shape.header_size, shape.same
    payload = size - header_size
    is_tcp = shape.is_tcp
    header = int.from_bytes(leader[:header_size], "big") & same
    step = shape.sequence_step * payload
    most = min(len(packets) - first, MAX_SEGMENTS, max(1, (MAX_SUPER_PACKET - header_size) // payload))
    if is_tcp:
        most = min(most, (0xFFFFFFFF - _U32.unpack_from(leader, shape.l4 + 4)[0]) // payload + 1)
    if shape.is_ipv4:
        _, identification, fragment, _, check = _IPV4(leader)
        follower = int.from_bytes(packets[first + 1][:header_size], "big")
        if not fragment or (follower ^ header) & _identification(shape):
            step += shape.identification_step
            most = min(most, 0xFFFF - identification + 1, check + 1)
    flags = shape.l4 + 13
    from_bytes = int.from_bytes
    for index in range(first + 1, first + most):
        packet = packets[index]
        header += step
        if len(packet) != size or from_bytes(packet[:header_size], "big") & same != header:
            return index + _is_last(packet, size, header, shape)
        if is_tcp and packet[flags] & _PSH:
            return index + 1
    return first + most


def _identification(shape: _Shape) -> int:
    """Return the mask of the IPv4 identification."""
    return 0xFFFF << (shape.header_size - 6) * 8


def _is_last(packet: bytes, size: int, header: int, shape: _Shape) -> bool:
    """Return whether a packet shorter than the others ends their run. header: the full-size one that would."""
    if not shape.header_size < len(packet) < size:
        return False
    if (int.from_bytes(packet[: shape.header_size], "big") ^ header) & shape.same_but_size:
        return False
    if not shape.is_tcp and _U16.unpack_from(packet, shape.l4 + 4)[0] != len(packet) - shape.l4:
        return False
    if not shape.is_ipv4:
        return bool(_IPV6(packet)[0] == len(packet) - 40)
    total, _, _, _, check = _IPV4(packet)
    return total == len(packet) and check != SUM and not word_sum(packet[:20])


def _verify(packets: Sequence[bytes], first: int, stop: int, shape: _Shape, found: list[SuperPacket]) -> None:
    """Make super-packets of the packets of a run whose checksums are right."""
    size = len(packets[first])
    tail = packets[stop - 1] if len(packets[stop - 1]) != size else None
    count = stop - first - (tail is not None)
    if tail is not None and not _is_right(tail, shape):
        tail = None
    pad = b"\0" * (size & 1)  # rows of whole words; a zero more does not change a sum
    joined = pad.join(packets[first : first + count]) + pad
    words = np.frombuffer(joined, np.uint16).reshape(count, -1)
    # From the source address on; with it come 4 + 4 or 16 + 16 bytes of pseudo-header.
    addresses = 12 if shape.is_ipv4 else 8
    rest = np.uint32(swapped(_pseudo_rest(shape, size - shape.l4)))
    totals = np.add.reduce(words[:, addresses // 2 :], axis=1, dtype=np.uint32) + rest
    is_right = (totals % SUM == 0) & (words[:, (shape.l4 + shape.check) // 2] != _not_sent(shape))
    rows = words.view(np.uint8)
    if is_right.all():
        found.append(_build(packets, first, rows, tail, shape))
        return
    good = [*is_right.tolist(), False]
    begin = 0
    for index, right in enumerate(good):
        if not right:
            ending = tail if index == count else None
            if index - begin + (ending is not None) > 1 and index > begin:
                found.append(_build(packets, first + begin, rows[begin:index], ending, shape))
            begin = index + 1


def _is_right(packet: bytes, shape: _Shape) -> bool:
    """Return whether the checksum of TCP or UDP is right and the one the kernel would write."""
    total = word_sum(memoryview(packet)[12 if shape.is_ipv4 else 8 :]) + _pseudo_rest(
        shape, len(packet) - shape.l4
    )
    return total % SUM == 0 and _U16.unpack_from(packet, shape.l4 + shape.check)[0] != _not_sent(shape)


def _not_sent(shape: _Shape) -> int:
    """Return the zero that is no checksum of TCP (it sends 0), or means that there is none in UDP (RFC 768)."""
    return SUM if shape.is_tcp else 0


def _pseudo_rest(shape: _Shape, l4_size: int) -> int:
    """Return the sum of the pseudo-header without its addresses."""
    return (_TCP if shape.is_tcp else _UDP) + l4_size


def _build(
    packets: Sequence[bytes], first: int, rows: NDArray[np.uint8], tail: bytes | None, shape: _Shape
) -> SuperPacket:
    """Write virtio_net_hdr, header and payloads into one buffer."""
    leader = packets[first]
    size, header_size, l4 = len(leader), shape.header_size, shape.l4
    payload = size - header_size
    count = len(rows)
    whole = payload * count
    total = header_size + whole + (0 if tail is None else len(tail) - header_size)
    header = bytearray(leader[:header_size])
    if shape.is_ipv4:
        _U16.pack_into(header, 2, total)
        _U16.pack_into(header, 10, 0)
        _U16.pack_into(header, 10, SUM - word_sum(header[:20]))
    else:
        _U16.pack_into(header, 4, total - 40)
    if not shape.is_tcp:
        _U16.pack_into(header, l4 + 4, total - l4)
    else:
        header[l4 + 13] |= (packets[first + count - 1] if tail is None else tail)[l4 + 13] & _PSH
    addresses = header[12:20] if shape.is_ipv4 else header[8:40]
    _U16.pack_into(header, l4 + shape.check, (word_sum(addresses) + _pseudo_rest(shape, total - l4)) % SUM)
    vnet = VNET_HEADER.pack(NEEDS_CSUM, shape.kind, header_size, payload, l4, shape.check)
    frame = np.empty(VNET_HEADER_SIZE + total, np.uint8)
    start = VNET_HEADER_SIZE + header_size
    frame[:start] = np.frombuffer(vnet + header, np.uint8)
    frame[start : start + whole].reshape(count, payload)[:] = rows[:, header_size:size]
    if tail is not None:
        frame[start + whole :] = np.frombuffer(tail, np.uint8, offset=header_size)
    return SuperPacket(first, count + (tail is not None), shape.kind, frame.data)
