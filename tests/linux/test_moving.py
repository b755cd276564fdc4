"""The ground moves: the client's own address, the server's behind its name, or the clock during a suspend."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.linux.pings import Pinger, assert_reaches, now
from tests.linux.site import HOST4, HOST6, PORT, SERVER4, Client, Site

pytestmark = pytest.mark.root

NAME = "vpn.example.net"
OTHER_SERVER4 = "198.18.9.3"
IMPATIENT = ("--idle-timeout", "3", "--keep-alive", "1", "--handshake-timeout", "2")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        put_server(site, SERVER4)
        start_server(site)
        site.client().join(site.add_user("c1"))
        yield site


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    put_server(site, SERVER4)
    with site.client().running(*IMPATIENT, "--route", "none", "--route", "default") as client:
        yield client


def start_server(site: Site) -> None:
    site.start_server("--advertise", "default", public=f"{NAME}:{PORT}")


def put_server(site: Site, address: str) -> None:
    """Give the server's host this address alone, and its name."""
    site.s.run("ip -4 address flush dev eth0")
    site.s.add_address("eth0", f"{address}/24")
    site.s.run("ip route add default via 198.18.9.1")
    site.set_name(site.client().host, NAME, address)


def change_address(client: Client, old: int, new: int) -> None:
    """As when a laptop changes its network: address and routes go, others come."""
    client.host.run(f"ip address del 198.18.1.{old}/24 dev eth0")
    assert client.host.run("ip route show default") == ""
    client.host.add_address("eth0", f"198.18.1.{new}/24")
    client.host.run("ip route add default via 198.18.1.1")


def test_a_ping_goes_on_when_the_client_gets_another_address(site: Site, client: Client) -> None:
    inner = client.address(4), client.address(6)
    uplink, downlink = Pinger(site, client.host, HOST4), Pinger(site, site.h, inner[1])
    for pinger in (uplink, downlink):
        pinger.wait_for_answer_after(0.0)
    for old, new in ((2, 22), (22, 2)):
        change_address(client, old, new)
        moved = now()
        assert uplink.wait_for_answer_after(moved) < 3.0
        assert downlink.wait_for_answer_after(moved) < 3.0
        (session,) = site.server_status()["sessions"]
        assert session["remote"].startswith(f"198.18.1.{new}:")
    assert (client.address(4), client.address(6)) == inner
    assert client.daemon.text().count("connected to") == 1  # the connection has moved, none was made anew
    for pinger in (uplink, downlink):
        pinger.stop()


def test_a_client_follows_the_name_of_its_server_to_another_address(site: Site, client: Client) -> None:
    inner = client.address(4), client.address(6)
    assert SERVER4 in client.host.run("ip rule")
    put_server(site, OTHER_SERVER4)
    client.wait_up(count=2)
    assert f"connected to {OTHER_SERVER4}:{PORT}" in client.daemon.text()
    rules = client.host.run("ip rule")
    assert OTHER_SERVER4 in rules
    assert SERVER4 not in rules
    assert (client.address(4), client.address(6)) == inner
    assert_reaches(client.host, HOST4, HOST6)


def test_a_server_whose_name_is_no_longer_found_is_tried_where_it_was(site: Site, client: Client) -> None:
    site.set_name(client.host, "elsewhere.example.net", SERVER4)
    site.server.stop(signal.SIGKILL)
    client.daemon.wait_for("^no tunnel")
    start_server(site)
    client.wait_up(count=2)
    assert_reaches(client.host, HOST4, HOST6)


@pytest.mark.parametrize("moves", [False, True], ids=["at home", "elsewhere"])
def test_after_a_suspend_longer_than_the_idle_timeout_traffic_is_back_in_three_seconds(
    site: Site, client: Client, moves: bool
) -> None:
    _suspend(site, client, 4.0, moves=moves)
    assert client.daemon.text().count("connected to") == 2  # the session was over, not merely silent


@pytest.mark.slow
def test_five_minutes_of_suspend_with_the_usual_timeouts(site: Site) -> None:
    put_server(site, SERVER4)
    with site.client().running() as client:
        _suspend(site, client, 300.0, moves=True)


def _suspend(site: Site, client: Client, seconds: float, *, moves: bool) -> None:
    inner = client.address(4), client.address(6)
    uplink, downlink = Pinger(site, client.host, HOST6), Pinger(site, site.h, inner[0])
    for pinger in (uplink, downlink):
        pinger.wait_for_answer_after(0.0)
    client.daemon.send(signal.SIGSTOP)
    time.sleep(seconds)
    if moves:
        change_address(client, 2, 22)
    client.daemon.send(signal.SIGCONT)
    awake = now()
    assert uplink.wait_for_answer_after(awake) < 3.0
    assert downlink.wait_for_answer_after(awake) < 3.0
    assert (client.address(4), client.address(6)) == inner
    assert len(site.server_status()["sessions"]) == 1
    if moves:
        change_address(client, 22, 2)
        downlink.wait_for_answer_after(now())
    for pinger in (uplink, downlink):
        pinger.stop()
