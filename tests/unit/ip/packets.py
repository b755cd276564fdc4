"""Packets for the tests of qtunnel.ip, built and checked by code of their own, a byte at a time.

Nothing here imports qtunnel: an error made there is not made here too.
"""

from __future__ import annotations

from ipaddress import ip_address

CLIENT4, SERVER4, HOST4 = "10.77.1.2", "10.77.1.1", "198.51.100.7"
CLIENT6, SERVER6, HOST6 = "fd00:77::2", "fd00:77::1", "2001:db8:1::7"

TCP, UDP = 6, 17


def packed(address: str) -> bytes:
    return ip_address(address).packed


def slow_checksum(data: bytes) -> int:
    """RFC 1071, by the letter: add 16-bit words, carry round, complement."""
    if len(data) % 2:
        data += b"\x00"
    total = 0
    for index in range(0, len(data), 2):
        total += data[index] * 256 + data[index + 1]
        if total > 0xFFFF:
            total = total - 0x10000 + 1
    return total ^ 0xFFFF


def ipv4(
    payload: bytes = b"",
    *,
    source: str = CLIENT4,
    destination: str = HOST4,
    protocol: int = UDP,
    ttl: int = 64,
    tos: int = 0,
    identification: int = 0x1234,
    df: bool = False,
    mf: bool = False,
    offset: int = 0,
    options: bytes = b"",
) -> bytes:
    """One IPv4 packet. offset: in bytes. options: padded by the caller to a multiple of 4."""
    assert offset % 8 == 0
    assert len(options) % 4 == 0
    length = 20 + len(options) + len(payload)
    flags = (0x4000 if df else 0) | (0x2000 if mf else 0) | offset // 8
    head = bytearray(20)
    head[0] = 0x40 + 5 + len(options) // 4
    head[1] = tos
    head[2:4] = length.to_bytes(2, "big")
    head[4:6] = identification.to_bytes(2, "big")
    head[6:8] = flags.to_bytes(2, "big")
    head[8] = ttl
    head[9] = protocol
    head[12:16] = packed(source)
    head[16:20] = packed(destination)
    head += options
    head[10:12] = slow_checksum(bytes(head)).to_bytes(2, "big")
    return bytes(head) + payload


def ipv6(
    payload: bytes = b"",
    *,
    source: str = CLIENT6,
    destination: str = HOST6,
    next_header: int = UDP,
    hop_limit: int = 64,
    traffic_class: int = 0,
    flow_label: int = 0,
) -> bytes:
    """One IPv6 packet; extension headers are part of the payload."""
    first = 0x60000000 | traffic_class << 20 | flow_label
    return (
        first.to_bytes(4, "big")
        + len(payload).to_bytes(2, "big")
        + bytes([next_header, hop_limit])
        + packed(source)
        + packed(destination)
        + payload
    )


def udp(size: int = 8, source_port: int = 40000, destination_port: int = 53) -> bytes:
    """A UDP datagram of size bytes, header included; no checksum."""
    head = (
        source_port.to_bytes(2, "big")
        + destination_port.to_bytes(2, "big")
        + size.to_bytes(2, "big")
        + b"\x00\x00"
    )
    return head + bytes(index % 251 for index in range(size - 8))


def icmp4(icmp_type: int, code: int = 0, rest: bytes = bytes(4), **header: object) -> bytes:
    """An IPv4 packet with an ICMP message. rest: what follows the checksum."""
    message = bytes([icmp_type, code, 0, 0]) + rest
    checksum = slow_checksum(message).to_bytes(2, "big")
    return ipv4(message[:2] + checksum + message[4:], protocol=1, **header)  # type: ignore[arg-type]


def icmp6_message(source: str, destination: str, icmp_type: int, code: int = 0, rest: bytes = bytes(4)) -> bytes:
    """An ICMPv6 message with its checksum over the pseudo-header."""
    message = bytes([icmp_type, code, 0, 0]) + rest
    pseudo = packed(source) + packed(destination) + len(message).to_bytes(4, "big") + b"\x00\x00\x00\x3a"
    checksum = slow_checksum(pseudo + message).to_bytes(2, "big")
    return message[:2] + checksum + message[4:]


def icmp6(
    icmp_type: int,
    code: int = 0,
    rest: bytes = bytes(4),
    *,
    source: str = CLIENT6,
    destination: str = HOST6,
    hop_limit: int = 64,
) -> bytes:
    """An IPv6 packet with an ICMPv6 message."""
    message = icmp6_message(source, destination, icmp_type, code, rest)
    return ipv6(message, source=source, destination=destination, next_header=58, hop_limit=hop_limit)


def extension(next_header: int, size: int = 8, body: bytes = b"") -> bytes:
    """A Hop-by-Hop, Routing or Destination Options header of size bytes, a multiple of 8."""
    return (bytes([next_header, size // 8 - 1]) + body).ljust(size, b"\x00")


def authentication(next_header: int, size: int = 16) -> bytes:
    """An Authentication Header of size bytes, a multiple of 4."""
    return bytes([next_header, size // 4 - 2]).ljust(size, b"\x00")


def fragment6(next_header: int, *, offset: int = 0, more: bool = False, identification: int = 0xABCD1234) -> bytes:
    """An IPv6 Fragment header. offset: in bytes."""
    assert offset % 8 == 0
    return bytes([next_header, 0]) + (offset | more).to_bytes(2, "big") + identification.to_bytes(4, "big")


def assert_valid(packet: bytes) -> None:
    """Fail unless lengths and checksums, of ICMP too, are right."""
    if packet[0] >> 4 == 4:
        header_length = (packet[0] & 15) * 4
        assert slow_checksum(packet[:header_length]) == 0
        assert int.from_bytes(packet[2:4], "big") == len(packet)
        is_fragment = (packet[6] & 0x3F, packet[7]) != (0, 0)
        if packet[9] == 1 and not is_fragment:
            assert slow_checksum(packet[header_length:]) == 0
    else:
        assert packet[0] >> 4 == 6
        assert int.from_bytes(packet[4:6], "big") + 40 == len(packet)
        if packet[6] == 58:
            message = packet[40:]
            pseudo = packet[8:40] + len(message).to_bytes(4, "big") + b"\x00\x00\x00\x3a"
            assert slow_checksum(pseudo + message) == 0


def reassemble4(fragments: list[bytes]) -> tuple[bytes, bool]:
    """Put IPv4 fragments together: return their payload, and whether the last of them says that more follow.

    Fails if they overlap, leave a gap, or a fragment but the last is no multiple of 8 bytes long.
    """
    position = None
    data = b""
    more = False
    for fragment in sorted(fragments, key=lambda each: int.from_bytes(each[6:8], "big") & 0x1FFF):
        header_length = (fragment[0] & 15) * 4
        word = int.from_bytes(fragment[6:8], "big")
        offset = (word & 0x1FFF) * 8
        assert position is None or position == offset
        payload = fragment[header_length:]
        more = bool(word & 0x2000)
        position = offset + len(payload)
        if fragment is not fragments[-1]:
            assert more
            assert len(payload) % 8 == 0
        data += payload
    return data, more
