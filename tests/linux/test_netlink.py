"""rtnetlink records and changes on a real kernel."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from qtunnel.linux.netlink import LOCAL_TABLE, MAIN_TABLE, PROTOCOL, Netlink, Rule, refusal
from tests.linux.namespaces import Namespace, Namespaces


@pytest.fixture
def host(lab: Namespaces) -> Iterator[Namespace]:
    made, other = lab.add("h"), lab.add("o")
    lab.join(made, "eth0", other, "eth0")
    with made.entered():
        yield made


@pytest.fixture
def netlink(host: Namespace) -> Iterator[Netlink]:
    with Netlink() as opened:
        yield opened


@pytest.mark.root
class TestOnAKernel:
    def test_links_are_read_and_changed(self, host: Namespace, netlink: Netlink) -> None:
        assert {link.name for link in netlink.links()} == {"lo", "eth0"}
        link = netlink.link("eth0")
        assert (link.mtu, link.is_up, link.is_loopback) == (1500, True, False)
        assert netlink.link("lo").is_loopback
        netlink.set_link(link.index, mtu=1300, is_up=False)
        changed = netlink.link("eth0")
        assert (changed.mtu, changed.is_up) == (1300, False)

    def test_a_missing_link_is_enodev(self, netlink: Netlink) -> None:
        with pytest.raises(OSError, match="No such device") as caught:
            netlink.link("eth7")
        assert caught.value.errno == errno.ENODEV

    @pytest.mark.parametrize("text", ["198.18.7.1/24", "2001:db8:7::1/64"])
    def test_addresses_come_and_go(self, netlink: Netlink, text: str) -> None:
        index, address = netlink.link("eth0").index, ip_interface(text)
        netlink.add_address(index, address, prefix_route=True)
        netlink.add_address(index, address, prefix_route=True)
        assert [each.index for each in netlink.addresses() if each.interface == address] == [index]
        netlink.remove_address(index, address)
        assert address not in [each.interface for each in netlink.addresses()]
        with pytest.raises(OSError, match="Cannot assign") as caught:
            netlink.remove_address(index, address)
        assert caught.value.errno == errno.EADDRNOTAVAIL

    def test_the_own_end_of_a_point_to_point_link_is_the_address(self, host: Namespace, netlink: Netlink) -> None:
        host.run("ip address add 198.18.7.1 peer 198.18.7.2/32 dev eth0")
        assert ip_address("198.18.7.1") in [each.interface.ip for each in netlink.addresses()]

    @pytest.mark.parametrize("text", ["203.0.113.0/24", "2001:db8:9::/64", "0.0.0.0/0", "::/0"])
    @pytest.mark.parametrize("table", [77, 51821, MAIN_TABLE])
    def test_routes_are_made_replaced_and_removed(self, netlink: Netlink, text: str, table: int) -> None:
        index, network = netlink.link("eth0").index, ip_network(text)
        for mtu in (1300, 1350):
            netlink.replace_route(network, table=table, index=index, mtu=mtu, source=None)
        routes = [route for route in netlink.routes(network.version) if route.network == network]
        assert [(route.table, route.index, route.protocol) for route in routes] == [(table, index, PROTOCOL)]
        netlink.remove_route(network, table=table, index=index)
        assert network not in [route.network for route in netlink.routes(network.version)]

    def test_local_and_multicast_routes_are_left_out(self, netlink: Netlink) -> None:
        netlink.add_address(netlink.link("eth0").index, ip_interface("2001:db8:7::1/64"), prefix_route=True)
        routes = netlink.routes(4) + netlink.routes(6)
        assert ip_network("2001:db8:7::/64") in [route.network for route in routes]
        assert LOCAL_TABLE not in [route.table for route in routes]

    @pytest.mark.parametrize("version", [4, 6])
    def test_rules_are_made_read_back_and_removed(self, netlink: Netlink, version: int) -> None:
        destination = ip_network("198.18.9.9/32" if version == 4 else "2001:db8:9::9/128")
        rules = [
            Rule(version=version, priority=5180, table=MAIN_TABLE, destination=destination),
            Rule(version=version, priority=5181, table=MAIN_TABLE, suppress_prefixlength=0),
            Rule(version=version, priority=5182, table=51821),
        ]
        before = netlink.rules(version)
        for rule in rules:
            netlink.add_rule(rule)
        assert [rule for rule in netlink.rules(version) if rule not in before] == rules
        with pytest.raises(FileExistsError):
            netlink.add_rule(rules[0])
        for rule in rules:
            netlink.remove_rule(rule)
        assert netlink.rules(version) == before
        with pytest.raises(FileNotFoundError):
            netlink.remove_rule(rules[0])

    def test_a_long_answer_comes_whole(self, host: Namespace, netlink: Netlink) -> None:
        lines = "".join(f"route add 203.{n // 256}.{n % 256}.0/24 dev eth0\n" for n in range(5000))
        host.run("ip -batch -", text=lines)
        assert len([route for route in netlink.routes(4) if route.network.prefixlen == 24]) == 5000


def test_a_refusal_says_what_why_and_what_to_do() -> None:
    error = refusal("add an address", OSError(errno.EPERM, "Operation not permitted"))
    assert str(error) == "cannot add an address (Operation not permitted). Run as root or with CAP_NET_ADMIN"
    assert "policy routing" in str(refusal("add a rule", OSError(errno.EOPNOTSUPP, "Not supported")))
    assert refusal("add a route", OSError(errno.EINVAL, "Invalid argument")).remedy is None
