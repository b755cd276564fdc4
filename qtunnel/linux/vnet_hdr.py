"""The virtio_net_hdr in front of each packet of a TUN opened with IFF_VNET_HDR, and the sums it speaks about.

Ten bytes in the host's byte order (virtio 1.2 §5.1.6, linux/virtio_net.h): whether the checksum is still to be
completed, and of which kind and size the segments are, if the packet is a super-packet: one header, and the
payload of many. csum_start counts from the IP header.

A checksum still to be completed (NEEDS_CSUM) has the folded sum of its pseudo-header in its field, not
complemented, as if the super-packet were one; so the sum of everything from csum_start on, complemented, is the
checksum.

What differs from the header of one segment to the next's is an addition (qtunnel/flow_headers.py); and so is what
it does to the sums, as they are sums too.

Sums are one's complement sums of 16-bit words (RFC 1071), kept modulo 65535. A sum over little-endian words is the
sum over big-endian ones with its bytes swapped, which is 256 times it modulo 65535 (RFC 1071 §2 B).
"""

from __future__ import annotations

import sys
from enum import IntEnum
from struct import Struct
from typing import Final

import numpy as np

from qtunnel.flow_headers import SUM, Layout

__all__ = [
    "CWR",
    "FIN_PSH",
    "GSO_ECN",
    "HOST_SHIFT",
    "MAX_SEGMENTS",
    "MAX_SUPER_PACKET",
    "NEEDS_CSUM",
    "NO_OFFLOAD",
    "VNET_HEADER",
    "VNET_HEADER_SIZE",
    "Gso",
    "gso_of",
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

FIN_PSH: Final = 0x09
CWR: Final = 0x80

HOST_SHIFT: Final = 8 if sys.byteorder == "little" else 0
"""A sum of words in the host's byte order, shifted left by this, is one of big-endian words, and vice versa."""
_BYTES_AS_NUMBER: Final = 512
"""Up to this size one division of a big number is faster than numpy is to begin (0.6 us at 200 bytes)."""


def gso_of(layout: Layout) -> Gso:
    """Return the kind of super-packet that has such a header."""
    return (Gso.TCPV4 if layout.is_ipv4 else Gso.TCPV6) if layout.is_tcp else Gso.UDP_L4


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
