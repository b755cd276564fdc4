"""Which packets a client sends into the tunnel: everything, what the server offers, some networks, or nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.linux.forged import tun_of
from tests.linux.pings import assert_reaches, ping
from tests.linux.site import BEHIND4, BEHIND6, HOST4, HOST6, INNER4, POOL4, POOL6, SERVER4, Site
from tests.linux.sniffer import ECHO_REQUESTS, Sniffer

pytestmark = pytest.mark.root

NEIGHBOUR4, NEIGHBOUR6 = "198.18.1.1", "2001:db8:1::1"
ELSEWHERE4, ELSEWHERE6 = "198.51.100.7", "2001:db8:ffff::7"
"""On h: what stands for the internet."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.h.add_address("lo", f"{ELSEWHERE4}/32")
        site.h.add_address("lo", f"{ELSEWHERE6}/128")
        site.s.run(f"ip route add {ELSEWHERE4} via {HOST4}")
        site.s.run(f"ip -6 route add {ELSEWHERE6} via {HOST6}")
        site.start_server("--advertise", "default")
        site.client().join(site.add_user("c1"))
        yield site


def way(site: Site, address: str) -> str:
    """Return the device by which c1 sends packets to an address."""
    words = site.client().host.run(f"ip route get {address}").split()
    return words[words.index("dev") + 1]


@pytest.mark.parametrize("options", [(), ("--route", "default")], ids=["as advertised", "--route default"])
def test_a_full_tunnel_takes_all_but_the_way_to_the_server_and_the_local_network(
    site: Site, options: tuple[str, ...]
) -> None:
    with site.client().running(*options) as client:
        tun = tun_of(client.host)
        assert [way(site, address) for address in (ELSEWHERE4, ELSEWHERE6, HOST4, HOST6)] == [tun] * 4
        assert [way(site, address) for address in (SERVER4, NEIGHBOUR4, NEIGHBOUR6)] == ["eth0"] * 3
        with Sniffer(client.host, "eth0") as wire:
            assert_reaches(client.host, ELSEWHERE4, ELSEWHERE6, HOST4, HOST6)
            outside = [each for each in wire.packets() if each.is_outgoing and each.icmp_type in ECHO_REQUESTS]
            assert outside == []
            assert_reaches(client.host, NEIGHBOUR4, NEIGHBOUR6)
            around = [each for each in wire.packets() if each.is_outgoing and each.icmp_type in ECHO_REQUESTS]
            assert {str(each.destination) for each in around} == {NEIGHBOUR4, NEIGHBOUR6}
        assert "default" in client.host.run("ip route show table main")  # ours is beside it, not instead of it


def test_route_none_leaves_every_route_as_it_was(site: Site) -> None:
    before = [way(site, address) for address in (HOST4, HOST6, ELSEWHERE4, INNER4)]
    assert before == ["eth0"] * 4
    with site.client().running("--route", "none") as client:
        assert [way(site, address) for address in (HOST4, HOST6, ELSEWHERE4, INNER4)] == before
        assert client.host.run("ip route show table 51821", check=False) == ""
        # The tunnel is there all the same: for what is bound to it.
        assert ping(client.host, HOST4, f"-I {tun_of(client.host)}", count=2) == 2
        assert client.status()["state"] == "connected"


def test_only_the_networks_asked_for_enter_the_tunnel(site: Site) -> None:
    options = ("--route", "none", "--route", BEHIND4, "--route", str(POOL6.network))
    with site.client().running(*options) as client:
        tun = tun_of(client.host)
        assert way(site, HOST4) == tun
        assert way(site, str(POOL6.ip)) == tun
        assert [way(site, address) for address in (HOST6, INNER4, ELSEWHERE4)] == ["eth0"] * 3
        assert_reaches(client.host, HOST4, str(POOL6.ip))


def test_a_route_the_server_does_not_offer_is_refused_by_it_out_loud(site: Site) -> None:
    site.server.stop()
    site.start_server()
    with site.client().running("--route", ELSEWHERE4 + "/32") as client:
        shown = client.host.run(f"ping -n -c 1 -W 2 {ELSEWHERE4}", check=False)
        assert f"From {INNER4} icmp_seq=1" in shown
        assert site.server_drops("c1")["destination-not-allowed"] == 1
        assert {BEHIND4, BEHIND6, str(POOL4.network), str(POOL6.network)} == set(client.status()["peer_routes"])


def test_table_and_priorities_are_the_operators_choice(site: Site) -> None:
    with site.client().running("--table", "777", "--priority", "900") as client:
        assert f"dev {tun_of(client.host)}" in client.host.run("ip route show table 777")
        assert "51821" not in client.host.run("ip route show table all")
        rules = client.host.run("ip rule")
        assert f"900:\tfrom all to {SERVER4} lookup main" in rules
        assert "901:\tfrom all lookup main suppress_prefixlength 0" in rules
        assert "902:\tfrom all lookup 777" in rules
        assert "518" not in rules
        with Sniffer(client.host, "eth0") as wire:
            assert_reaches(client.host, HOST4, HOST6)
            assert [each for each in wire.packets() if each.is_outgoing and each.icmp_type in ECHO_REQUESTS] == []
