"""qtunnel.ip.checksum against RFC examples and a loop over words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.ip.checksum import internet_checksum, pseudo_header6, update_checksum
from tests.unit.ip.packets import slow_checksum

WORD = st.integers(0, 0xFFFF)


def test_example_of_rfc_1071_section_3() -> None:
    assert internet_checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2


def test_checksum_of_a_known_ipv4_header() -> None:
    header = bytes.fromhex("45000073000040004011 0000 c0a80001c0a800c7")
    assert internet_checksum(header) == 0xB861


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0xFFFF),
        (bytes(20), 0xFFFF),
        (b"\xff\xff", 0),
        (b"\xff" * 40, 0),
        (b"\x01", 0xFEFF),
        (b"\x00\x01", 0xFFFE),
    ],
)
def test_both_zeros_of_ones_complement_and_odd_lengths(data: bytes, checksum: int) -> None:
    assert internet_checksum(data) == checksum


@given(st.binary(max_size=2000))
def test_checksum_equals_the_sum_word_by_word(data: bytes) -> None:
    assert internet_checksum(data) == slow_checksum(data)


@given(st.binary(min_size=2, max_size=200).filter(any))
def test_data_with_its_checksum_in_it_sums_to_zero(data: bytes) -> None:
    even = data + bytes(len(data) % 2)
    assert internet_checksum(even + internet_checksum(even).to_bytes(2, "big")) == 0


def test_example_of_rfc_1624_section_4() -> None:
    assert update_checksum(0xDD2F, 0x5555, 0x3285) == 0x0000


def test_a_carry_out_of_adding_the_carry_is_added_too() -> None:
    assert update_checksum(0x0000, 0x0000, 0x0001) == 0xFFFE


@given(st.lists(WORD, min_size=2, max_size=30), WORD, st.data())
def test_update_equals_computing_again(words: list[int], new: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(words) - 1))
    changed = [*words[:index], new, *words[index + 1 :]]
    before, after = (b"".join(word.to_bytes(2, "big") for word in each) for each in (words, changed))
    if not any(before) or not any(after):
        return  # no header is all zeros, and only there the two zeros differ
    assert update_checksum(internet_checksum(before), words[index], new) == internet_checksum(after)


def test_pseudo_header_is_that_of_rfc_8200_section_8_1() -> None:
    source, destination = bytes(range(16)), bytes(range(16, 32))
    assert pseudo_header6(source, destination, 0x12345, 58) == bytes(range(32)) + bytes.fromhex(
        "00012345 0000003a"
    )
