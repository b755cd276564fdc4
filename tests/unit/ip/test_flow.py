"""qtunnel.ip.flow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.ip.flow import MALFORMED_FLOW, flow_keys
from tests.unit.ip.packets import CLIENT6, HOST6, TCP, UDP, extension, fragment6, icmp4, icmp6, ipv4, ipv6, udp


def key(packet: bytes) -> bytes:
    (only,) = flow_keys([packet])
    return only


def test_keys_are_parallel_to_the_burst() -> None:
    a, b = ipv4(udp(source_port=1)), ipv6(udp(source_port=1))
    keys = flow_keys([a, b, b"", a])
    assert len(keys) == 4
    assert keys[0] == keys[3] != keys[1]
    assert keys[2] == MALFORMED_FLOW
    assert flow_keys([]) == []


@pytest.mark.parametrize("protocol", [TCP, UDP, 33, 132, 136])
def test_a_flow_is_its_five_tuple(protocol: int) -> None:
    plain = key(ipv4(udp(), protocol=protocol))
    assert key(ipv4(udp(100), protocol=protocol, ttl=3, tos=8, identification=9, df=True)) == plain
    others = [
        ipv4(udp(source_port=1), protocol=protocol),
        ipv4(udp(destination_port=1), protocol=protocol),
        ipv4(udp(), protocol=protocol, source="10.0.0.9"),
        ipv4(udp(), protocol=protocol, destination="10.0.0.9"),
        ipv4(udp(), protocol=50),
    ]
    assert len({plain, *(key(each) for each in others)}) == 6


def test_the_same_holds_in_ipv6() -> None:
    plain = key(ipv6(udp()))
    assert key(ipv6(udp(100), hop_limit=3, traffic_class=8, flow_label=77)) == plain
    others = [
        ipv6(udp(source_port=1)),
        ipv6(udp(destination_port=1)),
        ipv6(udp(), source=HOST6, destination=CLIENT6),
        ipv6(udp(), next_header=TCP),
    ]
    assert len({plain, *(key(each) for each in others)}) == 5


def test_options_and_extension_headers_do_not_change_the_flow() -> None:
    assert key(ipv4(udp(), options=b"\x01\x01\x01\x00")) == key(ipv4(udp()))
    assert key(ipv6(extension(UDP) + udp(), next_header=60)) == key(ipv6(udp()))


def test_all_fragments_of_a_packet_share_a_key_and_other_packets_have_others() -> None:
    first, later, last = (
        key(packet)
        for packet in (ipv4(udp(24), mf=True), ipv4(bytes(24), mf=True, offset=24), ipv4(bytes(3), offset=48))
    )
    assert first == later == last
    assert key(ipv4(udp(24), mf=True, identification=5)) != first
    assert key(ipv4(udp(24))) != first
    first = key(ipv6(fragment6(UDP, more=True) + udp(24), next_header=44))
    assert key(ipv6(fragment6(UDP, offset=24) + bytes(9), next_header=44)) == first
    assert key(ipv6(fragment6(UDP, offset=24, identification=1) + bytes(9), next_header=44)) != first


def test_icmp_has_no_ports() -> None:
    assert key(icmp4(8, rest=b"\x00\x01\x00\x01")) == key(icmp4(8, rest=b"\x00\x02\x00\x09"))
    assert key(icmp6(128, rest=b"\x00\x01\x00\x01")) == key(icmp6(129, rest=b"\x00\x02\x00\x09"))


def test_a_packet_cut_before_its_ports_still_has_a_flow() -> None:
    assert key(ipv4(b"\x00\x01\x02", protocol=UDP)) not in (MALFORMED_FLOW, key(ipv4(udp())))
    assert key(ipv6(b"", next_header=TCP)) != MALFORMED_FLOW


@given(st.lists(st.binary(max_size=80), max_size=5))
def test_any_bytes_have_a_key(packets: list[bytes]) -> None:
    assert [type(each) for each in flow_keys(packets)] == [bytes] * len(packets)
