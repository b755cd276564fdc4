"""qtunnel.ip.icmp: builders, byte by byte; what must not be answered is in tests/conformance/test_icmp.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.ip.header import parse_header
from qtunnel.ip.icmp import build_icmp6, is_answerable, packet_too_big, time_exceeded, unreachable
from tests.unit.ip.packets import (
    CLIENT4,
    CLIENT6,
    HOST6,
    SERVER4,
    SERVER6,
    assert_valid,
    icmp4,
    icmp6,
    icmp6_message,
    ipv4,
    ipv6,
    packed,
    udp,
)

US4, US6 = packed(SERVER4), packed(SERVER6)


def error4(icmp_type: int, code: int, word: str, quote: bytes, tos: int = 0xC0) -> bytes:
    """The IPv4 error this should be, built by other code."""
    return icmp4(
        icmp_type,
        code,
        rest=bytes.fromhex(word) + quote,
        source=SERVER4,
        destination=CLIENT4,
        tos=tos,
        identification=0,
        df=True,
    )


def error6(icmp_type: int, code: int, word: str, quote: bytes) -> bytes:
    return icmp6(icmp_type, code, rest=bytes.fromhex(word) + quote, source=SERVER6, destination=CLIENT6)


def test_ipv4_errors_equal_those_built_by_other_code() -> None:
    packet = ipv4(udp(60), df=True)
    assert unreachable(packet, 13, US4) == error4(3, 13, "00000000", packet)
    assert packet_too_big(packet, 1400, US4) == error4(3, 4, "00000578", packet)
    assert time_exceeded(packet, US4) == error4(11, 0, "00000000", packet)


def test_ipv6_errors_equal_those_built_by_other_code() -> None:
    packet = ipv6(udp(60))
    assert unreachable(packet, 5, US6) == error6(1, 5, "00000000", packet)
    assert packet_too_big(packet, 1400, US6) == error6(2, 0, "00000578", packet)
    assert time_exceeded(packet, US6) == error6(3, 0, "00000000", packet)


def test_an_ipv4_error_written_out_by_hand() -> None:
    packet = bytes.fromhex("4500001c00014000401105470a4d0102c633640704d2003500080000")
    expected = (
        "45c00038 00004000 4001 2369 0a4d0101 0a4d0102"  # IPv4: 56 bytes, DF, TTL 64, ICMP
        "0304 f2d8 0000 0514"  # unreachable, fragmentation needed, next-hop MTU 1300
    )
    built = packet_too_big(packet, 1300, US4)
    assert_valid(packet)
    assert built.hex() == expected.replace(" ", "") + packet.hex()


@pytest.mark.parametrize(
    ("mtu", "said"), [(0, 68), (67, 68), (68, 68), (1500, 1500), (65535, 65535), (70000, 65535)]
)
def test_ipv4_mtu_stays_in_its_field_and_above_68(mtu: int, said: int) -> None:
    message = packet_too_big(ipv4(udp(), df=True), mtu, US4)
    assert int.from_bytes(message[24:28], "big") == said


@pytest.mark.parametrize(("mtu", "said"), [(0, 1280), (1279, 1280), (1280, 1280), (1500, 1500), (70000, 70000)])
def test_ipv6_mtu_is_never_below_1280(mtu: int, said: int) -> None:
    message = packet_too_big(ipv6(udp()), mtu, US6)
    assert int.from_bytes(message[44:48], "big") == said


@given(st.integers(8, 3000), st.integers(0, 255))
def test_errors_about_any_size_are_valid_and_bounded(size: int, tos: int) -> None:
    packet4, packet6 = ipv4(udp(size), tos=tos), ipv6(udp(size), traffic_class=tos)
    for message in (unreachable(packet4, 0, US4), packet_too_big(packet4, 900, US4), time_exceeded(packet4, US4)):
        assert_valid(message)
        assert len(message) == min(28 + len(packet4), 576)
        assert message[28:] == packet4[: len(message) - 28]
    for message in (unreachable(packet6, 0, US6), packet_too_big(packet6, 900, US6), time_exceeded(packet6, US6)):
        assert_valid(message)
        assert len(message) == min(48 + len(packet6), 1280)
        assert message[48:] == packet6[: len(message) - 48]


def test_build_icmp6_fills_in_the_checksum() -> None:
    message = icmp6_message(CLIENT6, HOST6, 128, rest=b"abcd")
    blank = message[:2] + b"\x00\x00" + message[4:]
    built = build_icmp6(blank, source=packed(CLIENT6), destination=packed(HOST6))
    assert built == icmp6(128, rest=b"abcd")


def test_ordinary_packets_are_answerable() -> None:
    for packet in (ipv4(udp()), ipv6(udp()), icmp4(8), icmp6(128), ipv4(udp(), mf=True)):
        assert is_answerable(packet, parse_header(packet))
