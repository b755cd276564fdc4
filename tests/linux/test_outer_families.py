"""IPv4 and IPv6 outside: a server reached by IPv6 alone, and a name with both, one of which may not work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.linux.pings import assert_reaches
from tests.linux.site import HOST4, HOST6, PORT, SERVER4, SERVER6, Client, Site
from tests.linux.sniffer import UDP, Sniffer

pytestmark = pytest.mark.root

NAME = "vpn.example.net"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server(public=f"{NAME}:{PORT}")
        site.client().join(site.add_user("c1"))
        yield site


def assert_carried_by(client: Client, version: int) -> None:
    """Fail unless pings of both families go through the tunnel in packets of this IP version only."""
    with Sniffer(client.host, "eth0") as wire:
        assert_reaches(client.host, HOST4, HOST6)
        outer = [each for each in wire.packets() if each.protocol == UDP and PORT in each.ports]
    assert {each.version for each in outer} == {version}
    assert {each.is_outgoing for each in outer} == {True, False}


def test_a_server_without_ipv4_is_reached_by_ipv6(site: Site) -> None:
    client = site.client()
    site.set_name(client.host, NAME, SERVER6)
    client.host.run("ip -4 address flush dev eth0")
    with client.running():
        assert client.status()["remote"] == f"[{SERVER6}]:{PORT}"
        assert_carried_by(client, 6)
        assert f"to {SERVER6} lookup main" in client.host.run("ip -6 rule")
    client.host.add_address("eth0", "198.18.1.2/24")
    client.host.run("ip route add default via 198.18.1.1")


def test_a_name_with_both_families_is_tried_by_ipv6_first(site: Site) -> None:
    client = site.client()
    site.set_name(client.host, NAME, SERVER4, SERVER6)
    with client.running("--route", "default"):
        assert_carried_by(client, 6)
        # Both stay outside, whichever is in use.
        assert f"to {SERVER6} lookup main" in client.host.run("ip -6 rule")
        assert f"to {SERVER4} lookup main" in client.host.run("ip -4 rule")


@pytest.mark.parametrize("fault", ["blackhole", "unreachable"])
def test_a_name_whose_ipv6_leads_nowhere_is_reached_by_ipv4_without_a_wait(site: Site, fault: str) -> None:
    client = site.client()
    site.set_name(client.host, NAME, SERVER4, SERVER6)
    site.r.run(f"ip -6 route add {fault} {SERVER6}")
    try:
        with client.running():
            assert client.daemon.text().splitlines()[:2] == [
                f"connecting to [{SERVER6}]:{PORT}",
                f"connecting to {SERVER4}:{PORT}",
            ]
            assert_carried_by(client, 4)
            assert client.status()["last_error"] is None  # it was no outage
    finally:
        site.r.run(f"ip -6 route del {fault} {SERVER6}")
