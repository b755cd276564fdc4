"""Inner packets for simulated tunnels: valid headers, a number to know each packet by."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

from tests.unit.linux.packets import checksum

UDP = 17
ICMPV6 = 58
ECHO_REQUEST = 128
ECHO_REPLY = 129


def packet4(
    source: IPv4Address, destination: IPv4Address, number: int, *, size: int = 100, df: bool = True
) -> bytes:
    """Return a UDP packet of `size` bytes that carries `number`."""
    header = bytearray(
        struct.pack(
            "!BBHHHBBH4s4s",
            0x45,
            0,
            size,
            number & 0xFFFF,
            0x4000 if df else 0,
            64,
            UDP,
            0,
            source.packed,
            destination.packed,
        )
    )
    struct.pack_into("!H", header, 10, checksum(bytes(header)))
    return bytes(header) + _payload(number, size - 20)


def packet6(source: IPv6Address, destination: IPv6Address, number: int, *, size: int = 100) -> bytes:
    """Return an IPv6 UDP packet of `size` bytes that carries `number`."""
    header = struct.pack("!IHBB16s16s", 6 << 28, size - 40, UDP, 64, source.packed, destination.packed)
    return header + _payload(number, size - 40)


def number_of(packet: bytes) -> int:
    """Return the number a packet carries."""
    offset = 20 if packet[0] >> 4 == 4 else 40
    return int.from_bytes(packet[offset + 8 : offset + 16])


def answer_ping(packet: bytes) -> bytes | None:
    """Return what a kernel answers an ICMPv6 echo request with, None for any other packet (RFC 4443 §4.2)."""
    if packet[0] >> 4 != 6 or packet[6] != ICMPV6 or packet[40] != ECHO_REQUEST:
        return None
    source, destination, rest = packet[8:24], packet[24:40], packet[44:]
    pseudo = destination + source + struct.pack("!II", len(packet) - 40, ICMPV6)
    message = bytes([ECHO_REPLY, 0, 0, 0]) + rest
    filled = checksum(pseudo + message)
    return packet[:7] + b"\x40" + destination + source + message[:2] + struct.pack("!H", filled) + rest


def _payload(number: int, size: int) -> bytes:
    # No UDP checksum: routers do not look at it, and qtunnel is one.
    return struct.pack("!HHHHQ", 4000, 5000, size, 0, number).ljust(size, b"\xa5")
