"""What is read from packets on the wire: sizes, DF, fragments, ports."""

import struct
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from netlab import wire


def ipv4(*, flags: int = 0x4000, protocol: int = wire.UDP, length: int = 1500) -> bytes:
    header = struct.pack("!BBHHHBBH", 0x45, 0, length, 1, flags, 64, protocol, 0)
    return header + IPv4Address("198.18.1.1").packed + IPv4Address("198.18.2.2").packed + b"\x11\x51\x01\xbb"


def ipv6(*, next_header: int = wire.UDP, extra: bytes = b"") -> bytes:
    header = struct.pack("!IHBB", 6 << 28, 100, next_header, 63)
    return (
        header
        + IPv6Address("2001:db8:1::1").packed
        + IPv6Address("2001:db8:2::2").packed
        + extra
        + b"\x11\x51\x01\xbb"
    )


def parse(data: bytes) -> wire.Packet:
    packet = wire.parse(data, time=1.0, outgoing=False, length=1500)
    assert packet is not None
    return packet


def test_ipv4_with_df_is_no_fragment():
    packet = parse(ipv4())
    assert (packet.version, packet.dont_fragment, packet.is_fragment) == (4, True, False)
    assert (packet.source_port, packet.destination_port) == (4433, 443)
    assert packet.hop_limit == 64


def test_first_and_later_ipv4_fragments_are_fragments():
    assert parse(ipv4(flags=0x2000)).is_fragment
    later = parse(ipv4(flags=0x00B9))
    assert later.is_fragment
    assert later.source_port is None  # what is there is payload


def test_ipv6_counts_as_df_as_routers_never_fragment_it():
    packet = parse(ipv6())
    assert (packet.version, packet.dont_fragment, packet.is_fragment) == (6, True, False)
    assert packet.destination_port == 443


def test_ipv6_fragment_header_is_seen_and_looked_behind():
    fragment = struct.pack("!BBHI", wire.UDP, 0, 1, 7)
    packet = parse(ipv6(next_header=wire.IPV6_FRAGMENT, extra=fragment))
    assert (packet.is_fragment, packet.protocol, packet.source_port) == (True, wire.UDP, 4433)


@given(st.binary(max_size=wire.SNAP_LENGTH))
def test_any_bytes_are_a_packet_or_none(data):
    packet = wire.parse(data, time=0.0, outgoing=True, length=len(data))
    assert packet is None or packet.version in (4, 6)
