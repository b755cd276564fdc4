"""Ancillary data, as bytes; no socket is needed."""

from __future__ import annotations

import socket
import struct

from qtunnel.linux import cmsg

ADDRESS6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7")
PACKET_INFO4 = (socket.IPPROTO_IP, cmsg.IP_PKTINFO, struct.pack("=I", 3) + bytes((198, 18, 0, 7)) * 2)


def parsed(*items: tuple[int, int, bytes]) -> cmsg.AncillaryParser:
    parser = cmsg.AncillaryParser()
    parser.parse(items)
    return parser


def test_local_ipv4_address_is_the_one_to_answer_from_and_not_the_broadcast_address() -> None:
    data = struct.pack("=I4s4s", 3, bytes((198, 18, 0, 7)), bytes((255, 255, 255, 255)))
    assert parsed((socket.IPPROTO_IP, cmsg.IP_PKTINFO, data)).local == bytes((198, 18, 0, 7))


def test_local_ipv6_address_is_read() -> None:
    item = (socket.IPPROTO_IPV6, cmsg.IPV6_PKTINFO, ADDRESS6 + struct.pack("=I", 3))
    assert parsed(item).local == ADDRESS6


def test_ecn_is_the_two_low_bits_of_tos_and_traffic_class() -> None:
    assert parsed((socket.IPPROTO_IP, cmsg.IP_TOS, b"\xbb")).ecn == 3
    assert parsed((socket.IPPROTO_IPV6, cmsg.IPV6_TCLASS, struct.pack("=i", 0xB9))).ecn == 1


def test_gro_segment_size_is_an_int() -> None:
    assert parsed((cmsg.SOL_UDP, cmsg.UDP_GRO, struct.pack("=i", 1400))).segment_size == 1400


def test_a_second_message_does_not_inherit_what_the_first_carried() -> None:
    parser = parsed(PACKET_INFO4, (cmsg.SOL_UDP, cmsg.UDP_GRO, struct.pack("=i", 1400)))
    parser.parse([])
    assert (parser.local, parser.ecn, parser.segment_size) == (None, 0, 0)


def test_overflow_count_stays_when_a_message_does_not_carry_it() -> None:
    parser = parsed((socket.SOL_SOCKET, cmsg.SO_RXQ_OVFL, struct.pack("=I", 12)))
    parser.parse([])
    assert parser.overflowed == 12


def test_unknown_items_are_ignored() -> None:
    parser = parsed((socket.SOL_SOCKET, 9999, b"?"), PACKET_INFO4, (4242, cmsg.UDP_GRO, b""))
    assert parser.local == bytes((198, 18, 0, 7))


def test_packet_info_leaves_the_interface_to_the_kernel() -> None:
    level, kind, data = cmsg.packet_info(socket.AF_INET, bytes((198, 18, 0, 7)))
    assert (level, kind) == (socket.IPPROTO_IP, cmsg.IP_PKTINFO)
    assert data == struct.pack("=I4s4s", 0, bytes((198, 18, 0, 7)), bytes(4))
    level, kind, data = cmsg.packet_info(socket.AF_INET6, ADDRESS6)
    assert (level, kind) == (socket.IPPROTO_IPV6, cmsg.IPV6_PKTINFO)
    assert data == ADDRESS6 + bytes(4)


def test_segment_size_is_sixteen_bits_wide() -> None:
    assert cmsg.segment_size(1400) == (17, 103, struct.pack("=H", 1400))
