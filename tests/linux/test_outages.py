"""The server goes away, comes back, or is not there yet: the client waits, and is itself again at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.linux.pings import Pinger, assert_reaches, now, ping
from tests.linux.site import HOST4, HOST6, Client, Site
from tests.linux.sniffer import Sniffer

pytestmark = pytest.mark.root

QUICK = ("--handshake-timeout", "0.5", "--reconnect-max", "0.5")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        site.client().join(site.add_user("c1"))
        yield site


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    if site.server.code is not None:
        site.start_server()
    with site.client().running() as client:
        yield client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_restarted_server_has_its_client_back_with_the_same_addresses(
    site: Site, client: Client, number: signal.Signals
) -> None:
    inner = client.address(4), client.address(6)
    uplink = Pinger(site, client.host, HOST4)
    uplink.wait_for_answer_after(0.0)
    site.server.stop(number)
    site.start_server()
    serving = now()
    client.wait_up(count=2)
    assert uplink.wait_for_answer_after(serving) < 5.0
    assert (client.address(4), client.address(6)) == inner
    assert_reaches(site.h, *inner)
    if number == signal.SIGKILL:
        # Not found by a timeout (30 s): the new server said by a stateless reset that it does not know us.
        assert "no longer knows this connection" in client.daemon.text()
    uplink.stop()


def test_a_client_started_before_its_server_can_be_reached_connects_when_it_can(site: Site) -> None:
    site.server.stop()
    client = site.client()
    site.r.run("ip link set to-s down")
    client.start(*QUICK)
    client.daemon.wait_for("trying again in", count=2)
    site.r.run("ip link set to-s up")
    # Now there is a host that says the port is closed.
    client.daemon.wait_for("trying again in", count=4)
    assert client.status()["state"] in ("connecting", "waiting to reconnect")
    site.start_server()
    client.wait_up()
    assert_reaches(client.host, HOST4, HOST6)
    assert client.daemon.stop() == 0


def test_while_the_tunnel_is_down_its_packets_leave_by_no_other_way(site: Site, client: Client) -> None:
    site.server.stop()
    client.daemon.wait_for("^no tunnel")
    with Sniffer(client.host, "eth0") as wire:
        assert ping(client.host, HOST4, count=2, patience=1) == 0
        assert ping(client.host, HOST6, count=2, patience=1) == 0
        outside = wire.packets()
    assert [each for each in outside if str(each.destination) in (HOST4, HOST6)] == []
    assert "qtun" in client.host.run(f"ip route get {HOST4}")
