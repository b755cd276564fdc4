"""GOAWAY frames of the peer's control stream (RFC 9114 §5.2, §7.2.6), which aioquic skips.

Reads the same bytes as aioquic does, keeps nothing but the frame header and a GOAWAY payload being received.
"""

from __future__ import annotations

from typing import Final

from aioquic.h3.connection import FrameError, IdError

__all__ = ["ControlStreamReader"]

GOAWAY: Final = 0x07


class ControlStreamReader:
    """Finds GOAWAY in the bytes of a control stream.

    goaway: the identifier of the latest one, None before the first. What the identifier means is the reader's
    user's business; that it must not grow is checked here.
    """

    def __init__(self) -> None:
        self.goaway: int | None = None
        self._buffer = b""
        self._skip = 0
        self._type_is_read = False

    def receive(self, data: bytes) -> None:
        """Read the stream's next bytes, its type first.

        Raises: FrameError or IdError (aioquic's), each a connection error, for a wrong GOAWAY.
        """
        self._buffer += data
        while self._buffer:
            if self._skip:
                skipped = min(self._skip, len(self._buffer))
                self._buffer = self._buffer[skipped:]
                self._skip -= skipped
            elif not self._read_one():
                return

    def _read_one(self) -> bool:
        """Read the stream type or one frame's header (and a GOAWAY's payload); False if bytes are missing."""
        first = _pull_varint(self._buffer, 0)
        if first is None:
            return False
        value, end = first
        if not self._type_is_read:
            self._type_is_read = True
            self._buffer = self._buffer[end:]
            return True
        second = _pull_varint(self._buffer, end)
        if second is None:
            return False
        length, end = second
        if value != GOAWAY:
            self._skip = length
        elif length > 8:
            raise FrameError("GOAWAY has trailing data")
        elif len(self._buffer) < end + length:
            return False
        else:
            self._read_goaway(self._buffer[end : end + length])
            end += length
        self._buffer = self._buffer[end:]
        return True

    def _read_goaway(self, payload: bytes) -> None:
        identifier = _pull_varint(payload, 0)
        if identifier is None or identifier[1] != len(payload):
            raise FrameError("GOAWAY is not one identifier")
        if self.goaway is not None and identifier[0] > self.goaway:
            raise IdError("GOAWAY raised its identifier")
        self.goaway = identifier[0]


def _pull_varint(data: bytes, start: int) -> tuple[int, int] | None:
    """Return (value, end) of the variable-length integer at start, or None if it is cut off."""
    if start >= len(data):
        return None
    width = 1 << (data[start] >> 6)
    end = start + width
    if end > len(data):
        return None
    return int.from_bytes(data[start:end], "big") & ((1 << (8 * width - 2)) - 1), end
