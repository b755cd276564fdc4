"""Opening a run of equal 1-RTT packets at once (RFC 9001 §5): what a peer's segmented sends arrive as.

Header protection, packet numbers and nonces are made by numpy over a two-dimensional array whose rows are the
packets; what is left for each packet is one AEAD call. A run is opened only if it is as runs are: one size, one
first byte, numbers that ascend. Anything else, a wrong tag among them, is for PacketKeys.open, packet by packet:
one bad packet never costs another. Both give the same (tests/unit/quic/test_run_opening.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from qtunnel.quic.packet_protection import SAMPLE_SIZE, PacketKeys

__all__ = ["OpenedRun", "equal_runs", "open_run"]


class OpenedRun(NamedTuple):
    """A run without its protection. first_byte: of each packet. numbers: ascending, one for each payload."""

    first_byte: int
    numbers: list[int]
    payloads: list[bytes]

    def stretches(self) -> list[tuple[int, int]]:
        """Return (first, count) of numbers without a gap, in order."""
        numbers = self.numbers
        first, last = numbers[0], numbers[-1]
        if last - first + 1 == len(numbers):
            return [(first, len(numbers))]
        found = []
        start = 0
        for at in range(1, len(numbers) + 1):
            if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
                found.append((numbers[start], at - start))
                start = at
        return found


def equal_runs(datagrams: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Divide a burst, in order, into runs of one size."""
    start, size = 0, len(datagrams[0])
    for at, data in enumerate(datagrams):
        if len(data) != size:
            yield datagrams[start:at]
            start, size = at, len(data)
    yield datagrams[start:] if start else datagrams


def open_run(
    keys: PacketKeys, datagrams: Sequence[bytes], cid_size: int, expected: int, path_id: int = 0
) -> OpenedRun | None:
    """Open short-header packets of one size, at least 1 + cid_size + 4 + 16 bytes; None if it is no plain run.

    expected: the lowest packet number that cannot have come before; all of a run are above. Nothing is counted and
    nothing changed where the result is None.
    """
    count, size = len(datagrams), len(datagrams[0])
    at = 1 + cid_size
    joined = b"".join(datagrams)
    rows = np.frombuffer(joined, dtype=np.uint8).reshape(count, size)
    masks = np.frombuffer(keys.mask.masks(rows[:, at + 4 : at + 4 + SAMPLE_SIZE].tobytes()), dtype=np.uint8)
    masks = masks.reshape(count, SAMPLE_SIZE)
    first_bytes = (rows[:, 0] ^ (masks[:, 0] & 0x1F)).tobytes()
    first = first_bytes[0]
    if first_bytes.count(first) != count or (first >> 2 & 1) != keys.key_phase:
        return None
    width = (first & 3) + 1
    head_size = at + width
    heads = rows[:, :head_size].copy()
    heads[:, 0] = first
    heads[:, at:] ^= masks[:, 1 : 1 + width]
    numbers = _numbers(heads[:, at:], expected)
    if numbers is None:
        return None
    iv = keys.iv ^ path_id << 64
    nonces = np.empty((count, 12), dtype=np.uint8)
    nonces[:, :4] = np.frombuffer((iv >> 64).to_bytes(4), dtype=np.uint8)
    low = np.uint64(iv & 0xFFFF_FFFF_FFFF_FFFF)
    nonces[:, 4:] = (numbers.astype(np.uint64) ^ low).astype(">u8").view(np.uint8).reshape(count, 8)
    body = memoryview(joined)
    payloads = keys.decrypt_all(
        _pieces(nonces.tobytes(), 12),
        [body[start + head_size : start + size] for start in range(0, count * size, size)],
        _pieces(heads.tobytes(), head_size),
    )
    return None if payloads is None else OpenedRun(first, numbers.tolist(), payloads)


def _numbers(sent: np.ndarray, expected: int) -> np.ndarray | None:
    """Return full packet numbers from those sent (RFC 9000 §A.3), or None if they do not ascend from expected on.

    sent: bytes of the packet numbers, a row each.
    """
    width = sent.shape[1]
    truncated = np.zeros(len(sent), dtype=np.int64)
    for column in range(width):
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


def _pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
