"""What the host's links, addresses and routes are, and that changes are noticed; in namespaces."""

from __future__ import annotations

import select
import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import SystemSetupError
from qtunnel.linux.links import (
    ChangeKind,
    LinkFollower,
    _interface_index,
    host_addresses,
    interface_mtu,
    outgoing_interface,
    outgoing_mtu,
)
from qtunnel.linux.tun import Tun
from tests.linux.namespaces import Namespace, Namespaces

root = pytest.mark.root


@root
class TestOutgoing:
    def test_interface_mtu_and_source_of_a_route(self, host: Namespace) -> None:
        found = outgoing_interface(ip_address("203.0.113.1"))
        assert (found.name, found.mtu, found.source) == ("eth0", 1500, ip_address("198.18.0.2"))
        found = outgoing_interface(ip_address("2001:db8:1::9"))
        assert (found.name, found.mtu, found.source) == ("eth1", 1400, ip_address("2001:db8:1::2"))

    def test_mtu_the_administrator_gave_a_route_counts(self, host: Namespace) -> None:
        host.run("ip route add 203.0.113.0/24 via 198.18.0.1 mtu 1350")
        assert outgoing_interface(ip_address("203.0.113.1")).mtu == 1350

    def test_loopback_has_no_more_than_an_ip_packet_can_be(self, host: Namespace) -> None:
        assert outgoing_mtu(("127.0.0.1", 443)) == 65535

    def test_policy_rules_count(self, host: Namespace) -> None:
        host.run("ip route add default via 198.18.1.1 table 77")
        host.run("ip rule add to 203.0.113.1 lookup 77")
        assert outgoing_mtu(("203.0.113.1", 443)) == 1400

    def test_no_route_is_an_error_or_the_usual_mtu(self, host: Namespace) -> None:
        host.run("ip route del default")
        with pytest.raises(SystemSetupError, match="ip route get 203"):
            outgoing_interface(ip_address("203.0.113.1"))
        assert outgoing_mtu(("203.0.113.1", 443)) == 1500

    def test_unreachable_route_is_no_route(self, host: Namespace) -> None:
        host.run("ip route add unreachable 203.0.113.0/24")
        with pytest.raises(SystemSetupError, match="no route to"):
            outgoing_interface(ip_address("203.0.113.1"))

    @pytest.mark.parametrize(
        ("address", "mtu"),
        [("198.18.1.2", 1400), ("2001:db8::2", 1500), ("0.0.0.0", 1500), ("::", 1500), ("203.0.113.1", 1500)],
    )
    def test_mtu_of_the_interface_with_an_address(self, host: Namespace, address: str, mtu: int) -> None:
        assert interface_mtu(ip_address(address)) == mtu

    def test_without_a_default_route_the_smallest_link_counts(self, host: Namespace) -> None:
        host.run("ip route del default")
        assert interface_mtu(ip_address("0.0.0.0")) == 1400


@root
def test_learnt_path_mtu_does_not_count(lab: Namespaces) -> None:
    """The route the kernel shows then carries the cached MTU, which came by ICMP and could be forged."""
    client, router = lab.add("c"), lab.add("r")
    lab.join(client, "eth0", router, "eth0")
    client.add_address("eth0", "198.18.0.2/24")
    router.add_address("eth0", "198.18.0.1/24")
    router.sysctl("net/ipv4/ip_forward", "1")
    router.run("ip route add 203.0.113.0/24 dev lo mtu 1300")
    router.run("ip link add d0 type veth peer name d1")
    router.run("ip link set d0 up")
    router.run("ip route replace 203.0.113.0/24 dev d0 mtu 1300")
    client.run("ip route add default via 198.18.0.1")
    client.run("ping -c 1 -W 1 -M do -s 1400 203.0.113.1", check=False)
    assert "mtu 1300" in client.run("ip route get 203.0.113.1")
    with client.entered():
        assert outgoing_mtu(("203.0.113.1", 443)) == 1500


