"""Forwarding of inner packets: RFC 9484 §4.6, §4.8, §7 and §10, RFC 1812, RFC 2473, RFC 6040.

Here is what the pass over a burst decides; tests/linux shows the same with a kernel around it.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from qtunnel.drops import DropReason
from qtunnel.ip.forward import Forwarder, HopLimit, IcmpErrors
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
    authentication,
    extension,
    fragment6,
    icmp4,
    icmp6,
    ipv4,
    ipv6,
    packed,
    reassemble4,
    udp,
)

NOW = 7.0
EVERYWHERE = ("0.0.0.0/0", "::/0")


def ranges(*networks: str, protocol: int = 0) -> list[IpRange]:
    return [IpRange.of_network(ip_network(network), protocol) for network in networks]


def forwarder(
    policy: Policy | None = None,
    *,
    mtu: int | None = None,
    hop_limit: HopLimit = HopLimit.KEEP,
    address4: str = SERVER4,
    address6: str = SERVER6,
) -> Forwarder:
    errors = IcmpErrors(address4=ip_address(address4), address6=ip_address(address6))
    return Forwarder(policy=policy or Policy(), icmp=errors, mtu=mtu, hop_limit=hop_limit)


def from_clients() -> Forwarder:
    """The server's side of what comes out of the tunnel: a client with its two addresses, offered everything."""
    return forwarder(
        Policy(
            sources=[ip_network(f"{CLIENT4}/32"), ip_network(f"{CLIENT6}/128")],
            destinations=ranges(*EVERYWHERE),
            own_addresses=[ip_address(SERVER4), ip_address(SERVER6)],
        )
    )


def type_and_code(reply: bytes) -> tuple[int, int]:
    assert_valid(reply)
    offset = 20 if reply[0] == 0x45 else 40
    return reply[offset], reply[offset + 1]


# scope


@pytest.mark.parametrize("protocol", [TCP, UDP, 132, 58])
def test_cip_32_icmp_passes_whatever_the_protocol_of_the_routes(protocol: int) -> None:
    ours = forwarder(Policy(destinations=ranges(*EVERYWHERE, protocol=protocol)))
    pings = [icmp4(8), icmp6(128), icmp4(3, 4, rest=bytes(4) + ipv4(udp())), icmp6(2, rest=bytes(4) + ipv6(udp()))]
    assert ours.forward(pings, NOW).packets == pings
    assert ours.forward(pings, NOW).packets == pings


def test_cip_32_icmp_of_the_other_family_is_a_protocol_like_any_other() -> None:
    ours = forwarder(Policy(destinations=ranges(*EVERYWHERE, protocol=UDP)))
    forwarded = ours.forward([ipv4(udp(), protocol=58), ipv6(udp(), next_header=1)], NOW)
    assert forwarded.drops == {DropReason.PROTOCOL_NOT_ALLOWED: 2}


def test_cip_32_icmp_passes_only_to_addresses_in_scope() -> None:
    ours = forwarder(Policy(destinations=ranges("198.51.100.0/24", protocol=UDP)))
    forwarded = ours.forward([icmp4(8, destination="203.0.113.1"), icmp6(128)], NOW)
    assert forwarded.drops == {DropReason.DESTINATION_NOT_ALLOWED: 2}


@pytest.mark.parametrize(
    ("first", "chain"),
    [
        (6, b""),
        (60, extension(6)),
        (0, extension(43) + extension(44, 24, body=b"\x04") + fragment6(6, more=True)),
        (0, extension(60, 16) + extension(51) + authentication(60, 24) + extension(6, 2048)),
    ],
)
def test_cip_58_the_protocol_is_looked_for_behind_all_extension_headers(first: int, chain: bytes) -> None:
    packet = ipv6(chain + bytes(24), next_header=first)
    assert forwarder(Policy(destinations=ranges("::/0", protocol=TCP))).forward([packet], NOW).packets == [packet]
    for other in (UDP, 60, 43, 44, 51):
        forwarded = forwarder(Policy(destinations=ranges("::/0", protocol=other))).forward([packet], NOW)
        assert forwarded.drops == {DropReason.PROTOCOL_NOT_ALLOWED: 1}


