"""Capsules (RFC 9297 §3.2): type, length, value, one behind the other in the DATA frames of a request stream.

The parser takes the stream in pieces of any size and holds at most one value of a known type:

    unknown type               skipped as it arrives, nothing held (RFC 9297 §3.2: "silently")
    DATAGRAM above the bound   skipped as it arrives, and counted (RFC 9297 §3.5)
    other known type above it  refused with H3_EXCESSIVE_LOAD: an address list of that size is an attack
    end inside a capsule       malformed (RFC 9297 §3.3)

Nothing here waits for flow control: what is received is consumed at once, so a capsule larger than the stream's
window cannot stall.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from qtunnel.errors import PeerProtocolError
from qtunnel.masque.error_codes import HttpErrorCode
from qtunnel.masque.varint import MAX_VARINT_LENGTH, decode_varint, encode_varint

__all__ = ["MAX_CAPSULE_LENGTH", "Capsule", "CapsuleParser", "CapsuleType", "encode_capsule"]

MAX_CAPSULE_LENGTH: Final = 65536
"""Bytes of value a known capsule may have: a whole IP packet behind a Context ID of one byte fits exactly."""

MAX_HEAD_LENGTH: Final = 2 * MAX_VARINT_LENGTH


class CapsuleType(IntEnum):
    """The capsule types qtunnel knows (RFC 9297 §3.5, RFC 9484 §4.7)."""

    DATAGRAM = 0x00
    ADDRESS_ASSIGN = 0x01
    ADDRESS_REQUEST = 0x02
    ROUTE_ADVERTISEMENT = 0x03


KNOWN_TYPES: Final = frozenset(CapsuleType)


@dataclass(frozen=True, slots=True)
class Capsule:
    """One whole capsule of a known type."""

    type: CapsuleType
    value: bytes


def encode_capsule(capsule_type: int, value: bytes) -> bytes:
    """Return the capsule as it goes into DATA frames. Any type may be given, also one of an extension."""
    return encode_varint(capsule_type) + encode_varint(len(value)) + value


class CapsuleParser:
    """Cuts one request stream into capsules.

    max_length: bytes of value a known capsule may have. oversize_datagrams counts the DATAGRAM capsules skipped
    because of it.
    """

    def __init__(self, *, max_length: int = MAX_CAPSULE_LENGTH) -> None:
        self.oversize_datagrams = 0
        self._max_length = max_length
        self._head = bytearray()
        self._type: int | None = None
        self._value: bytearray | None = None  # None while the value is skipped
        self._left = 0  # bytes of value still to come

    @property
    def buffered(self) -> int:
        """Return how many bytes are held until more arrive, at most max_length or one head of 16 bytes."""
        return len(self._head) + len(self._value or b"")

    def receive_data(self, data: bytes) -> Iterator[Capsule]:
        """Yield the capsules of known types that data completes, in order.

        The iterator must be used up before more data is given; one left early loses the rest of data.

        Raises:
            PeerProtocolError: H3_EXCESSIVE_LOAD for a known capsule above the bound. The stream is unusable then.
        """
        offset = 0
        while offset < len(data):
            receive = self._receive_head if self._type is None else self._receive_value
            offset = receive(data, offset)
            if self._type is not None and self._left == 0:
                capsule = self._finished_capsule()
                if capsule is not None:
                    yield capsule

    def receive_end(self) -> None:
        """Note that the peer ended the stream.

        Raises:
            PeerProtocolError: H3_MESSAGE_ERROR, it did so inside a capsule (RFC 9297 §3.3).
        """
        if self._type is not None or self._head:
            raise PeerProtocolError("the stream ended inside a capsule", error_code=HttpErrorCode.H3_MESSAGE_ERROR)

    def _receive_head(self, data: bytes, offset: int) -> int:
        """Take type and length, which may come in pieces; return the offset behind what was taken."""
        held = len(self._head)
        head = bytes(self._head) + data[offset : offset + MAX_HEAD_LENGTH - held]
        first = decode_varint(head)
        second = None if first is None else decode_varint(head, first[1])
        if first is None or second is None:
            # Sixteen bytes always hold both, so all of data went into this head.
            self._head[:] = head
            return len(data)
        self._head.clear()
        self._type, self._left = first[0], second[0]
        self._value = bytearray() if self._is_wanted(self._type, self._left) else None
        return offset + second[1] - held

    def _is_wanted(self, capsule_type: int, length: int) -> bool:
        if capsule_type not in KNOWN_TYPES:
            return False
        if length <= self._max_length:
            return True
        if capsule_type == CapsuleType.DATAGRAM:
            self.oversize_datagrams += 1
            return False
        raise PeerProtocolError(
            f"{CapsuleType(capsule_type).name} capsule of {length} bytes, at most {self._max_length} are taken",
            error_code=HttpErrorCode.H3_EXCESSIVE_LOAD,
        )

    def _receive_value(self, data: bytes, offset: int) -> int:
        end = min(len(data), offset + self._left)
        if self._value is not None:
            self._value += data[offset:end]
        self._left -= end - offset
        return end

    def _finished_capsule(self) -> Capsule | None:
        capsule = None
        if self._type is not None and self._value is not None:
            capsule = Capsule(CapsuleType(self._type), bytes(self._value))
        self._type = self._value = None
        return capsule
