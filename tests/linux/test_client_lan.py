"""A client that carries a LAN: host l behind c1, in 198.18.50.0/24, hidden or as itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.linux.daemons import wait_until
from tests.linux.forged import inject, tun_of, udp_packet
from tests.linux.namespaces import Namespace
from tests.linux.pings import assert_reaches, ping
from tests.linux.site import HOST4, HOST6, INNER4, INNER6, SERVER4, Client, Site, join_hosts
from tests.linux.sniffer import ECHO_REQUESTS, ICMP, ICMPV6, Sniffer

pytestmark = pytest.mark.root

LAN4, LAN6 = "198.18.50.0/24", "2001:db8:50::/64"
L4, L6 = "198.18.50.2", "2001:db8:50::2"
FOREIGN4, FOREIGN6 = "198.18.66.0/24", "2001:db8:66::/64"
"""Networks the user has no permission for."""


@dataclass
class Lan:
    site: Site
    client: Client
    l: Namespace  # noqa: E741 - as in the picture


@pytest.fixture(scope="module")
def lan() -> Iterator[Lan]:
    with Site.open() as site:
        client = site.client()
        behind = site.lab.add("l")
        site.lab.join(client.host, "lan", behind, "eth0")
        join_hosts(client.host, "lan", behind, "eth0", 50)
        site.start_server()
        site.qtunnel(site.s, ["user", "remove", "c1"], owner="s")
        client.join(site.add_user("c1", "--prefix", LAN4, "--prefix", LAN6))
        yield Lan(site, client, behind)


def test_a_masqueraded_lan_reaches_out_under_the_clients_address(lan: Lan) -> None:
    with lan.client.running("--masquerade") as client:
        with Sniffer(lan.site.h, "eth0") as wire:
            assert_reaches(lan.l, HOST4, HOST6, INNER4, INNER6)
            sources = _echo_sources(wire)
        assert sources == {client.address(4), client.address(6)}
        assert ping(lan.site.h, L4, count=1, patience=1) == 0
        assert client.daemon.stop() == 0
    assert lan.client.host.sysctl("net/ipv4/ip_forward") == "0"
    assert lan.client.host.run("nft list ruleset") == ""


def test_cip_89_a_permitted_lan_is_reached_both_ways_as_long_as_the_tunnel_is_there(lan: Lan) -> None:
    site = lan.site
    with lan.client.running("--advertise", LAN4, "--advertise", LAN6) as client:
        wait_until(lambda: LAN4 in site.s.run("ip -4 route"), "the server's route to the LAN")
        assert tun_of(site.s) in site.s.run(f"ip -4 route show {LAN4}")
        assert tun_of(site.s) in site.s.run(f"ip -6 route show {LAN6}")
        with Sniffer(lan.l, "eth0") as wire:
            assert_reaches(site.h, L4, L6)
            sources = _echo_sources(wire)
        assert sources == {HOST4, HOST6}
        assert_reaches(lan.l, HOST4, HOST6)
        (session,) = site.server_status()["sessions"]
        assert session["prefixes"] == [LAN4, LAN6]
        assert client.daemon.stop() == 0
    wait_until(lambda: LAN4 not in site.s.run("ip -4 route"), "the end of the server's route to the LAN")
    wait_until(lambda: LAN6 not in site.s.run("ip -6 route"), "the end of the server's route to the LAN")


def test_a_lan_without_permission_is_refused_with_a_warning(lan: Lan) -> None:
    site = lan.site
    with lan.client.running("--advertise", LAN4, "--advertise", FOREIGN4, "--advertise", FOREIGN6):
        site.server.wait_for(f"user c1 carries {LAN4}; not permitted: {FOREIGN4}, {FOREIGN6}")
        assert f"no permission for: {FOREIGN4}, {FOREIGN6}" in site.server.text()
        wait_until(lambda: LAN4 in site.s.run("ip -4 route"), "the server's route to the LAN")
        assert FOREIGN4 not in site.s.run("ip -4 route show table all")
        assert FOREIGN6 not in site.s.run("ip -6 route show table all")


@pytest.mark.parametrize(
    ("source", "destination", "server", "refusal"),
    [("198.18.66.9", HOST4, INNER4, (ICMP, 3, 13)), ("2001:db8:66::9", HOST6, INNER6, (ICMPV6, 1, 5))],
    ids=["IPv4", "IPv6"],
)
def test_cip_89_a_spoofed_source_never_leaves_the_server_and_is_answered(
    lan: Lan, source: str, destination: str, server: str, refusal: tuple[int, int, int]
) -> None:
    site = lan.site
    # The client itself would stop them, unless it believes that it carries their network.
    with lan.client.running("--advertise", FOREIGN4, "--advertise", FOREIGN6) as client:
        with Sniffer(site.s) as at_server, Sniffer(client.host, tun_of(client.host)) as at_client:
            packet = udp_packet(source, destination)
            inject(client.host, tun_of(client.host), packet, packet, packet)
            wait_until(lambda: site.server_drops("c1").get("source-not-allowed", 0) >= 3, "the drops")
            assert [each for each in at_server.packets() if str(each.source) == source] == []
            answers = [each for each in at_client.packets() if str(each.source) == server]
        assert {(each.protocol, each.payload[0], each.payload[1]) for each in answers} == {refusal}
        assert all(packet.startswith(answer.payload[8:][: len(packet)]) for answer in answers)
        assert {str(each.destination) for each in answers} == {source}


def test_a_packet_with_an_address_of_the_server_as_source_is_dropped_and_counted(lan: Lan) -> None:
    site = lan.site
    with lan.client.running("--advertise", "198.18.0.0/15", "--advertise", "2001:db8::/32") as client:
        sources = (INNER4, SERVER4, "198.18.20.1", INNER6, "2001:db8:20::1")
        with Sniffer(site.s) as at_server:
            for source in sources:
                destination = HOST4 if "." in source else HOST6
                inject(client.host, tun_of(client.host), udp_packet(source, destination, ports=(4004, 5005)))
            wait_until(lambda: site.server_drops("c1").get("own-address-source", 0) == len(sources), "all drops")
            assert [each for each in at_server.packets() if each.protocol == 17 and each.ports[1] == 5005] == []


def _echo_sources(wire: Sniffer) -> set[str]:
    """Return who the echo requests that arrived came from."""
    return {
        str(each.source) for each in wire.packets() if not each.is_outgoing and each.icmp_type in ECHO_REQUESTS
    }
