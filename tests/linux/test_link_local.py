"""What belongs to one link stays there: none of the kernel's own enters the tunnel, nothing link-local leaves."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network

import pytest

from tests.linux.daemons import wait_until
from tests.linux.forged import inject, tun_of, udp_packet
from tests.linux.pings import ping
from tests.linux.site import HOST4, HOST6, INNER6, Site
from tests.linux.sniffer import ICMPV6, Seen, Sniffer

pytestmark = pytest.mark.root

NEIGHBOUR_DISCOVERY = range(133, 138)
MULTICAST_LISTENER = (130, 131, 132, 143)
IGMP = 2
PORTS = (4006).to_bytes(2) + (5006).to_bytes(2)
"""To know a packet of ours again, also inside an ICMP error; outside the tunnel it is encrypted."""
LINK_LOCAL = [ip_network(each) for each in ("fe80::/10", "169.254.0.0/16", "ff02::/16", "224.0.0.0/24")]


def is_link_local(packet: Seen) -> bool:
    return any(
        address in network
        for address in (packet.source, packet.destination)
        for network in LINK_LOCAL
        if network.version == address.version
    )


def is_own_chatter(packet: Seen) -> bool:
    """Say whether this is what a kernel sends by itself on an interface: RS, NS, MLD, IGMP."""
    kinds = (*NEIGHBOUR_DISCOVERY, *MULTICAST_LISTENER)
    return packet.protocol == IGMP or (packet.protocol == ICMPV6 and packet.icmp_type in kinds)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        yield site


def test_cip_65_nothing_of_the_kernels_own_comes_out_of_the_tunnel(site: Site) -> None:
    client = site.client()
    with Sniffer(site.s) as at_server, Sniffer(client.host) as at_client:
        site.start_server()
        client.up()
        assert ping(client.host, HOST6, count=2) == 2
        seen = at_server.packets(settle=2.0), at_client.packets()
    # What qtunnel writes to a TUN arrives there; what the kernel hands to it is outgoing.
    out_of_tunnel = [[each for each in packets if _on_tun(each) and not each.is_outgoing] for packets in seen]
    assert all(out_of_tunnel)
    assert [each for packets in out_of_tunnel for each in packets if is_own_chatter(each)] == []
    assert "inet6 fe80" not in client.host.run(f"ip -6 address show {tun_of(client.host)}")
    assert "inet6 fe80" not in site.s.run(f"ip -6 address show {tun_of(site.s)}")
    # The kernel asks for no router and no neighbour on a TUN at all.
    into_tun = [each for packets in seen for each in packets if _on_tun(each) and each.is_outgoing]
    assert [each for each in into_tun if each.icmp_type in NEIGHBOUR_DISCOVERY and each.protocol == ICMPV6] == []


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("169.254.7.7", "far"),
        ("near", "169.254.7.7"),
        ("near", "224.0.0.251"),
        ("fe80::7", "far"),
        ("near", "fe80::7"),
        ("near", "ff02::fb"),
    ],
)
def test_cip_69_link_local_packets_never_leave_the_tunnel_they_came_from(
    site: Site, source: str, destination: str
) -> None:
    client = site.client()
    version = 6 if ":" in source + destination else 4
    inner, far = client.address(version), HOST4 if version == 4 else HOST6
    for host, drops, near_far in (
        (client.host, lambda: client.status()["drops"], {"near": inner, "far": far}),
        (site.s, lambda: _all_server_drops(site), {"near": far, "far": inner}),
    ):
        packet = udp_packet(
            near_far.get(source, source), near_far.get(destination, destination), ports=(4006, 5006)
        )
        before = drops().get("link-local", 0)
        with Sniffer(site.s) as at_server, Sniffer(client.host) as at_client:
            inject(host, tun_of(host), packet)
            wait_until(lambda now=drops, old=before: now().get("link-local", 0) > old, "the drop to be counted")
            seen = [*at_server.packets(), *at_client.packets()]
        copies = [each for each in seen if PORTS in each.data]
        assert [(each.interface, each.is_outgoing) for each in copies] == [(tun_of(host), True)]


def _all_server_drops(site: Site) -> dict[str, int]:
    """Return what the server dropped in its session and outside any."""
    session, rest = site.server_drops("c1"), site.server_drops()
    return {name: session.get(name, 0) + rest.get(name, 0) for name in {*session, *rest}}


def test_cip_70_all_nodes_on_the_tunnel_answer_with_an_address_of_theirs(site: Site) -> None:
    client = site.client()
    shown = client.host.run(
        f"ping -6 -n -c 2 -W 2 -I {client.address(6)} ff02::1%{tun_of(client.host)}", check=False
    )
    assert INNER6 in shown, shown


def _on_tun(packet: Seen) -> bool:
    return packet.interface.startswith("qtun")
