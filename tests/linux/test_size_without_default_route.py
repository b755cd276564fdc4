"""The server's own TUN says nothing about the size of the path, also where no default route does."""

from __future__ import annotations

import pytest

from tests.linux.site import Site

pytestmark = pytest.mark.root


def test_the_servers_tun_does_not_shrink_what_clients_are_told() -> None:
    with Site.open() as site:
        gateway = site.s.run("ip -4 route show default").split()[2]
        site.s.run(f"ip route add 198.18.0.0/16 via {gateway}")
        for version in ("-4", "-6"):
            site.s.run(f"ip {version} route del default")
        site.start_server()
        client = site.client()
        client.up()
        assert client.status()["inner_mtu"] == 1446
        assert site.server_status()["sessions"][0]["inner_mtu"] == 1446
