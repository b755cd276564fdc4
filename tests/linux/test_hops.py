"""Hop counts through the tunnel: what traceroute shows, and the TTL each packet has when it arrives (CIP-67).

Behind h are two routers more: s ── h ── k ── f, in 198.18.30.0/24 and 198.18.40.0/24.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.linux.namespaces import Namespace
from tests.linux.pings import assert_reaches
from tests.linux.site import HOST4, HOST6, INNER4, INNER6, Client, Site, forward, join_hosts
from tests.linux.sniffer import Seen, Sniffer

pytestmark = pytest.mark.root

FAR = {4: "198.18.40.2", 6: "2001:db8:40::2"}
HOPS = {
    4: [INNER4, HOST4, "198.18.30.2", FAR[4]],
    6: [INNER6, HOST6, "2001:db8:30::2", FAR[6]],
}


@dataclass
class Chain:
    site: Site
    client: Client
    k: Namespace
    f: Namespace


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    with Site.open() as site:
        k, f = site.lab.add("k"), site.lab.add("f")
        forward(k)
        for near, far, number in ((site.h, k, 30), (k, f, 40)):
            site.lab.join(near, "on", far, "eth0")
            join_hosts(near, "on", far, "eth0", number)
        networks4, networks6 = ("198.18.30.0/24", "198.18.40.0/24"), ("2001:db8:30::/64", "2001:db8:40::/64")
        site.h.run(f"ip route add {networks4[1]} via 198.18.30.2")
        site.h.run(f"ip -6 route add {networks6[1]} via 2001:db8:30::2")
        for network in networks4:
            site.s.run(f"ip route add {network} via {HOST4}")
        for network in networks6:
            site.s.run(f"ip -6 route add {network} via {HOST6}")
        for host in (site.s, site.h, k, f):
            host.sysctl("net/ipv4/icmp_ratelimit", "0")  # one answer a second would hide a router now and then
            host.sysctl("net/ipv6/icmp/ratelimit", "0")
        options = [option for network in networks4 + networks6 for option in ("--advertise", network)]
        site.start_server(*options)
        client = site.client()
        client.up()
        assert_reaches(client.host, *FAR.values())
        yield Chain(site, client, k, f)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("method", ["", "-I", "-T"], ids=["udp", "icmp", "tcp"])
def test_cip_68_traceroute_shows_the_server_once_and_each_router_once(
    chain: Chain, method: str, version: int
) -> None:
    shown = chain.client.host.run(f"traceroute -{version} {method} -n -q 1 -w 3 -m 8 {FAR[version]}")
    assert [line.split()[1] for line in shown.splitlines()[1:]] == HOPS[version], shown


@pytest.mark.parametrize("version", [4, 6])
def test_cip_67_each_kernel_router_lowers_the_hop_count_by_one_and_the_tunnel_by_none(
    chain: Chain, version: int
) -> None:
    hosts = {"c": chain.client.host, "s": chain.site.s, "h": chain.site.h, "f": chain.f}
    sniffers = {name: Sniffer(host) for name, host in hosts.items()}
    chain.client.host.run(f"ping -{version} -n -c 1 -t 64 {FAR[version]}")
    seen = {name: sniffer.packets() for name, sniffer in sniffers.items()}
    for sniffer in sniffers.values():
        sniffer.close()
    inner = chain.client.address(version)
    there = {name: _ttls(packets, inner, FAR[version]) for name, packets in seen.items()}
    assert there["c"] == [("qtun", "out", 64)]
    assert there["s"] == [("qtun", "in", 64), ("to-h", "out", 63)]
    assert there["h"] == [("eth0", "in", 63), ("on", "out", 62)]
    assert there["f"] == [("eth0", "in", 61)]
    back = {name: _ttls(packets, FAR[version], inner) for name, packets in seen.items()}
    assert back["f"] == [("eth0", "out", 64)]
    assert back["s"] == [("to-h", "in", 62), ("qtun", "out", 61)]
    assert back["c"] == [("qtun", "in", 61)]


@pytest.mark.parametrize(("version", "server"), [(4, INNER4), (6, INNER6)])
def test_cip_67_packets_of_the_ends_themselves_keep_their_hop_count(
    chain: Chain, version: int, server: str
) -> None:
    with Sniffer(chain.site.s) as at_server, Sniffer(chain.client.host) as at_client:
        chain.client.host.run(f"ping -{version} -n -c 1 -t 1 {server}")
        inner = chain.client.address(version)
        assert _ttls(at_server.packets(), inner, server) == [("qtun", "in", 1)]
        assert _ttls(at_client.packets(), server, inner) == [("qtun", "in", 64)]


def _ttls(packets: list[Seen], source: str, destination: str) -> list[tuple[str, str, int]]:
    """Return interface, direction and TTL of the packets between two addresses."""
    return [
        (each.interface.rstrip("0123456789") if "qtun" in each.interface else each.interface, direction, each.ttl)
        for each in packets
        if (str(each.source), str(each.destination)) == (source, destination)
        for direction in ("out" if each.is_outgoing else "in",)
    ]
