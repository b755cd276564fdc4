"""qtunnel.ip.echo."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import LocalProtocolError
from qtunnel.ip.echo import EchoReply, answer_echo, build_echo_request6, is_echo, parse_echo_reply
from tests.unit.ip.packets import (
    CLIENT4,
    CLIENT6,
    HOST6,
    SERVER4,
    SERVER6,
    UDP,
    assert_valid,
    extension,
    fragment6,
    icmp4,
    icmp6,
    icmp6_message,
    ipv4,
    ipv6,
    packed,
    udp,
)

REST = b"\x12\x34\x00\x07" + b"data of any kind"
TO_SERVER6 = icmp6_message(CLIENT6, SERVER6, 128, rest=REST)


def test_request_is_1280_bytes_by_default_and_byte_for_byte_right() -> None:
    request = build_echo_request6(IPv6Address(CLIENT6), IPv6Address("ff02::1"), 0x1234, 7)
    assert len(request) == 1280
    data = bytes(number % 256 for number in range(1232))
    expected = icmp6(128, rest=b"\x12\x34\x00\x07" + data, source=CLIENT6, destination="ff02::1")
    assert request == expected


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.integers(0, 2000))
def test_an_answered_request_comes_back_as_it_was(identifier: int, sequence: int, data_length: int) -> None:
    request = build_echo_request6(
        IPv6Address(CLIENT6), IPv6Address(SERVER6), identifier, sequence, data_length=data_length
    )
    answer = answer_echo(request, IPv6Address(SERVER6))
    assert answer is not None
    assert_valid(answer)
    assert parse_echo_reply(answer) == EchoReply(
        packed(SERVER6), packed(CLIENT6), identifier, sequence, request[48:]
    )


@pytest.mark.parametrize(
    ("identifier", "sequence", "length"), [(65536, 0, 0), (-1, 0, 0), (0, 65536, 0), (0, 0, -1), (0, 0, 65528)]
)
def test_numbers_that_do_not_fit_are_our_own_mistake(identifier: int, sequence: int, length: int) -> None:
    with pytest.raises(LocalProtocolError):
        build_echo_request6(IPv6Address(CLIENT6), IPv6Address(SERVER6), identifier, sequence, data_length=length)


def test_ipv4_request_is_answered_with_its_data_id_and_dscp() -> None:
    request = icmp4(8, rest=REST, source=CLIENT4, destination=SERVER4, tos=0x2B, ttl=3, identification=77)
    expected = icmp4(0, rest=REST, source=SERVER4, destination=CLIENT4, tos=0x28, ttl=64, identification=77)
    assert answer_echo(request, ip_address(SERVER4)) == expected


def test_ipv6_request_is_answered_with_its_data() -> None:
    request = icmp6(128, rest=REST, source=CLIENT6, destination=SERVER6, hop_limit=1)
    assert answer_echo(request, ip_address(SERVER6)) == icmp6(129, rest=REST, source=SERVER6, destination=CLIENT6)


def test_all_nodes_is_answered_from_our_unicast_address() -> None:
    request = icmp6(128, rest=REST, source=CLIENT6, destination="ff02::1")
    assert answer_echo(request, ip_address(SERVER6)) == icmp6(129, rest=REST, source=SERVER6, destination=CLIENT6)


def test_request_behind_extension_headers_is_answered() -> None:
    message = icmp6_message(CLIENT6, SERVER6, 128, rest=REST)
    request = ipv6(extension(44) + fragment6(58) + message, source=CLIENT6, destination=SERVER6, next_header=60)
    assert answer_echo(request, ip_address(SERVER6)) == icmp6(129, rest=REST, source=SERVER6, destination=CLIENT6)


def damaged(packet: bytes) -> bytes:
    return packet[:-1] + bytes([packet[-1] ^ 1])


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x60",
        ipv6(udp(), destination=SERVER6),
        ipv6(b"\x80\x00", destination=SERVER6, next_header=58),
        icmp6(128, rest=REST, destination=HOST6),
        icmp6(128, rest=REST, destination="ff02::2"),
        icmp6(128, rest=REST, destination="ff05::1"),
        icmp6(128, code=1, rest=REST, destination=SERVER6),
        icmp6(129, rest=REST, destination=SERVER6),
        icmp6(130, rest=REST, destination=SERVER6),
        icmp6(1, rest=REST, destination=SERVER6),
        icmp6(128, rest=REST, source=SERVER6, destination=SERVER6),
        icmp6(128, rest=REST, source="::", destination=SERVER6),
        icmp6(128, rest=REST, source="ff02::1", destination=SERVER6),
        icmp6(128, rest=REST, destination=SERVER6) + b"\x00",
        damaged(icmp6(128, rest=REST, destination=SERVER6)),
        ipv6(fragment6(58, more=True) + TO_SERVER6, destination=SERVER6, next_header=44),
        icmp4(8, rest=REST, destination=SERVER4),
        ipv6(TO_SERVER6, destination=SERVER6, next_header=1),
    ],
)
def test_what_is_no_echo_request_for_our_ipv6_address_gets_no_answer(packet: bytes) -> None:
    assert answer_echo(packet, ip_address(SERVER6)) is None


@pytest.mark.parametrize(
    "packet",
    [
        ipv4(udp(), destination=SERVER4),
        icmp4(8, rest=REST, destination="10.77.1.9"),
        icmp4(8, rest=REST, destination="224.0.0.1"),
        icmp4(0, rest=REST, destination=SERVER4),
        icmp4(13, rest=REST + bytes(8), destination=SERVER4),
        icmp4(8, rest=REST, source="0.0.0.0", destination=SERVER4),
        icmp4(8, rest=REST, destination=SERVER4, mf=True),
        damaged(icmp4(8, rest=REST, destination=SERVER4)),
        ipv4(icmp4(8, rest=REST)[20:], destination=SERVER4, protocol=58),
        icmp6(128, rest=REST, destination=SERVER6),
    ],
)
def test_what_is_no_echo_request_for_our_ipv4_address_gets_no_answer(packet: bytes) -> None:
    assert answer_echo(packet, ip_address(SERVER4)) is None


def test_only_whole_replies_with_the_right_checksum_are_parsed() -> None:
    reply = icmp6(129, rest=REST)
    assert parse_echo_reply(reply) == EchoReply(packed(CLIENT6), packed(HOST6), 0x1234, 7, REST[4:])
    for other in (damaged(reply), reply[:-1], icmp6(128, rest=REST), ipv6(udp(), next_header=UDP), b""):
        assert parse_echo_reply(other) is None


def test_ipv4_replies_are_parsed_too() -> None:
    reply = parse_echo_reply(icmp4(0, rest=REST))
    assert reply is not None
    assert (reply.identifier, reply.sequence, reply.data) == (0x1234, 7, REST[4:])


def test_is_echo_tells_requests_and_replies_from_the_rest() -> None:
    assert is_echo(icmp4(8))
    assert is_echo(icmp4(0))
    assert is_echo(icmp6(128))
    assert is_echo(icmp6(129))
    assert not is_echo(icmp4(3))
    assert not is_echo(icmp6(133))
    assert not is_echo(ipv4(udp()))
