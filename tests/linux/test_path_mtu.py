"""A path has the size it is told to have (--path-mtu), or its link has; outer and inner packets keep to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.linux.daemons import wait_until
from tests.linux.forged import tun_of
from tests.linux.pings import assert_reaches, ping
from tests.linux.site import HOST4, HOST6, PORT, Client, Site
from tests.linux.sniffer import UDP, Seen, Sniffer

pytestmark = pytest.mark.root

HEADERS4 = 28
HEADERS6 = 48


@dataclass
class Told:
    """A tunnel, the size of its path, and every packet of it that crossed the router, from its first."""

    site: Site
    size: int
    wire: Sniffer
    seen: list[Seen] = field(default_factory=list)

    @property
    def client(self) -> Client:
        return self.site.client()

    @property
    def inner_mtu(self) -> int:
        """As the client says; what is on the wire shows whether it is right."""
        return int(self.client.status()["inner_mtu"])

    def outer(self) -> list[Seen]:
        """Return the tunnel's packets, on the link between client and router."""
        self.seen += self.wire.packets()
        return [each for each in self.seen if each.protocol == UDP and PORT in each.ports]


@pytest.fixture(
    scope="module",
    params=[(1500, 1300), (1280, None), (1500, None)],
    ids=["--path-mtu 1300", "links of 1280", "links of 1500"],
)
def told(request: pytest.FixtureRequest) -> Iterator[Told]:
    link, path_mtu = request.param
    options = () if path_mtu is None else ("--path-mtu", str(path_mtu))
    with Site.open(mtu=link) as site, Sniffer(site.r, "to-c1") as wire:
        for host in (site.s, site.client().host):
            host.run("ethtool -K eth0 tx-udp-segmentation off")
        site.start_server(*options)
        site.client().up(*options)
        told = Told(site, path_mtu or link, wire)
        wait_until(lambda: 20 <= told.size - HEADERS4 - told.inner_mtu <= 40, "the size of the path")
        yield told


def test_first_flights_have_at_most_1200_bytes_of_udp_payload(told: Told) -> None:
    handshake = [each.payload[8:] for each in told.outer() if each.payload[8] & 0x80]
    assert len(handshake) >= 3
    assert {len(payload) for payload in handshake if payload[0] & 0x30 == 0x00} == {1200}  # Initials are padded
    assert max(map(len, handshake)) <= 1200


def test_the_inner_mtu_follows_and_is_exact_both_ways(told: Told) -> None:
    client, largest = told.client, told.inner_mtu - HEADERS4
    assert told.site.server_status()["sessions"][0]["inner_mtu"] == told.inner_mtu
    # Below 1280 the kernel would take the IPv6 addresses away; the rest is said by ICMP.
    assert f"mtu {max(told.inner_mtu, 1280)} " in client.host.run(f"ip link show {tun_of(client.host)}")
    assert ping(client.host, HOST4, f"-M do -s {largest}", count=2) == 2
    assert ping(told.site.h, client.address(4), f"-M do -s {largest}", count=2) == 2
    assert ping(client.host, HOST4, f"-M do -s {largest + 1}", count=1, patience=1) == 0
    shown = told.site.h.run(f"ping -n -c 1 -W 2 -M do -s {largest + 1} {client.address(4)}", check=False)
    assert f"mtu = {told.inner_mtu}" in shown
    # Without DF more passes, in fragments inside.
    assert ping(client.host, HOST4, "-M dont -s 3000", count=2) == 2
    assert ping(told.site.h, client.address(4), "-M dont -s 3000", count=2) == 2


def test_ipv6_is_there_also_where_the_path_carries_less_than_1280_inside(told: Told) -> None:
    """Then in DATAGRAM capsules, in both directions and up to its least MTU; above, or above the path's, ICMP."""
    client, site = told.client, told.site
    (session,) = site.server_status()["sessions"]
    assert (client.status()["ipv6"], session["ipv6"]) == ("ok", "ok")
    assert_reaches(client.host, HOST6)
    largest = max(told.inner_mtu, 1280) - HEADERS6
    assert ping(client.host, HOST6, f"-M do -s {largest}", count=2) == 2
    assert ping(site.h, client.address(6), f"-M do -s {largest}", count=2) == 2
    assert ping(client.host, HOST6, f"-M do -s {largest + 1}", count=1, patience=1) == 0
    shown = site.h.run(f"ping -n -c 1 -W 2 -M do -s {largest + 1} {client.address(6)}", check=False)
    assert f"mtu={largest + HEADERS6}" in shown


def test_a_tunnel_for_ipv6_alone_comes_up(told: Told) -> None:
    client = told.client
    client.daemon.stop()
    with client.running("--path-mtu", str(told.size), "--no-ipv4", "--once"):
        assert not client.has_address(4)
        assert_reaches(client.host, HOST6)


def test_outer_packets_never_exceed_the_size_and_are_never_fragments(told: Told) -> None:
    outer = told.outer()
    assert max(each.size for each in outer) == told.size
    for direction in (True, False):
        assert max(each.size for each in outer if each.is_outgoing is direction) == told.size
    assert all(each.dont_fragment and not each.is_fragment for each in outer)
