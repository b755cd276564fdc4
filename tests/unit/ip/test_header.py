"""qtunnel.ip.header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import LocalProtocolError, MalformedPacketError
from qtunnel.ip.header import (
    MAX_EXTENSION_HEADERS,
    build_ipv4_header,
    build_ipv6_header,
    decrement_hop_limit,
    destination,
    parse_header,
    source,
)
from tests.unit.ip.packets import (
    CLIENT4,
    CLIENT6,
    HOST4,
    HOST6,
    TCP,
    UDP,
    assert_valid,
    authentication,
    extension,
    fragment6,
    ipv4,
    ipv6,
    packed,
    udp,
)

HOP_BY_HOP, ROUTING, FRAGMENT, ESP, AUTHENTICATION, NO_NEXT, DESTINATION_OPTIONS = 0, 43, 44, 50, 51, 59, 60


def patched(packet: bytes, position: int, *values: int) -> bytes:
    return packet[:position] + bytes(values) + packet[position + len(values) :]


def with_checksum(packet: bytes) -> bytes:
    """The IPv4 packet with the checksum its header should have, so that only the other fault is left."""
    rebuilt = bytearray(packet)
    rebuilt[10:12] = b"\x00\x00"
    length = (packet[0] & 15) * 4
    total = sum(int.from_bytes(rebuilt[i : i + 2], "big") for i in range(0, length, 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    rebuilt[10:12] = (total ^ 0xFFFF).to_bytes(2, "big")
    return bytes(rebuilt)


def test_ipv4_fields() -> None:
    header = parse_header(ipv4(udp(30), protocol=UDP, ttl=7, df=True, identification=0xBEEF))
    assert (header.version, header.header_length, header.total_length, header.protocol) == (4, 20, 50, 17)
    assert (header.source, header.destination, header.hop_limit) == (packed(CLIENT4), packed(HOST4), 7)
    assert (header.dont_fragment, header.fragment_offset, header.more_fragments) == (True, 0, False)
    assert header.identification == 0xBEEF
    assert not header.is_fragment


def test_ipv4_header_length_counts_options() -> None:
    header = parse_header(ipv4(udp(8), options=bytes.fromhex("94040000")))
    assert (header.header_length, header.total_length) == (24, 32)


def test_ipv4_fragment_fields_are_in_bytes() -> None:
    header = parse_header(ipv4(bytes(16), mf=True, offset=1480))
    assert (header.fragment_offset, header.more_fragments, header.is_fragment) == (1480, True, True)
    assert parse_header(ipv4(bytes(16), mf=True)).is_fragment
    assert parse_header(ipv4(bytes(16), offset=8)).is_fragment


def test_ipv6_fields() -> None:
    header = parse_header(ipv6(udp(30), hop_limit=9, traffic_class=0xFF, flow_label=0xFFFFF))
    assert (header.version, header.header_length, header.total_length, header.protocol) == (6, 40, 70, 17)
    assert (header.source, header.destination, header.hop_limit) == (packed(CLIENT6), packed(HOST6), 9)
    assert header.dont_fragment
    assert not header.is_fragment
    assert not header.has_routing_header_0


def test_a_packet_of_nothing_but_its_header_is_valid() -> None:
    assert parse_header(ipv4(b"")).header_length == 20
    assert parse_header(ipv6(b"", next_header=NO_NEXT)).protocol == NO_NEXT


@pytest.mark.parametrize(
    ("packet", "what"),
    [
        (b"", "an empty packet"),
        (b"\x00" * 40, "IP version 0"),
        (b"\x55" * 40, "IP version 5"),
        (b"\xf0" * 40, "IP version 15"),
        (b"\x45", "IPv4 packet of 1 bytes"),
        (ipv4()[:19], "IPv4 packet of 19 bytes"),
        (with_checksum(patched(ipv4(bytes(40)), 0, 0x44)), "header length 16"),
        (patched(ipv4(bytes(4)), 0, 0x47), "header length 28"),
        (patched(ipv4(udp()), 8, 63), "checksum"),
        (patched(ipv4(udp(), options=b"\x01\x01\x01\x00"), 20, 0x07), "checksum"),
        (ipv4(udp()) + b"\x00", "total length 28, but 29 bytes"),
        (ipv4(udp())[:-1], "total length 28, but 27 bytes"),
        (with_checksum(patched(ipv4(udp()), 2, 0, 10)), "total length 10, but 28 bytes"),
        (ipv4(bytes(9), offset=65528), "up to byte 65557, past 65535"),
        (b"\x60", "IPv6 packet of 1 bytes"),
        (ipv6()[:39], "IPv6 packet of 39 bytes"),
        (ipv6(udp()) + b"\x00", "payload length 8, but 49 bytes"),
        (ipv6(udp())[:-1], "payload length 8, but 47 bytes"),
        (ipv6(fragment6(UDP, offset=65528) + bytes(8), next_header=FRAGMENT), "up to byte 65536, past 65535"),
    ],
)
def test_what_no_router_forwards_is_malformed_and_says_why(packet: bytes, what: str) -> None:
    with pytest.raises(MalformedPacketError, match=what):
        parse_header(packet)


def test_last_fragment_that_ends_at_the_largest_packet_is_valid() -> None:
    assert parse_header(ipv4(bytes(7), offset=65504)).fragment_offset == 65504
    assert (
        parse_header(ipv6(fragment6(UDP, offset=65528) + bytes(7), next_header=FRAGMENT)).fragment_offset == 65528
    )


def test_every_extension_header_is_walked_past() -> None:
    chain = (
        extension(DESTINATION_OPTIONS, 16)
        + extension(ROUTING, 8)
        + extension(FRAGMENT, 24, body=b"\x04\x00")
        + fragment6(AUTHENTICATION, identification=7)
        + authentication(DESTINATION_OPTIONS, 24)
        + extension(TCP, 8)
    )
    header = parse_header(ipv6(chain + bytes(20), next_header=HOP_BY_HOP))
    assert (header.protocol, header.header_length) == (TCP, 40 + len(chain))
    assert not header.has_routing_header_0
    assert (header.identification, header.is_fragment) == (7, False)


@pytest.mark.parametrize("protocol", [ESP, NO_NEXT, 135, 139, 140, 253])
def test_the_walk_ends_at_what_it_cannot_look_into(protocol: int) -> None:
    header = parse_header(ipv6(extension(protocol) + bytes(16), next_header=DESTINATION_OPTIONS))
    assert (header.protocol, header.header_length) == (protocol, 48)


def test_first_fragment_shows_its_protocol_and_a_later_one_only_the_next_header() -> None:
    first = fragment6(DESTINATION_OPTIONS, more=True) + extension(UDP) + udp(24)
    later = fragment6(DESTINATION_OPTIONS, offset=32) + b"\x2b\xff" * 8
    header = parse_header(ipv6(first, next_header=FRAGMENT))
    assert (header.protocol, header.more_fragments, header.fragment_offset) == (UDP, True, 0)
    header = parse_header(ipv6(later, next_header=FRAGMENT))
    assert (header.protocol, header.more_fragments, header.fragment_offset) == (DESTINATION_OPTIONS, False, 32)
    assert header.header_length == 48
    assert header.identification == 0xABCD1234


def test_routing_header_type_0_is_noticed_anywhere_and_others_are_not() -> None:
    type_0 = extension(UDP, 24, body=b"\x00\x01")
    type_4 = extension(UDP, 24, body=b"\x04\x01")
    assert parse_header(ipv6(type_0 + udp(), next_header=ROUTING)).has_routing_header_0
    assert parse_header(ipv6(extension(ROUTING) + type_0 + udp(), next_header=HOP_BY_HOP)).has_routing_header_0
    assert not parse_header(ipv6(type_4 + udp(), next_header=ROUTING)).has_routing_header_0


@pytest.mark.parametrize(
    ("payload", "next_header", "what"),
    [
        (b"", DESTINATION_OPTIONS, "60 at byte 40: 8 bytes, 0 left"),
        (bytes([UDP, 0, 0, 0, 0, 0, 0]), ROUTING, "43 at byte 40: 8 bytes, 7 left"),
        (bytes([UDP, 1]) + bytes(13), HOP_BY_HOP, "0 at byte 40: 16 bytes, 15 left"),
        (bytes([UDP, 255]) + bytes(100), DESTINATION_OPTIONS, "2048 bytes, 102 left"),
        (bytes(7), FRAGMENT, "44 at byte 40: 8 bytes, 7 left"),
        (bytes([UDP, 3]) + bytes(17), AUTHENTICATION, "51 at byte 40: 20 bytes, 19 left"),
        (authentication(UDP, 8) + udp(), AUTHENTICATION, "Authentication Header of 8 bytes"),
        (extension(HOP_BY_HOP) + extension(UDP) + udp(), DESTINATION_OPTIONS, "Hop-by-Hop Options at byte 48"),
        (fragment6(FRAGMENT) + fragment6(UDP) + udp(), FRAGMENT, "second Fragment header at byte 48"),
        (extension(FRAGMENT) + bytes(3), DESTINATION_OPTIONS, "44 at byte 48: 8 bytes, 3 left"),
    ],
)
def test_a_chain_that_leaves_the_packet_or_the_order_is_malformed(
    payload: bytes, next_header: int, what: str
) -> None:
    with pytest.raises(MalformedPacketError, match=what):
        parse_header(ipv6(payload, next_header=next_header))


def test_the_chain_is_bounded() -> None:
    longest = extension(DESTINATION_OPTIONS) * (MAX_EXTENSION_HEADERS - 1) + extension(UDP) + udp()
    assert parse_header(ipv6(longest, next_header=DESTINATION_OPTIONS)).protocol == UDP
    with pytest.raises(MalformedPacketError, match="more than 16"):
        parse_header(ipv6(extension(DESTINATION_OPTIONS) + longest, next_header=DESTINATION_OPTIONS))


@given(st.binary(max_size=100))
def test_any_bytes_behind_an_ipv6_header_give_a_value_or_our_error(payload: bytes) -> None:
    for next_header in (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION_OPTIONS):
        try:
            header = parse_header(ipv6(payload, next_header=next_header))
        except MalformedPacketError:
            continue
        assert 40 < header.header_length <= header.total_length


def test_source_and_destination_are_read_without_looking_further() -> None:
    assert source(ipv4(udp())) == packed(CLIENT4)
    assert destination(ipv4(udp())) == packed(HOST4)
    assert source(ipv6(udp())) == packed(CLIENT6)
    assert destination(ipv6(udp())) == packed(HOST6)


@pytest.mark.parametrize("packet", [b"", b"\x45", ipv4()[:19], ipv6()[:39], b"\x00" * 60])
def test_where_there_is_no_address_it_is_empty(packet: bytes) -> None:
    assert source(packet) == b""
    assert destination(packet) == b""


@pytest.mark.parametrize("options", [b"", b"\x01\x01\x01\x00", bytes.fromhex("94040000") + bytes(36)])
@given(ttl=st.integers(1, 255), protocol=st.integers(0, 255), identification=st.integers(0, 0xFFFF))
def test_lowering_the_ttl_equals_building_the_packet_with_it(
    options: bytes, ttl: int, protocol: int, identification: int
) -> None:
    packet, lowered = (
        ipv4(udp(), ttl=each, protocol=protocol, identification=identification, options=options)
        for each in (ttl, ttl - 1)
    )
    assert decrement_hop_limit(packet) == lowered


@given(st.integers(1, 255))
def test_lowering_the_hop_limit_changes_one_byte(hop_limit: int) -> None:
    assert decrement_hop_limit(ipv6(udp(), hop_limit=hop_limit)) == ipv6(udp(), hop_limit=hop_limit - 1)


def test_a_hop_limit_of_zero_cannot_be_lowered() -> None:
    for packet in (ipv4(ttl=0), ipv6(hop_limit=0)):
        with pytest.raises(LocalProtocolError, match="0 already"):
            decrement_hop_limit(packet)


def test_built_headers_equal_those_built_byte_by_byte() -> None:
    ours = build_ipv4_header(
        source=packed(CLIENT4),
        destination=packed(HOST4),
        protocol=UDP,
        payload_length=30,
        tos=0xC0,
        identification=0x4321,
        dont_fragment=False,
    )
    assert ours + udp(30) == ipv4(udp(30), tos=0xC0, identification=0x4321)
    assert_valid(ours + udp(30))
    ours = build_ipv4_header(source=packed(CLIENT4), destination=packed(HOST4), protocol=UDP, payload_length=8)
    assert ours + udp(8) == ipv4(udp(8), identification=0, df=True)
    ours = build_ipv6_header(
        source=packed(CLIENT6), destination=packed(HOST6), protocol=UDP, payload_length=30, traffic_class=0xB8
    )
    assert ours + udp(30) == ipv6(udp(30), traffic_class=0xB8)
