"""Rows for sealing: used again by all, with nothing of one call left in the next."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.quic.seal_rows import MAX_ROWS, PACKET_NUMBER_SIZE, TAG_SIZE, seal_rows, write_nonces


@given(st.integers(0, 2**62 - 10), st.integers(0, 2**96 - 1), st.integers(1, 9))
def test_nonces_are_the_packet_number_exclusive_or_the_iv(first: int, iv: int, count: int) -> None:
    rows = np.empty((count, 12), np.uint8)
    write_nonces(rows, np.arange(first, first + count, dtype=np.uint64), iv)
    assert [row.tobytes() for row in rows] == [
        (iv ^ number).to_bytes(12) for number in range(first, first + count)
    ]


class NoMask:
    """Header protection that changes nothing."""

    def masks(self, samples: bytes) -> bytes:
        return bytes(len(samples))


def marked(nonce: bytes, data: memoryview, head: bytes, out: memoryview) -> None:
    """Encrypt nothing, and write the end of the nonce where the tag goes."""
    out[len(data) :] = bytes(nonce[-2:]) * (TAG_SIZE // 2)


@pytest.mark.parametrize("together", [1, 7, 64, MAX_ROWS])
@pytest.mark.parametrize("count", [1, 20, MAX_ROWS])
def test_rows_are_header_prefix_packet_and_tag_so_many_together(count: int, together: int) -> None:
    head, prefix = b"\x41cid.", b"\x30\x00\x00"
    packets = [bytes([number]) * 50 for number in range(count)]
    rows = seal_rows(53, 4)
    assert rows is seal_rows(53, 4)
    parts = [packets[: count // 2], packets[count // 2 :]]
    sealed = rows.seal(NoMask(), marked, [part for part in parts if part], head, prefix, 1000, 0, together)
    expected = [
        head + number.to_bytes(PACKET_NUMBER_SIZE) + prefix + packet + number.to_bytes(2) * (TAG_SIZE // 2)
        for number, packet in enumerate(packets, 1000)
    ]
    assert sealed == [b"".join(expected[at : at + together]) for at in range(0, count, together)]
