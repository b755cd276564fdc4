"""Ancillary data of a UDP socket: which address a datagram was sent to, its ECN bits, GRO's segment size.

Layouts are those of ip(7), ipv6(7) and udp(7). The numbers the socket module of Python 3.11 does not name are
here, and only here.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ANCILLARY_SIZE", "AncillaryParser", "packet_info", "segment_size"]

SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
IP_TOS: Final = 1
IP_PKTINFO: Final = 8
IP_MTU_DISCOVER: Final = 10
IP_RECVERR: Final = 11
IP_RECVTOS: Final = 13
IPV6_MTU_DISCOVER: Final = 23
IPV6_RECVERR: Final = 25
IPV6_RECVPKTINFO: Final = 49
IPV6_PKTINFO: Final = 50
IPV6_RECVTCLASS: Final = 66
IPV6_TCLASS: Final = 67
PMTUDISC_PROBE: Final = 3
"""The only mode that sets DF, ignores a (perhaps forged) cached path MTU, and still says EMSGSIZE for the link."""
SO_SNDBUFFORCE: Final = 32
SO_RCVBUFFORCE: Final = 33
SO_MARK: Final = 36
SO_RXQ_OVFL: Final = 40
SO_MEMINFO: Final = 55

ANCILLARY_SIZE: Final = 256
"""Bytes for the ancillary data of one message: all options together need 120."""

_ECN_MASK: Final = 3
_IN_PKTINFO = struct.Struct("=I4s4s")  # interface index, our address, the header's destination
_IN6_PKTINFO = struct.Struct("=16sI")
_INT = struct.Struct("=i")
_UNSIGNED = struct.Struct("=I")
_SHORT = struct.Struct("=H")

Ancillary = tuple[int, int, bytes]


class AncillaryParser:
    """What came with one recvmsg. One object is filled again and again, so that none is made per packet.

    local: our address the datagram was sent to, packed (4 or 16 bytes), or None. ecn: two bits (RFC 3168 §5).
    segment_size: bytes per datagram where GRO coalesced several, else 0. overflowed: datagrams the full socket
    buffer has cost so far; it stays when a message does not carry it.
    """

    __slots__ = ("ecn", "local", "overflowed", "segment_size")

    def __init__(self) -> None:
        self.local: bytes | None = None
        self.ecn = 0
        self.segment_size = 0
        self.overflowed = 0

    def parse(self, items: Sequence[Ancillary]) -> None:
        """Take over what the kernel attached; unknown items are ignored. The data must not be truncated."""
        self.local = None
        self.ecn = 0
        self.segment_size = 0
        for level, kind, data in items:
            if level == socket.IPPROTO_IP:
                if kind == IP_PKTINFO:
                    # "our address" and not the header's destination: for a broadcast only the first can be
                    # answered from.
                    self.local = data[4:8]
                elif kind == IP_TOS:
                    self.ecn = data[0] & _ECN_MASK
            elif level == socket.IPPROTO_IPV6:
                if kind == IPV6_PKTINFO:
                    self.local = data[:16]
                elif kind == IPV6_TCLASS:
                    self.ecn = _INT.unpack_from(data)[0] & _ECN_MASK
            elif level == SOL_UDP and kind == UDP_GRO:
                self.segment_size = _INT.unpack_from(data)[0]
            elif level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL:
                self.overflowed = _UNSIGNED.unpack_from(data)[0]


def packet_info(family: socket.AddressFamily, local: bytes) -> Ancillary:
    """Return the item that sends from local (packed, 4 or 16 bytes); the kernel picks the interface."""
    if family == socket.AF_INET6:
        return (socket.IPPROTO_IPV6, IPV6_PKTINFO, _IN6_PKTINFO.pack(local, 0))
    return (socket.IPPROTO_IP, IP_PKTINFO, _IN_PKTINFO.pack(0, local, b"\0\0\0\0"))


def segment_size(size: int) -> Ancillary:
    """Return the item that makes the kernel cut the data into datagrams of size bytes (UDP_SEGMENT)."""
    return (SOL_UDP, UDP_SEGMENT, _SHORT.pack(size))
