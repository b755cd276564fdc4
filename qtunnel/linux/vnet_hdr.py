"""The virtio_net_hdr in front of each packet of a TUN opened with IFF_VNET_HDR, and the sums it speaks about.

Ten bytes in the host's byte order (virtio 1.2 §5.1.6, linux/virtio_net.h): whether the checksum is still to be
completed, and of which kind and size the segments are, if the packet is a super-packet: one header, and the
payload of many. csum_start counts from the IP header.

A checksum still to be completed (NEEDS_CSUM) has the folded sum of its pseudo-header in its field, not
complemented, as if the super-packet were one; so the sum of everything from csum_start on, complemented, is the
checksum.

A header can be read as one big number. Then what differs from segment to segment is an addition; and so is what it
does to the sums, as they are sums too.

Sums are one's complement sums of 16-bit words (RFC 1071), kept modulo 65535. A sum over little-endian words is the
sum over big-endian ones with its bytes swapped, which is 256 times it modulo 65535 (RFC 1071 §2 B).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Final

import numpy as np

__all__ = [
    "CWR",
    "FIN_PSH",
    "GSO_ECN",
    "HOST_SHIFT",
    "MAX_SEGMENTS",
    "MAX_SUPER_PACKET",
    "NEEDS_CSUM",
    "NO_OFFLOAD",
    "PSH",
    "SUM",
    "TCP",
    "TCP_CHECK",
    "UDP",
    "UDP_CHECK",
    "UDP_HEADER_SIZE",
    "VNET_HEADER",
    "VNET_HEADER_SIZE",
    "Gso",
    "Layout",
    "layout_of",
    "swapped",
    "word_sum",
]


class Gso(IntEnum):
    """What a packet is cut into (gso_type, without the ECN bit)."""

    NONE = 0
    TCPV4 = 1
    TCPV6 = 4
    UDP_L4 = 5


VNET_HEADER: Final = Struct("=BBHHHH")
"""flags, gso_type, hdr_len, gso_size, csum_start, csum_offset."""
VNET_HEADER_SIZE: Final = VNET_HEADER.size
NO_OFFLOAD: Final = bytes(VNET_HEADER_SIZE)
"""The header of a packet that is complete: the kernel verifies it like any other that arrives."""

NEEDS_CSUM: Final = 1
GSO_ECN: Final = 0x80
"""CWR is set in the TCP header, and belongs to the first segment alone (RFC 3168 §6.1.2)."""

MAX_SEGMENTS: Final = 64
"""Of one super-packet: what one segmented UDP send carries, and what kernels before 6.9 take of UDP."""
MAX_SUPER_PACKET: Final = 65500
"""Bytes of the IP packet. With a link header of up to 35 bytes it stays below the 65536 from which on a device
cuts it in software, on its way out again."""

TCP: Final = 6
UDP: Final = 17
UDP_HEADER_SIZE: Final = 8
TCP_CHECK: Final = 16
UDP_CHECK: Final = 6
"""Where the checksum is in the transport header (csum_offset)."""
PSH: Final = 0x08
FIN_PSH: Final = 0x09
CWR: Final = 0x80

SUM: Final = 0xFFFF
"""The modulus."""
HOST_SHIFT: Final = 8 if sys.byteorder == "little" else 0
"""A sum of words in the host's byte order, shifted left by this, is one of big-endian words, and vice versa."""
_BYTES_AS_NUMBER: Final = 512
"""Up to this size one division of a big number is faster than numpy is to begin (0.6 us at 200 bytes)."""


@dataclass(frozen=True, slots=True, eq=False)  # the same object for the same layout: see layout_of
class Layout:
    """Where the fields of an IP and transport header are, if the header is read as one big-endian number.

    l4: offset of the transport header. check: offset of its checksum. Each *_unit is 1 in that field; those of
    fields the header has not are 0. length_unit is 1 in every length that says the size of the packet. fields
    masks the whole header, without what has a mask of its own: the two checksums, PSH, and the lengths.
    """

    kind: Gso
    is_ipv4: bool
    is_tcp: bool
    l4: int
    size: int
    check: int
    sequence_unit: int
    identification_unit: int
    ip_check_unit: int
    check_unit: int
    length_unit: int
    flags_unit: int
    fields: int


@lru_cache(maxsize=256)
def layout_of(is_ipv4: bool, is_tcp: bool, l4: int, size: int) -> Layout:
    """Return the layout of headers of size bytes, whose transport header begins at l4."""

    def unit(offset: int, length: int = 2) -> int:
        return 1 << (size - offset - length) * 8

    kind = (Gso.TCPV4 if is_ipv4 else Gso.TCPV6) if is_tcp else Gso.UDP_L4
    check = l4 + (TCP_CHECK if is_tcp else UDP_CHECK)
    ip_check_unit = unit(10) if is_ipv4 else 0
    length_unit = unit(2 if is_ipv4 else 4) + (0 if is_tcp else unit(l4 + 4))
    flags_unit = unit(l4 + 13, 1) if is_tcp else 0
    return Layout(
        kind=kind,
        is_ipv4=is_ipv4,
        is_tcp=is_tcp,
        l4=l4,
        size=size,
        check=check,
        sequence_unit=unit(l4 + 4, 4) if is_tcp else 0,
        identification_unit=unit(4) if is_ipv4 else 0,
        ip_check_unit=ip_check_unit,
        check_unit=unit(check),
        length_unit=length_unit,
        flags_unit=flags_unit,
        fields=(1 << size * 8) - 1 - SUM * (ip_check_unit + unit(check) + length_unit) - PSH * flags_unit,
    )


def word_sum(data: bytes | bytearray | memoryview) -> int:
    """Return the sum of the big-endian words of data modulo 65535; an odd last byte is padded with a zero."""
    size = len(data)
    if size <= _BYTES_AS_NUMBER:
        number = int.from_bytes(data, "big")
        return (number << 8 if size & 1 else number) % SUM
    total = int(np.add.reduce(np.frombuffer(data, np.uint16, size >> 1), dtype=np.uint32)) << HOST_SHIFT
    return (total + (data[-1] << 8 if size & 1 else 0)) % SUM


def swapped(total: int) -> int:
    """Return the sum over big-endian words for one over the host's words, or the other way round."""
    return (total << HOST_SHIFT) % SUM