@root
def test_host_addresses_are_those_of_all_interfaces_but_one(host: Namespace) -> None:
    found = host_addresses()
    assert {ip_address("198.18.0.2"), ip_address("2001:db8:1::2"), ip_address("127.0.0.1")} <= found
    assert host_addresses(except_interface="eth0") < found
    assert ip_address("198.18.0.2") not in host_addresses(except_interface="eth0")


def wait(follower: LinkFollower, *wanted: ChangeKind) -> set[ChangeKind]:
    found: set[ChangeKind] = set()
    while not found >= set(wanted):
        assert select.select([follower], [], [], 30)[0], f"only {found}"
        found |= follower.read()
    return found


@root
class TestFollowing:
    def test_addresses_routes_and_links_are_reported_by_kind(self, host: Namespace) -> None:
        with LinkFollower() as follower:
            assert follower.read() == set()
            host.run("ip route add 203.0.113.0/24 via 198.18.0.1")
            assert wait(follower, ChangeKind.ROUTE) == {ChangeKind.ROUTE}
            host.run("ip -6 route add 2001:db8:9::/64 via 2001:db8::1")
            assert wait(follower, ChangeKind.ROUTE) == {ChangeKind.ROUTE}
            host.run("ip link set eth1 mtu 1300")
            wait(follower, ChangeKind.LINK)
            host.run("ip address add 198.18.0.77/24 dev eth0")
            wait(follower, ChangeKind.ADDRESS)
            host.run("ip address add 2001:db8::77/64 dev eth0")
            wait(follower, ChangeKind.ADDRESS)

    def test_a_snapshot_tells_whether_addresses_have_changed(self, host: Namespace) -> None:
        with LinkFollower() as follower:
            assert not follower.refresh_addresses()
            host.run("ip address add 198.18.0.77/24 dev eth0")
            assert follower.refresh_addresses()
            assert ip_address("198.18.0.77") in follower.addresses
            host.run("ip link set eth0 mtu 1300")
            assert not follower.refresh_addresses()

    def test_changes_of_an_ignored_interface_are_not_reported(self, host: Namespace) -> None:
        tun = Tun.open("qtt0")
        try:
            with LinkFollower() as follower:
                follower.ignored.add(int(host.run("cat /sys/class/net/qtt0/ifindex")))
                host.run("ip link set qtt0 up")
                host.run("ip address add 192.0.2.1/24 dev qtt0")
                host.run("ip route add 203.0.113.0/24 dev qtt0")
                assert follower.read() == set()
        finally:
            tun.close()

    def test_too_many_changes_to_keep_are_all_kinds(self, host: Namespace) -> None:
        with LinkFollower() as follower:
            lines = "".join(f"route add 203.0.{n % 250}.{n // 250}/32 dev eth1 table 99\n" for n in range(20_000))
            host.run("ip -batch -", text=lines)
            assert follower.read() == set(ChangeKind)
            while select.select([follower], [], [], 0)[0]:
                follower.read()

    def test_closed_follower_reads_nothing(self, host: Namespace) -> None:
        follower = LinkFollower()
        follower.close()
        assert follower.fileno() == -1
        assert follower.read() == set()


@given(kind=st.sampled_from(list(ChangeKind)), body=st.binary(max_size=64))
def test_any_bytes_give_an_interface_or_none(kind: ChangeKind, body: bytes) -> None:
    index = _interface_index(kind, body)
    assert index is None or 0 <= index <= 0xFFFFFFFF


def test_the_interface_of_a_route_is_found_behind_other_attributes() -> None:
    attributes = struct.pack("=HH4s", 8, 1, b"\1\2\3\4") + struct.pack("=HHHxx", 6, 9, 7)
    attributes += struct.pack("=HHI", 8, 4, 42)
    assert _interface_index(ChangeKind.ROUTE, bytes(12) + attributes) == 42
