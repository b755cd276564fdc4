"""What netlink says of this host; only that it can be read without root is the same everywhere."""

from __future__ import annotations

import socket
from ipaddress import ip_network
from typing import Any

import pytest

from qtunnel.cli import host_networks

REAL_HOST_NETWORKS = host_networks.host_networks
"""The fixture of this directory puts another in its place."""


class FakeNetlink:
    """Answers like pyroute2.IPRoute, for the few keys that are read."""

    def __enter__(self) -> FakeNetlink:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def get_links(self) -> list[dict[str, Any]]:
        return [{"index": 1, "ifname": "lo"}, {"index": 2, "ifname": "eth0"}]

    def get_addr(self) -> list[dict[str, Any]]:
        return [
            {"index": 1, "address": "127.0.0.1", "prefixlen": 8},
            {"index": 1, "address": "::1", "prefixlen": 128},
            {"index": 2, "address": "192.0.2.7", "prefixlen": 24},
            {"index": 2, "address": "fe80::1", "prefixlen": 64},
        ]

    def get_routes(self, *, family: int, table: int) -> list[dict[str, Any]]:
        assert table == 254
        if family == 2:
            return [
                {"dst_len": 0, "oif": 2, "proto": 4},
                {"dst": "192.0.2.0", "dst_len": 24, "oif": 2, "proto": 2},
                {"dst": "10.0.0.0", "dst_len": 8, "proto": 4},
            ]
        return [{"dst_len": 0, "oif": 2, "proto": 9}, {"dst_len": 0, "oif": 3, "proto": 9}]


@pytest.fixture
def netlink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_networks, "IPRoute", FakeNetlink)


@pytest.mark.usefixtures("netlink")
def test_addresses_and_routes_are_networks_and_defaults_are_not() -> None:
    found = {(str(known.network), known.interface) for known in REAL_HOST_NETWORKS()}
    assert found == {("192.0.2.0/24", "eth0"), ("10.0.0.0/8", None)}


@pytest.mark.usefixtures("netlink")
def test_the_interface_of_an_announced_default_route_is_named() -> None:
    assert host_networks.router_advertised_interfaces() == ["eth0"]


def test_this_host_can_be_read_without_root() -> None:
    interfaces = {name for _, name in socket.if_nameindex()}
    for known in REAL_HOST_NETWORKS():  # none in an empty namespace
        assert ip_network(known.network).prefixlen > 0
        assert known.interface is None or known.interface in interfaces
    assert set(host_networks.router_advertised_interfaces()) <= interfaces
