"""qtunnel.ip.fragment."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qtunnel.errors import LocalProtocolError, MalformedPacketError
from qtunnel.ip.fragment import fragment_ipv4
from qtunnel.ip.header import parse_header
from tests.unit.ip.packets import CLIENT4, HOST4, assert_valid, ipv4, ipv6, packed, reassemble4, udp

ROUTER_ALERT = bytes.fromhex("94040000")  # copied
RECORD_ROUTE = bytes.fromhex("0707040a000001")  # not copied
LOOSE_SOURCE_ROUTE = bytes.fromhex("8307080a000001")  # copied, 7 bytes
NO_OPERATION = b"\x01"
END = b"\x00"


def test_1500_bytes_over_1400_are_two_fragments_byte_for_byte() -> None:
    packet = ipv4(udp(1480), identification=0xBEEF)
    first, second = fragment_ipv4(packet, 1400)
    assert first[:12].hex() == "45000574beef20004011" + first[10:12].hex()  # 1396 = 20 + 172 * 8, MF
    assert second[:12].hex() == "4500007cbeef00ac4011" + second[10:12].hex()  # the other 104, offset 172
    assert first[12:] == packed(CLIENT4) + packed(HOST4) + udp(1480)[:1376]
    assert second[12:] == packed(CLIENT4) + packed(HOST4) + udp(1480)[1376:]
    assert_valid(first)
    assert_valid(second)


def test_a_packet_that_fits_is_left_alone() -> None:
    packet = ipv4(udp(1380))
    assert fragment_ipv4(packet, 1400) == [packet]


def test_one_byte_too_many_makes_a_second_fragment() -> None:
    fragments = fragment_ipv4(ipv4(udp(1381)), 1400)
    assert [len(each) for each in fragments] == [1396, 25]


def test_last_fragment_may_fill_the_mtu_to_the_byte() -> None:
    assert [len(each) for each in fragment_ipv4(ipv4(udp(1376 + 1379)), 1399)] == [1396, 1399]


def test_a_fragment_in_the_middle_keeps_more_fragments_on_all_its_parts() -> None:
    fragments = fragment_ipv4(ipv4(bytes(range(200)), mf=True, offset=4000), 120)
    headers = [parse_header(each) for each in fragments]
    assert [header.fragment_offset for header in headers] == [4000, 4096, 4192]
    assert [header.more_fragments for header in headers] == [True, True, True]


def test_the_last_fragment_ends_with_no_more_fragments() -> None:
    headers = [parse_header(each) for each in fragment_ipv4(ipv4(bytes(203), offset=4000), 120)]
    assert [header.fragment_offset for header in headers] == [4000, 4096, 4192]
    assert [header.more_fragments for header in headers] == [True, True, False]


def test_options_with_the_copied_flag_are_in_every_fragment_others_in_the_first() -> None:
    options = NO_OPERATION + RECORD_ROUTE + ROUTER_ALERT + LOOSE_SOURCE_ROUTE + NO_OPERATION
    first, *later = fragment_ipv4(ipv4(udp(600), options=options), 200)
    assert first[20:40] == options
    assert first[0] == 0x4A
    for each in later:
        assert each[0] == 0x48
        assert each[20:32] == ROUTER_ALERT + LOOSE_SOURCE_ROUTE + END
    assert reassemble4([first, *later]) == (udp(600), False)


def test_what_is_behind_the_end_of_options_is_not_copied() -> None:
    _, second = fragment_ipv4(ipv4(udp(100), options=END + b"\xff\xff\xff"), 100)
    assert second[0] == 0x45


def test_without_copied_options_later_fragments_have_the_shorter_header_and_more_room() -> None:
    fragments = fragment_ipv4(ipv4(udp(200), options=RECORD_ROUTE + END), 100)
    assert [each[0] & 15 for each in fragments] == [7, 5, 5]
    assert [len(each) for each in fragments] == [28 + 72, 20 + 80, 20 + 48]


@pytest.mark.parametrize(
    "options", [b"\x07\x01\x00\x00", b"\x94\x09\x00\x00", b"\x01\x01\x01\x94", b"\x94\x00\x00\x00"]
)
def test_options_that_are_none_make_the_packet_malformed(options: bytes) -> None:
    with pytest.raises(MalformedPacketError, match="IPv4 option"):
        fragment_ipv4(ipv4(udp(200), options=options), 100)


def test_the_smallest_mtu_is_a_header_and_eight_bytes() -> None:
    packet = ipv4(udp(20))
    assert [len(each) for each in fragment_ipv4(packet, 28)] == [28, 28, 24]
    with pytest.raises(LocalProtocolError, match="27 bytes has no room"):
        fragment_ipv4(packet, 27)


@pytest.mark.parametrize("packet", [ipv4(udp(200), df=True), ipv6(udp(200))])
def test_what_may_not_be_fragmented_is_our_own_mistake(packet: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="without DF"):
        fragment_ipv4(packet, 100)


def test_no_packet_is_malformed() -> None:
    with pytest.raises(MalformedPacketError):
        fragment_ipv4(b"\x45\x00", 100)


@given(
    size=st.integers(0, 3000),
    mtu=st.integers(68, 1600),
    offset=st.integers(0, 4000).map(lambda number: number * 8),
    mf=st.booleans(),
    options=st.sampled_from([b"", ROUTER_ALERT, RECORD_ROUTE + END, ROUTER_ALERT * 3]),
    tos=st.integers(0, 255),
    ttl=st.integers(1, 255),
)
def test_fragments_put_together_are_the_packet(
    size: int, mtu: int, offset: int, mf: bool, options: bytes, tos: int, ttl: int
) -> None:
    payload = bytes(number * 7 % 256 for number in range(size - size % 8 if mf else size))
    packet = ipv4(payload, mf=mf, offset=offset, options=options, tos=tos, ttl=ttl)
    assume(len(packet) > mtu)
    fragments = fragment_ipv4(packet, mtu)
    for each in fragments:
        assert len(each) <= mtu
        assert_valid(each)
        assert (each[1], each[4:6], each[8:10], each[12:20]) == (tos, packet[4:6], packet[8:10], packet[12:20])
    assert reassemble4(fragments) == (payload, mf)
    assert parse_header(fragments[0]).fragment_offset == offset


@given(st.integers(68, 200), st.integers(68, 200))
def test_fragmenting_twice_equals_the_same_payload(first_mtu: int, second_mtu: int) -> None:
    once = fragment_ipv4(ipv4(udp(500)), first_mtu)
    twice = [piece for each in once for piece in fragment_ipv4(each, second_mtu)]
    assert reassemble4(twice) == (udp(500), False)