def test_cip_58_icmp_behind_extension_headers_passes_too() -> None:
    packet = ipv6(extension(58) + icmp6(128)[40:], next_header=60)
    assert forwarder(Policy(destinations=ranges("::/0", protocol=TCP))).forward([packet], NOW).packets == [packet]


def test_cip_58_a_chain_that_leads_nowhere_is_no_way_round_the_scope() -> None:
    ours = forwarder(Policy(destinations=ranges("::/0", protocol=TCP)))
    packets = [
        ipv6(bytes([6, 255]) + bytes(60), next_header=60),
        ipv6(extension(60) * 40 + extension(6), next_header=60),
        ipv6(fragment6(17, offset=8) + bytes(16), next_header=44),
        ipv6(extension(50) + bytes(16), next_header=60),
    ]
    forwarded = ours.forward(packets, NOW)
    assert forwarded.drops == {DropReason.MALFORMED: 2, DropReason.PROTOCOL_NOT_ALLOWED: 2}


# bad packets


def test_cip_63_an_empty_packet_fails_the_checks_and_nothing_else_happens() -> None:
    good = ipv4(udp())
    forwarded = forwarder().forward([b"", good], NOW)
    assert (forwarded.packets, forwarded.replies, forwarded.drops) == ([good], [], {DropReason.MALFORMED: 1})


def test_cip_66_bad_packets_are_drops_and_never_an_error() -> None:
    good = ipv4(udp())
    bad = [
        b"\x00",
        b"\xff" * 1500,
        good[:10],
        good + b"\x00",
        ipv4(udp(), source="10.77.1.99"),
        ipv6(udp(), source="fd00:bad::1"),
        ipv4(udp(), source="127.0.0.1"),
        ipv6(b"", next_header=0),
        ipv6(extension(6), next_header=43),
    ]
    forwarded = from_clients().forward([*bad, good], NOW)
    assert forwarded.packets == [good]
    assert sum(forwarded.drops.values()) == len(bad)


# hop count


@pytest.mark.parametrize("options", [b"", b"\x94\x04\x00\x00", b"\x01" * 40], ids=["ihl 5", "ihl 6", "ihl 15"])
@pytest.mark.parametrize("ttl", [2, 64, 255])
def test_cip_67_dse_10_where_we_route_ttl_falls_by_one_and_the_checksum_covers_all_of_the_header(
    options: bytes, ttl: int
) -> None:
    ours = forwarder(hop_limit=HopLimit.DECREMENT)
    packet = ipv4(udp(), ttl=ttl, options=options)
    lowered = ipv4(udp(), ttl=ttl - 1, options=options)
    for _ in range(2):
        assert ours.forward([packet], NOW).packets == [lowered]
    assert_valid(lowered)


def test_cip_67_where_we_route_the_hop_limit_falls_by_one() -> None:
    ours = forwarder(hop_limit=HopLimit.DECREMENT)
    for _ in range(2):
        forwarded = ours.forward([ipv6(udp(), hop_limit=64), ipv6(udp(), hop_limit=2)], NOW)
        assert forwarded.packets == [ipv6(udp(), hop_limit=63), ipv6(udp(), hop_limit=1)]


def test_cip_67_where_a_kernel_routes_the_hop_count_is_left_alone() -> None:
    packets = [ipv4(udp(), ttl=ttl) for ttl in (0, 1, 64)] + [ipv6(udp(), hop_limit=limit) for limit in (0, 1, 64)]
    ours = forwarder()
    for _ in range(2):
        forwarded = ours.forward(packets, NOW)
        assert (forwarded.packets, forwarded.replies) == (packets, [])


def test_cip_68_a_packet_at_its_last_hop_is_dropped_and_answered() -> None:
    ours = forwarder(hop_limit=HopLimit.DECREMENT)
    for _ in range(2):  # the second time the addresses are known
        for hops in (1, 0):
            forwarded = ours.forward([ipv4(udp(), ttl=hops), ipv6(udp(), hop_limit=hops)], NOW)
            assert forwarded.packets == []
            assert [type_and_code(reply) for reply in forwarded.replies] == [(11, 0), (3, 0)]
        assert len(ours.forward([ipv4(udp()), ipv6(udp())], NOW).packets) == 2


