"""Facts about packets as they are on the wire: sizes, Don't Fragment, fragments, ports. Bytes in, no I/O."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from netlab.addresses import IPAddress

ICMP: Final = 1
TCP: Final = 6
UDP: Final = 17
IPV6_FRAGMENT: Final = 44
ICMPV6: Final = 58
SNAP_LENGTH: Final = 128
"""Bytes of each packet that are kept; enough for IPv6, a fragment header and UDP or TCP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One IP packet seen on a device. time is in seconds since the epoch, by the kernel's clock.

    length is that of the IP packet as it passed the device; with offloads on it can be a super-packet's. head
    begins with the IP header. outgoing: it left the host through the device.
    """

    time: float
    outgoing: bool
    length: int
    version: int
    source: IPAddress
    destination: IPAddress
    protocol: int
    hop_limit: int
    dont_fragment: bool
    is_fragment: bool
    source_port: int | None
    destination_port: int | None
    head: bytes


def parse(head: bytes, *, time: float, outgoing: bool, length: int) -> Packet | None:
    """Return what a packet's first bytes say, None if it is no whole IP header."""
    version = head[0] >> 4 if head else 0
    if version == 4 and len(head) >= 20:
        flags = struct.unpack_from("!H", head, 6)[0]
        is_fragment = bool(flags & 0x3FFF)
        header_length, protocol = (head[0] & 15) * 4, head[9]
        ports = _ports(head, header_length, protocol) if not flags & 0x1FFF else (None, None)
        source: IPAddress = IPv4Address(head[12:16])
        destination: IPAddress = IPv4Address(head[16:20])
        hop_limit, dont_fragment = head[8], bool(flags & 0x4000)
    elif version == 6 and len(head) >= 40:
        header_length, protocol = 40, head[6]
        first = True
        if is_fragment := protocol == IPV6_FRAGMENT and len(head) >= 48:
            header_length, protocol = 48, head[40]
            first = not struct.unpack_from("!H", head, 42)[0] & 0xFFF8
        ports = _ports(head, header_length, protocol) if first else (None, None)
        source, destination = IPv6Address(head[8:24]), IPv6Address(head[24:40])
        hop_limit, dont_fragment = head[7], not is_fragment  # IPv6 routers never fragment
    else:
        return None
    return Packet(
        time=time,
        outgoing=outgoing,
        length=length,
        version=version,
        source=source,
        destination=destination,
        protocol=protocol,
        hop_limit=hop_limit,
        dont_fragment=dont_fragment,
        is_fragment=is_fragment,
        source_port=ports[0],
        destination_port=ports[1],
        head=head,
    )


def _ports(head: bytes, offset: int, protocol: int) -> tuple[int | None, int | None]:
    if protocol not in (TCP, UDP) or len(head) < offset + 4:
        return None, None
    source, destination = struct.unpack_from("!HH", head, offset)
    return source, destination
