"""TCP segments and UDP datagrams in IPv4 and IPv6, made without the code under test: every field can be said."""

from __future__ import annotations

import struct
from ipaddress import ip_address

ACK = 0x10
PSH = 0x08
FIN = 0x01
CWR = 0x80

V4 = ("198.18.0.1", "198.18.0.2")
V6 = ("2001:db8::1", "2001:db8::2")


def checksum(data: bytes) -> int:
    """Return the Internet checksum, word by word as RFC 1071 §4.1 has it."""
    total = 0
    for (word,) in struct.iter_unpack("!H", data + b"\0" * (len(data) & 1)):
        total += word
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pseudo_header(addresses: tuple[str, str], protocol: int, length: int) -> bytes:
    packed = b"".join(ip_address(address).packed for address in addresses)
    if len(packed) == 8:
        return packed + struct.pack("!xBH", protocol, length)
    return packed + struct.pack("!I3xB", length, protocol)


def ip_packet(
    addresses: tuple[str, str],
    protocol: int,
    upper: bytes,
    *,
    identification: int = 7,
    fragment: int = 0x4000,
    ttl: int = 64,
    tos: int = 0,
    options: bytes = b"",
) -> bytes:
    """Wrap an upper-layer packet. options: of IPv4, or whole extension headers that end in protocol."""
    packed = b"".join(ip_address(address).packed for address in addresses)
    if len(packed) == 8:
        size = 20 + len(options)
        header = struct.pack(
            "!BBHHHBBH", 0x40 | size // 4, tos, size + len(upper), identification, fragment, ttl, protocol, 0
        )
        header += packed + options
        return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + upper
    first = struct.pack("!IHBB", 6 << 28 | tos << 20 | 5, len(options) + len(upper), protocol, ttl)
    return first + packed + options + upper


def tcp_segment(
    payload: bytes,
    addresses: tuple[str, str] = V4,
    *,
    sequence: int = 1000,
    flags: int = ACK,
    ports: tuple[int, int] = (5001, 5002),
    acknowledged: int = 99,
    window: int = 500,
    options: bytes = b"",
    partial_for: int | None = None,
    **ip: int | bytes,
) -> bytes:
    """Return an IP packet with a TCP segment. partial_for: leave the checksum to a device; the length it says."""
    doff = 5 + len(options) // 4
    header = struct.pack("!HHIIBBHHH", *ports, sequence, acknowledged, doff << 4, flags, window, 0, 0) + options
    segment = header + payload
    if partial_for is None:
        check = checksum(pseudo_header(addresses, 6, len(segment)) + segment)
    else:
        check = ~checksum(pseudo_header(addresses, 6, partial_for)) & 0xFFFF
    segment = segment[:16] + struct.pack("!H", check) + segment[18:]
    return ip_packet(addresses, 6, segment, **ip)  # type: ignore[arg-type]  # the keywords of ip_packet


def udp_datagram(
    payload: bytes,
    addresses: tuple[str, str] = V4,
    *,
    ports: tuple[int, int] = (5001, 5002),
    partial: bool = False,
    **ip: int | bytes,
) -> bytes:
    """Return an IP packet with a UDP datagram. partial: leave the checksum to a device."""
    length = 8 + len(payload)
    pseudo = pseudo_header(addresses, 17, length)
    datagram = struct.pack("!HHHH", *ports, length, 0) + payload
    check = ~checksum(pseudo) & 0xFFFF if partial else checksum(pseudo + datagram) or 0xFFFF
    return ip_packet(addresses, 17, datagram[:6] + struct.pack("!H", check) + payload, **ip)  # type: ignore[arg-type]


def is_valid(packet: bytes) -> bool:
    """Return whether lengths and checksums of a TCP or UDP packet without extension headers are right."""
    if packet[0] >> 4 == 4:
        size = (packet[0] & 15) * 4
        total, protocol, packed = struct.unpack_from("!H", packet, 2)[0], packet[9], packet[12:20]
        if checksum(packet[:size]):
            return False
        addresses = (str(ip_address(packed[:4])), str(ip_address(packed[4:])))
    else:
        size = 40
        total, protocol, packed = 40 + struct.unpack_from("!H", packet, 4)[0], packet[6], packet[8:40]
        addresses = (str(ip_address(packed[:16])), str(ip_address(packed[16:])))
    upper = packet[size:]
    if protocol == 17 and struct.unpack_from("!H", upper, 4)[0] != len(upper):
        return False
    return total == len(packet) and not checksum(pseudo_header(addresses, protocol, len(upper)) + upper)


def stream(
    payload: bytes,
    mss: int,
    addresses: tuple[str, str] = V4,
    *,
    sequence: int = 1000,
    identification: int = 7,
    identification_step: int = 1,
    last_flags: int = ACK,
    **fields: int | bytes,
) -> list[bytes]:
    """Return what a host without offloads sends for payload: full segments, and the rest."""
    packets = []
    for index, start in enumerate(range(0, len(payload), mss)):
        is_last = start + mss >= len(payload)
        packets.append(
            tcp_segment(
                payload[start : start + mss],
                addresses,
                sequence=(sequence + start) & 0xFFFFFFFF,
                flags=last_flags if is_last else ACK,
                identification=(identification + index * identification_step) & 0xFFFF,
                **fields,  # type: ignore[arg-type]
            )
        )
    return packets


def datagrams(
    payload: bytes, size: int, addresses: tuple[str, str] = V4, *, identification: int = 7, **fields: int | bytes
) -> list[bytes]:
    """Return the datagrams of a segmented send of payload."""
    return [
        udp_datagram(
            payload[start : start + size],
            addresses,
            identification=(identification + index) & 0xFFFF,
            **fields,  # type: ignore[arg-type]
        )
        for index, start in enumerate(range(0, len(payload), size))
    ]
