"""IPv4 and IPv6 headers by offset: parse, build, and lower the hop limit (RFC 791, RFC 8200).

A packet is valid if a router would forward it (RFC 1812 §5.2.2) and it is exactly as long as its header says. A
link layer may pad, a CONNECT-IP payload may not: it is one whole IP packet to its last byte (RFC 9484 §6). So
bytes behind the end mean that something is wrong, and the packet is malformed, not trimmed.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from qtunnel.errors import LocalProtocolError, MalformedPacketError
from qtunnel.ip.checksum import internet_checksum, update_checksum

__all__ = [
    "ICMP",
    "ICMPV6",
    "IPV4_HEADER_LENGTH",
    "IPV6_HEADER_LENGTH",
    "IPV6_MIN_MTU",
    "MAX_EXTENSION_HEADERS",
    "IpHeader",
    "build_ipv4_header",
    "build_ipv6_header",
    "decrement_hop_limit",
    "destination",
    "parse_header",
    "source",
]

IPV4_HEADER_LENGTH: Final = 20
IPV6_HEADER_LENGTH: Final = 40
IPV6_MIN_MTU: Final = 1280
"""No IPv6 link has a smaller MTU (RFC 8200 §5)."""

ICMP: Final = 1
ICMPV6: Final = 58
_HOP_BY_HOP: Final = 0
_ROUTING: Final = 43
_FRAGMENT: Final = 44
_AUTHENTICATION: Final = 51
_DESTINATION_OPTIONS: Final = 60
_EXTENSION_HEADERS: Final = frozenset((_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION_OPTIONS))
"""What is walked past. ESP hides what follows, so it ends the walk, as does every number not listed here."""

MAX_EXTENSION_HEADERS: Final = 16
"""RFC 8200 §4.1 knows an order of seven; a longer chain than this is an attack, and malformed."""

DEFAULT_HOP_LIMIT: Final = 64

_IPV4: Final = Struct(">BBHHHBBH4s4s")
_IPV6: Final = Struct(">IHBB16s16s")


@dataclass(slots=True)
class IpHeader:
    """What forwarding needs to know about one packet. Lengths and offsets in bytes, addresses packed.

    protocol: the first number that is no IPv6 extension header (RFC 9484 §4.8); in a fragment other than the first
    the chain cannot be followed further, so there it may be an extension header's number. header_length: where the
    bytes of that protocol begin. dont_fragment: True for every IPv6 packet. fragment_offset, more_fragments,
    identification: of IPv4 or of the Fragment header. has_routing_header_0: RFC 5095.
    """

    version: int
    header_length: int
    total_length: int
    protocol: int
    source: bytes
    destination: bytes
    hop_limit: int
    dont_fragment: bool
    fragment_offset: int = 0
    more_fragments: bool = False
    identification: int = 0
    has_routing_header_0: bool = False

    @property
    def is_fragment(self) -> bool:
        """Whether this is only part of a packet."""
        return self.more_fragments or self.fragment_offset > 0


def parse_header(packet: bytes) -> IpHeader:
    """Return the header fields of a whole packet.

    Raises: MalformedPacketError unless a router would forward these bytes (see the module's text).
    """
    if not packet:
        raise MalformedPacketError("an empty packet")
    version = packet[0] >> 4
    if version == 4:
        return _parse_ipv4(packet)
    if version == 6:
        return _parse_ipv6(packet)
    raise MalformedPacketError(f"IP version {version}, not 4 or 6")


def source(packet: bytes) -> bytes:
    """Return the packed source address, 4 or 16 bytes, looking at nothing else; b"" if there is none."""
    if len(packet) >= IPV4_HEADER_LENGTH:
        version = packet[0] >> 4
        if version == 4:
            return packet[12:16]
        if version == 6 and len(packet) >= IPV6_HEADER_LENGTH:
            return packet[8:24]
    return b""


def destination(packet: bytes) -> bytes:
    """Return the packed destination address, 4 or 16 bytes, looking at nothing else; b"" if there is none.

    For looking up whose packet this is before anybody has checked it: no bytes make it raise.
    """
    if len(packet) >= IPV4_HEADER_LENGTH:
        version = packet[0] >> 4
        if version == 4:
            return packet[16:20]
        if version == 6 and len(packet) >= IPV6_HEADER_LENGTH:
            return packet[24:40]
    return b""


def decrement_hop_limit(packet: bytes) -> bytes:
    """Return a copy of a valid packet with its TTL or Hop Limit lowered by one, and the IPv4 checksum to match.

    The checksum is updated, not recomputed: it stays right over all IHL * 4 bytes, options included.

    Raises: LocalProtocolError if there is nothing left to lower; the caller answers with Time Exceeded instead.
    """
    if packet[0] >> 4 == 6:
        if packet[7] == 0:
            raise LocalProtocolError("the hop limit is 0 already")
        return b"%b%c%b" % (packet[:7], packet[7] - 1, packet[8:])
    if packet[8] == 0:
        raise LocalProtocolError("the TTL is 0 already")
    old = packet[8] << 8 | packet[9]
    checksum = update_checksum(packet[10] << 8 | packet[11], old, old - 0x100)
    return b"%b%b%b%b" % (packet[:8], (old - 0x100).to_bytes(2, "big"), checksum.to_bytes(2, "big"), packet[12:])


def build_ipv4_header(
    *,
    source: bytes,
    destination: bytes,
    protocol: int,
    payload_length: int,
    tos: int = 0,
    identification: int = 0,
    dont_fragment: bool = True,
) -> bytes:
    """Return a header of 20 bytes with its checksum, for a packet of our own: TTL 64, no options.

    With dont_fragment the identification means nothing and may be 0 (RFC 6864 §4.1).
    """
    header = _IPV4.pack(
        0x45,
        tos,
        IPV4_HEADER_LENGTH + payload_length,
        identification,
        0x4000 if dont_fragment else 0,
        DEFAULT_HOP_LIMIT,
        protocol,
        0,
        source,
        destination,
    )
    return header[:10] + internet_checksum(header).to_bytes(2, "big") + header[12:]


def build_ipv6_header(
    *, source: bytes, destination: bytes, protocol: int, payload_length: int, traffic_class: int = 0
) -> bytes:
    """Return a header of 40 bytes for a packet of our own: Hop Limit 64, no flow label."""
    first = 6 << 28 | traffic_class << 20
    return _IPV6.pack(first, payload_length, protocol, DEFAULT_HOP_LIMIT, source, destination)


def _parse_ipv4(packet: bytes) -> IpHeader:
    """Make the five checks of RFC 1812 §5.2.2, in its order, and the exact length."""
    length = len(packet)
    if length < IPV4_HEADER_LENGTH:
        raise MalformedPacketError(f"an IPv4 packet of {length} bytes, less than a header's 20")
    first, _, total_length, identification, flags, ttl, protocol, _, source, destination = _IPV4.unpack_from(
        packet
    )
    header_length = (first & 0x0F) * 4
    if not IPV4_HEADER_LENGTH <= header_length <= length:
        raise MalformedPacketError(f"IPv4 header length {header_length}, not 20 to {length}")
    if internet_checksum(packet[:header_length]) != 0:
        raise MalformedPacketError("a wrong IPv4 header checksum")
    if total_length != length:
        raise MalformedPacketError(f"IPv4 total length {total_length}, but {length} bytes")
    offset = (flags & 0x1FFF) * 8
    # A fragment that ends past the largest packet can't be reassembled, only overflow somebody's buffer.
    if offset + length > 0xFFFF:
        raise MalformedPacketError(f"an IPv4 fragment up to byte {offset + length}, past 65535")
    return IpHeader(
        version=4,
        header_length=header_length,
        total_length=total_length,
        protocol=protocol,
        source=source,
        destination=destination,
        hop_limit=ttl,
        dont_fragment=flags & 0x4000 != 0,
        fragment_offset=offset,
        more_fragments=flags & 0x2000 != 0,
        identification=identification,
    )


def _parse_ipv6(packet: bytes) -> IpHeader:
    length = len(packet)
    if length < IPV6_HEADER_LENGTH:
        raise MalformedPacketError(f"an IPv6 packet of {length} bytes, less than a header's 40")
    _, payload_length, next_header, hop_limit, source, destination = _IPV6.unpack_from(packet)
    if IPV6_HEADER_LENGTH + payload_length != length:
        # A jumbogram's payload length is 0 (RFC 2675); none fits into a datagram, so none is let through.
        raise MalformedPacketError(f"IPv6 payload length {payload_length}, but {length} bytes")
    header = IpHeader(
        version=6,
        header_length=IPV6_HEADER_LENGTH,
        total_length=length,
        protocol=next_header,
        source=source,
        destination=destination,
        hop_limit=hop_limit,
        dont_fragment=True,
    )
    if next_header in _EXTENSION_HEADERS:
        _walk_extension_headers(packet, header)
    return header


def _walk_extension_headers(packet: bytes, header: IpHeader) -> None:
    """Follow the chain and complete header with what it says (RFC 8200 §4)."""
    seen_fragment = False
    for _ in range(MAX_EXTENSION_HEADERS):
        kind, offset = header.protocol, header.header_length
        size = _extension_header_length(packet, kind, offset)
        if kind == _HOP_BY_HOP and offset != IPV6_HEADER_LENGTH:
            raise MalformedPacketError(f"Hop-by-Hop Options at byte {offset}, not first (RFC 8200 §4.1)")
        if kind == _ROUTING and packet[offset + 2] == 0:
            header.has_routing_header_0 = True
        header.protocol = packet[offset]
        header.header_length = offset + size
        if kind == _FRAGMENT:
            if seen_fragment:
                raise MalformedPacketError(f"a second Fragment header at byte {offset}")
            seen_fragment = True
            _read_fragment_header(packet, offset, header)
            if header.fragment_offset > 0:
                return
        if header.protocol not in _EXTENSION_HEADERS:
            return
    raise MalformedPacketError(f"more than {MAX_EXTENSION_HEADERS} IPv6 extension headers")


def _extension_header_length(packet: bytes, kind: int, offset: int) -> int:
    """Return the length in bytes of the extension header at offset, which lies wholly inside the packet."""
    left = len(packet) - offset
    size = 8  # the least any has; always that for the Fragment header
    if left >= size:
        if kind == _AUTHENTICATION:
            size = (packet[offset + 1] + 2) * 4  # counted in other units than the rest (RFC 4302 §2.2)
            if size < 12:
                raise MalformedPacketError(f"an Authentication Header of {size} bytes, less than 12")
        elif kind != _FRAGMENT:
            size = (packet[offset + 1] + 1) * 8
    if size > left:
        raise MalformedPacketError(f"IPv6 extension header {kind} at byte {offset}: {size} bytes, {left} left")
    return size


def _read_fragment_header(packet: bytes, offset: int, header: IpHeader) -> None:
    """Complete header from the Fragment header at offset (RFC 8200 §4.5)."""
    word = packet[offset + 2] << 8 | packet[offset + 3]
    header.fragment_offset = word & 0xFFF8
    header.more_fragments = word & 1 != 0
    header.identification = int.from_bytes(packet[offset + 4 : offset + 8], "big")
    end = header.fragment_offset + len(packet) - header.header_length
    if end > 0xFFFF:
        raise MalformedPacketError(f"an IPv6 fragment up to byte {end}, past 65535")
