"""ICMP errors and echoes of a tunnel end: RFC 792, 1122, 1191, 1812, 4443, 4884.

Each message is compared with one that tests/unit/ip/packets.py builds by code of its own.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from qtunnel.drops import DropReason
from qtunnel.ip.echo import answer_echo
from qtunnel.ip.forward import Forwarder, HopLimit, IcmpErrors, Suppressed
from qtunnel.ip.policy import IpRange, Policy
from tests.unit.ip.packets import (
    CLIENT4,
    CLIENT6,
    HOST4,
    HOST6,
    SERVER4,
    SERVER6,
    UDP,
    assert_valid,
    authentication,
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

NOW = 50.0
PLAIN4, PLAIN6 = ipv4(udp(100), df=True), ipv6(udp(100))

ERROR_TYPES4 = (3, 4, 5, 11, 12)
ERROR_TYPES6 = (0, 1, 2, 3, 4, 100, 101, 127, 137)
INFORMATIONAL4 = (0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 30, 37, 42)
INFORMATIONAL6 = (128, 129, 130, 131, 132, 133, 134, 135, 136, 138, 200, 255)


def errors(*, rate: float = 1000.0, burst: int = 1000, enabled: bool = True) -> IcmpErrors:
    return IcmpErrors(
        address4=ip_address(SERVER4), address6=ip_address(SERVER6), rate=rate, burst=burst, enabled=enabled
    )


def all_kinds(packet: bytes, speaker: IcmpErrors | None = None) -> list[bytes | None]:
    """Everything there is to say about a packet: too big, time exceeded, unreachable."""
    ours = speaker or errors()
    return [
        ours.too_big(packet, 1300, NOW),
        ours.time_exceeded(packet, NOW),
        ours.unreachable(packet, DropReason.SOURCE_NOT_ALLOWED, NOW),
    ]


def said(message: bytes | None) -> tuple[int, int]:
    """Type and code of an error of ours."""
    assert message is not None
    assert_valid(message)
    offset = 20 if message[0] >> 4 == 4 else 40
    return message[offset], message[offset + 1]


def error4(icmp_type: int, code: int, word: bytes, quote: bytes) -> bytes:
    return icmp4(
        icmp_type,
        code,
        rest=word + quote,
        source=SERVER4,
        destination=CLIENT4,
        tos=0xC0,
        identification=0,
        df=True,
    )


def error6(icmp_type: int, code: int, word: bytes, quote: bytes) -> bytes:
    return icmp6(icmp_type, code, rest=word + quote, source=SERVER6, destination=CLIENT6)


# layout and contents


def test_icm_01_icm_26_layouts_are_those_of_the_rfcs_and_unused_bytes_are_zero() -> None:
    zero, mtu = bytes(4), (1300).to_bytes(4, "big")
    assert all_kinds(PLAIN4) == [
        error4(3, 4, mtu, PLAIN4),
        error4(11, 0, zero, PLAIN4),
        error4(3, 13, zero, PLAIN4),
    ]
    assert all_kinds(PLAIN6) == [
        error6(2, 0, mtu, PLAIN6),
        error6(3, 0, zero, PLAIN6),
        error6(1, 5, zero, PLAIN6),
    ]


@pytest.mark.parametrize("packet", [PLAIN4, PLAIN6], ids=["ipv4", "ipv6"])
def test_icm_26_no_extension_structure_is_ever_appended(packet: bytes) -> None:
    for message in all_kinds(packet):
        assert message is not None
        headers = 28 if packet is PLAIN4 else 48
        assert message[headers:] == packet
        if packet is PLAIN4:
            assert message[25] == 0  # the length of the quote in 32-bit words
        elif message[40] in (1, 3):
            assert message[44] == 0  # in 64-bit words


@pytest.mark.parametrize(
    ("reason", "code4", "code6"),
    [
        (DropReason.DESTINATION_NOT_ALLOWED, 0, 0),
        (DropReason.NO_ROUTE, 1, 3),
        (DropReason.PROTOCOL_NOT_ALLOWED, 13, 1),
        (DropReason.CLIENT_TO_CLIENT, 13, 1),
        (DropReason.SOURCE_NOT_ALLOWED, 13, 5),
        (DropReason.IPV6_UNAVAILABLE, None, 0),
        (DropReason.ROUTING_HEADER, None, 1),
    ],
)
def test_icm_02_cip_76_each_reason_has_its_code(reason: DropReason, code4: int | None, code6: int) -> None:
    answer4 = errors().unreachable(PLAIN4, reason, NOW)
    assert (None if answer4 is None else said(answer4)) == (None if code4 is None else (3, code4))
    assert said(errors().unreachable(PLAIN6, reason, NOW)) == (1, code6)


def test_icm_02_too_big_and_expired_have_their_types() -> None:
    assert said(errors().too_big(PLAIN4, 1300, NOW)) == (3, 4)
    assert said(errors().too_big(PLAIN6, 1300, NOW)) == (2, 0)
    assert said(errors().time_exceeded(PLAIN4, NOW)) == (11, 0)
    assert said(errors().time_exceeded(PLAIN6, NOW)) == (3, 0)
    assert errors().too_big(ipv4(udp(100), df=False), 1300, NOW) is None


@pytest.mark.parametrize("length", [28, 29, 100, 547, 548, 549, 576, 1500, 9000, 65535])
def test_icm_03_ipv4_errors_quote_what_fits_into_576_bytes(length: int) -> None:
    packet = ipv4(udp(length - 20), df=True)
    for message in all_kinds(packet):
        assert message is not None
        assert_valid(message)
        assert len(message) == 28 + min(length, 548) <= 576
        assert message[28:] == packet[:548]


def test_icm_03_even_the_longest_header_is_quoted_with_eight_bytes_more() -> None:
    packet = ipv4(udp(1000), df=True, options=b"\x01" * 40)
    message = errors().time_exceeded(packet, NOW)
    assert message is not None
    assert message[28 : 28 + 68] == packet[:68]


@pytest.mark.parametrize("length", [48, 100, 1231, 1232, 1233, 1280, 1500, 9000, 65535])
def test_icm_04_ipv6_errors_quote_what_fits_into_1280_bytes(length: int) -> None:
    packet = ipv6(udp(length - 40))
    for message in all_kinds(packet):
        assert message is not None
        assert_valid(message)
        assert len(message) == 48 + min(length, 1232) <= 1280
        assert message[48:] == packet[:1232]


def test_icm_05_the_quote_is_the_packet_as_it_arrived_also_where_we_lower_the_hop_count() -> None:
    ours = Forwarder(policy=Policy(), icmp=errors(), mtu=1300, hop_limit=HopLimit.DECREMENT)
    packets = [
        ipv4(udp(1300), df=True, ttl=64, tos=0xFF),
        ipv6(udp(1300), hop_limit=64, traffic_class=0xFF, flow_label=0xABCDE),
        ipv4(udp(), ttl=1, options=b"\x07\x07\x04\x01\x02\x03\x04\x00"),
        ipv6(udp(), hop_limit=0),
    ]
    replies = ours.forward(packets, NOW).replies
    assert [reply[28 if reply[0] == 0x45 else 48 :] for reply in replies] == [
        packets[0][:548],
        packets[1][:1232],
        packets[2],
        packets[3],
    ]


# what must not be answered


@pytest.mark.parametrize("icmp_type", ERROR_TYPES4)
def test_icm_06_no_error_answers_an_icmpv4_error(icmp_type: int) -> None:
    assert all_kinds(icmp4(icmp_type, rest=bytes(4) + PLAIN4, df=True)) == [None] * 3
    assert all_kinds(icmp4(icmp_type, rest=bytes(4) + PLAIN4, df=True, options=b"\x01" * 8)) == [None] * 3


@pytest.mark.parametrize("icmp_type", ERROR_TYPES6)
def test_icm_06_no_error_answers_an_icmpv6_error_or_redirect(icmp_type: int) -> None:
    assert all_kinds(icmp6(icmp_type, rest=bytes(4) + PLAIN6)) == [None] * 3


@pytest.mark.parametrize("icmp_type", ERROR_TYPES6)
@pytest.mark.parametrize(
    ("first", "chain"),
    [
        (60, extension(58)),
        (0, extension(60) + extension(58, 24)),
        (43, extension(58, body=b"\x04")),
        (44, fragment6(58)),
        (44, fragment6(58, more=True)),
        (51, authentication(58, 24)),
        (0, extension(43) + extension(44, 16, body=b"\x03") + fragment6(51, more=True) + authentication(58)),
    ],
)
def test_icm_06_extension_headers_hide_no_error(icmp_type: int, first: int, chain: bytes) -> None:
    message = icmp6_message(CLIENT6, HOST6, icmp_type, rest=bytes(4) + PLAIN6)
    assert all_kinds(ipv6(chain + message, next_header=first)) == [None] * 3


def test_icm_06_a_message_cut_before_its_type_may_be_an_error() -> None:
    for packet in (ipv4(b"", protocol=1, df=True), ipv6(b"", next_header=58), ipv6(extension(58), next_header=60)):
        assert all_kinds(packet) == [None] * 3


@pytest.mark.parametrize("icmp_type", INFORMATIONAL4)
def test_icm_06_informational_icmpv4_is_answered(icmp_type: int) -> None:
    assert None not in all_kinds(icmp4(icmp_type, df=True))


@pytest.mark.parametrize("icmp_type", INFORMATIONAL6)
def test_icm_06_informational_icmpv6_is_answered(icmp_type: int) -> None:
    assert None not in all_kinds(icmp6(icmp_type))


def test_icm_06_the_numbers_of_icmp_mean_nothing_in_the_other_family() -> None:
    assert None not in all_kinds(ipv4(b"\x01\x00" + bytes(6), protocol=58, df=True))
    assert None not in all_kinds(ipv6(b"\x03\x00" + bytes(6), next_header=1))


def test_icm_07_later_fragments_are_not_answered_and_first_ones_are() -> None:
    assert None not in all_kinds(ipv4(udp(), mf=True, df=True))
    assert all_kinds(ipv4(bytes(8), offset=8, df=True)) == [None] * 3
    assert all_kinds(ipv4(bytes(8), offset=8, mf=True, df=True)) == [None] * 3
    assert None not in all_kinds(ipv6(fragment6(UDP, more=True) + udp(), next_header=44))
    assert all_kinds(ipv6(fragment6(UDP, offset=8) + bytes(8), next_header=44)) == [None] * 3


@pytest.mark.parametrize("destination", ["224.0.0.1", "239.255.0.1", "255.255.255.255", "240.0.0.1"])
def test_icm_07_ipv4_broadcast_and_multicast_are_not_answered(destination: str) -> None:
    assert all_kinds(ipv4(udp(), destination=destination, df=True)) == [None] * 3


@pytest.mark.parametrize(
    "source", ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"]
)
def test_icm_07_invalid_ipv4_sources_are_not_answered(source: str) -> None:
    assert all_kinds(ipv4(udp(), source=source, df=True)) == [None] * 3


def test_icm_07_icm_24_a_bad_header_is_not_answered() -> None:
    for packet in (
        PLAIN4[:-1],
        PLAIN4 + b"\x00",
        PLAIN4[:10] + b"\x00\x00" + PLAIN4[12:],
        PLAIN6[:-1],
        b"",
        b"\x45",
    ):
        assert all_kinds(packet) == [None] * 3


@pytest.mark.parametrize("destination", ["ff02::1", "ff05::2", "ff0e::1"])
def test_icm_08_ipv6_multicast_is_told_too_big_and_nothing_else(destination: str) -> None:
    too_big, expired, unreachable = all_kinds(ipv6(udp(1400), destination=destination))
    assert said(too_big) == (2, 0)
    assert (expired, unreachable) == (None, None)


def test_icm_08_too_big_for_multicast_comes_out_of_forwarding() -> None:
    ours = Forwarder(policy=Policy(), icmp=errors(), mtu=1300)
    forwarded = ours.forward([ipv6(udp(1400), destination="ff0e::1")], NOW)
    assert [said(reply) for reply in forwarded.replies] == [(2, 0)]


@pytest.mark.parametrize("source", ["::", "::1", "ff02::1", "ff0e::1", "::ffff:192.0.2.1"])
def test_icm_08_ipv6_sources_that_are_no_single_host_are_not_answered(source: str) -> None:
    assert all_kinds(ipv6(udp(), source=source)) == [None] * 3


# how often


@pytest.mark.parametrize("packet", [ipv6(udp(), hop_limit=1), ipv4(udp(), ttl=1)], ids=["icm_09 v6", "icm_10 v4"])
def test_icm_09_icm_10_ten_thousand_bad_packets_get_no_more_than_burst_and_rate(packet: bytes) -> None:
    speaker = errors(rate=10, burst=10)
    ours = Forwarder(policy=Policy(), icmp=speaker, hop_limit=HopLimit.DECREMENT)
    answered = 0
    for step in range(1000):  # ten packets each 2 ms: two seconds
        answered += len(ours.forward([packet] * 10, NOW + step * 0.002).replies)
    assert 10 + 19 <= answered <= 10 + 20
    assert speaker.suppressed == {Suppressed.RATE_LIMITED: 10_000 - answered}


def test_icm_09_traceroute_gets_all_its_three_answers_at_once_by_default() -> None:
    speaker = IcmpErrors(address4=ip_address(SERVER4), address6=ip_address(SERVER6))
    ours = Forwarder(policy=Policy(), icmp=speaker, hop_limit=HopLimit.DECREMENT)
    probes = [ipv6(udp(destination_port=33434 + number), hop_limit=1) for number in range(3)]
    assert len(ours.forward(probes, NOW).replies) == 3


@pytest.mark.parametrize("version", [4, 6])
def test_icm_09_when_a_path_shrinks_every_flow_of_a_burst_is_told(version: int) -> None:
    speaker = IcmpErrors(address4=ip_address(SERVER4), address6=ip_address(SERVER6))
    ours = Forwarder(policy=Policy(), icmp=speaker, mtu=1300)
    for _ in range(1000):  # the other bucket is empty, and that does not matter
        speaker.time_exceeded(PLAIN6, NOW)
    flows = [udp(1400, source_port=10_000 + number) for number in range(300)]
    packets = [ipv4(each, df=True) if version == 4 else ipv6(each) for each in flows]
    assert len(ours.forward(packets, NOW).replies) == 300


def test_icm_09_too_big_messages_are_limited_too() -> None:
    speaker = errors(rate=10, burst=10)
    answered = sum(speaker.too_big(PLAIN6, 1300, NOW) is not None for _ in range(5000))
    assert answered == 100


def test_icm_09_too_big_messages_leave_the_others_their_share() -> None:
    speaker = errors(rate=0, burst=10)
    for _ in range(5000):
        speaker.too_big(PLAIN6, 1300, NOW)
    assert speaker.time_exceeded(PLAIN6, NOW) is not None


# from whom, to whom


def test_icm_11_the_ipv4_source_is_our_address_on_the_tunnel() -> None:
    for message in all_kinds(PLAIN4):
        assert message is not None
        assert message[12:20] == packed(SERVER4) + packed(CLIENT4)


def test_icm_12_the_ipv6_source_is_ours_and_never_the_unreachable_destinations() -> None:
    for destination in (HOST6, SERVER6, "ff0e::1"):
        message = errors().too_big(ipv6(udp(), destination=destination), 1300, NOW)
        assert message is not None
        assert message[8:40] == packed(SERVER6) + packed(CLIENT6)


@pytest.mark.parametrize("hop_limit", [0, 1])
def test_icm_13_cip_68_a_hop_count_that_ends_here_is_answered_and_the_packet_dropped(hop_limit: int) -> None:
    ours = Forwarder(policy=Policy(), icmp=errors(), hop_limit=HopLimit.DECREMENT)
    packets = [ipv4(udp(), ttl=hop_limit), ipv6(udp(), hop_limit=hop_limit)]
    for _ in range(2):  # the second time the addresses are known
        forwarded = ours.forward(packets, NOW)
        assert forwarded.packets == []
        assert forwarded.replies == [error4(11, 0, bytes(4), packets[0]), error6(3, 0, bytes(4), packets[1])]
        assert forwarded.drops == {DropReason.HOP_LIMIT: 2}
        assert len(ours.forward([ipv4(udp()), ipv6(udp())], NOW).packets) == 2


def test_icm_13_an_expired_multicast_packet_is_dropped_in_silence() -> None:
    ours = Forwarder(policy=Policy(), icmp=errors(), hop_limit=HopLimit.DECREMENT)
    packets = [ipv4(udp(), ttl=1, destination="239.1.1.1"), ipv6(udp(), hop_limit=1, destination="ff0e::1")]
    forwarded = ours.forward(packets, NOW)
    assert (forwarded.replies, forwarded.drops) == ([], {DropReason.HOP_LIMIT: 2})


@pytest.mark.parametrize("hop_limit", [0, 1])
def test_icm_13_a_packet_for_us_is_accepted_with_any_hop_count(hop_limit: int) -> None:
    ours = Forwarder(policy=Policy(), icmp=errors(), hop_limit=HopLimit.DECREMENT)
    packets = [
        ipv4(udp(), ttl=hop_limit, destination=SERVER4),
        ipv6(udp(), hop_limit=hop_limit, destination=SERVER6),
    ]
    assert ours.forward(packets, NOW).packets == packets
    request = icmp6(128, destination=SERVER6, hop_limit=hop_limit)
    assert answer_echo(request, ip_address(SERVER6)) is not None


# too big


@pytest.mark.parametrize(("mtu", "told"), [(1500, 1500), (1400, 1400), (1280, 1280), (1279, 1280), (1168, 1280)])
def test_icm_14_pmt_14_ipv6_is_told_the_mtu_and_never_less_than_1280(mtu: int, told: int) -> None:
    packet = ipv6(udp(1500))
    forwarded = Forwarder(policy=Policy(), icmp=errors(), mtu=mtu).forward([packet], NOW)
    assert forwarded.replies == [error6(2, 0, told.to_bytes(4, "big"), packet[:1232])]
    assert forwarded.drops == {DropReason.TOO_BIG: 1}


def test_icm_14_even_ipv6_fragments_are_told_since_no_router_fragments_them() -> None:
    packet = ipv6(fragment6(UDP, more=True) + udp(1400), next_header=44)
    forwarded = Forwarder(policy=Policy(), icmp=errors(), mtu=1300).forward([packet], NOW)
    assert [said(reply) for reply in forwarded.replies] == [(2, 0)]


@pytest.mark.parametrize("mtu", [1440, 1300, 1168, 576])
def test_icm_15_pmt_08_fragmentation_needed_has_the_next_hop_mtu_in_its_low_half_word(mtu: int) -> None:
    packet = ipv4(udp(1480), df=True)
    (message,) = Forwarder(policy=Policy(), icmp=errors(), mtu=mtu).forward([packet], NOW).replies
    assert message[20:22] == b"\x03\x04"
    assert message[24:28] == b"\x00\x00" + mtu.to_bytes(2, "big")
    assert message == error4(3, 4, mtu.to_bytes(4, "big"), packet[:548])


# silence


@pytest.mark.parametrize(
    "reason",
    [
        DropReason.QUEUE_FULL,
        DropReason.QUEUE_TOO_OLD,
        DropReason.DATAGRAM_TOO_LARGE,
        DropReason.UDP_BLOCKED,
        DropReason.UDP_SEND,
        DropReason.TUN_WRITE,
        DropReason.NO_SESSION,
        DropReason.MALFORMED,
        DropReason.MARTIAN_SOURCE,
        DropReason.OWN_ADDRESS_SOURCE,
        DropReason.LINK_LOCAL,
    ],
)
def test_icm_16_congestion_and_what_nobody_should_hear_of_is_silent(reason: DropReason) -> None:
    for packet in (PLAIN4, PLAIN6):
        speaker = errors()
        assert speaker.unreachable(packet, reason, NOW) is None
        assert speaker.suppressed == {Suppressed.FORBIDDEN: 1}


def test_icm_17_nobodys_address_on_the_tunnel_is_address_unreachable() -> None:
    packet = ipv6(udp(), source=HOST6, destination="fd00:77::99")
    message = errors().unreachable(packet, DropReason.NO_ROUTE, NOW)
    assert message == icmp6(1, 3, rest=bytes(4) + packet, source=SERVER6, destination=HOST6)
    packet = ipv4(udp(), source=HOST4, destination="10.77.1.99")
    assert said(errors().unreachable(packet, DropReason.NO_ROUTE, NOW)) == (3, 1)


def test_icm_18_unreachables_can_be_switched_off_and_the_two_that_are_needed_stay() -> None:
    for packet, kinds in ((PLAIN4, [(3, 4), (11, 0)]), (PLAIN6, [(2, 0), (3, 0)])):
        speaker = errors(enabled=False)
        too_big, expired, unreachable = all_kinds(packet, speaker)
        assert [said(too_big), said(expired)] == kinds
        assert unreachable is None
        assert speaker.suppressed == {Suppressed.SWITCHED_OFF: 1}
        speaker.enabled = True
        assert None not in all_kinds(packet, speaker)


def test_icm_28_no_source_quench_whatever_is_dropped() -> None:
    for reason in DropReason:
        message = errors().unreachable(PLAIN4, reason, NOW)
        assert message is None or message[20] == 3


# the rest of the header


@pytest.mark.parametrize("hop_limit", [1, 2, 64, 255])
def test_icm_19_an_error_has_a_ttl_of_its_own(hop_limit: int) -> None:
    for message in all_kinds(ipv4(udp(), ttl=hop_limit, df=True)):
        assert message is not None
        assert message[8] == 64
    for message in all_kinds(ipv6(udp(), hop_limit=hop_limit)):
        assert message is not None
        assert message[7] == 64


@pytest.mark.parametrize(("tos", "answered"), [(0, 0xC0), (0x10, 0xD0), (0xB8, 0xD8), (0x03, 0xC0), (0xFF, 0xDC)])
def test_icm_20_precedence_is_network_control_the_tos_the_packets_and_ecn_none(tos: int, answered: int) -> None:
    for message in all_kinds(ipv4(udp(), tos=tos, df=True)):
        assert message is not None
        assert message[1] == answered


@pytest.mark.parametrize("length", [48, 49, 1231, 1500])
def test_icm_21_the_icmpv6_checksum_covers_the_pseudo_header(length: int) -> None:
    for message in all_kinds(ipv6(udp(length - 40))):
        assert message is not None
        assert_valid(message)
        assert message[42:44] != b"\x00\x00"


# echoes, and what we receive


def test_icm_22_an_echo_request_is_answered_from_where_it_was_sent_to_with_its_data() -> None:
    data = b"\x12\x34\x00\x01" + bytes(range(256))
    assert answer_echo(icmp4(8, rest=data, destination=SERVER4), ip_address(SERVER4)) == icmp4(
        0, rest=data, source=SERVER4, destination=CLIENT4
    )
    expected = icmp6(129, rest=data, source=SERVER6, destination=CLIENT6)
    assert answer_echo(icmp6(128, rest=data, destination=SERVER6), ip_address(SERVER6)) == expected


def test_icm_22_a_multicast_echo_request_is_answered_from_a_unicast_address() -> None:
    data = b"\x12\x34\x00\x01" + bytes(range(256))
    expected = icmp6(129, rest=data, source=SERVER6, destination=CLIENT6)
    assert answer_echo(icmp6(128, rest=data, destination="ff02::1"), ip_address(SERVER6)) == expected


@pytest.mark.parametrize("icmp_type", [5, 99, 100, 126, 127])
def test_icm_23_errors_of_unknown_type_are_passed_on(icmp_type: int) -> None:
    packet = icmp6(icmp_type, rest=bytes(4) + PLAIN6, source=HOST6, destination=CLIENT6)
    assert Forwarder(policy=Policy(), icmp=errors()).forward([packet], NOW).packets == [packet]


@pytest.mark.parametrize("icmp_type", [138, 150, 200, 254, 255])
def test_icm_23_informational_messages_of_unknown_type_are_not_answered(icmp_type: int) -> None:
    for destination in (SERVER6, "ff02::1"):
        assert answer_echo(icmp6(icmp_type, destination=destination), ip_address(SERVER6)) is None
    forwarded = Forwarder(policy=Policy(), icmp=errors()).forward([icmp6(icmp_type, destination="ff02::1")], NOW)
    assert (forwarded.packets, forwarded.replies) == ([], [])
    assert forwarded.drops == {DropReason.LINK_LOCAL: 1}


def changed(packet: bytes, position: int, value: int) -> bytes:
    """The packet with one byte changed and an IPv4 checksum to match, so that only that byte is wrong."""
    header = packet[:position] + bytes([value]) + packet[position + 1 :]
    words = [int.from_bytes(header[i : i + 2], "big") for i in range(0, 20, 2) if i != 10]
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + (total ^ 0xFFFF).to_bytes(2, "big") + header[12:]


@pytest.mark.parametrize(
    "packet",
    [
        PLAIN4[:19],
        PLAIN4[:8] + b"\x41" + PLAIN4[9:],
        changed(PLAIN4, 0, 0x55),
        changed(PLAIN4, 0, 0x44),
        changed(PLAIN4, 0, 0x40),
        changed(PLAIN4, 3, 0x10),
        changed(PLAIN4, 2, 0x40),
        PLAIN4 + b"\x00",
        PLAIN4[:-1],
    ],
    ids=["short", "checksum", "version", "ihl 4", "ihl 0", "total below ihl", "total above", "longer", "shorter"],
)
def test_icm_24_the_five_checks_of_ipv4_drop_silently_and_count(packet: bytes) -> None:
    ours = Forwarder(policy=Policy(), icmp=errors())
    ours.forward([PLAIN4], NOW)
    forwarded = ours.forward([packet], NOW)
    assert (forwarded.packets, forwarded.replies) == ([], [])
    assert forwarded.drops == {DropReason.MALFORMED: 1}


def test_icm_24_the_checksum_covers_the_options() -> None:
    packet = ipv4(udp(), options=b"\x01\x01\x01\x00")
    ours = Forwarder(policy=Policy(), icmp=errors())
    assert ours.forward([packet], NOW).packets == [packet]
    assert ours.forward([packet[:20] + b"\x00" + packet[21:]], NOW).drops == {DropReason.MALFORMED: 1}


@pytest.mark.parametrize(
    "source", ["0.0.0.0", "127.0.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"]
)
def test_icm_25_martians_are_not_forwarded(source: str) -> None:
    forwarded = Forwarder(policy=Policy(), icmp=errors()).forward([ipv4(udp(), source=source)], NOW)
    assert (forwarded.packets, forwarded.replies) == ([], [])
    assert forwarded.drops == {DropReason.MARTIAN_SOURCE: 1}


@pytest.mark.parametrize("destination", ["0.0.0.0", "127.0.0.1", "240.0.0.1"])
def test_icm_25_nor_is_what_goes_to_such_an_address(destination: str) -> None:
    scope = [IpRange.of_network(ip_network("0.0.0.0/0"))]
    ours = Forwarder(policy=Policy(destinations=scope), icmp=errors())
    assert ours.forward([ipv4(udp(), destination=destination)], NOW).drops == {
        DropReason.DESTINATION_NOT_ALLOWED: 1
    }
