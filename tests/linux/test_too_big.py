"""ICMP errors of the server's own inner address reach h on a host with strict filters.

The client comes by IPv6, so that its packets are 20 bytes smaller than what the server's TUN takes, which has IPv4
clients in mind: between the two sizes it is qtunnel, and not the kernel, that has to speak.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.linux.forged import tun_of
from tests.linux.pings import ping
from tests.linux.site import INNER4, INNER6, PORT, SERVER6, Client, Site
from tests.linux.sniffer import ICMP, ICMPV6, Sniffer

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        for host in (site.s, site.client().host):
            for name in ("all", "default", "eth0"):
                host.sysctl(f"net/ipv4/conf/{name}/rp_filter", "1")
                host.sysctl(f"net/ipv4/conf/{name}/accept_local", "0")
        site.start_server(public=f"[{SERVER6}]:{PORT}")
        site.client().up()
        yield site


@pytest.fixture
def client(site: Site) -> Client:
    return site.client()


@pytest.fixture
def inner_mtu(client: Client) -> int:
    return int(client.status()["inner_mtu"])


def test_both_ends_know_the_size(site: Site, client: Client, inner_mtu: int) -> None:
    assert 1400 < inner_mtu < 1500 - 48 - 20
    assert site.server_status()["sessions"][0]["inner_mtu"] == inner_mtu
    assert f"mtu {inner_mtu} " in client.host.run(f"ip link show {tun_of(client.host)}")
    assert f"mtu {inner_mtu + 20} " in site.s.run(f"ip link show {tun_of(site.s)}")


@pytest.mark.parametrize("version", [4, 6])
def test_packets_of_exactly_the_inner_mtu_pass_both_ways(
    site: Site, client: Client, inner_mtu: int, version: int
) -> None:
    size = inner_mtu - (28 if version == 4 else 48)
    options = ("-M", "do", "-s", str(size))
    assert ping(site.h, client.address(version), *options, count=2) == 2


@pytest.mark.parametrize(
    ("version", "server", "refusal"),
    [(4, INNER4, (ICMP, 3, 4)), (6, INNER6, (ICMPV6, 2, 0))],
    ids=["IPv4", "IPv6"],
)
def test_cip_82_a_df_packet_one_byte_too_big_is_answered_with_the_mtu_by_the_servers_inner_address(
    site: Site, client: Client, inner_mtu: int, version: int, server: str, refusal: tuple[int, int, int]
) -> None:
    size = inner_mtu + 1 - (28 if version == 4 else 48)
    with Sniffer(site.h, "eth0") as wire, Sniffer(client.host, tun_of(client.host)) as at_client:
        site.h.run(f"ping -n -c 1 -W 2 -M do -s {size} {client.address(version)}", check=False)
        (answer,) = [each for each in wire.packets() if str(each.source) == server]
        assert at_client.packets() == []
    assert (answer.protocol, answer.payload[0], answer.payload[1]) == refusal
    assert int.from_bytes(answer.payload[4:8]) == inner_mtu
    assert site.server_drops("c1")["too-big"] >= 1
    # The kernel of h believes it.
    route = site.h.run(f"ip route get {client.address(version)}")
    assert re.search(rf"mtu {inner_mtu}\b", route), route
