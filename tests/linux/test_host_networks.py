"""What of this host's networks is in the way of a tunnel's; in namespaces."""

from __future__ import annotations

import socket
from ipaddress import ip_network

import pytest

from qtunnel.linux.host_networks import (
    HostNetwork,
    host_networks,
    overlapping_networks,
    router_advertised_interfaces,
)
from qtunnel.linux.tun import Tun
from tests.linux.namespaces import Namespace

root = pytest.mark.root


def test_this_host_can_be_read_without_root() -> None:
    interfaces = {name for _, name in socket.if_nameindex()}
    for known in host_networks():  # none in an empty namespace
        assert known.network.prefixlen > 0
        assert known.interface is None or known.interface in interfaces
    assert set(router_advertised_interfaces()) <= interfaces


@root
def test_addresses_and_routes_of_any_table_are_networks_and_defaults_are_not(host: Namespace) -> None:
    host.run("ip route add 192.0.2.0/24 via 198.18.0.1 table 77")
    host.run("ip route add unreachable 203.0.113.0/24")
    found = host_networks()
    for text, interface in (
        ("198.18.0.0/24", "eth0"),
        ("198.18.1.0/24", "eth1"),
        ("2001:db8:1::/64", "eth1"),
        ("192.0.2.0/24", "eth0"),
        ("203.0.113.0/24", None),
    ):
        assert found.count(HostNetwork(ip_network(text), interface)) == 1
    assert not [each for each in found if not each.network.prefixlen or each.network.is_link_local]


@root
def test_the_interface_of_an_announced_default_route_is_named(host: Namespace) -> None:
    assert router_advertised_interfaces() == []
    host.run("ip -6 route add default via 2001:db8:1::1 proto ra metric 7")
    assert router_advertised_interfaces() == ["eth1"]


@root
class TestOverlaps:
    def overlaps(self, *networks: str, **options: object) -> list[str]:
        found = overlapping_networks(map(ip_network, networks), **options)  # type: ignore[arg-type]
        return sorted(map(str, found))

    def test_addresses_and_routes_in_either_direction_overlap(self, host: Namespace) -> None:
        host.run("ip route add 203.0.113.0/24 via 198.18.1.1")
        assert self.overlaps("198.18.0.0/16", "203.0.113.128/25", "2001:db8:1::/80", "192.0.2.0/24") == [
            "198.18.0.0/16 overlaps 198.18.0.0/24 of interface eth0",
            "198.18.0.0/16 overlaps 198.18.1.0/24 of interface eth1",
            "2001:db8:1::/80 overlaps 2001:db8:1::/64 of interface eth1",
            "203.0.113.128/25 overlaps 203.0.113.0/24 of interface eth1",
        ]

    def test_default_routes_overlap_nothing_on_either_side(self, host: Namespace) -> None:
        assert self.overlaps("0.0.0.0/0", "::/0", "192.0.2.0/24", "fd00::/64") == []

    def test_routes_of_other_tables_count_but_not_those_of_our_own(self, host: Namespace) -> None:
        host.run("ip route add 192.0.2.0/24 via 198.18.0.1 table 77")
        assert self.overlaps("192.0.2.0/25") == ["192.0.2.0/25 overlaps 192.0.2.0/24 of interface eth0"]
        assert self.overlaps("192.0.2.0/25", except_table=77) == []

    def test_a_route_that_goes_nowhere_is_still_in_the_way(self, host: Namespace) -> None:
        host.run("ip route add unreachable 192.0.2.0/24")
        assert self.overlaps("192.0.2.0/25") == ["192.0.2.0/25 overlaps 192.0.2.0/24 of a route that goes nowhere"]

    def test_the_tunnels_own_interface_does_not_count(self, host: Namespace) -> None:
        tun = Tun.open("qtt0")
        try:
            host.add_address("qtt0", "192.0.2.1/24")
            host.run("ip link set qtt0 up")
            assert self.overlaps("192.0.2.0/25") == ["192.0.2.0/25 overlaps 192.0.2.0/24 of interface qtt0"]
            assert self.overlaps("192.0.2.0/25", except_interface="qtt0") == []
        finally:
            tun.close()

    def test_link_local_networks_do_not_count(self, host: Namespace) -> None:
        assert self.overlaps("fe80::/64", "ff00::/8") == []

    def test_each_leg_of_a_multipath_route_counts(self, host: Namespace) -> None:
        host.run("ip route add 192.0.2.0/24 nexthop via 198.18.0.1 nexthop via 198.18.1.1")
        assert self.overlaps("192.0.2.0/25") == [
            "192.0.2.0/25 overlaps 192.0.2.0/24 of interface eth0",
            "192.0.2.0/25 overlaps 192.0.2.0/24 of interface eth1",
        ]
