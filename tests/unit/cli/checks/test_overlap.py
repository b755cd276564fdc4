"""Overlapping networks are named, with the interface."""

from __future__ import annotations

from ipaddress import IPv4Interface, IPv6Interface, ip_network

from qtunnel.cli.checks.finding import Level
from qtunnel.cli.checks.overlap import check_pools, check_profiles
from qtunnel.linux.host_networks import HostNetwork
from qtunnel.state.server_record import ServerRecord

RECORD = ServerRecord(
    server_name="a.invalid",
    pool4=IPv4Interface("10.77.1.1/24"),
    pool6=IPv6Interface("fd77::1/64"),
    public_host="a.net",
    public_port=443,
)


def host(text: str, interface: str | None = "eth0") -> HostNetwork:
    return HostNetwork(ip_network(text), interface)


def test_pools_that_overlap_nothing_are_fine() -> None:
    findings = check_pools(RECORD, [host("192.168.1.0/24"), host("fd78::/64")], ())
    assert [finding.level for finding in findings] == [Level.OK, Level.OK]


def test_a_pool_inside_a_network_of_the_host_is_an_error() -> None:
    findings = check_pools(RECORD, [host("10.0.0.0/8")], ())
    assert [finding.level for finding in findings] == [Level.ERROR, Level.OK]
    assert "10.77.1.0/24 overlaps 10.0.0.0/8 on eth0" in findings[0].found
    assert "--pool4" in findings[0].remedy


def test_the_running_tunnels_own_device_is_no_overlap() -> None:
    findings = check_pools(RECORD, [host("10.77.1.0/24", "qtun0"), host("fd77::/64", "qtun0")], {"qtun0"})
    assert [finding.level for finding in findings] == [Level.OK, Level.OK]


def test_a_pool_that_is_off_is_not_looked_at() -> None:
    record = ServerRecord(server_name="a.invalid", public_host="a.net", public_port=443)
    assert check_pools(record, [host("10.0.0.0/8")], ()) == []


def test_a_profile_that_routes_a_network_of_the_host_is_told() -> None:
    profiles = {"home": ["default", "192.168.1.0/25", "nonsense"], "work": ["10.9.0.0/16"]}
    (finding,) = check_profiles(profiles, [host("192.168.1.0/24", None)], ())
    assert finding.level is Level.WARNING
    assert "profile home routes 192.168.1.0/25 into the tunnel, and this host has 192.168.1.0/24" in finding.found


def test_profiles_that_route_the_same_are_told_once() -> None:
    profiles = {"a": ["10.9.0.0/16", "10.9.0.0/17"], "b": ["10.9.128.0/17", "0.0.0.0/0"], "c": ["fd00::/8"]}
    (finding,) = check_profiles(profiles, [], ())
    assert "profiles a and b both route 10.9.0.0/16 (10.9.128.0/17)" in finding.found
