"""Opening a run of equal 1-RTT packets at once (RFC 9001 §5): what a peer's segmented sends arrive as.

Header protection, packet numbers and nonces are made by numpy over a two-dimensional array whose rows are the
packets; what is left for each packet is one AEAD call. A run is opened only if it is as runs are: one size, one
first byte, numbers that ascend. Anything else, a wrong tag among them, is for PacketKeys.open, packet by packet:
one bad packet never costs another. Both give the same (tests/unit/quic/test_run_opening.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from qtunnel.packet_run import PacketRun, Packets
from qtunnel.quic.packet_protection import PacketKeys
from qtunnel.quic.per_thread import per_thread
from qtunnel.quic.seal_rows import MAX_ROWS, SAMPLE_SIZE, TAG_SIZE, write_nonces

__all__ = ["OpenRows", "OpenedRun", "RunOpener", "equal_runs"]

PAYLOAD_AT: Final = 1
"""Where a payload begins in its row: an inner packet, behind three bytes of framing as a rule, then begins at an
even one, as numpy likes words to."""


class OpenedRun(NamedTuple):
    """A run without its protection. first_byte: of each packet. numbers: ascending, one for each payload."""

    first_byte: int
    numbers: np.ndarray
    payloads: PacketRun

    def stretches(self) -> list[tuple[int, int]]:
        """Return (first, count) of numbers without a gap, in order."""
        numbers = self.numbers
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 == len(numbers):
            return [(first, len(numbers))]
        starts = [0, *(np.flatnonzero(numbers[1:] - numbers[:-1] != 1) + 1).tolist(), len(numbers)]
        return [(int(numbers[start]), stop - start) for start, stop in pairwise(starts)]


def equal_runs(datagrams: Packets) -> Iterator[Packets]:
    """Divide a burst, in order, into runs of one size."""
    if isinstance(datagrams, PacketRun):
        for first in range(0, len(datagrams), MAX_ROWS):
            yield datagrams[first : first + MAX_ROWS]
        return
    start, size = 0, len(datagrams[0])
    for at, data in enumerate(datagrams):
        if len(data) != size or at - start == MAX_ROWS:
            yield datagrams[start:at]
            start, size = at, len(data)
    yield datagrams[start:] if start else datagrams


class OpenRows:
    """Rows for up to MAX_ROWS packets of size bytes with a header of head bytes, and for their payloads."""

    def __init__(self, size: int, head: int) -> None:
        self.payload_size = size - head - TAG_SIZE
        self.stride = (PAYLOAD_AT + self.payload_size + 1) // 2 * 2
        sealed, plain = bytearray(MAX_ROWS * size), bytearray(MAX_ROWS * self.stride)
        view, self._plain = memoryview(sealed), memoryview(plain)
        starts = range(0, MAX_ROWS * size, size)
        self.rows = np.frombuffer(sealed, dtype=np.uint8).reshape(MAX_ROWS, size)
        self.heads = [view[at : at + head] for at in starts]
        self.bodies = [view[at + head : at + size] for at in starts]
        begins = range(PAYLOAD_AT, PAYLOAD_AT + MAX_ROWS * self.stride, self.stride)
        self.outs = [self._plain[at : at + self.payload_size] for at in begins]
        nonces = bytearray(12 * MAX_ROWS)
        self.nonce_rows = np.frombuffer(nonces, dtype=np.uint8).reshape(MAX_ROWS, 12)
        self.nonces = [memoryview(nonces)[at : at + 12] for at in range(0, 12 * MAX_ROWS, 12)]

    def payloads(self, count: int) -> PacketRun:
        """Return a copy of the first payloads."""
        data = bytes(self._plain[: count * self.stride])
        return PacketRun(data, self.payload_size, count, start=PAYLOAD_AT, stride=self.stride)


_open_rows: Final = per_thread(OpenRows)


class RunOpener:
    """Opens runs that come to connection ids of cid_size bytes."""

    def __init__(self, cid_size: int) -> None:
        self._at = 1 + cid_size

    def open(self, keys: PacketKeys, run: PacketRun, expected: int, path_id: int = 0) -> OpenedRun | None:
        """Open short-header packets, at least 1 + cid_size + 4 + 16 bytes, at most MAX_ROWS; None if no plain run.

        expected: the lowest packet number that cannot have come before; all of a run are above. Nothing is counted
        and nothing changed where the result is None.
        """
        count, at = run.rows, self._at
        sent = run.array()
        samples = sent[:, at + 4 : at + 4 + SAMPLE_SIZE].tobytes()
        masks = np.frombuffer(keys.mask.masks(samples), dtype=np.uint8).reshape(count, SAMPLE_SIZE)
        first_bytes = (sent[:, 0] ^ (masks[:, 0] & 0x1F)).tobytes()
        first = first_bytes[0]
        if first_bytes.count(first) != count or (first >> 2 & 1) != keys.key_phase:
            return None
        width = (first & 3) + 1
        space = _open_rows(run.size, at + width)
        rows = space.rows[:count]
        rows[:] = sent
        rows[:, 0] = first
        rows[:, at : at + width] ^= masks[:, 1 : 1 + width]
        numbers = _numbers(rows[:, at : at + width], expected)
        if numbers is None:
            return None
        write_nonces(space.nonce_rows[:count], numbers.astype(np.uint64), keys.iv ^ path_id << 64)
        if not keys.decrypt_all(space.nonces[:count], space.bodies, space.heads, space.outs):
            return None
        return OpenedRun(first, numbers, space.payloads(count))


def _numbers(sent: np.ndarray, expected: int) -> np.ndarray | None:
    """Return full packet numbers from those sent (RFC 9000 §A.3), or None if they do not ascend from expected on.

    sent: bytes of the packet numbers, a row each.
    """
    width = sent.shape[1]
    truncated = sent[:, 0].astype(np.int64)
    for column in range(1, width):
        truncated = truncated << 8 | sent[:, column]
    window = 1 << 8 * width
    # The candidates of §A.3 that are new lie from expected up to half a window above.
    ahead = (truncated - expected) & (window - 1)
    if len(ahead) > 1 and not (ahead[1:] > ahead[:-1]).all():
        return None
    if ahead[-1] > window >> 1:
        return None
    numbers: np.ndarray = ahead + expected
    return numbers
