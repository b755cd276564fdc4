"""qtunnel.ip.policy."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.drops import DropReason
from qtunnel.errors import LocalProtocolError
from qtunnel.ip import policy as policy_module
from qtunnel.ip.header import parse_header
from qtunnel.ip.policy import IpRange, Policy
from tests.unit.ip.packets import (
    CLIENT4,
    CLIENT6,
    HOST4,
    HOST6,
    SERVER4,
    SERVER6,
    TCP,
    UDP,
    extension,
    ipv4,
    ipv6,
    packed,
    udp,
)


def verdict(policy: Policy, source: str, destination: str, protocol: int = UDP) -> DropReason | None:
    return policy.check_addresses(packed(source) + packed(destination), protocol)


def networks(*texts: str) -> list[IpRange]:
    return [IpRange.of_network(ip_network(text)) for text in texts]


def test_without_rules_everything_usual_passes() -> None:
    policy = Policy()
    assert verdict(policy, CLIENT4, HOST4) is None
    assert verdict(policy, CLIENT6, HOST6) is None
    assert verdict(policy, CLIENT4, "239.1.2.3") is None
    assert verdict(policy, CLIENT6, "ff0e::1") is None


def test_sources_are_the_assigned_addresses_and_permitted_prefixes() -> None:
    policy = Policy(
        sources=[ip_network("10.77.1.2/32"), ip_network("192.168.7.0/24"), ip_network("fd00:77::2/128")]
    )
    assert verdict(policy, "10.77.1.2", HOST4) is None
    assert verdict(policy, "192.168.7.255", HOST4) is None
    assert verdict(policy, "fd00:77::2", HOST6) is None
    for source in ("10.77.1.1", "10.77.1.3", "192.168.8.0", "192.168.6.255"):
        assert verdict(policy, source, HOST4) is DropReason.SOURCE_NOT_ALLOWED
    assert verdict(policy, "fd00:77::3", HOST6) is DropReason.SOURCE_NOT_ALLOWED


def test_empty_lists_allow_nothing() -> None:
    assert verdict(Policy(sources=[]), CLIENT4, HOST4) is DropReason.SOURCE_NOT_ALLOWED
    assert verdict(Policy(destinations=[]), CLIENT4, HOST4) is DropReason.DESTINATION_NOT_ALLOWED
    assert (
        verdict(Policy(destinations=networks("0.0.0.0/0")), CLIENT6, HOST6) is DropReason.DESTINATION_NOT_ALLOWED
    )


def test_ends_of_a_range_are_inside() -> None:
    policy = Policy(destinations=[IpRange(4, 0xC6336402, 0xC6336407)])
    inside = [verdict(policy, CLIENT4, f"198.51.100.{last}") is None for last in range(1, 9)]
    assert inside == [False, True, True, True, True, True, True, False]


def test_protocol_of_a_range_counts_and_zero_is_any() -> None:
    scoped = IpRange(4, int(ip_address(HOST4)), int(ip_address(HOST4)), UDP)
    policy = Policy(destinations=[scoped, *networks("203.0.113.0/24")])
    assert verdict(policy, CLIENT4, HOST4, UDP) is None
    assert verdict(policy, CLIENT4, HOST4, TCP) is DropReason.PROTOCOL_NOT_ALLOWED
    assert verdict(policy, CLIENT4, "203.0.113.9", TCP) is None
    assert verdict(policy, CLIENT4, "203.0.113.9", UDP) is None
    assert verdict(policy, CLIENT4, "203.0.114.9", UDP) is DropReason.DESTINATION_NOT_ALLOWED


def test_own_addresses_are_refused_as_a_source_before_anything_else() -> None:
    policy = Policy(own_addresses=[ip_address(SERVER4), ip_address(SERVER6)], sources=[])
    assert verdict(policy, SERVER4, HOST4) is DropReason.OWN_ADDRESS_SOURCE
    assert verdict(policy, SERVER6, "ff02::1") is DropReason.OWN_ADDRESS_SOURCE
    assert verdict(Policy(own_addresses=[ip_address(SERVER4)]), CLIENT4, SERVER4) is None


@pytest.mark.parametrize("source", ["0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255", "240.0.0.1"])
def test_martian_sources_of_ipv4(source: str) -> None:
    assert verdict(Policy(), source, HOST4) is DropReason.MARTIAN_SOURCE


@pytest.mark.parametrize("source", ["::", "::1", "::ffff:10.0.0.1", "ff02::1", "ff0e::1"])
def test_martian_sources_of_ipv6(source: str) -> None:
    assert verdict(Policy(), source, HOST6) is DropReason.MARTIAN_SOURCE


@pytest.mark.parametrize("destination", ["0.0.0.0", "127.0.0.1", "240.0.0.1", "::", "::1", "::ffff:10.0.0.1"])
def test_destinations_that_cannot_be_are_refused(destination: str) -> None:
    source = CLIENT4 if "." in destination and ":" not in destination else CLIENT6
    assert verdict(Policy(), source, destination) is DropReason.DESTINATION_NOT_ALLOWED


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("169.254.1.1", HOST4),
        (CLIENT4, "169.254.1.1"),
        (CLIENT4, "224.0.0.251"),
        (CLIENT4, "255.255.255.255"),
        ("fe80::1", HOST6),
        (CLIENT6, "fe80::1"),
        (CLIENT6, "ff02::1"),
        (CLIENT6, "ff01::1"),
    ],
)
def test_link_local_traffic_is_told_apart(source: str, destination: str) -> None:
    assert verdict(Policy(sources=[]), source, destination) is DropReason.LINK_LOCAL


def test_ipv6_can_be_unavailable() -> None:
    policy = Policy(ipv6=False)
    assert verdict(policy, CLIENT6, HOST6) is DropReason.IPV6_UNAVAILABLE
    assert verdict(policy, CLIENT4, HOST4) is None


def test_check_looks_at_the_routing_header_last() -> None:
    packet = ipv6(extension(UDP, 24) + udp(), next_header=43)
    assert Policy().check(parse_header(packet)) is DropReason.ROUTING_HEADER
    assert Policy(sources=[]).check(parse_header(packet)) is DropReason.SOURCE_NOT_ALLOWED
    assert Policy().check(parse_header(ipv4(udp()))) is None


def test_pairs_that_passed_are_remembered_by_protocol_where_that_matters() -> None:
    pair = packed(CLIENT4) + packed(HOST4)
    unscoped = Policy()
    assert pair not in unscoped.allowed_pairs[TCP]
    verdict(unscoped, CLIENT4, HOST4, UDP)
    assert all(pair in pairs for pairs in unscoped.allowed_pairs)
    scoped = Policy(destinations=[IpRange(4, 0, 0xFFFFFFFF, UDP)])
    verdict(scoped, CLIENT4, HOST4, UDP)
    verdict(scoped, CLIENT4, HOST4, TCP)
    assert [number for number in range(256) if pair in scoped.allowed_pairs[number]] == [UDP]
    verdict(scoped, CLIENT4, HOST4, 1)
    assert [number for number in range(256) if pair in scoped.allowed_pairs[number]] == [1, UDP]


def test_memory_is_bounded_however_many_addresses_a_peer_tries() -> None:
    policy = Policy(destinations=[IpRange(4, 0, 0xFFFFFFFF, number) for number in (6, 17)])
    for number in range(5000):
        address = str(ip_address(0x01000000 + number))
        assert verdict(policy, CLIENT4, address, (6, 17, 1)[number % 3]) is None
        remembered = sum(len(pairs) for pairs in {id(each): each for each in policy.allowed_pairs}.values())
        assert remembered <= policy_module._REMEMBERED_PAIRS


@pytest.mark.parametrize(
    ("version", "start", "end", "protocol"),
    [
        (5, 0, 1, 0),
        (4, 2, 1, 0),
        (4, 0, 1 << 32, 0),
        (6, 0, 1 << 128, 0),
        (4, -1, 1, 0),
        (4, 0, 1, 256),
        (4, 0, 1, -1),
    ],
)
def test_ranges_that_are_none_are_refused(version: int, start: int, end: int, protocol: int) -> None:
    with pytest.raises(LocalProtocolError):
        IpRange(version, start, end, protocol)


def test_range_of_a_network_is_all_of_it() -> None:
    assert IpRange.of_network(ip_network("192.0.2.0/30"), TCP) == IpRange(4, 0xC0000200, 0xC0000203, TCP)
    assert IpRange.of_network(ip_network("::/0")) == IpRange(6, 0, (1 << 128) - 1)


SMALL = st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from([0, 6, 17]))


@given(st.lists(SMALL, max_size=8), st.integers(0, 40), st.sampled_from([1, 6, 17, 58, 132]))
def test_ranges_match_a_set_of_addresses(ranges: list[tuple[int, int, int]], offset: int, protocol: int) -> None:
    base = int(ip_address("198.51.100.0"))
    given_ranges = [IpRange(4, base + min(a, b), base + max(a, b), number) for a, b, number in ranges]
    holders = {number for a, b, number in ranges if min(a, b) <= offset <= max(a, b)}
    expected: DropReason | None = None
    if not holders:
        expected = DropReason.DESTINATION_NOT_ALLOWED
    elif protocol != 1 and not holders & {0, protocol}:
        expected = DropReason.PROTOCOL_NOT_ALLOWED
    policy = Policy(destinations=given_ranges)
    address = str(ip_address(base + offset))
    assert verdict(policy, CLIENT4, address, protocol) is expected
    assert (packed(CLIENT4) + packed(address) in policy.allowed_pairs[protocol]) == (expected is None)
