"""What an address alone says about a packet: who can have sent it, and whether it may leave its link.

Addresses are packed: 4 bytes are IPv4, 16 are IPv6.
"""

from __future__ import annotations

from typing import Final

__all__ = ["is_link_local", "is_martian_destination", "is_martian_source", "is_multicast"]

_NEVER_ON_A_WIRE6: Final = (bytes(12), bytes(10) + b"\xff\xff")
"""::/96, in which :: and ::1 are, and ::ffff:0:0/96 (RFC 4291 §2.5)."""
_LIMITED_BROADCAST: Final = b"\xff\xff\xff\xff"


def is_martian_source(address: bytes) -> bool:
    """Return whether nobody can have this address: 0/8, 127/8, 224/4, 240/4; IPv6's like (RFC 1812 §5.3.7)."""
    if len(address) == 4:
        return address[0] in (0, 127) or address[0] >= 224
    return address[0] == 0xFF or address[:12] in _NEVER_ON_A_WIRE6


def is_martian_destination(address: bytes) -> bool:
    """Return whether no packet can be for this address: 0/8, 127/8, 240/4; IPv6's like (RFC 1812 §5.3.7)."""
    if len(address) == 4:
        return address[0] in (0, 127) or address[0] >= 240
    return address[:12] in _NEVER_ON_A_WIRE6


def is_multicast(address: bytes) -> bool:
    """Return whether this is a group: 224/4 or ff00::/8."""
    return address[0] == 0xFF if len(address) == 16 else address[0] >> 4 == 0xE


def is_link_local(address: bytes) -> bool:
    """Return whether this address has a meaning on one link only, so that no router forwards it (RFC 9484 §7.2).

    169.254/16, 224.0.0/24 and 255.255.255.255 (RFC 3927 §2.7, RFC 5771 §4); fe80::/10 and multicast of a scope up
    to link-local (RFC 4291 §2.5.6, §2.7).
    """
    if len(address) == 4:
        return address[:2] == b"\xa9\xfe" or address[:3] == b"\xe0\x00\x00" or address == _LIMITED_BROADCAST
    if address[0] == 0xFF:
        return address[1] & 0x0F <= 2
    return address[0] == 0xFE and address[1] >> 6 == 2
