"""Transfers over two TUNs, with and without offloads, and what arrives is what was sent."""

from __future__ import annotations

import pytest

from tests.linux.site import INNER4, Site
from tests.linux.tun_pair import pair

pytestmark = pytest.mark.root


@pytest.mark.parametrize("offload", [True, False], ids=["offload", "plain"])
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("sender", [0, 1])
def test_50_mb_arrive_unchanged_whatever_the_size_of_the_writes(offload: bool, version: int, sender: int) -> None:
    with pair(offload=offload) as (hosts, forwarder):
        hosts.transfer(sender, version, 45_000_000, 300_000)
        hosts.transfer(sender, version, 5_000_000, 5_000)
        reader, writer = hosts.tuns[sender].counters, hosts.tuns[1 - sender].counters
    assert forwarder.wrong == 0
    assert forwarder.refused == 0
    if offload:
        assert reader.super_packets_read > 100
        assert writer.coalesced_writes > 100
        assert writer.offload_fallbacks == 0
        assert forwarder.longest_burst > 46
    else:
        assert reader.super_packets_read == writer.coalesced_writes == 0
    assert reader.bad_frames == writer.bad_frames == 0


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("gro", [True, False], ids=["gro", "no-gro"])
@pytest.mark.parametrize(("size", "per_send"), [(1200, 40), (201, 64)])
def test_segmented_sends_of_udp_arrive_unchanged_and_in_order(
    version: int, gro: bool, size: int, per_send: int
) -> None:
    with pair() as (hosts, forwarder):
        largest = hosts.send_datagrams(version, size, per_send, gro=gro)
        reader, writer = hosts.tuns[0].counters, hosts.tuns[1].counters
    assert forwarder.wrong == 0
    assert forwarder.refused == 0
    assert reader.super_packets_read >= 200
    assert writer.coalesced_writes >= 200
    assert (largest > 10 * size) if gro else (largest == size)


@pytest.mark.parametrize(("option", "is_on"), [("--tun-offload", "on"), ("--no-tun-offload", "off")])
def test_each_end_has_a_switch(option: str, is_on: str) -> None:
    with Site.open() as site:
        site.start_server(option)
        client = site.client()
        client.up(option)
        client.host.run(f"ping -c1 -W5 {INNER4}")
        for host in (client.host, site.s):
            features = host.run("ethtool -k qtun0")
            assert f"tcp-segmentation-offload: {is_on}" in features
            assert f"tx-udp-segmentation: {is_on}" in features
