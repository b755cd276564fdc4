"""The three rules, as records."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from qtunnel.linux.netlink import MAIN_TABLE, PROTOCOL
from qtunnel.linux.policy_rules import RULES, server_rule, table_rules


@pytest.mark.parametrize(
    ("address", "network"), [("198.18.0.1", "198.18.0.1/32"), ("2001:db8::1", "2001:db8::1/128")]
)
def test_the_servers_address_alone_is_looked_up_in_the_main_table(address: str, network: str) -> None:
    rule = server_rule(ip_address(address), 5180)
    assert (rule.destination, rule.table, rule.priority) == (ip_network(network), MAIN_TABLE, 5180)
    assert rule.version == ip_address(address).version


def test_a_link_local_server_loses_its_zone() -> None:
    assert server_rule(ip_address("fe80::1%eth0"), 5180).destination == ip_network("fe80::1/128")


@pytest.mark.parametrize("version", [4, 6])
def test_the_hosts_networks_come_before_the_tunnels_table(version: int) -> None:
    own, tunnel = table_rules(version, 5180, 77)
    assert (own.priority, own.table, own.suppress_prefixlength) == (5181, MAIN_TABLE, 0)
    assert (tunnel.priority, tunnel.table, tunnel.suppress_prefixlength) == (5182, 77, None)
    assert {rule.version for rule in (own, tunnel)} == {version}
    assert {rule.protocol for rule in (own, tunnel)} == {PROTOCOL}
    assert tunnel.priority < 5180 + RULES
