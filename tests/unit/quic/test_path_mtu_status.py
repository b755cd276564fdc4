"""What `qtunnel status` says of a path's MTU."""

from __future__ import annotations

import json

from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.discovery import PathMtuDiscovery
from qtunnel.quic.path_mtu_status import MAX_SIZES, path_mtu_status
from qtunnel.recovery.size_counts import SizeCounts


def test_a_told_size_is_said_to_be_told() -> None:
    status = path_mtu_status(None, 1402, is_ipv6=True, counts=None, now=5.0)
    assert (status["mtu"], status["state"], status["why"]) == (1450, "told", [])


def test_a_found_size_comes_with_its_story_and_how_each_size_fared() -> None:
    discovery = PathMtuDiscovery(PathMtuConfig(interface=1472))
    discovery.on_rtt(0.04, 0.04, 0.04, 0.1)
    discovery.on_confirmed(1.0)
    for number, packet in enumerate(discovery.packets_to_send(1.0, 20_000)):
        if packet.is_probe:
            discovery.on_probe_sent(number, packet, 1.0)
            discovery.on_probes_acked([number], 1.04)
    counts = SizeCounts()
    for size in range(1201, 1240):
        counts[size].sent = 1
    counts[1472].lost = 3
    status = path_mtu_status(discovery, 1472, is_ipv6=False, counts=counts, now=3.0)
    assert (status["mtu"], status["state"], status["since_s"]) == (1500, "search-complete", 2.0)
    assert status["why"][-1]["mtu"] == 1500
    assert status["why"][-1]["ago_s"] == 1.96
    assert "link MTU 1500 is the end" in status["why"][-1]["text"]
    assert status["probes"] >= 1
    assert status["by_size"]["1500"] == {"sent": 0, "acked": 0, "lost": 3}
    assert len(status["by_size"]) == MAX_SIZES
    json.dumps(status)
