"""Variable-length integers (RFC 9000 §16): the two high bits of the first byte say 1, 2, 4 or 8 bytes."""

from __future__ import annotations

from typing import Final

from qtunnel.errors import LocalProtocolError

__all__ = ["MAX_VARINT", "MAX_VARINT_LENGTH", "decode_varint", "encode_varint"]

MAX_VARINT: Final = (1 << 62) - 1
MAX_VARINT_LENGTH: Final = 8
"""Bytes of the longest encoding."""


def encode_varint(value: int) -> bytes:
    """Return value in the shortest of the four encodings.

    Raises:
        LocalProtocolError: value is outside 0 to MAX_VARINT.
    """
    if not 0 <= value <= MAX_VARINT:
        raise LocalProtocolError(f"{value} is no variable-length integer (0 to 2^62 - 1)")
    if value < 1 << 6:
        return value.to_bytes(1, "big")
    if value < 1 << 14:
        return (value | 1 << 14).to_bytes(2, "big")
    if value < 1 << 30:
        return (value | 2 << 30).to_bytes(4, "big")
    return (value | 3 << 62).to_bytes(8, "big")


def decode_varint(data: bytes, offset: int = 0) -> tuple[int, int] | None:
    """Return (value, offset behind it), or None while data ends before the integer does.

    Longer encodings than needed are accepted: only QUIC's frame types must be minimal.
    """
    if offset >= len(data):
        return None
    first = data[offset]
    if first < 0x40:
        return first, offset + 1
    end = offset + (1 << (first >> 6))
    if end > len(data):
        return None
    return int.from_bytes(data[offset:end], "big") & (1 << (8 * (end - offset) - 2)) - 1, end
