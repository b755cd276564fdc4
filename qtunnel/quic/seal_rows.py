"""Sealing packets of one size in place (RFC 9001 §5): rows of one buffer that is what a segmented send takes.

Headers, nonces and masks of all rows are made by numpy; what is left for each packet is one AEAD call. Buffer and
views are made once for each size, as making the views costs more than the sealing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from qtunnel.packet_run import PacketRun, Packets
from qtunnel.quic.per_thread import per_thread

__all__ = [
    "MAX_ROWS",
    "PACKET_NUMBER_SIZE",
    "SAMPLE_SIZE",
    "TAG_SIZE",
    "Masks",
    "SealRows",
    "seal_rows",
    "write_nonces",
]

TAG_SIZE: Final = 16
PACKET_NUMBER_SIZE: Final = 2
"""Bytes of the packet number we send, always: at most 2^15 packets may be unacknowledged (RFC 9000 §A.2)."""
SAMPLE_SIZE: Final = 16
MAX_ROWS: Final = 192
"""Packets sealed at once at most: about what one wake-up reads."""


class Masks(Protocol):
    """Makes header protection masks."""

    def masks(self, samples: bytes) -> bytes: ...  # noqa: D102 - see HeaderMask


class SealRows:
    """Rows for up to MAX_ROWS packets with a payload of payload_size bytes, behind a connection id of cid_size."""

    def __init__(self, payload_size: int, cid_size: int) -> None:
        head = 1 + cid_size + PACKET_NUMBER_SIZE
        size = head + payload_size + TAG_SIZE
        self._head = head
        self._size = size
        buffer = bytearray(MAX_ROWS * size)
        view = memoryview(buffer)
        starts = range(0, MAX_ROWS * size, size)
        self._view = view
        self._rows = np.frombuffer(buffer, dtype=np.uint8).reshape(MAX_ROWS, size)
        self._datas = [view[at + head : at + size - TAG_SIZE] for at in starts]
        self._heads = [view[at : at + head] for at in starts]
        self._outs = [view[at + head : at + size] for at in starts]
        nonces = bytearray(12 * MAX_ROWS)
        self._nonce_rows = np.frombuffer(nonces, dtype=np.uint8).reshape(MAX_ROWS, 12)
        self._nonces = [memoryview(nonces)[at : at + 12] for at in range(0, 12 * MAX_ROWS, 12)]

    def seal(
        self,
        mask: Masks,
        encrypt_into: Callable[..., Any],
        parts: Sequence[Packets],
        head: bytes,
        prefix: bytes,
        first: int,
        iv: int,
        together: int,
    ) -> list[bytes]:
        """Fill rows, encrypt in place, protect the headers; return a copy, of so many packets together.

        parts: packets of one size, in order; prefix + packet is a payload. head: what precedes the packet number.
        first: number of the first packet. iv: as a number, with the path id in it.
        """
        begin, end = self._head + len(prefix), self._size - TAG_SIZE
        count = 0
        for part in parts:
            run = PacketRun.of(part)
            self._rows[count : count + run.rows, begin:end] = run.array()
            count += run.rows
        rows, number_at = self._rows[:count], self._head - PACKET_NUMBER_SIZE
        numbers = np.arange(first, first + count, dtype=np.uint64)
        write_nonces(self._nonce_rows[:count], numbers, iv)
        rows[:, :begin] = np.frombuffer(head + bytes(PACKET_NUMBER_SIZE) + prefix, dtype=np.uint8)
        wire = numbers.astype(">u2").view(np.uint8).reshape(count, 2)
        rows[:, number_at : self._head] = wire
        deque(map(encrypt_into, self._nonces[:count], self._datas, self._heads, self._outs), 0)
        samples = rows[:, number_at + 4 : number_at + 4 + SAMPLE_SIZE].tobytes()
        masks = np.frombuffer(mask.masks(samples), dtype=np.uint8).reshape(count, SAMPLE_SIZE)
        rows[:, 0] ^= masks[:, 0] & 0x1F
        rows[:, number_at : self._head] ^= masks[:, 1:3]
        step, end = together * self._size, count * self._size
        return [bytes(self._view[at : min(at + step, end)]) for at in range(0, end, step)]


seal_rows: Final = per_thread(SealRows)
"""Returns the rows for payloads of one size behind a connection id of so many bytes."""


def write_nonces(rows: np.ndarray, numbers: np.ndarray, iv: int) -> None:
    """Write the nonces of packets (RFC 9001 §5.3). rows: 12 bytes each. iv: as a number, the path id in it."""
    rows[:, :4] = np.frombuffer((iv >> 64).to_bytes(4), dtype=np.uint8)
    low = np.uint64(iv & 0xFFFF_FFFF_FFFF_FFFF)
    rows[:, 4:] = (numbers ^ low).astype(">u8").view(np.uint8).reshape(len(numbers), 8)
