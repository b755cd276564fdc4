"""DSCP and ECN: inner marks arrive as they were sent, in both directions, and nothing of them shows outside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.linux.forged import inject, tun_of, udp_packet
from tests.linux.site import HOST4, HOST6, PORT, Site
from tests.linux.sniffer import UDP, Sniffer

pytestmark = pytest.mark.root

EF, AF41, LE = 46, 34, 1
CLASSES = [dscp << 2 | ecn for dscp in (0, LE, AF41, EF) for ecn in range(4)]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        site.client().up()
        yield site


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_dse_01_dse_07_cip_84_cip_85_inner_marks_stay_and_outer_packets_have_none(
    site: Site, direction: str, version: int
) -> None:
    client = site.client()
    inner, far = client.address(version), HOST4 if version == 4 else HOST6
    ends = (inner, far) if direction == "up" else (far, inner)
    packets = [udp_packet(*ends, traffic_class=each, ports=(4000 + each, 5000)) for each in CLASSES]
    with (
        Sniffer(site.r, "to-c1") as outside,
        Sniffer(site.h, "eth0") as at_host,
        Sniffer(client.host, tun_of(client.host)) as at_client,
    ):
        if direction == "up":
            inject(client.host, tun_of(client.host), *packets)
        else:
            # Into the TUN of the server, as if its kernel had routed them there.
            inject(site.s, tun_of(site.s), *packets)
        arrived = (at_host if direction == "up" else at_client).packets()
        outer = [each for each in outside.packets() if each.protocol == UDP and PORT in each.ports]
    marks = {
        each.ports[0] - 4000: each.traffic_class
        for each in arrived
        if each.protocol == UDP and each.ports[1] == 5000 and not each.is_outgoing
    }
    assert marks == {each: each for each in CLASSES}
    assert len(outer) >= 2
    assert {each.traffic_class for each in outer} == {0}