# link-local


@pytest.mark.parametrize(
    "packet",
    [
        ipv6(udp(), source="fe80::1"),
        ipv6(udp(), destination="fe80::2"),
        ipv6(udp(), source="fe80::1", destination="fe80::2"),
        ipv6(udp(), destination="ff02::fb"),
        ipv6(udp(), destination="ff01::1"),
        ipv6(udp(), destination="ff12::1"),
        ipv4(udp(), source="169.254.7.7"),
        ipv4(udp(), destination="169.254.169.254"),
        ipv4(udp(), destination="224.0.0.251"),
        ipv4(udp(), destination="255.255.255.255"),
    ],
)
def test_cip_69_link_local_traffic_does_not_leave_the_tunnel(packet: bytes) -> None:
    for ours in (forwarder(), from_clients(), forwarder(Policy(link_local=True))):
        forwarded = ours.forward([packet], NOW)
        assert (forwarded.packets, forwarded.replies) == ([], [])
        assert forwarded.drops == {DropReason.LINK_LOCAL: 1}


@pytest.mark.parametrize(
    "icmp_type", [133, 134, 135, 136, 137, 143], ids=["RS", "RA", "NS", "NA", "redirect", "MLD"]
)
@pytest.mark.parametrize("source", ["::", "fe80::1", CLIENT6])
def test_cip_65_router_and_neighbour_discovery_do_not_enter_the_tunnel(icmp_type: int, source: str) -> None:
    packet = icmp6(icmp_type, rest=bytes(20), source=source, destination="ff02::1", hop_limit=255)
    for link_local in (False, True):
        forwarded = forwarder(Policy(link_local=link_local)).forward([packet], NOW)
        assert (forwarded.packets, forwarded.replies) == ([], [])


def test_cip_70_an_echo_to_all_nodes_is_answered_from_our_unicast_address() -> None:
    data = b"\x00\x01\x00\x02" + bytes(range(256)) * 4
    forwarded = from_clients().forward([icmp6(128, rest=data, destination="ff02::1")], NOW)
    assert forwarded.replies == [icmp6(129, rest=data, source=SERVER6, destination=CLIENT6)]
    assert (forwarded.packets, forwarded.drops) == ([], {})


def test_cip_70_an_answer_is_not_limited_like_an_error() -> None:
    ping = icmp6(128, destination="ff02::1")
    assert len(from_clients().forward([ping] * 200, NOW).replies) == 200


def test_cip_70_our_own_echo_to_all_nodes_goes_to_the_other_end() -> None:
    ping = icmp6(128, destination="ff02::1")
    rules = Policy(sources=[ip_network(f"{CLIENT6}/128")], destinations=[], link_local=True)
    forwarded = forwarder(rules, address6=CLIENT6).forward([ping], NOW)
    assert (forwarded.packets, forwarded.replies) == ([ping], [])


# errors


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        (ipv4(udp(), source="10.77.1.99"), (3, 13)),
        (ipv6(udp(), source="fd00:77::99"), (1, 5)),
        (ipv4(udp(), destination="203.0.113.1"), (3, 0)),
        (ipv6(udp(), destination="2001:db8:2::1"), (1, 0)),
        (ipv4(udp(), protocol=TCP), (3, 13)),
        (ipv6(udp(), next_header=TCP), (1, 1)),
        (ipv4(udp(1400), df=True), (3, 4)),
        (ipv6(udp(1400)), (2, 0)),
        (ipv4(udp(), ttl=1), (11, 0)),
        (ipv6(udp(), hop_limit=1), (3, 0)),
        (ipv6(extension(UDP, 24) + udp(), next_header=43), (1, 1)),
    ],
)
def test_cip_75_cip_76_every_failure_to_forward_is_told_to_the_peer(
    packet: bytes, answer: tuple[int, int]
) -> None:
    rules = Policy(
        sources=[ip_network(f"{CLIENT4}/32"), ip_network(f"{CLIENT6}/128")],
        destinations=ranges(f"{HOST4}/32", f"{HOST6}/128", protocol=UDP),
    )
    forwarded = forwarder(rules, mtu=1300, hop_limit=HopLimit.DECREMENT).forward([packet], NOW)
    assert forwarded.packets == []
    assert [type_and_code(reply) for reply in forwarded.replies] == [answer]
    (reply,) = forwarded.replies
    source = packet[12:16] if packet[0] >> 4 == 4 else packet[8:24]
    assert source == (reply[16:20] if reply[0] == 0x45 else reply[24:40])


