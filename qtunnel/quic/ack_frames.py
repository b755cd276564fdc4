"""ACK frames as ranges of packet numbers, both ways (RFC 9000 §19.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioquic.buffer import encode_uint_var

__all__ = ["ACK", "ACK_ECN", "decode_ack", "decode_varint", "encode_ack"]

ACK: Final = 0x02
ACK_ECN: Final = 0x03
MAX_RANGES_READ: Final = 4096
"""Ranges taken from one frame; a packet of 1,500 bytes holds fewer than 800."""


def encode_ack(
    ranges: Sequence[tuple[int, int]], delay: float, *, exponent: int = 3, ecn: Sequence[int] | None = None
) -> bytes:
    """Return an ACK frame. ranges: (first, last), highest first, at least one. delay: seconds since the largest.

    ecn: counts of ECT(0), ECT(1), CE received so far; with them it is an ACK_ECN frame.
    """
    first, largest = ranges[0]
    parts = [
        b"\x02" if ecn is None else b"\x03",
        encode_uint_var(largest),
        encode_uint_var(max(0, int(delay * 1_000_000)) >> exponent),
        encode_uint_var(len(ranges) - 1),
        encode_uint_var(largest - first),
    ]
    smallest = first
    for first, last in ranges[1:]:
        parts.append(encode_uint_var(smallest - last - 2))
        parts.append(encode_uint_var(last - first))
        smallest = first
    if ecn is not None:
        parts += [encode_uint_var(count) for count in ecn]
    return b"".join(parts)


def decode_ack(
    data: bytes, at: int, *, exponent: int, has_ecn: bool | None = None
) -> tuple[list[tuple[int, int]], float, tuple[int, int, int] | None, int]:
    """Return (ranges highest first, ACK delay in seconds, ECN counts if any, where the frame ends).

    at: of the frame's type, one byte, which is ACK or ACK_ECN; or, with has_ecn given, of any byte before the
    ranges, which is not looked at.

    Raises: ValueError for a frame that is cut short or whose ranges go below zero.
    """
    if has_ecn is None:
        has_ecn = data[at] == ACK_ECN
    largest, at = decode_varint(data, at + 1)
    delay, at = decode_varint(data, at)
    count, at = decode_varint(data, at)
    length, at = decode_varint(data, at)
    if length > largest or count > MAX_RANGES_READ:
        raise ValueError("ACK ranges out of bounds")
    ranges = [(largest - length, largest)]
    smallest = largest - length
    for _ in range(count):
        gap, at = decode_varint(data, at)
        length, at = decode_varint(data, at)
        last = smallest - gap - 2
        smallest = last - length
        if smallest < 0:
            raise ValueError("ACK ranges below zero")
        ranges.append((smallest, last))
    ecn = None
    if has_ecn:
        ect0, at = decode_varint(data, at)
        ect1, at = decode_varint(data, at)
        ce, at = decode_varint(data, at)
        ecn = (ect0, ect1, ce)
    return ranges, (delay << exponent) / 1_000_000, ecn, at


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, where it ends) of the variable-length integer at a place (RFC 9000 §16).

    Raises: ValueError if the data end before it does.
    """
    if at >= len(data):
        raise ValueError("the frame is cut short")
    first = data[at]
    if first < 0x40:
        return first, at + 1
    size = 1 << (first >> 6)
    end = at + size
    if end > len(data):
        raise ValueError("the frame is cut short")
    return int.from_bytes(data[at:end]) & ((1 << (8 * size - 2)) - 1), end
