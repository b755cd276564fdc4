"""Cutting an IPv4 packet into fragments (RFC 791 §2.3, §3.2).

Done before encapsulation to a packet that may be fragmented, since the tunnel's own datagrams may not be
(RFC 1812 §4.2.2.7). IPv6 routers do not fragment.
"""

from __future__ import annotations

from typing import Final

from qtunnel.errors import LocalProtocolError, MalformedPacketError
from qtunnel.ip.checksum import internet_checksum
from qtunnel.ip.header import IPV4_HEADER_LENGTH, parse_header

__all__ = ["fragment_ipv4"]

_MORE_FRAGMENTS: Final = 0x2000
_END_OF_OPTIONS: Final = 0
_NO_OPERATION: Final = 1
_COPIED: Final = 0x80


def fragment_ipv4(packet: bytes, mtu: int) -> list[bytes]:
    """Return the fragments in order, none larger than mtu bytes; the packet itself if it is small enough.

    The packet may be a fragment itself. Options without the copied flag stay in the first fragment alone.

    Raises: MalformedPacketError if this is no valid packet or its options are none. LocalProtocolError if it may
    not be fragmented (IPv6, or DF), or mtu has no room for a header and 8 bytes.
    """
    header = parse_header(packet)
    if header.version != 4 or header.dont_fragment:
        raise LocalProtocolError("only an IPv4 packet without DF may be fragmented")
    length, header_length = len(packet), header.header_length
    if length <= mtu:
        return [packet]
    if mtu < header_length + 8:
        raise LocalProtocolError(f"an MTU of {mtu} bytes has no room for a header of {header_length} and 8 more")
    head = packet[:header_length]
    later_head = head
    if header_length > IPV4_HEADER_LENGTH:
        later_head = head[:IPV4_HEADER_LENGTH] + _copied_options(head[IPV4_HEADER_LENGTH:])
    fragments = []
    position, data_end = header_length, length
    while position < data_end:
        room = (mtu - len(head)) & ~7
        rest = data_end - position
        # The last piece need not be a multiple of 8 and may use all of the MTU.
        size = rest if rest <= mtu - len(head) else room
        more = position + size < data_end or header.more_fragments
        offset = (header.fragment_offset + position - header_length) // 8
        fragments.append(_piece(head, packet[position : position + size], offset, more=more))
        position += size
        head = later_head
    return fragments


def _piece(head: bytes, data: bytes, offset: int, *, more: bool) -> bytes:
    """Return one fragment: head with its lengths, its offset in units of 8 bytes, MF and checksum set."""
    flags = (head[6] & 0x80) << 8 | offset | (_MORE_FRAGMENTS if more else 0)
    first = 0x40 | len(head) // 4
    total = (len(head) + len(data)).to_bytes(2, "big")
    start = b"%c%c%b%b%b%b" % (first, head[1], total, head[4:6], flags.to_bytes(2, "big"), head[8:10])
    checksum = internet_checksum(start + b"\x00\x00" + head[12:]).to_bytes(2, "big")
    return b"%b%b%b%b" % (start, checksum, head[12:], data)


def _copied_options(options: bytes) -> bytes:
    """Return the options every fragment carries, padded to a multiple of 4 bytes."""
    copied = b""
    position = 0
    while position < len(options) and options[position] != _END_OF_OPTIONS:
        kind = options[position]
        if kind == _NO_OPERATION:
            position += 1
            continue
        size = options[position + 1] if position + 1 < len(options) else 0
        if not 2 <= size <= len(options) - position:
            raise MalformedPacketError(f"IPv4 option {kind} of {size} bytes, {len(options) - position} left")
        if kind & _COPIED:
            copied += options[position : position + size]
        position += size
    return copied + bytes(-len(copied) % 4)
