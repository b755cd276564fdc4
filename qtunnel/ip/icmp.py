"""Every ICMP error we send, byte by byte, and about what none may be sent (RFC 792, 1191, 1812 §4.3.2, 4443).

Not here: Parameter Problem, since a router answers no packet that fails header validation (RFC 1812 §4.3.2.7) and
processes no extension header or option itself; Source Quench (RFC 1812 §4.3.3.3); and RFC 4884 extensions, so the
length field of the quote is always 0.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from qtunnel.ip.address import is_martian_source, is_multicast
from qtunnel.ip.checksum import internet_checksum, pseudo_header6
from qtunnel.ip.header import (
    ICMP,
    ICMPV6,
    IPV4_HEADER_LENGTH,
    IPV6_HEADER_LENGTH,
    IPV6_MIN_MTU,
    IpHeader,
    build_ipv4_header,
    build_ipv6_header,
)

__all__ = ["build_icmp6", "is_answerable", "packet_too_big", "time_exceeded", "unreachable"]

MAX_ERROR4: Final = 576
"""An IPv4 error quotes as much as fits into this, headers included (RFC 1812 §4.3.2.3)."""
MAX_ERROR6: Final = IPV6_MIN_MTU
"""The same for IPv6 (RFC 4443 §2.4 c)."""
_ERROR_HEADER_LENGTH: Final = 8
_MAX_QUOTE4: Final = MAX_ERROR4 - IPV4_HEADER_LENGTH - _ERROR_HEADER_LENGTH
_MAX_QUOTE6: Final = MAX_ERROR6 - IPV6_HEADER_LENGTH - _ERROR_HEADER_LENGTH

_UNREACHABLE4: Final = 3
_TIME_EXCEEDED4: Final = 11
_FRAGMENTATION_NEEDED: Final = 4
_NOT_ANSWERED4: Final = frozenset((3, 4, 5, 11, 12, None))
"""Unreachable, Source Quench, Redirect, Time Exceeded, Parameter Problem (RFC 1122 §3.2.2), and no type at all."""

_UNREACHABLE6: Final = 1
_PACKET_TOO_BIG6: Final = 2
_TIME_EXCEEDED6: Final = 3
_FIRST_INFORMATIONAL6: Final = 128
_REDIRECT6: Final = 137

_MIN_MTU4: Final = 68
"""No IPv4 path has a smaller MTU (RFC 1191 §3)."""

_ERROR: Final = Struct(">BBHI")
_INTERNETWORK_CONTROL: Final = 0xC0


def unreachable(packet: bytes, code: int, source: bytes) -> bytes:
    """Return a Destination Unreachable about packet, in its family. code: of that family.

    Here and below packet is valid and as it arrived, and source is our packed address of the same family.
    """
    if packet[0] >> 4 == 4:
        return _error4(packet, _UNREACHABLE4, code, 0, source)
    return _error6(packet, _UNREACHABLE6, code, 0, source)


def packet_too_big(packet: bytes, mtu: int, source: bytes) -> bytes:
    """Return a Fragmentation Needed (RFC 1191 §4) or a Packet Too Big (RFC 4443 §3.2).

    mtu: the largest IP packet that fits, in bytes. What is said is never below the family's minimum, 68 or 1280.
    """
    if packet[0] >> 4 == 4:
        # The low half of a word whose high half is unused, so it must not grow into that.
        next_hop_mtu = min(max(mtu, _MIN_MTU4), 0xFFFF)
        return _error4(packet, _UNREACHABLE4, _FRAGMENTATION_NEEDED, next_hop_mtu, source)
    return _error6(packet, _PACKET_TOO_BIG6, 0, max(mtu, IPV6_MIN_MTU), source)


def time_exceeded(packet: bytes, source: bytes) -> bytes:
    """Return a Time Exceeded, hop limit exceeded in transit."""
    if packet[0] >> 4 == 4:
        return _error4(packet, _TIME_EXCEEDED4, 0, 0, source)
    return _error6(packet, _TIME_EXCEEDED6, 0, 0, source)


def is_answerable(packet: bytes, header: IpHeader, *, too_big: bool = False) -> bool:
    """Return whether any ICMP error may be sent about this packet.

    Never about another error, a fragment other than the first, or anything from an address that is no single
    host's; nor about what went to a multicast group, unless too_big and IPv6 (RFC 1812 §4.3.2.7, RFC 4443 §2.4 e).
    """
    if header.fragment_offset > 0 or is_martian_source(header.source):
        return False
    if header.version == 4:
        # 224/4 are groups, and of 240/4 only broadcast is ever seen.
        return header.destination[0] < 224 and not (
            header.protocol == ICMP and _icmp_type(packet, header) in _NOT_ANSWERED4
        )
    if is_multicast(header.destination) and not too_big:
        return False
    if header.protocol != ICMPV6:
        return True
    icmp_type = _icmp_type(packet, header)
    return icmp_type is not None and icmp_type >= _FIRST_INFORMATIONAL6 and icmp_type != _REDIRECT6


def build_icmp6(message: bytes, *, source: bytes, destination: bytes, traffic_class: int = 0) -> bytes:
    """Return an IPv6 packet around an ICMPv6 message whose checksum field is zero, which is filled in (§2.3)."""
    pseudo_header = pseudo_header6(source, destination, len(message), ICMPV6)
    checksum = internet_checksum(pseudo_header + message).to_bytes(2, "big")
    header = build_ipv6_header(
        source=source,
        destination=destination,
        protocol=ICMPV6,
        payload_length=len(message),
        traffic_class=traffic_class,
    )
    return b"%b%b%b%b" % (header, message[:2], checksum, message[4:])


def _error4(packet: bytes, icmp_type: int, code: int, word: int, source: bytes) -> bytes:
    """word: bytes 4 to 7 of the message. Network control precedence, the packet's other DSCP bits, Not-ECT."""
    quote = packet[:_MAX_QUOTE4]
    checksum = internet_checksum(_ERROR.pack(icmp_type, code, 0, word) + quote)
    header = build_ipv4_header(
        source=source,
        destination=packet[12:16],
        protocol=ICMP,
        payload_length=_ERROR_HEADER_LENGTH + len(quote),
        tos=_INTERNETWORK_CONTROL | (packet[1] & 0x1C),
    )
    return header + _ERROR.pack(icmp_type, code, checksum, word) + quote


def _error6(packet: bytes, icmp_type: int, code: int, word: int, source: bytes) -> bytes:
    message = _ERROR.pack(icmp_type, code, 0, word) + packet[:_MAX_QUOTE6]
    return build_icmp6(message, source=source, destination=packet[8:24])


def _icmp_type(packet: bytes, header: IpHeader) -> int | None:
    """Return the type behind all headers; None if the packet ends before it."""
    return packet[header.header_length] if len(packet) > header.header_length else None
