"""`qtunnel mtu` through a real router, without root's rights to anything: both families, to the byte."""

from __future__ import annotations

import json
import sys

import pytest

from tests.linux.site import PORT, SERVER4, SERVER6, Site

pytestmark = pytest.mark.root


@pytest.mark.parametrize("mtu", [1280, 1337, 1400, 1492])
def test_a_routers_limit_is_found_exactly_with_and_without_icmp(mtu: int) -> None:
    with Site.open() as site:
        site.start_server()
        for silent in (False, True):
            site.r.run(f"ip route replace {SERVER4}/32 dev to-s mtu lock {mtu}")
            site.r.run(f"ip -6 route replace {SERVER6}/128 dev to-s mtu lock {mtu}")
            if silent:
                site.r.run("nft add table inet quiet")
                site.r.run("nft add chain inet quiet out '{ type filter hook output priority 0; }'")
                site.r.run("nft add rule inet quiet out meta l4proto icmp drop")
                site.r.run("nft add rule inet quiet out icmpv6 type packet-too-big drop")
            for version, target in ((4, f"{SERVER4}:{PORT}"), (6, f"[{SERVER6}]:{PORT}")):
                command = f"{sys.executable} -m qtunnel mtu {target} --json"
                found = json.loads(site.client().host.run(command))
                assert (found["version"], found["mtu"], found["limited_by"]) == (version, mtu, "path")
                assert found["is_complete"]
                assert found["probe_bytes"] <= 30_000
