"""The sums every checksum is made of."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.linux.vnet_hdr import NO_OFFLOAD, SUM, VNET_HEADER, VNET_HEADER_SIZE, swapped, word_sum
from tests.unit.linux.packets import checksum

anything = st.one_of(st.binary(max_size=600), st.binary(min_size=500, max_size=2000))


@given(anything)
def test_the_sum_is_the_one_of_rfc_1071_whatever_the_size(data: bytes) -> None:
    assert word_sum(data) == (SUM - checksum(data)) % SUM


@given(anything)
def test_the_sum_of_a_view_at_an_odd_place_is_that_of_its_bytes(data: bytes) -> None:
    assert word_sum(memoryview(b"x" + data)[1:]) == word_sum(data)


@given(st.binary(max_size=64))
def test_a_swapped_sum_is_the_sum_of_swapped_words(data: bytes) -> None:
    data = data[: len(data) & ~1]
    host = sum(memoryview(data).cast("H"))
    assert swapped(host) == word_sum(data)
    assert swapped(swapped(host)) == host % SUM


def test_the_header_of_a_complete_packet_is_ten_zero_bytes() -> None:
    assert bytes(10) == NO_OFFLOAD
    assert VNET_HEADER_SIZE == 10


def test_the_header_is_in_the_byte_order_of_the_host() -> None:
    packed = VNET_HEADER.pack(1, 4, 0x102, 3, 4, 5)
    assert packed[2:4] == (0x102).to_bytes(2, sys.byteorder)