def test_cip_76_where_ipv6_cannot_be_carried_there_is_no_route_for_it() -> None:
    forwarded = forwarder(Policy(ipv6=False)).forward([ipv6(udp()), ipv4(udp())], NOW)
    assert forwarded.packets == [ipv4(udp())]
    assert forwarded.drops == {DropReason.IPV6_UNAVAILABLE: 1}
    assert [type_and_code(reply) for reply in forwarded.replies] == [(1, 0)]


@pytest.mark.parametrize("router", ["192.0.2.254", "10.0.0.1", "100.64.0.1"])
def test_cip_77_an_icmp_error_of_a_router_on_the_way_reaches_the_client(router: str) -> None:
    # What a client that advertises nothing takes in: anything but its own host's addresses as a source.
    ours = forwarder(Policy(own_addresses=[ip_address(CLIENT4)]), address4=CLIENT4)
    quote = ipv4(udp(), ttl=1)
    errors = [
        icmp4(icmp_type, code, rest=bytes(4) + quote, source=router, destination=CLIENT4)
        for icmp_type, code in ((3, 1), (3, 4), (11, 0), (12, 0))
    ]
    assert ours.forward(errors, NOW).packets == errors


def test_cip_77_so_does_an_icmpv6_error() -> None:
    ours = forwarder(Policy(own_addresses=[ip_address(CLIENT6)]), address6=CLIENT6)
    quote = ipv6(udp(), hop_limit=1)
    errors = [
        icmp6(kind, rest=bytes(4) + quote, source="2001:db8:ffff::1", destination=CLIENT6) for kind in (1, 2, 3, 4)
    ]
    assert ours.forward(errors, NOW).packets == errors


# size


@pytest.mark.parametrize("mtu", [1440, 1300, 1280])
def test_cip_82_what_does_not_fit_is_dropped_and_its_source_told_the_true_size(mtu: int) -> None:
    ours = forwarder(mtu=mtu)
    fits = [ipv4(udp(mtu - 20), df=True), ipv6(udp(mtu - 40))]
    for _ in range(2):  # the second time the addresses are known
        forwarded = ours.forward([ipv4(udp(mtu - 19), df=True), ipv6(udp(mtu - 39))], NOW)
        assert forwarded.packets == []
        assert forwarded.drops == {DropReason.TOO_BIG: 2}
        told = [
            int.from_bytes(reply[at : at + 4], "big")
            for reply, at in zip(forwarded.replies, (24, 44), strict=True)
        ]
        assert told == [mtu, mtu]
        assert ours.forward(fits, NOW).packets == fits


def test_pmt_13_after_the_tunnel_has_shrunk_inner_sources_are_told_at_the_next_packet() -> None:
    ours = forwarder(mtu=1440)
    packets = [ipv4(udp(1420), df=True), ipv6(udp(1400))]
    assert ours.forward(packets, NOW).packets == packets
    ours.mtu = 1340
    assert [type_and_code(reply) for reply in ours.forward(packets, NOW).replies] == [(3, 4), (2, 0)]


def test_pmt_14_an_ipv4_packet_without_df_is_fragmented_before_it_enters_the_tunnel() -> None:
    packet = ipv4(udp(1480))
    forwarded = forwarder(mtu=1340).forward([packet], NOW)
    assert len(forwarded.packets) == 2
    assert max(map(len, forwarded.packets)) <= 1340
    for fragment in forwarded.packets:
        assert_valid(fragment)
    assert reassemble4(forwarded.packets) == (udp(1480), False)
    assert (forwarded.replies, forwarded.drops) == ([], {})


# DSCP, ECN


