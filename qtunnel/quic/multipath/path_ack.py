"""PATH_ACK: an ACK that names the path whose packets it acknowledges (RFC 10069 §4.1).

It is not ack-eliciting. Its layout is ACK's with the path id behind the type, so the ranges are read by the same
code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioquic.buffer import encode_uint_var
from aioquic.quic.packet import QuicErrorCode

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.ack_frames import ACK, ACK_ECN, decode_ack, decode_varint, encode_ack
from qtunnel.quic.multipath.code_points import MAX_PATH_ID, FrameType

__all__ = ["AckFrame", "decode_any_ack", "encode_path_ack"]

AckFrame = tuple[int, list[tuple[int, int]], float, tuple[int, int, int] | None, int]
"""(path id, ranges highest first, ACK delay in seconds, ECN counts if any, where the frame ends)."""

_TYPE_BYTES: Final = {b"\x02": b"\x3e", b"\x03": b"\x3f"}


def encode_path_ack(
    path_id: int,
    ranges: Sequence[tuple[int, int]],
    delay: float,
    *,
    exponent: int = 3,
    ecn: Sequence[int] | None = None,
) -> bytes:
    """Return a PATH_ACK frame; arguments as encode_ack's."""
    frame = encode_ack(ranges, delay, exponent=exponent, ecn=ecn)
    return _TYPE_BYTES[frame[:1]] + encode_uint_var(path_id) + frame[1:]


def decode_any_ack(data: bytes, at: int, *, exponent: int) -> AckFrame:
    """Return what an ACK or PATH_ACK frame says; ACK means path 0 (RFC 10069 §2.3). at: of its type, one byte.

    Raises: ValueError for a frame that is cut short or has ranges below zero (FRAME_ENCODING_ERROR);
    PeerProtocolError for a path id no connection can have.
    """
    kind = data[at]
    if kind in (ACK, ACK_ECN):
        return (0, *decode_ack(data, at, exponent=exponent))
    if kind not in (FrameType.PATH_ACK, FrameType.PATH_ACK_ECN):
        raise ValueError(f"frame type {kind:#x} acknowledges nothing")
    path_id, body = decode_varint(data, at + 1)
    if path_id > MAX_PATH_ID:
        raise PeerProtocolError(
            f"an acknowledgment for path {path_id}", error_code=QuicErrorCode.PROTOCOL_VIOLATION
        )
    has_ecn = kind == FrameType.PATH_ACK_ECN
    ranges, delay, ecn, end = decode_ack(data, body - 1, exponent=exponent, has_ecn=has_ecn)
    return path_id, ranges, delay, ecn, end
