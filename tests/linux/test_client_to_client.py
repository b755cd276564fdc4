"""Clients among each other: refused out loud by default, or routed by qtunnel itself where that is allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.linux.daemons import wait_until
from tests.linux.forged import tun_of
from tests.linux.pings import assert_reaches, ping
from tests.linux.site import INNER4, INNER6, Site
from tests.linux.sniffer import ECHO_REQUESTS, ICMP, ICMPV6, Sniffer

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open(clients=("c1", "c2")) as site:
        site.start_server()
        for name in ("c1", "c2"):
            site.client(name).up()
        yield site


def test_clients_do_not_reach_each_other_unless_it_is_allowed(site: Site) -> None:
    first, second = site.client("c1"), site.client("c2")
    refusals = {4: (ICMP, 3, 13, INNER4), 6: (ICMPV6, 1, 1, INNER6)}
    for version, refusal in refusals.items():
        with Sniffer(first.host, tun_of(first.host)) as here, Sniffer(second.host, tun_of(second.host)) as there:
            assert ping(first.host, second.address(version), count=2, patience=1) == 0
            answers = [each for each in here.packets() if not each.is_outgoing]
            assert there.packets() == []
        assert {(each.protocol, each.payload[0], each.payload[1], str(each.source)) for each in answers} == {
            refusal
        }
    assert site.server_drops("c1")["client-to-client-off"] >= 2


def test_cip_67_clients_that_may_reach_each_other_are_one_hop_apart(site: Site) -> None:
    first, second = site.client("c1"), site.client("c2")
    before = {name: site.client(name).daemon.text().count("connected to") for name in ("c1", "c2")}
    site.server.stop()
    site.start_server("--client-to-client")
    for name, count in before.items():
        site.client(name).wait_up(count=count + 1)
    wait_until(lambda: len(site.server_status()["sessions"]) == 2, "both sessions")
    for version in (4, 6):
        with Sniffer(second.host, tun_of(second.host)) as there:
            assert_reaches(first.host, second.address(version))
            arrived = [each for each in there.packets() if each.icmp_type in ECHO_REQUESTS]
        assert {(each.ttl, str(each.source)) for each in arrived} == {(63, first.address(version))}
        shown = first.host.run(f"traceroute -{version} -n -q 1 -w 3 -m 4 {second.address(version)}")
        hops = [line.split()[1] for line in shown.splitlines()[1:]]
        assert hops == [INNER4 if version == 4 else INNER6, second.address(version)]
    assert_reaches(second.host, first.address(4), first.address(6))
