"""Frames of the multipath extension as values, both ways (RFC 10069 §4); PATH_ACK is in path_ack.py.

NEW_CONNECTION_ID and RETIRE_CONNECTION_ID of RFC 9000 mean path 0 (RFC 10069 §3.2), so they are read into the same
values; for path 0 they are also what is written, as every peer knows them.

Fields that no frame can have are refused here, with the code to close the connection with; what depends on the
connection's state is refused by those who keep it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aioquic.buffer import encode_uint_var
from aioquic.quic.packet import QuicErrorCode

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.ack_frames import decode_varint
from qtunnel.quic.multipath.code_points import MAX_PATH_ID, FrameType, is_multipath_frame

__all__ = [
    "Frame",
    "MaxPathId",
    "NewConnectionId",
    "PathAbandon",
    "PathCidsBlocked",
    "PathStatus",
    "PathsBlocked",
    "RetireConnectionId",
    "check_packet_type",
    "decode_frame",
    "encode_frame",
]

NEW_CONNECTION_ID: Final = 0x18
RETIRE_CONNECTION_ID: Final = 0x19
MAX_CONNECTION_ID_SIZE: Final = 20
RESET_TOKEN_SIZE: Final = 16


class PathAbandon(NamedTuple):
    """PATH_ABANDON (RFC 10069 §4.2). error_code: one of PathError, or another the peer chose."""

    path_id: int
    error_code: int


class PathStatus(NamedTuple):
    """PATH_STATUS_BACKUP or PATH_STATUS_AVAILABLE (RFC 10069 §4.3), which share their sequence numbers."""

    path_id: int
    sequence: int
    is_backup: bool


class NewConnectionId(NamedTuple):
    """PATH_NEW_CONNECTION_ID (RFC 10069 §4.4), for path 0 NEW_CONNECTION_ID. reset_token: 16 bytes."""

    path_id: int
    sequence: int
    retire_prior_to: int
    connection_id: bytes
    reset_token: bytes


class RetireConnectionId(NamedTuple):
    """PATH_RETIRE_CONNECTION_ID (RFC 10069 §4.5), for path 0 RETIRE_CONNECTION_ID."""

    path_id: int
    sequence: int


class MaxPathId(NamedTuple):
    """MAX_PATH_ID (RFC 10069 §4.6). maximum: the largest path id, not a number of paths."""

    maximum: int


class PathsBlocked(NamedTuple):
    """PATHS_BLOCKED (RFC 10069 §4.7). maximum: the limit its sender sees."""

    maximum: int


class PathCidsBlocked(NamedTuple):
    """PATH_CIDS_BLOCKED (RFC 10069 §4.7). next_sequence: of the connection id its sender expects next."""

    path_id: int
    next_sequence: int


Frame = (
    PathAbandon | PathStatus | NewConnectionId | RetireConnectionId | MaxPathId | PathsBlocked | PathCidsBlocked
)


def encode_frame(frame: Frame) -> bytes:
    """Return the bytes of a frame, its type first."""
    if isinstance(frame, NewConnectionId):
        path_id, sequence, retire_prior_to, connection_id, token = frame
        head = _head(FrameType.PATH_NEW_CONNECTION_ID, NEW_CONNECTION_ID, path_id)
        numbers = head + encode_uint_var(sequence) + encode_uint_var(retire_prior_to)
        return b"%b%c%b%b" % (numbers, len(connection_id), connection_id, token)
    if isinstance(frame, RetireConnectionId):
        head = _head(FrameType.PATH_RETIRE_CONNECTION_ID, RETIRE_CONNECTION_ID, frame.path_id)
        return head + encode_uint_var(frame.sequence)
    if isinstance(frame, PathStatus):
        kind = FrameType.PATH_STATUS_BACKUP if frame.is_backup else FrameType.PATH_STATUS_AVAILABLE
        return encode_uint_var(kind) + encode_uint_var(frame.path_id) + encode_uint_var(frame.sequence)
    return encode_uint_var(_TYPE_OF[type(frame)]) + b"".join(map(encode_uint_var, frame))


def decode_frame(data: bytes, at: int = 0) -> tuple[Frame, int]:
    """Return the frame at a place and where it ends; at is of its type, which is one of those above.

    Raises: PeerProtocolError for what is no whole, valid frame; close the connection with its code.
    """
    start = at
    try:
        kind, at = decode_varint(data, at)
        if at - start != len(encode_uint_var(kind)):
            raise PeerProtocolError(
                f"frame type {kind:#x} is not in its shortest encoding",
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
            )  # RFC 9000 §12.4
        if kind in (NEW_CONNECTION_ID, FrameType.PATH_NEW_CONNECTION_ID):
            return _decode_new_connection_id(data, at, kind)
        if kind in (RETIRE_CONNECTION_ID, FrameType.PATH_RETIRE_CONNECTION_ID):
            path_id, at = (0, at) if kind == RETIRE_CONNECTION_ID else _decode_path_id(data, at)
            sequence, at = decode_varint(data, at)
            return RetireConnectionId(path_id, sequence), at
        return _decode_plain(data, at, kind)
    except ValueError as error:
        raise PeerProtocolError(str(error), error_code=QuicErrorCode.FRAME_ENCODING_ERROR) from error


def check_packet_type(frame_type: int, *, is_one_rtt: bool, is_negotiated: bool) -> None:
    """Refuse a frame of this extension where it must not be (RFC 10069 §2 and §4).

    Raises: PeerProtocolError. Without the extension it is a frame like any unknown one (RFC 9000 §12.4).
    """
    if not is_multipath_frame(frame_type):
        return
    if not is_negotiated:
        raise PeerProtocolError(
            f"frame type {frame_type:#x} was not negotiated", error_code=QuicErrorCode.FRAME_ENCODING_ERROR
        )
    if not is_one_rtt:
        raise PeerProtocolError(
            f"frame type {frame_type:#x} outside 1-RTT packets", error_code=QuicErrorCode.PROTOCOL_VIOLATION
        )


_TYPE_OF: Final[dict[type, FrameType]] = {
    PathAbandon: FrameType.PATH_ABANDON,
    MaxPathId: FrameType.MAX_PATH_ID,
    PathsBlocked: FrameType.PATHS_BLOCKED,
    PathCidsBlocked: FrameType.PATH_CIDS_BLOCKED,
}


def _head(kind: FrameType, kind_of_path_0: int, path_id: int) -> bytes:
    if not path_id:
        return encode_uint_var(kind_of_path_0)
    return encode_uint_var(kind) + encode_uint_var(path_id)


def _decode_plain(data: bytes, at: int, kind: int) -> tuple[Frame, int]:
    first, at = _decode_path_id(data, at)
    if kind == FrameType.MAX_PATH_ID:
        return MaxPathId(first), at
    if kind == FrameType.PATHS_BLOCKED:
        return PathsBlocked(first), at
    second, at = decode_varint(data, at)
    if kind == FrameType.PATH_ABANDON:
        return PathAbandon(first, second), at
    if kind == FrameType.PATH_CIDS_BLOCKED:
        return PathCidsBlocked(first, second), at
    if kind in (FrameType.PATH_STATUS_BACKUP, FrameType.PATH_STATUS_AVAILABLE):
        return PathStatus(first, second, kind == FrameType.PATH_STATUS_BACKUP), at
    raise ValueError(f"frame type {kind:#x} is none of this extension's")


def _decode_path_id(data: bytes, at: int) -> tuple[int, int]:
    path_id, at = decode_varint(data, at)
    if path_id > MAX_PATH_ID:
        # Above any limit that can have been announced (RFC 10069 §4, §4.6).
        raise PeerProtocolError(
            f"path id {path_id}, {MAX_PATH_ID} is the largest there can be",
            error_code=QuicErrorCode.PROTOCOL_VIOLATION,
        )
    return path_id, at


def _decode_new_connection_id(data: bytes, at: int, kind: int) -> tuple[NewConnectionId, int]:
    path_id, at = (0, at) if kind == NEW_CONNECTION_ID else _decode_path_id(data, at)
    sequence, at = decode_varint(data, at)
    retire_prior_to, at = decode_varint(data, at)
    if retire_prior_to > sequence:
        raise ValueError(f"Retire Prior To {retire_prior_to} is above its own sequence number {sequence}")
    if at >= len(data):
        raise ValueError("the frame is cut short")
    size, at = data[at], at + 1
    if not 1 <= size <= MAX_CONNECTION_ID_SIZE:
        raise ValueError(f"a connection id of {size} bytes, 1 to {MAX_CONNECTION_ID_SIZE} are allowed")
    end = at + size + RESET_TOKEN_SIZE
    if end > len(data):
        raise ValueError("the frame is cut short")
    return NewConnectionId(path_id, sequence, retire_prior_to, data[at : at + size], data[at + size : end]), end
