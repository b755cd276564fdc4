"""How packets of clients leave the server: hidden by NAT44 and NAT66, or as themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.linux.pings import assert_reaches, ping
from tests.linux.site import HOST4, HOST6, INNER4, INNER6, POOL4, POOL6, Site
from tests.linux.sniffer import ECHO_REQUESTS, Sniffer

pytestmark = pytest.mark.root

TOWARDS_H = {"198.18.20.1", "2001:db8:20::1"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.h.run("ip route del default")
        site.h.run("ip -6 route del default")
        yield site


@pytest.fixture(autouse=True)
def forwarding_is_as_before(site: Site) -> Iterator[None]:
    keys = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
    assert [site.s.sysctl(key) for key in keys] == ["0", "0"]
    yield
    for daemon in site.daemons:
        daemon.destroy()
    assert [site.s.sysctl(key) for key in keys] == ["0", "0"]
    assert site.s.run("nft list ruleset") == ""


def test_masquerade_hides_clients_of_both_families_from_a_network_with_no_route_back(site: Site) -> None:
    site.start_server("--masquerade")
    client = site.client()
    client.up()
    with Sniffer(site.h, "eth0") as wire:
        assert_reaches(client.host, HOST4, HOST6, INNER4, INNER6)
        assert _echo_sources(wire) == TOWARDS_H
    assert client.daemon.stop() == 0
    assert site.server.stop() == 0


def test_a_routed_prefix_needs_no_masquerade(site: Site) -> None:
    site.start_server()
    with site.client().running() as client:
        assert ping(client.host, HOST4, count=2, patience=1) == 0  # without a way back it cannot work
        assert ping(client.host, HOST6, count=2, patience=1) == 0
        site.h.run(f"ip route add {POOL4.network} via 198.18.20.1")
        site.h.run(f"ip -6 route add {POOL6.network} via 2001:db8:20::1")
        with Sniffer(site.h, "eth0") as wire:
            assert_reaches(client.host, HOST4, HOST6)
            assert _echo_sources(wire) == {client.address(4), client.address(6)}
        assert_reaches(site.h, client.address(4), client.address(6))


def _echo_sources(wire: Sniffer) -> set[str]:
    """Return who the echo requests that arrived came from."""
    return {
        str(each.source) for each in wire.packets() if not each.is_outgoing and each.icmp_type in ECHO_REQUESTS
    }