@pytest.mark.parametrize("hop_limit", list(HopLimit))
@pytest.mark.parametrize("ecn", [0, 1, 2, 3], ids=["Not-ECT", "ECT(1)", "ECT(0)", "CE"])
@pytest.mark.parametrize("dscp", [0, 34, 46])
def test_cip_84_dse_01_dse_07_inner_ecn_and_dscp_are_left_alone(hop_limit: HopLimit, ecn: int, dscp: int) -> None:
    ours = forwarder(hop_limit=hop_limit, mtu=1300)
    tos = dscp << 2 | ecn
    packets = [ipv4(udp(), tos=tos), ipv4(udp(1480), tos=tos), ipv6(udp(), traffic_class=tos, flow_label=0xABCDE)]
    for _ in range(2):
        *v4, v6 = ours.forward(packets, NOW).packets
        assert [packet[1] for packet in v4] == [tos] * 3
        assert v6[:4] == packets[2][:4]


# addresses


def test_cip_89_a_spoofed_source_never_passes_and_is_answered_with_the_policy_code() -> None:
    spoofed = [
        ipv4(udp(), source="10.77.1.3"),
        ipv4(udp(), source="192.0.2.1"),
        ipv6(udp(), source="fd00:77::3"),
        ipv6(udp(), source="2001:db8::1"),
    ]
    own = [ipv4(udp()), ipv6(udp())]
    ours = from_clients()
    for _ in range(2):
        forwarded = ours.forward([*spoofed, *own], NOW)
        assert forwarded.packets == own
        assert forwarded.drops == {DropReason.SOURCE_NOT_ALLOWED: 4}
        assert [type_and_code(reply) for reply in forwarded.replies] == [(3, 13), (3, 13), (1, 5), (1, 5)]


def test_cip_89_answers_to_spoofed_packets_are_limited_in_rate() -> None:
    forwarded = from_clients().forward([ipv4(udp(), source="10.77.1.3")] * 10_000, NOW)
    assert len(forwarded.replies) == 50


def test_cip_89_the_servers_own_addresses_are_no_source_either_and_get_no_answer() -> None:
    forwarded = from_clients().forward([ipv4(udp(), source=SERVER4), ipv6(udp(), source=SERVER6)], NOW)
    assert (forwarded.packets, forwarded.replies) == ([], [])
    assert forwarded.drops == {DropReason.OWN_ADDRESS_SOURCE: 2}


def test_cip_89_a_prefix_permitted_for_a_user_is_a_source() -> None:
    ours = forwarder(Policy(sources=[ip_network("192.168.7.0/24"), ip_network("2001:db8:7::/48")]))
    packets = [ipv4(udp(), source="192.168.7.99"), ipv6(udp(), source="2001:db8:7:1::5")]
    assert ours.forward(packets, NOW).packets == packets


@pytest.mark.parametrize("segments_left", [0, 1, 5])
@pytest.mark.parametrize(
    ("first", "before"),
    [(43, b""), (60, extension(43)), (0, extension(60) + extension(43)), (43, extension(43, body=b"\x04"))],
)
def test_cip_92_routing_header_type_0_is_dropped(segments_left: int, first: int, before: bytes) -> None:
    routing_header = extension(UDP, 24, body=bytes([0, segments_left]) + bytes(4) + packed(HOST6))
    packet = ipv6(before + routing_header + udp(), next_header=first)
    ours = forwarder()
    ours.forward([ipv6(udp())], NOW)  # addresses known to be allowed are no excuse
    forwarded = ours.forward([packet], NOW)
    assert (forwarded.packets, forwarded.drops) == ([], {DropReason.ROUTING_HEADER: 1})


@pytest.mark.parametrize("routing_type", [2, 3, 4, 253])
def test_cip_92_other_routing_headers_and_other_extension_headers_pass(routing_type: int) -> None:
    packets = [
        ipv6(extension(UDP, 24, body=bytes([routing_type, 1])) + udp(), next_header=43),
        ipv6(extension(UDP) + udp(), next_header=0),
        ipv6(extension(UDP) + udp(), next_header=60),
        ipv6(fragment6(UDP, offset=8) + udp(), next_header=44),
        ipv6(bytes(24), next_header=50),
    ]
    assert forwarder().forward(packets, NOW).packets == packets
