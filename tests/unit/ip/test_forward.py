"""qtunnel.ip.forward: the pass over a burst. What RFCs demand of it is in tests/conformance."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.drops import DropReason
from qtunnel.errors import MalformedPacketError
from qtunnel.ip.forward import Forwarder, HopLimit, IcmpErrors, Suppressed
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
    assert_valid,
    extension,
    icmp4,
    icmp6,
    ipv4,
    ipv6,
    packed,
    reassemble4,
    udp,
)

NOW = 1000.0


def icmp_errors(*, rate: float = 100.0, burst: int = 50, enabled: bool = True) -> IcmpErrors:
    return IcmpErrors(
        address4=ip_address(SERVER4), address6=ip_address(SERVER6), rate=rate, burst=burst, enabled=enabled
    )


def forwarder(
    policy: Policy | None = None, *, mtu: int | None = 1400, hop_limit: HopLimit = HopLimit.KEEP
) -> Forwarder:
    return Forwarder(policy=policy or Policy(), icmp=icmp_errors(), mtu=mtu, hop_limit=hop_limit)


def test_an_empty_burst_gives_nothing() -> None:
    forwarded = forwarder().forward([], NOW)
    assert (forwarded.packets, forwarded.replies, forwarded.drops) == ([], [], {})


def test_what_may_pass_is_passed_on_unchanged_and_in_order() -> None:
    burst = [
        ipv4(udp(), protocol=protocol, source=source, identification=number)
        for number, (protocol, source) in enumerate(
            [(UDP, CLIENT4), (TCP, "10.0.0.9"), (UDP, CLIENT4), (47, CLIENT4)]
        )
    ] + [ipv6(udp()), ipv6(extension(UDP) + udp(), next_header=60), ipv6(udp(9))]
    ours = forwarder()
    for _ in range(2):  # the second time the pairs are known
        forwarded = ours.forward(burst, NOW)
        assert forwarded.packets == burst
        assert all(ours_ is theirs for ours_, theirs in zip(forwarded.packets, burst, strict=True))
        assert (forwarded.replies, forwarded.drops) == ([], {})


def test_each_drop_is_counted_and_the_rest_passes() -> None:
    policy = Policy(sources=[ip_network("10.77.1.2/32"), ip_network("fd00:77::2/128")])
    good4, good6 = ipv4(udp()), ipv6(udp())
    burst = [
        good4,
        b"",
        ipv4(udp(), source="10.77.1.3"),
        good6,
        ipv6(udp(), source="::1"),
        ipv4(udp(1400), df=True),
        good4 + b"\x00",
        good4,
    ]
    forwarded = forwarder(policy).forward(burst, NOW)
    assert forwarded.packets == [good4, good6, good4]
    assert forwarded.drops == {
        DropReason.MALFORMED: 2,
        DropReason.SOURCE_NOT_ALLOWED: 1,
        DropReason.MARTIAN_SOURCE: 1,
        DropReason.TOO_BIG: 1,
    }
    assert len(forwarded.replies) == 2


def test_a_new_policy_holds_from_the_next_burst_on() -> None:
    ours = forwarder()
    packet = ipv4(udp())
    assert ours.forward([packet], NOW).packets == [packet]
    ours.policy = Policy(sources=[])
    assert ours.forward([packet], NOW).drops == {DropReason.SOURCE_NOT_ALLOWED: 1}
    ours.policy = Policy()
    assert ours.forward([packet], NOW).packets == [packet]


def test_a_new_mtu_holds_from_the_next_burst_on_also_for_known_pairs() -> None:
    ours = forwarder(mtu=None)
    packets = [ipv4(udp(1400), df=True), ipv6(udp(1400))]
    assert ours.forward(packets, NOW).packets == packets
    assert ours.forward(packets, NOW).packets == packets
    ours.mtu = 1400
    assert ours.forward(packets, NOW).drops == {DropReason.TOO_BIG: 2}
    ours.mtu = 1440
    assert ours.forward(packets, NOW).packets == packets


def test_a_new_hop_limit_mode_holds_from_the_next_burst_on() -> None:
    ours = forwarder()
    packet = ipv4(udp(), ttl=64)
    assert ours.forward([packet], NOW).packets == [packet]
    ours.hop_limit = HopLimit.DECREMENT
    assert ours.forward([packet], NOW).packets == [ipv4(udp(), ttl=63)]


@pytest.mark.parametrize("known", [False, True])
def test_size_is_checked_to_the_byte_for_new_and_known_pairs(known: bool) -> None:
    ours = forwarder(mtu=1300)
    if known:
        ours.forward([ipv4(udp()), ipv6(udp())], NOW)
    fits = [ipv4(udp(1280), df=True), ipv6(udp(1260))]
    assert ours.forward(fits, NOW).packets == fits
    assert ours.forward([ipv4(udp(1281), df=True), ipv6(udp(1261))], NOW).drops == {DropReason.TOO_BIG: 2}


@pytest.mark.parametrize("known", [False, True])
def test_validity_is_checked_for_new_and_known_pairs(known: bool) -> None:
    ours = forwarder()
    good4, good6 = ipv4(udp()), ipv6(udp())
    if known:
        ours.forward([good4, good6], NOW)
    bad = [good4 + b"\x00", good4[:-1], good4[:8] + b"\x41" + good4[9:], good6 + b"\x00", good6[:-1]]
    forwarded = ours.forward(bad, NOW)
    assert (forwarded.packets, forwarded.drops) == ([], {DropReason.MALFORMED: 5})
    assert forwarded.replies == []


@pytest.mark.parametrize("known", [False, True])
def test_fragments_and_extension_headers_are_looked_into_for_new_and_known_pairs(known: bool) -> None:
    ours = forwarder()
    if known:
        ours.forward([ipv4(udp()), ipv6(udp())], NOW)
    packets = [
        ipv4(bytes(8), offset=65528),
        ipv6(extension(UDP, 24) + udp(), next_header=43),
        ipv6(b"\x11\xff" + bytes(6), next_header=60),
    ]
    forwarded = ours.forward(packets, NOW)
    assert (forwarded.packets, forwarded.drops) == ([], {DropReason.MALFORMED: 2, DropReason.ROUTING_HEADER: 1})


def test_fragments_take_the_place_of_their_packet() -> None:
    before, big, after = (
        ipv4(udp(), identification=1),
        ipv4(udp(1480), identification=2),
        ipv4(udp(), identification=3),
    )
    forwarded = forwarder().forward([before, big, after], NOW)
    assert [packet[4:6] for packet in forwarded.packets] == [b"\x00\x01", b"\x00\x02", b"\x00\x02", b"\x00\x03"]
    assert reassemble4(forwarded.packets[1:3]) == (udp(1480), False)
    assert (forwarded.replies, forwarded.drops) == ([], {})


def test_a_packet_that_cannot_be_cut_because_of_its_options_is_malformed() -> None:
    forwarded = forwarder().forward([ipv4(udp(1480), options=b"\x94\x09\x00\x00")], NOW)
    assert (forwarded.packets, forwarded.replies, forwarded.drops) == ([], [], {DropReason.MALFORMED: 1})


def test_an_mtu_without_room_for_a_fragment_drops_in_silence() -> None:
    forwarded = forwarder(mtu=27).forward([ipv4(udp())], NOW)
    assert (forwarded.packets, forwarded.replies, forwarded.drops) == ([], [], {DropReason.TOO_BIG: 1})


def test_fragments_of_a_packet_we_route_have_the_lowered_ttl() -> None:
    forwarded = forwarder(hop_limit=HopLimit.DECREMENT).forward([ipv4(udp(1480), ttl=9)], NOW)
    assert [packet[8] for packet in forwarded.packets] == [8, 8]
    for packet in forwarded.packets:
        assert_valid(packet)


def test_ipv6_is_never_held_to_less_than_1280() -> None:
    ours = forwarder(mtu=1200)
    assert ours.forward([ipv6(udp(1240))], NOW).packets == [ipv6(udp(1240))]
    forwarded = ours.forward([ipv6(udp(1241)), ipv4(udp(1240), df=True)], NOW)
    assert forwarded.drops == {DropReason.TOO_BIG: 2}
    assert int.from_bytes(forwarded.replies[0][44:48], "big") == 1280
    assert int.from_bytes(forwarded.replies[1][24:28], "big") == 1200


def test_without_icmp_everything_is_only_counted() -> None:
    ours = Forwarder(policy=Policy(sources=[]), icmp=None, mtu=1400, hop_limit=HopLimit.DECREMENT)
    burst = [ipv4(udp()), icmp6(128, destination="ff02::1")]
    assert ours.forward(burst, NOW).drops == {DropReason.SOURCE_NOT_ALLOWED: 1, DropReason.LINK_LOCAL: 1}
    ours.policy = Policy()
    forwarded = ours.forward([ipv4(udp(), ttl=1), ipv6(udp(1400))], NOW)
    assert forwarded.drops == {DropReason.HOP_LIMIT: 1, DropReason.TOO_BIG: 1}
    assert forwarded.replies == []


def test_a_family_without_an_address_of_ours_stays_silent() -> None:
    errors = IcmpErrors(address4=None, address6=None)
    ours = Forwarder(policy=Policy(sources=[]), icmp=errors)
    assert ours.forward([ipv4(udp()), ipv6(udp())], NOW).replies == []
    assert errors.suppressed == {Suppressed.NO_ADDRESS: 2}
    errors.address4 = ip_address(SERVER4)
    assert len(ours.forward([ipv4(udp()), ipv6(udp())], NOW).replies) == 1


def test_sent_and_suppressed_are_counted_by_reason() -> None:
    errors = icmp_errors(rate=0, burst=1)
    assert errors.time_exceeded(ipv4(udp()), NOW) is not None
    assert errors.time_exceeded(ipv4(udp()), NOW) is None
    assert errors.time_exceeded(icmp4(3), NOW) is None
    assert errors.unreachable(ipv4(udp()), DropReason.QUEUE_FULL, NOW) is None
    assert errors.too_big(b"nonsense", 1400, NOW) is None
    assert errors.sent == 1
    assert errors.suppressed == {Suppressed.RATE_LIMITED: 1, Suppressed.FORBIDDEN: 3}


def test_what_is_forbidden_uses_up_no_token() -> None:
    errors = icmp_errors(rate=0, burst=1)
    for _ in range(10):
        assert errors.unreachable(icmp4(3), DropReason.NO_ROUTE, NOW) is None
    assert errors.unreachable(ipv4(udp()), DropReason.NO_ROUTE, NOW) is not None


def test_a_packet_for_us_that_would_expire_here_has_arrived() -> None:
    ours = forwarder(hop_limit=HopLimit.DECREMENT)
    packets = [ipv4(udp(), destination=SERVER4, ttl=0), ipv6(udp(), destination=SERVER6, hop_limit=1)]
    forwarded = ours.forward(packets, NOW)
    assert (forwarded.packets, forwarded.drops) == (packets, {})


def test_a_packet_for_us_at_its_last_hop_has_to_fit_like_any_other() -> None:
    ours = forwarder(mtu=1300, hop_limit=HopLimit.DECREMENT)
    forwarded = ours.forward([ipv6(udp(1261), destination=SERVER6, hop_limit=1)], NOW)
    assert (forwarded.packets, forwarded.drops) == ([], {DropReason.TOO_BIG: 1})


def test_link_local_echoes_from_our_own_end_go_to_the_other_and_nothing_else_does() -> None:
    ours = forwarder(Policy(link_local=True))
    echo = icmp6(128, destination="ff02::1")
    router_solicitation = icmp6(133, destination="ff02::2", hop_limit=255)
    multicast_dns = ipv6(udp(destination_port=5353), destination="ff02::fb")
    forwarded = ours.forward([echo, router_solicitation, multicast_dns], NOW)
    assert forwarded.packets == [echo]
    assert forwarded.drops == {DropReason.LINK_LOCAL: 2}
    assert forwarded.replies == []


def test_a_link_local_echo_from_our_own_end_has_to_fit_like_any_other() -> None:
    ours = forwarder(Policy(link_local=True), mtu=1300)
    forwarded = ours.forward([icmp6(128, rest=bytes(1257), destination="ff02::1")], NOW)
    assert (forwarded.packets, forwarded.drops) == ([], {DropReason.TOO_BIG: 1})
    assert len(forwarded.replies) == 1


def one_by_one(policy: Policy, packets: Sequence[bytes], mtu: int, hop_limit: HopLimit) -> list[bytes]:
    """What passes by the rules as they are told, with no short way for the usual packet."""
    passed = []
    for packet in packets:
        try:
            header = parse_header(packet)
        except MalformedPacketError:
            continue
        limit = mtu if header.version == 4 else max(mtu, 1280)
        lowered = hop_limit is HopLimit.DECREMENT
        if policy.check(header) is not None or len(packet) > limit or (lowered and header.hop_limit <= 1):
            continue
        if lowered:
            position = 8 if header.version == 4 else 7
            changed = bytearray(packet)
            changed[position] -= 1
            if header.version == 4:
                changed[10:12] = b"\x00\x00"
                number = sum(int.from_bytes(changed[i : i + 2], "big") for i in range(0, header.header_length, 2))
                number = (number & 0xFFFF) + (number >> 16)
                number = (number & 0xFFFF) + (number >> 16)
                changed[10:12] = (number ^ 0xFFFF).to_bytes(2, "big")
            packet = bytes(changed)
        passed.append(packet)
    return passed


PACKETS4 = st.builds(
    ipv4,
    st.sampled_from([udp(), udp(1300), udp(1380), udp(1381)]),
    source=st.sampled_from([CLIENT4, "10.77.1.3", SERVER4, "127.0.0.1"]),
    destination=st.sampled_from([HOST4, "203.0.113.5", "224.0.0.1", "192.0.2.1"]),
    protocol=st.sampled_from([1, TCP, UDP, 58]),
    ttl=st.sampled_from([0, 1, 2, 64, 255]),
    df=st.just(True),
    options=st.sampled_from([b"", b"\x01\x01\x01\x00"]),
)
PACKETS6 = st.builds(
    ipv6,
    st.sampled_from([udp(), udp(1240), udp(1360), udp(1361), extension(UDP) + udp()]),
    source=st.sampled_from([CLIENT6, "fd00:77::3", SERVER6, "::1"]),
    destination=st.sampled_from([HOST6, "2001:db8:2::1", "ff02::1", "ff0e::1"]),
    next_header=st.sampled_from([1, TCP, UDP, 58, 43, 60]),
    hop_limit=st.sampled_from([0, 1, 2, 64, 255]),
)
POLICY_RULES = {
    "sources": [ip_network("10.77.1.2/31"), ip_network("fd00:77::/64")],
    "destinations": [
        IpRange.of_network(ip_network("198.51.100.0/24"), UDP),
        IpRange.of_network(ip_network("203.0.113.0/24")),
        IpRange.of_network(ip_network("2001:db8::/32"), UDP),
        IpRange.of_network(ip_network("ff00::/8")),
    ],
    "own_addresses": [ip_address(SERVER4), ip_address(SERVER6)],
}


@given(
    st.lists(st.one_of(PACKETS4, PACKETS6, st.binary(max_size=60)), max_size=12),
    st.sampled_from([1200, 1280, 1400]),
    st.sampled_from(HopLimit),
)
def test_the_short_way_judges_as_the_long_one(packets: list[bytes], mtu: int, hop_limit: HopLimit) -> None:
    ours = Forwarder(policy=Policy(**POLICY_RULES), icmp=None, mtu=mtu, hop_limit=hop_limit)  # type: ignore[arg-type]
    expected = one_by_one(Policy(**POLICY_RULES), packets, mtu, hop_limit)  # type: ignore[arg-type]
    for _ in range(2):
        forwarded = ours.forward(packets, NOW)
        assert forwarded.packets == expected
        assert len(forwarded.packets) + sum(forwarded.drops.values()) == len(packets)


def test_source_of_an_error_is_where_it_is_sent_back_to() -> None:
    forwarded = forwarder(Policy(sources=[])).forward([ipv4(udp()), ipv6(udp())], NOW)
    assert forwarded.replies[0][12:20] == packed(SERVER4) + packed(CLIENT4)
    assert forwarded.replies[1][8:40] == packed(SERVER6) + packed(CLIENT6)
