"""The Internet checksum (RFC 1071), its incremental update (RFC 1624), and the IPv6 pseudo-header (RFC 8200 §8.1).

One's complement addition of 16-bit words is addition modulo 65535, and 65536 is 1 modulo 65535; so a whole buffer
read as one big number, modulo 65535, is the sum of its words. One division in C replaces a loop in Python.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

__all__ = ["internet_checksum", "pseudo_header6", "update_checksum"]

_PSEUDO_HEADER6: Final = Struct(">16s16sI3xB")


def internet_checksum(data: bytes) -> int:
    """Return the 16-bit checksum of data, padded with a zero byte if its length is odd (RFC 1071).

    The checksum field inside data is zero to compute one. Over data with its right checksum the result is 0.
    """
    number = int.from_bytes(data, "big")
    if len(data) & 1:
        number <<= 8
    # A remainder of 0 is the sum 0xFFFF, unless every byte was zero: one's complement has two zeros.
    total = number % 0xFFFF or (0xFFFF if number else 0)
    return 0xFFFF - total


def update_checksum(checksum: int, old: int, new: int) -> int:
    """Return checksum after one 16-bit word of the data went from old to new (RFC 1624 §3, equation 3)."""
    total = (checksum ^ 0xFFFF) + (old ^ 0xFFFF) + new
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def pseudo_header6(source: bytes, destination: bytes, length: int, protocol: int) -> bytes:
    """Return the 40 bytes that go before an upper-layer packet when its checksum is taken (RFC 8200 §8.1).

    length: bytes of the upper-layer packet. protocol: its number, whatever the IPv6 header's next header says.
    """
    return _PSEUDO_HEADER6.pack(source, destination, length, protocol)
