"""Somebody else deletes the TUN, or takes it down, and its routes with it: the program says so and ends.

Going on would be worse: traffic for the tunnel would leave the host in the clear, with the client "connected".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.linux.forged import tun_of
from tests.linux.pings import assert_reaches
from tests.linux.site import INNER4, UP, Client, Site

pytestmark = pytest.mark.root

TUN_LOST = 15


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        site.client().join(site.add_user("c1"))
        yield site


CHANGES = ["ip link del {}", "ip link set {} down"]


@pytest.mark.parametrize("change", CHANGES, ids=["deleted", "down"])
def test_a_client_whose_tun_is_taken_away_ends_with_a_clear_message(site: Site, change: str) -> None:
    client: Client = site.client()
    rules = client.host.run("ip rule")
    client.start()
    client.wait_up()
    name = tun_of(client.host)
    client.host.run(change.format(name))
    assert client.daemon.wait() == TUN_LOST
    assert re.search(rf"^qtunnel: {name} was .* by another program", client.daemon.text(), re.MULTILINE)
    assert client.host.run("ip rule") == rules
    assert "qtun" not in client.host.run("ip -o link")


@pytest.mark.parametrize("change", CHANGES, ids=["deleted", "down"])
def test_a_server_whose_tun_is_taken_away_ends_and_serves_again_when_restarted(site: Site, change: str) -> None:
    client = site.client()
    with client.running("--reconnect-max", "0.5"):
        site.s.run(change.format(tun_of(site.s)))
        assert site.server.wait() == TUN_LOST
        assert "by another program" in site.server.text()
        site.start_server()
        client.daemon.wait_for(UP, count=2)
        assert_reaches(client.host, INNER4)


def test_a_tun_deleted_while_the_server_is_away_ends_the_client_at_its_return(site: Site) -> None:
    client = site.client()
    client.start("--reconnect-max", "0.5")
    client.wait_up()
    site.server.stop()
    client.daemon.wait_for("trying again in")
    client.host.run(f"ip link del {tun_of(client.host)}")
    site.start_server()
    assert client.daemon.wait() == TUN_LOST
    assert "by another program" in client.daemon.text()
