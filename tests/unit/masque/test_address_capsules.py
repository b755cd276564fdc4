from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface

import pytest

from qtunnel.config import IPInterface
from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.masque.address_capsules import (
    MAX_ADDRESSES,
    MAX_RANGES,
    AddressRange,
    AssignedAddress,
    RequestedAddress,
    decode_address_assign,
    decode_address_request,
    decode_route_advertisement,
    encode_address_assign,
    encode_address_request,
    encode_route_advertisement,
    match_requests,
    refusal,
)

FOUR = IPv4Interface("198.18.0.5/32")
SIX = IPv6Interface("2001:db8::5/128")
BLOCK = IPv4Interface("198.18.1.0/29")
ANY4 = IPv4Interface("0.0.0.0/32")
ANY6 = IPv6Interface("::/128")
ENTRY = b"\x00\x04" + FOUR.packed + b"\x20"


def ask(*wishes: IPInterface) -> list[RequestedAddress]:
    return [RequestedAddress(number, wish) for number, wish in enumerate(wishes, 1)]


def range_of(number: int) -> AddressRange:
    address = IPv4Address("10.0.0.0") + 2 * number
    return AddressRange(address, address)


def test_the_longest_list_of_addresses_is_taken_and_one_more_is_not() -> None:
    assert len(decode_address_assign(ENTRY * MAX_ADDRESSES)) == MAX_ADDRESSES
    for decode, entry in ((decode_address_assign, ENTRY), (decode_address_request, b"\x01" + ENTRY[1:])):
        with pytest.raises(PeerProtocolError) as caught:
            decode(entry * (MAX_ADDRESSES + 1))
        assert caught.value.error_code == 0x107
    with pytest.raises(LocalProtocolError):
        encode_address_assign([AssignedAddress(0, FOUR)] * (MAX_ADDRESSES + 1))


def test_the_longest_list_of_ranges_is_taken_and_one_more_is_not() -> None:
    ranges = [range_of(number) for number in range(MAX_RANGES)]
    value = encode_route_advertisement(ranges)
    assert decode_route_advertisement(value) == ranges
    extra = range_of(MAX_RANGES)
    with pytest.raises(PeerProtocolError) as caught:
        decode_route_advertisement(value + b"\x04" + extra.start.packed + extra.end.packed + b"\x00")
    assert caught.value.error_code == 0x107
    with pytest.raises(LocalProtocolError):
        encode_route_advertisement([*ranges, extra])


@pytest.mark.parametrize("protocol", [-1, 256])
def test_a_range_has_a_protocol_number(protocol: int) -> None:
    with pytest.raises(LocalProtocolError):
        AddressRange(FOUR.ip, FOUR.ip, protocol)


def test_a_range_is_of_one_family() -> None:
    with pytest.raises(LocalProtocolError):
        AddressRange(IPv4Address("10.0.0.0"), IPv6Address("::ffff"))
    assert AddressRange(IPv6Address("::"), IPv6Address("::1")).version == 6


def test_a_request_with_id_0_is_not_built() -> None:
    with pytest.raises(LocalProtocolError):
        encode_address_request([RequestedAddress(0, FOUR)])


@pytest.mark.parametrize("request_id", [-1, 1 << 62])
def test_an_id_that_is_no_varint_is_not_built(request_id: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_address_assign([AssignedAddress(request_id, FOUR)])


def test_host_bits_are_taken_where_they_are_allowed() -> None:
    value = b"\x00\x06" + SIX.packed + b"\x70"
    assert decode_address_assign(value, allow_host_bits=True) == [
        AssignedAddress(0, IPv6Interface("2001:db8::5/112"))
    ]
    with pytest.raises(PeerProtocolError):
        decode_address_assign(value)


def test_refusals_are_all_zero_at_full_length_and_nothing_else_is() -> None:
    assert refusal(RequestedAddress(3, BLOCK)) == AssignedAddress(3, ANY4)
    assert refusal(RequestedAddress(4, SIX)) == AssignedAddress(4, ANY6)
    assert refusal(RequestedAddress(4, SIX)).is_refusal
    for prefix in (IPv4Interface("0.0.0.0/0"), IPv6Interface("::/0"), IPv6Interface("::1/128"), FOUR):
        assert not AssignedAddress(0, prefix).is_refusal


def test_the_full_list_has_the_addresses_nobody_asked_for() -> None:
    assert match_requests(ask(ANY4), [SIX, FOUR]) == [AssignedAddress(1, FOUR), AssignedAddress(0, SIX)]


def test_a_wish_for_one_address_is_served_ahead_of_a_wish_for_any() -> None:
    other = IPv4Interface("198.18.0.6/32")
    answer = match_requests(ask(ANY4, FOUR), [FOUR, other])
    assert set(answer) == {AssignedAddress(1, other), AssignedAddress(2, FOUR)}


def test_a_wish_for_another_address_is_refused_and_ours_is_listed() -> None:
    answer = match_requests(ask(IPv4Interface("192.0.2.99/32")), [FOUR])
    assert answer == [AssignedAddress(0, FOUR), AssignedAddress(1, ANY4)]


def test_a_wish_within_an_assigned_prefix_is_answered_with_the_prefix() -> None:
    assert match_requests(ask(IPv4Interface("198.18.1.3/32")), [BLOCK]) == [AssignedAddress(1, BLOCK)]


def test_a_wish_for_any_takes_the_smallest_prefix_that_is_large_enough() -> None:
    assert match_requests(ask(ANY4), [BLOCK, FOUR])[0] == AssignedAddress(1, FOUR)
    assert match_requests(ask(IPv4Interface("0.0.0.0/30")), [BLOCK, FOUR])[0] == AssignedAddress(1, BLOCK)
    assert match_requests(ask(IPv4Interface("0.0.0.0/28")), [BLOCK])[-1].is_refusal


def test_each_prefix_answers_one_request() -> None:
    answer = match_requests(ask(ANY4, ANY4), [FOUR, FOUR])
    assert answer == [AssignedAddress(1, FOUR), AssignedAddress(2, ANY4)]


def test_no_request_and_no_address_is_an_empty_list() -> None:
    assert match_requests([], []) == []
